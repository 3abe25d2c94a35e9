package batch_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// begin runs the next message beside the test.
func (r *rig) begin(f *memory.Faults, life time.Duration) <-chan batch.Outcome {
	r.t.Helper()
	d, ok := r.receive()
	if !ok {
		r.t.Fatal("no message to run")
	}
	done := make(chan batch.Outcome, 1)
	go func() { done <- r.runDelivery(r.t.Context(), f, d, life) }()
	return done
}

// setBatch changes the batch behind everybody's back.
func (r *rig) setBatch(change func(*batch.Batch)) {
	b, _ := r.m.Table.Batch(tenant, batchID)
	change(&b)
	r.m.Table.SeedBatch(b)
}

// steal gives the part to another owner, as a thief would whose clock is ahead.
func (r *rig) steal(n int) {
	p := r.part(n)
	p.Owner, p.LeaseUntil = "thief", time.Now().Add(2*time.Minute)
	p.Ver++
	r.m.Table.SeedPart(p)
}

func TestHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, after(100*time.Second))
		f := memory.NewFaults()
		done := r.begin(f, life)
		r.pass(95 * time.Second)
		if n := f.Count("Claims.Heartbeat"); n != 3 {
			t.Errorf("%d heartbeats in 95 s, want one each 30 s", n)
		}
		if n := f.Count("Queue.Hide"); n != 4 {
			t.Errorf("message hidden %d times, want once at first and with each heartbeat", n)
		}
		if left := time.Until(r.m.Queue.Messages()[0].Visible); left != 115*time.Second {
			t.Errorf("message hidden for another %s, want 1m55s", left)
		}
		if left := time.Until(r.part(0).LeaseUntil); left != 115*time.Second {
			t.Errorf("lease runs for another %s, want 1m55s", left)
		}
		expect(t, <-done, true, "done")
	})
}

func TestMissedHeartbeatIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, after(115*time.Second))
		f := memory.NewFaults()
		for n := 1; n <= 10; n++ {
			f.Before("Claims.Heartbeat", n, memory.Fail(nil))
		}
		expect(t, r.run(f, life), true, "done")
		r.conserved()
	})
}

// A worker that can't prove that it still holds the part stops by its own
// clock: no request and no write after the lease.
func TestLapsedByOwnClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 2000, after(3*time.Second))
		f := memory.NewFaults()
		start := time.Now()
		for _, op := range []string{"Claims.Heartbeat", "Claims.Checkpoint", "Claims.Fail", "Claims.HandOver"} {
			f.Before(op, 0, func(context.Context, memory.Point) error {
				if held := time.Since(start); held >= 120*time.Second {
					t.Errorf("%s tried %s after the claim", op, held)
				}
				return memory.ErrInjected
			})
		}
		expect(t, r.run(f, life), false, "lost")
		if took := time.Since(start); took != 120*time.Second {
			t.Errorf("stopped after %s, want at the lease's end", took)
		}
		if now, _ := r.model.InFlight(); now != 0 {
			t.Errorf("%d requests still under way", now)
		}
	})
}

// C7 or C8 refused: cancel everything, write nothing, return the message as
// failed; the other hand goes on.
func TestLostClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			d := time.Second
			if c.Line >= 90 && c.Line < 100 {
				d = 100 * time.Second
			}
			return after(d)(ctx, c)
		}
		r := newRig(t, 200, 100, slow)
		f := memory.NewFaults()
		done := r.begin(f, life)
		r.pass(5 * time.Second)
		r.steal(0)
		stolen := r.part(0)
		out := <-done
		expect(t, out, false, "lost")
		if out.Tally.Done != 1 || r.part(1).State != batch.Done {
			t.Errorf("the other hand did not go on: %+v, part 1 %s", out.Tally, r.part(1).State)
		}
		now := r.part(0)
		if now.Ver != stolen.Ver || now.Owner != "thief" {
			t.Errorf("written after the loss: %+v", now)
		}
		if f.Count("Claims.HandOver")+f.Count("Claims.Fail") != 0 {
			t.Error("the lost part was given back")
		}
		if got := len(r.m.Queue.Messages()); got != 1 {
			t.Errorf("%d messages, want the lost part's", got)
		}
	})
}

func TestLostClaimCancelsRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var cancelled atomic.Int64
		r := newRig(t, 10, 10, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			err := memory.Wait(ctx, 110*time.Second)
			if err != nil {
				cancelled.Add(1)
			}
			return batch.Reply{Status: 200, Body: []byte("{}")}, err
		})
		done := r.begin(nil, life)
		r.pass(10 * time.Second)
		r.steal(0)
		start := time.Now()
		expect(t, <-done, false, "lost")
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("noticed after %s, want at the next heartbeat", took)
		}
		if cancelled.Load() != 10 {
			t.Errorf("%d of 10 requests cancelled", cancelled.Load())
		}
		if keys := r.m.Objects.Keys(results); len(keys) != 0 {
			t.Errorf("chunks written after the loss: %v", keys)
		}
	})
}

func TestLostClaimIsNoticedAtCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 2000, after(time.Second))
		done := r.begin(nil, life)
		r.pass(5500 * time.Millisecond)
		r.steal(0)
		start := time.Now()
		expect(t, <-done, false, "lost")
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("noticed after %s, want at the next checkpoint, well before a heartbeat", took)
		}
	})
}

// Step 6: the batch is looked at every 5 s at most; when it is cancelled nothing
// more is sent, what is under way is kept, and nobody is asked to go on.
func TestCancelledBatchDrains(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*batch.Batch)
		gone   bool
	}{
		{name: "cancelled", change: func(b *batch.Batch) { b.Ending = batch.Cancelled }},
		{name: "expired", change: func(b *batch.Batch) { b.Ending = batch.Expired }},
		{name: "terminal", change: func(b *batch.Batch) { b.Status = batch.Failed }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 500, 500, after(2*time.Second))
				done := r.begin(nil, life)
				r.pass(9 * time.Second)
				cancelled := time.Now()
				r.setBatch(c.change)
				expect(t, <-done, true, "ended")
				if took := time.Since(cancelled); took > 8*time.Second {
					t.Errorf("drained after %s, want 5 s for the look and 2 s for the replies at most", took)
				}
				sent := len(r.model.Calls())
				if sent > 7*32 {
					t.Errorf("%d lines sent, want none later than 5 s after the cancel", sent)
				}
				if got := len(r.records()); got != sent {
					t.Errorf("%d results of %d lines sent were kept", got, sent)
				}
				p := r.part(0)
				if p.State != batch.Pending || p.Attempts != 0 {
					t.Errorf("part is %s after %d attempts", p.State, p.Attempts)
				}
				r.queueEmpty()
			})
		})
	}
}

func TestEndedBatchIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 10, 10, nil)
		r.setBatch(func(b *batch.Batch) { b.Ending = batch.Cancelled })
		expect(t, r.run(nil, life), true, "ended")
		if n := len(r.model.Calls()); n != 0 {
			t.Errorf("%d lines sent for a cancelled batch", n)
		}
		if p := r.part(0); p.State != batch.Pending || p.Attempts != 0 {
			t.Errorf("part is %s after %d attempts", p.State, p.Attempts)
		}
	})
}

// A worker that stood still before it claimed has an old view of the batch. It
// looks again; it has not looked in vain, and no attempt is burnt for it.
func TestOldViewIsLookedAtAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2, 1, after(9300*time.Millisecond))
		r.opts.Lease, r.opts.LookEvery, r.opts.LineTimeout = 24*time.Second, 12*time.Second, 20*time.Second
		first, _ := r.receive()
		second, _ := r.receive()
		if err := r.m.Queue.Hide(t.Context(), second, 8900*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		f := memory.NewFaults()
		hang := func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, time.Minute) }
		f.Before("Queue.Hide", 3, hang) // the second is a heartbeat of the first part
		for n := 2; n <= 5; n++ {
			f.Before("Claims.Claim", n, hang)
		}
		r.runDelivery(t.Context(), f, first, life)
		if p := r.part(1); p.State != batch.Done || p.LastError != "" || f.Count("Claims.Fail") != 0 {
			t.Errorf("part %+v", p)
		}
		r.settle()
		r.conserved()
	})
}

// Promise 7: a line is sent on a view that is at most 5 s old, also when the
// table doesn't answer.
func TestStaleViewSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1000, 1000, after(time.Second))
		f := memory.NewFaults()
		gate := memory.NewGate()
		f.Before("Batches.Get", 2, gate.Wait)
		done := r.begin(f, life)
		r.pass(10 * time.Second)
		if n := len(r.model.Calls()); n != 6*32 {
			t.Errorf("%d lines sent in 10 s without a look, want 6 times 32", n)
		}
		gate.Open()
		expect(t, <-done, true, "done")
		r.conserved()
	})
}

