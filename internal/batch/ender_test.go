package batch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

func (w *world) canceller() *batch.Ender {
	return batch.NewEnder(w.m.Table.Batches, w.m.Table.Endings, w.m.Workflow)
}

// What a cancel does in each status, and what it tells whom.
func TestCancel(t *testing.T) {
	set := func(status, ending batch.Status) func(*batch.Batch) {
		return func(b *batch.Batch) {
			if b.Status, b.Ending = status, ending; ending != "" {
				b.EndingAt = wNow.Add(-time.Minute)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*batch.Batch)
		wire   string
		writes bool
		finish bool // and, in progress, stops the batch's own execution
	}{
		{"validating", set(batch.Validating, ""), "cancelling", true, false},
		{"in progress", set(batch.InProgress, ""), "cancelling", true, true},
		{"cancelling while validating", set(batch.Validating, batch.Cancelled), "cancelling", false, false},
		{"cancelling", set(batch.InProgress, batch.Cancelled), "cancelling", false, true},
		{"expiring", set(batch.InProgress, batch.Expired), "in_progress", false, false},
		{"every part over", set(batch.InProgress, batch.Completed), "in_progress", false, false},
		{"finalizing", set(batch.Finalizing, batch.Completed), "finalizing", false, false},
		{"finalizing a cancel", func(b *batch.Batch) {
			set(batch.Finalizing, batch.Cancelled)(b)
			b.FinalizerUntil = wNow.Add(time.Minute)
		}, "cancelling", false, false},
		{"finalizing a cancel, and the finalizer is gone", func(b *batch.Batch) {
			set(batch.Finalizing, batch.Cancelled)(b)
			b.FinalizerUntil = wNow
		}, "cancelling", false, true},
		{"completed", set(batch.Completed, batch.Completed), "completed", false, false},
		{"failed", set(batch.Failed, ""), "failed", false, false},
		{"failed, and was told to cancel", set(batch.Failed, batch.Cancelled), "failed", false, false},
		{"expired", set(batch.Expired, batch.Expired), "expired", false, false},
		{"cancelled", set(batch.Cancelled, batch.Cancelled), "cancelled", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create(requests(3))
			c.change(&b)
			w.truth.Table.SeedBatch(b)
			w.restart()
			want := b
			if c.writes {
				want.Ending, want.EndingAt, want.Ver = batch.Cancelled, wNow.Add(time.Minute), b.Ver+1
			}
			for range 3 {
				got, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, wNow.Add(time.Minute))
				must(t, err)
				stored := w.batch(b.ID)
				if got.Status != want.Status || got.Ending != want.Ending || got.Ver != want.Ver ||
					stored.Status != want.Status || stored.Ending != want.Ending || stored.Ver != want.Ver || !stored.EndingAt.Equal(want.EndingAt) {
					t.Errorf("answered %+v\nstored %+v\nwant %+v", got, stored, want)
				}
				if wire := batch.ToWire(got, batch.Standing{}); wire.Status != c.wire || (wire.CancellingAt != nil) != (want.Ending == batch.Cancelled) {
					t.Errorf("the wire shows %s, cancelling_at %v", wire.Status, wire.CancellingAt)
				}
			}
			executions := []memory.Execution{{Name: b.ID, Tenant: wTenant, Batch: b.ID}}
			if c.finish {
				executions = append(executions, memory.Execution{Name: batch.FinishName(want), Tenant: wTenant, Batch: b.ID, Finish: true})
			}
			if got := w.truth.Workflow.Executions(); !slices.Equal(got, executions) {
				t.Errorf("executions %+v, want %+v", got, executions)
			}
			if got := w.truth.Workflow.Stopped(b.ID); got != (c.finish && b.Status == batch.InProgress) {
				t.Errorf("stopped: %t", got)
			}
		})
	}
	w := newWorld(t)
	b := w.create(requests(3))
	for what, id := range map[string][2]string{"an unknown batch": {wTenant, "batch_none"}, "another tenant's": {"other", b.ID}} {
		if _, err := w.canceller().Cancel(t.Context(), id[0], id[1], wNow); !errors.Is(err, batch.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := w.batch(b.ID); got.Ending != "" {
		t.Errorf("ending %q", got.Ending)
	}
}

// Every call fails, loses its reply, or is the process's last; cancelling again
// mends it: one decision, and somebody is told.
func TestCancelSurvivesEveryCall(t *testing.T) {
	for _, status := range []batch.Status{batch.Validating, batch.InProgress} {
		seed := func(w *world) batch.Batch {
			b := w.create(requests(3))
			if status == batch.InProgress {
				_, err := w.planner(nil).Plan(w.t.Context(), wTenant, b.ID, wNow)
				must(w.t, err)
			}
			return w.batch(b.ID)
		}
		clean := newWorld(t)
		b := seed(clean)
		clean.restart()
		_, err := clean.canceller().Cancel(t.Context(), wTenant, b.ID, wNow)
		must(t, err)
		for _, p := range clean.faults.Calls() {
			for when, arm := range timings {
				t.Run(string(status)+" "+p.String()+" "+when, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						b := seed(w)
						arm(w.restart(), p)
						first, firstErr := w.canceller().Cancel(t.Context(), wTenant, b.ID, wNow)
						if firstErr == nil || errors.Is(firstErr, batch.ErrNotHandedOn) {
							if stored := w.batch(b.ID); stored.Ending != batch.Cancelled || first.Ver != stored.Ver {
								t.Errorf("answered %+v (%v), stored %+v", first, firstErr, stored)
							}
						}
						w.restart()
						_, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, wNow.Add(time.Minute))
						must(t, err)
						stored := w.batch(b.ID)
						if stored.Ending != batch.Cancelled || stored.Ver != b.Ver+1 {
							t.Errorf("stored %+v", stored)
						}
						all := w.truth.Workflow.Executions()
						if status == batch.Validating && len(all) != 1 || status == batch.InProgress && (len(all) != 2 || !all[1].Finish || !w.truth.Workflow.Stopped(b.ID)) {
							t.Errorf("executions %+v", all)
						}
					})
				})
			}
		}
	}
}

