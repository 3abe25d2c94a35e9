package batch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// die lets a process claim a part and end, so often.
func (r *rig) die(times int) {
	r.t.Helper()
	for range times {
		for len(r.m.Queue.Messages()) > 0 && r.m.Queue.Messages()[0].Visible.After(time.Now()) {
			r.pass(time.Second)
		}
		f := memory.NewFaults()
		r.runCrash(f, func(crash memory.Hook) {
			f.After("Claims.Claim", 1, func(ctx context.Context, p memory.Point) error {
				if r.part(0).State == batch.Leased && r.part(0).LeaseUntil.After(time.Now()) {
					return crash(ctx, p)
				}
				return nil
			})
			f.After("Claims.Steal", 1, crash)
		})
		r.pass(126 * time.Second)
	}
}

// Three deaths without progress, and the part is dead: declared by whoever comes
// next, told once, its message acked. It waits for a redrive, and runs after one.
func TestThreeDeathsAndDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, after(time.Second))
		m := r.observe()
		r.die(3)
		before := r.part(0)
		if before.State != batch.Leased || before.Attempts != 3 || before.Lapses != 2 {
			t.Fatalf("part %+v", before)
		}
		start := time.Now()
		f := memory.NewFaults()
		f.After("Deaths.Declare", 1, memory.Fail(nil)) // its answer is lost
		expect(t, r.run(f, life), true, "dead")
		r.queueEmpty()
		p := r.part(0)
		if p.State != batch.Dead || p.Lapses != 3 || !p.DeadAt.Equal(start) || p.Due.Sub(p.DeadAt) != time.Hour {
			t.Errorf("part %+v", p)
		}
		if m.of(batch.MetricDeadParts) != 1 || m.of(batch.MetricLeaseExpired) != 1 { // the others' deaths took it with them
			t.Errorf("%v dead, %v lapses", m.of(batch.MetricDeadParts), m.of(batch.MetricLeaseExpired))
		}
		events := r.events(batch.EventDead, batch.EventLeaseExpired)
		if got := kinds(events); !slices.Equal(got, []batch.EventKind{batch.EventLeaseExpired, batch.EventDead}) || events[1].ID() != batch.DeathOf(p).ID() {
			t.Errorf("events %+v", events)
		}
		// A copy of the message finds it so, and tells nothing new. Not in the very
		// instant of the death: by that one's own is known.
		r.pass(time.Second)
		r.sendMessage(0)
		expect(t, r.run(nil, life), true, "dead")
		if m.of(batch.MetricDeadParts) != 1 || len(r.events(batch.EventDead)) != 1 {
			t.Errorf("%v dead, events %+v", m.of(batch.MetricDeadParts), r.events(batch.EventDead))
		}
		r.redrive()
		r.settle()
		r.conserved()
	})
}

// redrive is an operator's.
func (r *rig) redrive() {
	r.t.Helper()
	p, err := r.m.Table.Deaths.Redrive(r.t.Context(), r.part(0), time.Now().Add(5*time.Minute), time.Now())
	must(r.t, err)
	must(r.t, r.m.Queue.Send(r.t.Context(), batch.MessageOf(p), 0))
}

// An operator redrives the part just when its message is about to be acked: the
// new message is there, and the part runs.
func TestRedriveWhileTheMessageIsAcked(t *testing.T) {
	for _, op := range []string{"Events.Record", "Queue.Delete"} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, 5, 5, after(time.Second))
			p := r.part(0)
			p.Attempts, p.TaskToken = 3, "task-0"
			r.m.Table.SeedPart(p)
			f := memory.NewFaults()
			f.Before(op, 1, func(context.Context, memory.Point) error { r.redrive(); return nil })
			expect(t, r.run(f, life), true, "dead")
			// A run that still has time may take the redriven part's message itself.
			if left, state := r.m.Queue.Messages(), r.part(0).State; len(left) != 1 && state != batch.Done {
				t.Fatalf("messages %+v, and the part is %s", left, state)
			}
			r.settle()
			r.conserved()
		})
	}
}

