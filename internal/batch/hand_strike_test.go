package batch_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// What makes a worker give up a line that was to go alone takes its strike back,
// and no other claim's.
func TestStrikesAreTakenBack(t *testing.T) {
	refused := reply(503, `{}`)
	refused.RetryAfter = 90 * time.Second
	for name, c := range map[string]struct {
		answer answerer
		life   time.Duration
		cancel bool
		why    string
	}{
		"handed over for patience": {answer: script(refused), life: life, why: "yielded"},
		"failed":                   {answer: script(batch.ErrNoCredential), life: life, why: "failed"},
		"cancelled":                {answer: script(reply(500, `{}`)), life: life, cancel: true, why: "ended"},
		"out of time":              {answer: script(reply(500, `{}`)), life: 181 * time.Second, why: "yielded"},
	} {
		for _, found := range []batch.Suspect{{}, {Line: 4, Strikes: 1, By: "dead"}} {
			t.Run(fmt.Sprint(name, " ", found.Strikes), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, 10, 10, c.answer)
					r.opts = batch.RunnerOptions{Concurrency: 4, Floor: 4, Ceiling: 4, Tries: 100}
					p := r.part(0)
					p.Attempts, p.Suspect = 1, found
					r.m.Table.SeedPart(p)
					f := memory.NewFaults()
					done := r.begin(f, c.life)
					if c.cancel {
						r.pass(2 * time.Second)
						r.setBatch(func(b *batch.Batch) { b.Ending = batch.Cancelled })
					}
					if out := <-done; out.Why != c.why {
						t.Errorf("outcome %+v", out)
					}
					if n := f.Count("Claims.Suspect"); n == 0 || c.why != "ended" && c.life == life && n != 1 {
						t.Errorf("%d suspects written", n)
					}
					got := r.part(0)
					got.Suspect.By = found.By
					if got.Suspect != found || got.State != batch.Pending {
						t.Errorf("suspect %+v of a part that is %s, want %+v", got.Suspect, got.State, found)
					}
					attempts := 1
					if c.why == "failed" {
						attempts = 2
					}
					if got.Attempts != attempts || got.Begun != 0 || got.Repeats != 0 {
						t.Errorf("%d attempts, %d begun, %d repeats", got.Attempts, got.Begun, got.Repeats)
					}
				})
			})
		}
	}
}

// A suspect that can't be written gives the part back in time; one of unknown fate
// is written again, and no line is sent without.
func TestSuspectThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := loneRig(t, after(time.Second))
		d := r.deliveryOf(1)
		f := memory.NewFaults()
		f.Before("Claims.Suspect", 0, memory.Fail(nil))
		start := time.Now()
		expect(t, r.runDelivery(t.Context(), f, d, life), false, "failed")
		if took := time.Since(start); took < time.Minute || took > 80*time.Second {
			t.Errorf("gave up after %s, want about half a lease", took)
		}
		if n := len(r.model.Calls()); n != 0 {
			t.Errorf("%d lines were sent", n)
		}
	})
	bubble(t, func(t *testing.T) {
		r := loneRig(t, after(time.Second))
		d := r.deliveryOf(1)
		f := memory.NewFaults()
		f.After("Claims.Suspect", 1, memory.Fail(nil))
		f.Before("Claims.Suspect", 3, memory.Fail(nil))
		r.runDelivery(t.Context(), f, d, life)
		r.settle()
		r.conserved()
		if n := r.repeats(); n != 0 {
			t.Errorf("%d repeats", n)
		}
	})
}