func TestUnseenBatchFailsThePart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1000, 1000, after(time.Second))
		f := memory.NewFaults()
		f.Before("Batches.Get", 0, memory.Fail(nil))
		expect(t, r.run(f, life), false, "failed")
		if p := r.part(0); p.State != batch.Pending || p.Attempts != 1 || !strings.Contains(p.LastError, "injected") {
			t.Errorf("part %+v", p)
		}
	})
}

func TestOneLookForTwoHands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 20, 10, after(100*time.Second))
		f := memory.NewFaults()
		expect(t, r.run(f, life), true, "done")
		if n := f.Count("Batches.Get"); n > 26 {
			t.Errorf("%d looks in 100 s by two hands of one batch, want one each 4 s", n)
		}
	})
}

// A checkpoint prolongs the lease as a heartbeat does.
func TestCheckpointProlongsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 3000, 3000, after(2*time.Second))
		f := memory.NewFaults()
		f.Before("Claims.Heartbeat", 0, memory.Fail(nil))
		start := time.Now()
		expect(t, r.run(f, life), true, "done")
		if took := time.Since(start); took < 150*time.Second {
			t.Errorf("took %s, want longer than the first lease", took)
		}
		r.conserved()
	})
}

// The shortest lease that the settings allow, and odd ones above it.
func TestShortLeases(t *testing.T) {
	for _, lease := range []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second, 19 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 200, 200, after(time.Second))
				r.opts.Concurrency = 10
				r.opts.Lease = lease
				f := memory.NewFaults()
				start := time.Now()
				expect(t, r.run(f, life), true, "done")
				if looks := f.Count("Batches.Get"); looks < int(time.Since(start)/max(lease/4, time.Second)) {
					t.Errorf("%d looks in %s", looks, time.Since(start))
				}
				r.conserved()
			})
		})
	}
}

// olderLook makes a run whose second hand began its look at the batch before, and
// got its answer after, a newer look of the first: at 10 s and 23 s, and at 20 s.
// change is made at 15 s.
func olderLook(t *testing.T, change func(*rig)) (r *rig, f *memory.Faults, done <-chan batch.Outcome) {
	r = newRig(t, 20, 10, after(100*time.Second))
	f = memory.NewFaults()
	// The first hand's next look hangs, so that the view is old when the other takes
	// its part.
	f.Before("Batches.Get", 2, memory.NewGate().Wait)
	f.After("Batches.Get", 3, func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 13*time.Second) })
	d, _ := r.receive()
	other, _ := r.receive() // hidden from the run for now
	out := make(chan batch.Outcome, 1)
	go func() { out <- r.runDelivery(t.Context(), f, d, life) }()
	r.pass(9500 * time.Millisecond)
	if err := r.m.Queue.Hide(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	r.pass(5500 * time.Millisecond)
	if n := f.Count("Batches.Get"); n != 3 {
		t.Fatalf("%d looks at 15 s, want one that hung and one that is under way", n)
	}
	change(r)
	r.pass(8500 * time.Millisecond) // 23.5 s
	return r, f, out
}

// It must not make a cancelled batch run again.
func TestOlderLookDoesNotReviveABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f, done := olderLook(t, func(r *rig) { r.setBatch(func(b *batch.Batch) { b.Ending = batch.Cancelled }) })
		<-done
		if n := f.Count("Objects.Open"); n != 1 {
			t.Errorf("input opened %d times: the second part was begun although its batch was seen cancelled", n)
		}
		if n := len(r.model.Calls()); n != 10 {
			t.Errorf("%d lines sent, want the first part's 10", n)
		}
	})
}

// It must not make a fresh view old either: nobody could send until the next look.
func TestOlderLookDoesNotAgeTheView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f, done := olderLook(t, func(*rig) {})
		if n := f.Count("Batches.Get"); n != 4 {
			t.Errorf("%d looks at 23.5 s, want the next one 4 s after the newest", n)
		}
		if n := len(r.model.Calls()); n != 20 {
			t.Errorf("%d lines sent at 23.5 s, want all on a view of 3.5 s", n)
		}
		expect(t, <-done, true, "done")
		r.conserved()
	})
}
