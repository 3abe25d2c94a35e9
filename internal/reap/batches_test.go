package reap_test

import (
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// dueNow has the batch looked at in the next round.
func dueNow(b *batch.Batch) { b.Due = time.Now().Add(-time.Millisecond) }

// next demands when the batch is looked at again.
func (w *world) next(b batch.Batch, d time.Duration) {
	w.t.Helper()
	if got := time.Until(w.see(b).Due); got != d {
		w.t.Errorf("looked at again in %v, want %v", got, d)
	}
}

// Nothing is wrong: the batch is looked at every ten minutes, and at its deadline.
func TestBatchThatIsWell(t *testing.T) {
	for name, change := range map[string]func(*batch.Batch){
		"validating":  func(b *batch.Batch) { b.Status = batch.Validating },
		"in progress": func(*batch.Batch) {},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.change(w.batch(1), func(b *batch.Batch) { change(b); dueNow(b) })
				w.idle()
				w.next(b, 10*time.Minute)
				if now := w.see(b); now.Ver != b.Ver {
					t.Errorf("a look moved its version to %d", now.Ver)
				}
				w.change(b, func(b *batch.Batch) { dueNow(b); b.Deadline = time.Now().Add(7 * time.Minute) })
				w.idle()
				w.next(b, 7*time.Minute)
				w.runs(b, b.ID)
				w.told(b)
			})
		})
	}
}

// A new batch is looked at soon: its execution may never have begun.
func TestBatchThatNeverStarted(t *testing.T) {
	in(t, func(w *world) {
		b := batch.Batch{Tenant: acme, ID: "batch_never0000000000001", Status: batch.Validating, Ver: 1, CreatedAt: time.Now(), Deadline: time.Now().Add(time.Hour), Due: time.Now()}
		b.Workflow = b.ID
		w.truth.Table.SeedBatch(b)
		after(time.Millisecond)
		w.did(reap.Report{Started: 1})
		w.runs(b, b.ID)
		w.told(b, batch.EventRestarted)
		w.next(b, time.Minute)
		after(time.Minute + time.Millisecond)
		w.idle()
		w.next(b, 10*time.Minute)
	})
}

// An execution that fell is replaced, under the next name; after five of them one
// an hour is started, until somebody has cured what is wrong.
func TestExecutionsThatFall(t *testing.T) {
	for name, change := range map[string]func(*batch.Batch){
		"validating":  func(b *batch.Batch) { b.Status = batch.Validating },
		"in progress": func(*batch.Batch) {},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.change(w.batch(1), change)
				w.part(b, 0, nil)
				want := []string{b.ID}
				for _, more := range []string{"-2", "-3", "-4", "-5"} {
					w.truth.Workflow.Kill(want[len(want)-1])
					b = w.change(w.see(b), dueNow)
					w.did(reap.Report{Started: 1})
					want = append(want, b.ID+more)
					w.runs(b, want...)
					w.next(b, time.Minute)
				}
				w.truth.Workflow.Kill(b.ID + "-5")
				began, hours := time.Now(), 0
				for time.Since(began) < 5*time.Hour {
					after(time.Minute)
					w.part(b, 0, nil) // its message is no matter here
					if rep := w.round(); rep.Started > 0 {
						hours++
						all := w.executions(b)
						w.truth.Workflow.Kill(all[len(all)-1])
					}
				}
				if hours < 5 || hours > 6 {
					t.Errorf("%d more in five hours: %v", hours, w.executions(b))
				}
				for len(w.executions(b)) == len(want)+hours {
					after(time.Minute)
					w.part(b, 0, nil)
					w.round()
				}
				all := w.executions(b)
				for range 6 * 60 { // the last one lives
					after(time.Minute)
					w.part(b, 0, nil)
					w.round()
				}
				w.runs(b, all...)
				if now := w.see(b); now.Status == batch.InProgress {
					e := batch.NewEnder(w.truth.Table.Batches, w.truth.Table.Endings, w.truth.Workflow)
					if _, err := e.Cancel(w.t.Context(), b.Tenant, b.ID, time.Now()); err != nil {
						t.Error(err)
					}
					if last := all[len(all)-1]; !w.truth.Workflow.Stopped(last) {
						t.Errorf("%s goes on after a cancel", last)
					}
				}
			})
		})
	}
}

