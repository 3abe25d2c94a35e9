package batch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// lapsedRig has a part whose holder died a while ago, with so many lines begun.
func lapsedRig(t *testing.T, begun int) (*rig, batch.Part) {
	r := newRig(t, 20, 20, after(time.Second))
	p := r.part(0)
	p.State, p.Owner, p.Ver, p.Attempts, p.Begun, p.Repeats = batch.Leased, "dead", 7, 1, begun, 3
	p.LeaseUntil = time.Now().Add(-5*time.Second - time.Millisecond)
	r.m.Table.SeedPart(p)
	return r, r.part(0)
}

// kinds are those of events, in their order.
func kinds(events []batch.Event) (all []batch.EventKind) {
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return all
}

// A part whose holder went without a word is stolen by whoever receives its
// message (C6), and that is told: also when the answer was lost.
func TestSteal(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r, before := lapsedRig(t, 9)
			m := r.observe()
			f := memory.NewFaults()
			if lost {
				f.After("Claims.Steal", 1, memory.Fail(nil))
			}
			start := time.Now()
			expect(t, r.run(f, life), true, "done")
			p := r.part(0)
			if p.Steals != 1 || p.Lapses != 1 || p.Repeats != 3+9 || p.Begun != 0 {
				t.Errorf("part %+v", p)
			}
			for metric, want := range map[batch.Metric]float64{
				batch.MetricClaims: 1, batch.MetricSteals: 1, batch.MetricLeaseExpired: 1, batch.MetricRepeats: 9, batch.MetricCompleted: 20, batch.MetricFailed: 0,
			} {
				if got := m.of(metric); got != want {
					t.Errorf("%s: %v, want %v", metric, got, want)
				}
			}
			events := r.events()
			if got := kinds(events); !slices.Equal(got, []batch.EventKind{batch.EventLeaseExpired, batch.EventStolen}) {
				t.Fatalf("events %v", got)
			}
			// A reaper that noticed the same lapse would tell the same event.
			want := batch.Event{Tenant: tenant, Batch: batchID, Part: 0, At: before.LeaseUntil, Ver: before.Ver + 1,
				Kind: batch.EventLeaseExpired, Owner: "dead", Attempt: 1}
			if events[0].ID() != want.ID() || events[0].Owner != want.Owner || events[0].Attempt != want.Attempt {
				t.Errorf("event %+v, want %+v", events[0], want)
			}
			if stolen := events[1]; stolen.Owner != p.Owner || stolen.Attempt != 2 || stolen.Ver != before.Ver+1 || stolen.At.Before(start) {
				t.Errorf("event %+v", stolen)
			}
			r.conserved()
		})
	}
}

// What others do between the look at a lapsed part and the steal of it.
func TestStealOverruled(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(r *rig, p batch.Part)
		ack       bool
		why       string
		visible   time.Duration
		steals    float64
	}{
		"its holder was only slow": {func(r *rig, p batch.Part) {
			until := time.Now().Add(2 * time.Minute)
			must(r.t, r.m.Table.Claims.Heartbeat(r.t.Context(), batch.Claim{PartKey: p.PartKey, Token: p.Owner}, 9, until, time.Now()))
		}, false, "held", 2*time.Minute + 6*time.Second, 0},
		"another thief was faster": {func(r *rig, p batch.Part) {
			now := time.Now()
			_, err := r.m.Table.Claims.Steal(r.t.Context(), batch.Claim{PartKey: p.PartKey, Token: "thief"}, "", p.Ver, 9, now, now.Add(time.Minute), now)
			must(r.t, err)
		}, false, "held", time.Minute + 6*time.Second, 0},
		"it was reaped": {func(r *rig, p batch.Part) {
			_, err := r.m.Table.Reaps.Reap(r.t.Context(), p, time.Now(), time.Now(), time.Now())
			must(r.t, err)
		}, true, "done", 0, 0},
		"it was sealed": {func(r *rig, p batch.Part) {
			_, err := r.m.Table.Seals.Seal(r.t.Context(), p.PartKey, p.Ver, time.Now())
			must(r.t, err)
		}, true, "over", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, p := lapsedRig(t, 9)
				m := r.observe()
				f := memory.NewFaults()
				f.Before("Claims.Steal", 1, func(context.Context, memory.Point) error { c.meanwhile(r, p); return nil })
				start := time.Now()
				expect(t, r.run(f, life), c.ack, c.why)
				if !c.ack {
					if got := r.m.Queue.Messages()[0].Visible.Sub(start); got != c.visible {
						t.Errorf("visible again after %s, want %s", got, c.visible)
					}
					if n := len(r.model.Calls()); n != 0 {
						t.Errorf("%d lines were sent", n)
					}
				}
				if got := m.of(batch.MetricSteals); got != c.steals || len(r.events(batch.EventStolen)) != 0 {
					t.Errorf("%v steals, events %v", got, kinds(r.events()))
				}
			})
		})
	}
}