// Stopping the execution that waits is not what ends a batch: finishing is.
func TestCancelFinishesWhatItCannotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.awkward(5, 5)
		w.restart().Before("Workflow.Stop", 0, memory.Fail(nil))
		got, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, wNow)
		if !errors.Is(err, batch.ErrNotHandedOn) || got.Ending != batch.Cancelled {
			t.Errorf("%+v, %v", got, err)
		}
		if all := w.truth.Workflow.Executions(); len(all) != 2 || !all[1].Finish {
			t.Errorf("executions %+v", all)
		}
	})
}

// An execution that died ends no batch: cancelling again starts another, and only
// one while that one lives.
func TestCancelReplacesTheDead(t *testing.T) {
	for _, status := range []batch.Status{batch.Validating, batch.InProgress, batch.Finalizing} {
		t.Run(string(status), func(t *testing.T) {
			w := newWorld(t)
			b := w.create(requests(3))
			b.Status = status
			if status == batch.Finalizing {
				b.Ending, b.EndingAt, b.FinalizerUntil = batch.Cancelled, wNow.Add(-time.Hour), wNow.Add(-time.Minute)
			}
			w.truth.Table.SeedBatch(b)
			w.restart()
			names := map[string]bool{}
			for n := range 9 {
				now := wNow
				if n > 4 { // beyond the names in a row one is started each hour
					now = wNow.Add(time.Duration(n) * time.Hour)
				}
				for i := range 3 {
					// The hour's lives, and is found in the next, too.
					if n > 4 {
						now = now.Add(time.Duration(i) * 10 * time.Minute)
					}
					_, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, now)
					must(t, err)
				}
				all := w.truth.Workflow.Executions()
				if status == batch.Validating {
					all = append([]memory.Execution{{}}, all...)
				}
				last := all[len(all)-1]
				if len(all) != n+2 || last.Finish == (status == batch.Validating) || last.Batch != b.ID || len(last.Name) > 80 || names[last.Name] {
					t.Fatalf("after %d deaths: executions %+v", n, all)
				}
				names[last.Name] = true
				w.truth.Workflow.Kill(last.Name)
				if n > 4 { // and no second one in its hour
					_, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, now)
					must(t, err)
				}
			}
		})
	}
}