// Nothing is left to run and nobody is there to see it: an execution that only
// finishes is started, once while it runs.
func TestPartsAreOverAndNobodyFinishes(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(2)
		w.truth.Workflow.Kill(b.ID)
		done := func(p *batch.Part) { p.State, p.Due = batch.Done, time.Time{} }
		w.part(b, 0, done)
		w.change(b, dueNow)
		w.did(reap.Report{Started: 1}) // part 1 is missing: not over
		w.truth.Workflow.Kill(b.ID + "-2")
		w.part(b, 1, done)
		w.change(b, dueNow)
		w.did(reap.Report{Finished: 1})
		w.runs(b, b.ID, b.ID+"-2", batch.FinishName(b))
		w.change(b, dueNow)
		w.idle()
		w.truth.Workflow.Kill(batch.FinishName(b))
		w.change(b, dueNow)
		w.did(reap.Report{Finished: 1})
		w.runs(b, b.ID, b.ID+"-2", batch.FinishName(b), batch.FinishName(b)+"-2")
	})
}

// A report was lost, and an execution waits that would only try again in hours.
func TestPartsAreOverAndTheirExecutionWaits(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(2)
		w.part(b, 0, func(p *batch.Part) { p.State, p.Due = batch.Done, time.Time{} })
		w.part(b, 1, func(p *batch.Part) { p.State, p.Due = batch.Sealed, time.Time{} })
		after(10*time.Minute + time.Millisecond)
		w.did(reap.Report{Finished: 1})
		w.runs(b, b.ID, batch.FinishName(b))
		if w.truth.Workflow.Stopped(b.ID) {
			t.Error("it was stopped: it may be about to finish the batch itself")
		}
	})
}

// A batch is past its window: it ends as expired, whatever it was doing, and
// whoever waited for its parts is stopped.
func TestExpiry(t *testing.T) {
	in(t, func(w *world) {
		b := w.change(w.batch(2), func(b *batch.Batch) { b.Deadline = time.Now().Add(time.Minute); b.Due = b.Deadline })
		w.part(b, 0, func(p *batch.Part) {
			p.State, p.Owner, p.LeaseUntil = batch.Leased, "worker", time.Now().Add(time.Hour)
		})
		w.idle()
		after(time.Minute + time.Millisecond)
		w.did(reap.Report{Expired: 1})
		now := w.see(b)
		if now.Status != batch.InProgress || now.Ending != batch.Expired || !now.EndingAt.Equal(time.Now()) {
			t.Errorf("batch %+v", now)
		}
		w.runs(b, b.ID, batch.FinishName(now))
		if !w.truth.Workflow.Stopped(b.ID) {
			t.Error("its execution goes on")
		}
		w.told(b, batch.EventEnding)
		w.next(b, time.Minute)
		after(time.Minute + time.Millisecond)
		w.idle() // while its workers drain
		w.next(b, time.Minute)
		if w.metrics[batch.MetricOverdue] != 0 {
			t.Errorf("metrics %v", w.metrics)
		}
		after(time.Hour)
		w.did(reap.Report{Overdue: 1})
		if w.metrics[batch.MetricOverdue] != 1 {
			t.Errorf("metrics %v", w.metrics)
		}
	})
}

// One that is still validated is planned to its end, so that each of its lines can
// be answered.
func TestExpiryWhileValidating(t *testing.T) {
	for _, fallen := range []bool{false, true} {
		in(t, func(w *world) {
			b := w.change(w.batch(0), func(b *batch.Batch) { b.Status, b.Deadline = batch.Validating, time.Now(); dueNow(b) })
			want := []string{b.ID}
			if fallen {
				w.truth.Workflow.Kill(b.ID)
				want = append(want, b.ID+"-2")
			}
			if rep := w.round(); rep.Expired != 1 || rep.Finished != 0 {
				t.Errorf("%+v", rep)
			}
			if now := w.see(b); now.Status != batch.Validating || now.Ending != batch.Expired {
				t.Errorf("batch %+v", now)
			}
			w.runs(b, want...)
			if w.truth.Workflow.Stopped(b.ID) {
				t.Error("its execution was stopped")
			}
		})
	}
}

// One that is being finished has its ending: it completes, however late.
func TestDeadlineWhileFinalizing(t *testing.T) {
	in(t, func(w *world) {
		b := w.change(w.batch(1), func(b *batch.Batch) {
			b.Status, b.Ending, b.Finalizer, b.Deadline = batch.Finalizing, batch.Completed, "finisher", time.Now()
			b.FinalizerUntil = time.Now().Add(2 * time.Minute)
			dueNow(b)
		})
		w.part(b, 0, func(p *batch.Part) { p.State, p.Due = batch.Done, time.Time{} })
		w.idle()
		w.next(b, 2*time.Minute+6*time.Second)
		after(2*time.Minute + 5*time.Second) // its lease is over, and two clocks may differ
		w.change(w.see(b), dueNow)
		w.idle()
		after(time.Second + time.Millisecond)
		w.did(reap.Report{Finished: 1})
		if now := w.see(b); now.Ending != batch.Completed {
			t.Errorf("batch %+v", now)
		}
		w.runs(b, b.ID, batch.FinishName(b))
	})
}