// A worker that stands still, with a line alone in flight, while another takes the
// part over: it wakes up and writes nothing, and sends nothing.
func TestZombieInLoneMode(t *testing.T) {
	for _, metric := range []batch.Metric{batch.MetricClaims, batch.MetricCompleted} {
		t.Run(string(metric), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := loneRig(t, after(time.Second))
				m := r.observe()
				var slept atomic.Bool
				asleep := make(chan struct{})
				m.on = func(told batch.Metric) {
					if told == metric && slept.CompareAndSwap(false, true) {
						close(asleep)
						r.pass(10 * time.Minute) // the whole worker
					}
				}
				zombie := memory.NewFaults()
				d := r.deliveryOf(1)
				done := make(chan batch.Outcome, 1)
				go func() { done <- r.runDelivery(t.Context(), zombie, d, time.Hour) }()
				<-asleep
				r.pass(130 * time.Second)
				expect(t, r.runDelivery(t.Context(), nil, r.deliveryOf(1), life), true, "done")
				before, calls := r.part(1), len(r.model.Calls())
				expect(t, <-done, false, "lost")
				if now := r.part(1); now.Ver != before.Ver || now.Owner != before.Owner {
					t.Errorf("the zombie wrote: %+v", now)
				}
				if n := len(r.model.Calls()); n != calls {
					t.Errorf("the zombie sent %d lines", n-calls)
				}
				r.settle()
				r.conserved()
				if before.Steals != 1 || before.Lapses != 1 {
					t.Errorf("%d steals, %d lapses", before.Steals, before.Lapses)
				}
			})
		})
	}
}

// A line that answers with errors of the moment waits between its tries, for minutes
// in all, with nothing in flight. A worker that dies in a wait doesn't die of it, however
// often; one that dies while the line is sent does.
func TestNoBlameForWaiting(t *testing.T) {
	const bad = 23
	for name, c := range map[string]struct {
		status int
		after  time.Duration // of the death, from when the line is sent
		blamed []int64
	}{
		"dies while it waits":          {500, 150 * time.Millisecond, nil},
		"dies while it waits, refused": {503, 150 * time.Millisecond, nil},
		"dies while it is sent":        {500, 25 * time.Millisecond, []int64{bad}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var kill func()
				r := loneRig(t, func(ctx context.Context, c2 batch.Call) (batch.Reply, error) {
					if c2.Line == bad && kill != nil {
						time.AfterFunc(c.after, kill)
						kill = nil
						// The answer names the wait: chance alone could make it shorter than life.
						answer := reply(c.status, `{}`)
						answer.RetryAfter = 5 * time.Second
						return answer, memory.Wait(ctx, 50*time.Millisecond)
					}
					return after(50*time.Millisecond)(ctx, c2)
				})
				for range 2 {
					f := memory.NewFaults()
					alive, die := context.WithCancel(t.Context())
					kill = func() {
						f.Crash(alive, memory.Point{})
						die()
					}
					r.runDelivery(alive, f, r.deliveryOf(1), life)
					if s := r.part(1).Suspect; s.None() == (c.blamed != nil) {
						t.Errorf("suspect %+v", s)
					}
					r.pass(3 * time.Minute)
				}
				r.settle()
				if got := r.blamed(); !slices.Equal(got, c.blamed) {
					t.Errorf("blamed %v, want %v", got, c.blamed)
				}
			})
		})
	}
}

// A strike that can't be taken back gives the part back, which takes it back.
func TestStrikeThatCannotBeLifted(t *testing.T) {
	for when, fail := range map[string]func(*memory.Faults){
		"before": func(f *memory.Faults) { f.Before("Claims.Suspect", 2, memory.Fail(nil)) },
		"after":  func(f *memory.Faults) { f.After("Claims.Suspect", 2, memory.Fail(nil)) },
	} {
		t.Run(when, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := loneRig(t, script(reply(500, `{}`)))
				f := memory.NewFaults()
				fail(f)
				expect(t, r.runDelivery(t.Context(), f, r.deliveryOf(1), life), true, "yielded")
				if p := r.part(1); p.State != batch.Pending || !p.Suspect.None() || p.Attempts != 1 {
					t.Errorf("part %+v", p)
				}
			})
		})
	}
}
