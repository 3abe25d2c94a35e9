package batch_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestRunWholeBatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1000, 250, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			// Replies come in an order of their own.
			return after(time.Duration(500+c.Line*37%1000)*time.Millisecond)(ctx, c)
		})
		out := r.run(nil, life)
		expect(t, out, true, "done")
		if want := (batch.Tally{Parts: 4, Done: 4, Lines: 1000, Tries: 1000}); out.Tally != want {
			t.Errorf("tally %+v, want %+v", out.Tally, want)
		}
		r.conserved()
		r.queueEmpty()
		r.reported("task-0", "task-1", "task-2", "task-3")
		if _, most := r.model.InFlight(); most != 32 {
			t.Errorf("%d in flight at once over all hands, want 32", most)
		}
	})
}

func TestRunSkipsDoneLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 300, 300, after(time.Second))
		f := memory.NewFaults()
		r.runCrash(f, func(crash memory.Hook) { f.After("Claims.Checkpoint", 2, crash) })
		if p := r.part(0); p.Processed == 0 || p.Processed == 300 {
			t.Fatalf("%d lines committed by the first worker", p.Processed)
		}
		before := r.records()
		r.settle()
		r.conserved()
		for line := range before {
			if n := r.model.Count(tenant, batchID, line); n != 1 {
				t.Errorf("committed line %d was sent %d times", line, n)
			}
		}
	})
}

func TestRunHidesBeforeClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 10, 10, nil)
		f := memory.NewFaults()
		r.run(f, life)
		calls := f.Calls()
		if len(calls) < 2 || calls[0].Op != "Queue.Hide" || calls[1].Op != "Claims.Claim" {
			t.Errorf("first steps are %v", calls[:min(2, len(calls))])
		}
	})
}

// A message hidden for the lease only, not for the queue's default.
func TestRunShortensVisibility(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, after(time.Minute))
		start := time.Now()
		f := memory.NewFaults()
		r.runCrash(f, func(crash memory.Hook) { f.After("Claims.Claim", 1, crash) })
		if got := r.m.Queue.Messages()[0].Visible; !got.Equal(start.Add(120 * time.Second)) {
			t.Errorf("visible again at %s, want at the lease's end", got.Sub(start))
		}
	})
}

func TestClaimAnswers(t *testing.T) {
	until := 50 * time.Second
	for _, c := range []struct {
		name    string
		seed    func(*rig, *batch.Part)
		ack     bool
		why     string
		visible time.Duration
		reports int
	}{
		{"held", func(_ *rig, p *batch.Part) {
			p.State, p.Owner, p.LeaseUntil = batch.Leased, "other", time.Now().Add(until)
		}, false, "held", until + 6*time.Second, 0},
		{"held and lapsed, by no more than clocks may differ", func(_ *rig, p *batch.Part) {
			p.State, p.Owner, p.LeaseUntil = batch.Leased, "other", time.Now().Add(-5*time.Second)
		}, false, "held", time.Second, 0},
		{"done", func(_ *rig, p *batch.Part) { p.State = batch.Done }, true, "over", 0, 1},
		{"sealed", func(_ *rig, p *batch.Part) { p.State = batch.Sealed }, true, "over", 0, 1},
		{"dead", func(_ *rig, p *batch.Part) { p.State, p.TaskToken = batch.Dead, "task-0" }, true, "dead", 0, 0},
		{"dead, without this message's task token", func(_ *rig, p *batch.Part) {
			p.State, p.TaskToken, p.Due = batch.Dead, "an older one", time.Now().Add(40*time.Minute)
		}, false, "dead", 41 * time.Minute, 0},
		{"exhausted", func(_ *rig, p *batch.Part) { p.Attempts, p.TaskToken = 3, "task-0" }, true, "dead", 0, 0},
		{"gone", func(_ *rig, p *batch.Part) { p.N = 7 }, true, "gone", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 5, 5, nil)
				p := r.part(0)
				r.m = memory.New(memory.Options{})
				c.seed(r, &p)
				r.m.Table.SeedPart(p)
				r.sendMessage(0)
				start := time.Now()
				expect(t, r.run(nil, life), c.ack, c.why)
				if c.ack {
					r.queueEmpty()
				} else if got := r.m.Queue.Messages()[0].Visible.Sub(start); got != c.visible {
					t.Errorf("visible again after %s, want %s", got, c.visible)
				}
				if got := len(r.m.Workflow.Reports()); got != c.reports {
					t.Errorf("%d reports, want %d", got, c.reports)
				}
				if n := len(r.model.Calls()); n != 0 {
					t.Errorf("%d lines were sent", n)
				}
			})
		})
	}
}

func TestClaimLostAnswerIsRecognised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		f := memory.NewFaults()
		f.After("Claims.Claim", 1, memory.Fail(nil))
		expect(t, r.run(f, life), true, "done")
		r.conserved()
	})
}

func TestClaimOfUnknownFateGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		f := memory.NewFaults()
		f.Before("Claims.Claim", 0, memory.Fail(nil))
		expect(t, r.run(f, life), false, "failed")
		if n := f.Count("Claims.Claim"); n != 5 {
			t.Errorf("%d claims, want 5", n)
		}
	})
}

func TestNewerMessageIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		d, _ := r.receive()
		d.V = 2
		expect(t, r.runDelivery(t.Context(), nil, d, life), false, "refused")
		if r.part(0).State != batch.Pending {
			t.Error("part was claimed")
		}
	})
}