// An ending that was decided and not handed on, whoever died in between.
func TestEndingWithoutAFinisher(t *testing.T) {
	for _, ending := range []batch.Status{batch.Cancelled, batch.Expired, batch.Completed} {
		in(t, func(w *world) {
			b := w.change(w.batch(1), func(b *batch.Batch) { b.Ending, b.EndingAt = ending, time.Now(); dueNow(b) })
			w.did(reap.Report{Finished: 1})
			w.runs(b, b.ID, batch.FinishName(b))
			if stopped := w.truth.Workflow.Stopped(b.ID); stopped != (ending != batch.Completed) {
				t.Errorf("%s: stopped %t", ending, stopped)
			}
		})
	}
}

// Stopping the one that waits fails after the other has begun: the next look stops
// it.
func TestExpiryStopsInTheEnd(t *testing.T) {
	in(t, func(w *world) {
		b := w.change(w.batch(1), func(b *batch.Batch) { b.Deadline = time.Now(); dueNow(b) })
		w.faults.Before("Workflow.Stop", 0, memory.Fail(nil))
		rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
		if err != nil || rep.Expired != 1 || rep.Failed != 1 {
			t.Errorf("%+v, %v", rep, err)
		}
		w.restart()
		after(time.Minute + time.Millisecond)
		w.idle()
		if !w.truth.Workflow.Stopped(b.ID) {
			t.Error("its execution goes on")
		}
		w.runs(b, b.ID, batch.FinishName(w.see(b)))
	})
}

// What is known of a batch may be older than what is seen of its executions: one
// that was finished meanwhile is not begun again.
func TestFinishedBetweenTwoReads(t *testing.T) {
	in(t, func(w *world) {
		b := w.change(w.batch(1), dueNow)
		w.part(b, 0, nil)
		w.faults.Before("Workflow.Seen", 1, aside(func() {
			w.truth.Workflow.End(b.ID)
			w.change(b, func(b *batch.Batch) { b.Status, b.Ver = batch.Completed, b.Ver+3 })
		}))
		w.idle()
		w.runs(b, b.ID)
		if now := w.see(b); now.Status != batch.Completed {
			t.Errorf("batch %+v", now)
		}
	})
}

// Something was heard of an execution: its batch is looked at now, due or not.
func TestLook(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		w.part(b, 0, nil)
		look := func() reap.Report {
			rep, err := w.reaper.Look(w.t.Context(), b.Tenant, b.ID, time.Now())
			if err != nil {
				t.Error(err)
			}
			return rep
		}
		if rep := look(); rep != (reap.Report{}) {
			t.Errorf("%+v", rep)
		}
		w.truth.Workflow.Kill(b.ID)
		if rep := look(); rep != (reap.Report{Started: 1}) {
			t.Errorf("%+v", rep)
		}
		w.runs(b, b.ID, b.ID+"-2")
		w.change(b, func(b *batch.Batch) { b.Status = batch.Cancelled })
		if rep := look(); rep != (reap.Report{}) {
			t.Errorf("%+v", rep)
		}
		if _, err := w.reaper.Look(w.t.Context(), "other", b.ID, time.Now()); err == nil {
			t.Error("another tenant's batch was found")
		}
		if !slices.Equal(w.events(b), []batch.EventKind{batch.EventRestarted}) {
			t.Errorf("events %v", w.events(b))
		}
	})
}

// Executions that fall at once are heard of at once, each time. The first is
// replaced at once; the others in the minute's round, so that what fells them has
// some minutes to be over.
func TestExecutionsThatFallAtOnce(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		w.part(b, 0, nil)
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			all := w.executions(b)
			w.truth.Workflow.Kill(all[len(all)-1])
			if _, err := w.reaper.Look(w.t.Context(), b.Tenant, b.ID, time.Now()); err != nil {
				w.t.Fatal(err)
			}
			if n := len(w.executions(b)); n > 2+int(time.Since(began)/time.Minute) {
				w.t.Fatalf("%d executions within %v", n, time.Since(began))
			}
			after(time.Second)
			if int(time.Since(began)/time.Second)%60 == 0 {
				w.part(b, 0, nil)
				w.round()
			}
		}
		if n := len(w.executions(b)); n != 6 { // and the hour's
			w.t.Errorf("executions %v", w.executions(b))
		}
	})
}