// What a dead worker had under way by its last heartbeat counts as repeated, and
// what was checkpointed is not sent again.
func TestRepeatsOfACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 40, 40, after(50*time.Second))
		r.opts = batch.RunnerOptions{Concurrency: 4, Floor: 4, Ceiling: 4, CheckpointLines: 4}
		m := r.observe()
		k := &killer{after: []time.Duration{70 * time.Second}}
		r.process(k)
		if p := r.part(0); p.Begun != 4 || p.Processed != 4 {
			t.Fatalf("%d begun, %d processed", p.Begun, p.Processed)
		}
		r.survive(k)
		r.conserved()
		p := r.part(0)
		if n := r.repeats(); n != 4 || p.Repeats != 4 || m.of(batch.MetricRepeats) != 4 {
			t.Errorf("%d lines were sent again; the part says %d, the metric %v", n, p.Repeats, m.of(batch.MetricRepeats))
		}
	})
}

// Events are told beside the work. A table that doesn't take them costs the run a
// moment at its end, and nothing else.
func TestEventsDelayNothing(t *testing.T) {
	hang := func(ctx context.Context, _ memory.Point) error { <-ctx.Done(); return ctx.Err() }
	for name, hook := range map[string]memory.Hook{"fail": memory.Fail(nil), "hang": hang} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 320, 32, after(time.Second))
				f := memory.NewFaults()
				f.Before("Events.Record", 0, hook)
				start := time.Now()
				expect(t, r.run(f, life), true, "done")
				if took := time.Since(start); took > 10*time.Second+5*time.Second {
					t.Errorf("took %s, want the 10 s of the work and hardly more", took)
				}
				if at := r.m.Workflow.Reports(); len(at) != 10 {
					t.Errorf("%d reports", len(at))
				}
				r.conserved()
			})
		})
	}
}

// The life of a part that is handed over and fails, in its events.
func TestEventsOfAClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, after(time.Second))
		expect(t, r.run(nil, 180*time.Second), true, "yielded")
		f := memory.NewFaults()
		f.Before("Batches.Get", 0, memory.Fail(nil))
		expect(t, r.run(f, life), false, "failed")
		r.settle()
		events := r.events()
		want := []batch.EventKind{batch.EventClaimed, batch.EventHandedOver, batch.EventClaimed, batch.EventFailed, batch.EventClaimed}
		if got := kinds(events); !slices.Equal(got, want) {
			t.Fatalf("events %v, want %v", got, want)
		}
		for i, attempt := range []int{1, 1, 1, 1, 2} {
			if e := events[i]; e.Attempt != attempt || e.Owner == "" || e.Check() != nil {
				t.Errorf("event %+v, want attempt %d", e, attempt)
			}
		}
		if events[1].Reason != "too little time is left for another line" || events[3].Reason != r.part(0).LastError {
			t.Errorf("reasons %q, %q", events[1].Reason, events[3].Reason)
		}
	})
}

// SlotUse is the share of the slots that were at work while the run had lines.
func TestSlotUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 3200, 400, after(time.Second))
		m := r.observe()
		expect(t, r.run(nil, life), true, "done")
		if got := m.of(batch.MetricSlotUse); got < 99 || got > 100 {
			t.Errorf("slot use %v of 100 rounds of 32 lines", got)
		}
		r.conserved()
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, 4, 4, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			return after(time.Duration(c.Line+1)*time.Second)(ctx, c)
		})
		r.opts.Concurrency = 4
		m := r.observe()
		expect(t, r.run(nil, life), true, "done")
		if got := m.of(batch.MetricSlotUse); got != 100.0*(1+2+3+4)/16 {
			t.Errorf("slot use %v, want 62.5", got)
		}
	})
}