// The execution that waits is left alone while there is none that finishes.
func TestCancelStopsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.awkward(5, 5)
		w.restart().Before("Workflow.Finish", 0, memory.Fail(nil))
		if _, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, batch.ErrNotHandedOn) {
			t.Errorf("error %v", err)
		}
		if w.truth.Workflow.Stopped(b.ID) {
			t.Error("it was stopped")
		}
	})
}

// A cancel meets a planning at each of its calls. Whatever comes first, the batch
// is planned, and exactly one of the two sees to its end: the plan says that
// there is nothing to run, or an execution that finishes was started.
func TestCancelWhilePlanning(t *testing.T) {
	clean := newWorld(t)
	id := clean.create(requests(25)).ID
	clean.restart()
	o := &batch.PlannerOptions{PartLines: 10}
	_, err := clean.planner(o).Plan(t.Context(), wTenant, id, wNow)
	must(t, err)
	for _, p := range clean.faults.Calls() {
		for when, place := range map[string]func(*memory.Faults, string, int, memory.Hook){"before": (*memory.Faults).Before, "after": (*memory.Faults).After} {
			t.Run(when+" "+p.String(), func(t *testing.T) {
				w := newWorld(t)
				b := w.create(requests(25))
				place(w.restart(), p.Op, p.N, func(context.Context, memory.Point) error {
					truth := batch.NewEnder(w.truth.Table.Batches, w.truth.Table.Endings, w.truth.Workflow)
					_, err := truth.Cancel(t.Context(), wTenant, b.ID, wNow)
					return err
				})
				plan, err := w.planner(o).Plan(t.Context(), wTenant, b.ID, wNow)
				must(t, err)
				if got := w.batch(b.ID); got.Status != batch.InProgress || got.Ending != batch.Cancelled || got.Lines != 25 || got.Parts != 3 {
					t.Errorf("batch %+v", got)
				}
				handed := len(w.truth.Workflow.Executions()) == 2
				if ended := plan.Status == batch.NotToRun; ended == handed || len(plan.Parts) > 0 != handed {
					t.Errorf("plan %+v, and another execution finishes: %t", plan, handed)
				}
				w.restart()
				_, err = w.finisher(nil).Finish(t.Context(), wTenant, b.ID, wNow)
				must(t, err)
				if got := w.batch(b.ID); got.Status != batch.Cancelled || got.Counts != (batch.Counts{Total: 25, Failed: 25}) {
					t.Errorf("%s %+v", got.Status, got.Counts)
				}
			})
		}
	}
}

// An input that won't do is refused, cancelled or not.
func TestCancelOfABadInput(t *testing.T) {
	w := newWorld(t)
	b := w.create([]byte("{}\n"))
	_, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	plan, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if got := w.batch(b.ID); plan.Status != batch.Refused || got.Status != batch.Failed {
		t.Errorf("plan %+v, batch %s", plan, got.Status)
	}
}

func TestFinishName(t *testing.T) {
	b := batch.Batch{ID: "batch_" + strings.Repeat("a", 26), Ver: 3}
	for ending, want := range map[batch.Status]string{"": "completed", batch.Completed: "completed", batch.Expired: "expired", batch.Cancelled: "cancelled"} {
		b.Ending, b.Ver = ending, b.Ver+1
		if got := batch.FinishName(b); got != b.ID+"-finish-"+want {
			t.Errorf("%s", got)
		}
	}
	long := batch.Batch{ID: "batch_" + strings.Repeat("a", 74), Ver: 3}
	other := long
	other.Ending = batch.Expired
	if a, b := batch.FinishName(long), batch.FinishName(other); len(a) > 80 || a == b || a != batch.FinishName(long) {
		t.Errorf("%s, %s", a, b)
	}
}