// Step 8: first the table, then the workflow; a failed report comes back.
func TestFinishThenReport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		f := memory.NewFaults()
		f.Before("Workflow.Report", 0, func(context.Context, memory.Point) error {
			if got := r.part(0).State; got != batch.Done {
				t.Errorf("reported while the part is %s", got)
			}
			return memory.ErrInjected
		})
		expect(t, r.run(f, life), false, "unreported")
		r.reported()
		visible := r.m.Queue.Messages()[0].Visible
		if wait := time.Until(visible); wait != 10*time.Second {
			t.Errorf("comes back after %s, want 10s", wait)
		}
		r.pass(time.Until(visible))
		expect(t, r.run(nil, life), true, "over")
		r.reported("task-0")
		r.queueEmpty()
		r.conserved()
	})
}

func TestTaskTokenReachesTheClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, nil)
		r.run(nil, life)
		if got := r.part(0).TaskToken; got != "task-0" {
			t.Errorf("task token %q", got)
		}
	})
}

// Step 4: the next message is taken while the tail drains, and not before.
func TestNextPartWhileTailDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			d := time.Second
			if c.Line == 99 {
				d = 20 * time.Second
			}
			return after(d)(ctx, c)
		}
		r := newRig(t, 300, 100, slow)
		start := time.Now()
		expect(t, r.run(nil, life), true, "done")
		// 100 lines a part at 32 a second; the slow line of part 0 delays neither
		// part 1 nor part 2 beyond its own 20 s, and the third part waits until a
		// hand is free.
		if took := time.Since(start); took > 26*time.Second {
			t.Errorf("took %s", took)
		}
		r.conserved()
	})
}

// However short its parts are, a run holds eight at most.
func TestEightHandsAtMost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 9, 1, after(time.Minute))
		d, _ := r.receive()
		done := make(chan batch.Outcome)
		go func() { done <- r.runDelivery(t.Context(), nil, d, life) }()
		r.pass(30 * time.Second)
		leased := 0
		for _, p := range r.m.Table.PartsOf(tenant, batchID) {
			if p.State == batch.Leased {
				leased++
			}
		}
		if leased != 8 {
			t.Errorf("%d parts in hand, want 8", leased)
		}
		for _, m := range r.m.Queue.Messages() {
			if m.Part == 8 && m.Receives != 0 {
				t.Error("the ninth message was received although all hands are full")
			}
		}
		<-done
		r.settle()
		r.conserved()
	})
}

// A part is not taken while those in hand have lines to send: somebody else may
// have nothing to do.
func TestNoPartIsTakenEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 200, 100, after(time.Second))
		f := memory.NewFaults()
		done := r.begin(f, life)
		r.pass(1500 * time.Millisecond) // 64 of 100 lines are sent
		if n := f.Count("Queue.Receive"); n != 0 {
			t.Errorf("%d messages asked for while 36 lines wait for 32 slots", n)
		}
		r.pass(time.Second) // 96 are
		if n := f.Count("Queue.Receive"); n != 1 {
			t.Errorf("%d messages asked for when 4 lines wait for 32 slots, want 1", n)
		}
		expect(t, <-done, true, "done")
		r.conserved()
	})
}

func TestEmptyQueueIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 20, 10, after(30*time.Second))
		d, _ := r.receive()
		other, _ := r.receive() // hidden from the run for now
		done := make(chan batch.Outcome)
		go func() { done <- r.runDelivery(t.Context(), nil, d, life) }()
		r.pass(10 * time.Second)
		if err := r.m.Queue.Hide(t.Context(), other, 0); err != nil {
			t.Fatal(err)
		}
		if out := <-done; out.Tally.Done != 2 {
			t.Errorf("%d parts done, want 2", out.Tally.Done)
		}
	})
}

func TestAbandonedAtUntilOrWhenContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, func(ctx context.Context, _ batch.Call) (batch.Reply, error) {
			<-ctx.Done()
			return batch.Reply{}, ctx.Err()
		})
		r.opts.LineTimeout = time.Hour
		r.opts.Margin = time.Second
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		d, _ := r.receive()
		expect(t, r.runDelivery(ctx, nil, d, 2*time.Hour), false, "abandoned")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %s after its context ended at 3s", took)
		}
	})
}

func TestRunnerOptions(t *testing.T) {
	r := newRig(t, 1, 1, nil)
	ports := func() batch.RunnerPorts {
		var p batch.RunnerPorts
		r.ports = func(q *batch.RunnerPorts) { p = *q }
		r.runner(nil)
		return p
	}()
	if _, err := batch.NewRunner(batch.RunnerPorts{}, nil); err == nil {
		t.Error("no ports: accepted")
	}
	for want, o := range map[string]batch.RunnerOptions{
		"4 times Heartbeat":   {Lease: 10 * time.Second, Heartbeat: 3 * time.Second},
		"at most 12h":         {Lease: 12 * time.Hour},
		"half of Lease":       {Lease: 8 * time.Second, LookEvery: 5 * time.Second},
		"between Floor and":   {Concurrency: 4, Floor: 5},
		"Floor and Ceiling":   {Concurrency: 40, Ceiling: 39},
		"Tries is negative":   {Tries: -1},
		"LongWait is negativ": {LongWait: -1},
	} {
		if _, err := batch.NewRunner(ports, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want something about %q", o, err, want)
		}
	}
	if _, err := batch.NewRunner(ports, nil); err != nil {
		t.Error(err)
	}
}