// A part with a suspect is never dead, whatever its attempts: that line is dealt
// with first.
func TestSuspectKeepsFromDeath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, after(time.Second))
		for _, state := range []batch.State{batch.Pending, batch.Leased} {
			p := r.part(0)
			p.State, p.Attempts, p.Suspect = state, 7, batch.Suspect{Line: 2, Strikes: 1, By: "dead"}
			if state == batch.Leased {
				p.Owner, p.LeaseUntil = "dead", time.Now().Add(-time.Minute)
			}
			r.m.Table.SeedPart(p)
			expect(t, r.run(nil, 180*time.Second), true, "yielded") // no line is sent
			if p := r.part(0); p.State != batch.Pending || p.Suspect.Strikes != 1 || p.Attempts != 7 {
				t.Errorf("part %+v", p)
			}
		}
		r.settle()
		r.conserved()
	})
}

// Somebody else was faster, or the part has attempts again.
func TestDeathOverruled(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*batch.Part)
		ack       bool
		why       string
	}{
		"it has attempts again": {func(p *batch.Part) { p.Attempts, p.Ver = 0, p.Ver+1 }, false, "exhausted"},
		"it has a suspect":      {func(p *batch.Part) { p.Suspect, p.Ver = batch.Suspect{Strikes: 1}, p.Ver+1 }, false, "exhausted"},
		"it is held": {func(p *batch.Part) {
			p.State, p.Owner, p.LeaseUntil, p.Ver = batch.Leased, "other", time.Now().Add(time.Minute), p.Ver+1
		}, false, "held"},
		"it is sealed": {func(p *batch.Part) { p.State, p.Ver = batch.Sealed, p.Ver+1 }, true, "over"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 5, 5, after(time.Second))
				p := r.part(0)
				p.Attempts, p.TaskToken = 3, "task-0"
				r.m.Table.SeedPart(p)
				m := r.observe()
				f := memory.NewFaults()
				f.Before("Deaths.Declare", 1, func(context.Context, memory.Point) error {
					c.meanwhile(&p)
					r.m.Table.SeedPart(p)
					return nil
				})
				expect(t, r.run(f, life), c.ack, c.why)
				if m.of(batch.MetricDeadParts) != 0 || len(r.events(batch.EventDead)) != 0 {
					t.Error("a death was told of")
				}
				if left := r.m.Queue.Messages(); !c.ack && time.Until(left[0].Visible) > 70*time.Second {
					t.Errorf("comes back in %s", time.Until(left[0].Visible))
				}
			})
		})
	}
}

// A suspect keeps its part from death so that the line is dealt with. Where workers
// fail for another reason before they can, each time, the part dies all the same;
// and not while it has not had more claims than a suspect may need.
func TestFailuresOutlastASuspect(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, 20, 20, after(time.Second))
			m := r.observe()
			p := r.part(0)
			p.Attempts, p.Suspect = attempts, batch.Suspect{Line: 3, Strikes: 1, By: "gone"}
			r.m.Table.SeedPart(p)
			for range 20 {
				f := memory.NewFaults()
				f.Before("Objects.Open", 0, memory.Fail(nil))
				if d, ok := r.receive(); ok {
					before := r.part(0)
					r.runDelivery(t.Context(), f, d, life)
					if now := r.part(0); now.Suspect != before.Suspect && now.Attempts != 5 {
						t.Errorf("the suspect is forgotten after %d attempts", now.Attempts)
					}
				}
				r.pass(15 * time.Minute)
			}
			if p := r.part(0); p.State != batch.Dead || p.Attempts != 5 || !p.Suspect.None() || p.LastError == "" || m.of(batch.MetricDeadParts) != 1 {
				t.Errorf("part %s after %d attempts, suspect %+v, error %q", p.State, p.Attempts, p.Suspect, p.LastError)
			}
			if n := len(r.model.Calls()); n != 0 {
				t.Errorf("%d lines were sent", n)
			}
		})
	}
}
