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
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// tiny makes a few dozen lines a large batch: dozens of pieces, a dozen records of
// progress, most of them within a part.
func tiny() *batch.FinisherOptions {
	return &batch.FinisherOptions{LeastPiece: 1, PieceBytes: 600, SaveBytes: 1500, HeldBytes: 6000}
}

// large is a batch to finish in many pieces, and the check of what that must give.
type large struct {
	id     string
	expect func()
}

// larges are a batch whose parts are done, and one that was cancelled with parts in
// every state. Of the first, some parts are held and some are streamed.
var larges = map[string]func(w *world) large{
	"completed": func(w *world) large {
		r := w.run(40, 9, mixed)
		return large{r.ID, func() { w.t.Helper(); w.expectClosed(r) }}
	},
	"cancelled": func(w *world) large {
		e := w.everyState()
		e.end(batch.Cancelled, wNow)
		return large{e.ID, func() { w.t.Helper(); e.expectFiles(batch.Cancelled) }}
	},
}

func (w *world) tiny() *batch.Finisher {
	w.t.Helper()
	w.truth.Objects.LeastPiece(1)
	return w.finisher(tiny())
}

// tails are the keys of the tails that are left.
func (w *world) tails() []string {
	return slices.DeleteFunc(w.chunks(), func(k string) bool { return !strings.Contains(k, "/finish/") })
}

// receiptsTail is the key of the receipts' tail that progress names.
func (w *world) receiptsTail(id string) string {
	at := w.batch(id).Progress
	key := batch.TailKey(wTenant, id, batch.ReceiptsFile, int64(at.Receipts.Pieces)*at.Piece, at.Receipts.Bytes)
	if !slices.Contains(w.tails(), key) {
		w.t.Fatalf("%s is not among %v", key, w.tails())
	}
	return key
}

// clean finishes such a batch without a fault and says which calls that took.
func clean(t *testing.T, build func(*world) large) *memory.Faults {
	t.Helper()
	w := newWorld(t)
	l := build(w)
	f := w.restart()
	_, err := w.tiny().Finish(t.Context(), wTenant, l.id, wNow)
	must(t, err)
	l.expect()
	if left := w.chunks(); len(left) > 0 {
		t.Errorf("objects are left: %v", left)
	}
	if n := f.Count("Endings.Advance"); n < 4 || f.Count("Uploads.PutPiece") < 10 || f.Count("Uploads.Complete") < 2 {
		t.Fatalf("%d records of progress, %d pieces, %d uploads: the batch is too small for its test",
			n, f.Count("Uploads.PutPiece"), f.Count("Uploads.Complete"))
	}
	return f
}

// Every call of a finish in many pieces fails, loses its answer, keeps failing, or
// is the last thing the process does. Another process goes on: the files are the
// same bytes, and it repeats no more than what lay between two records of progress.
func TestFinishResumesAtEveryCall(t *testing.T) {
	for name, build := range larges {
		whole := clean(t, build)
		pieces, steps := whole.Count("Uploads.PutPiece"), whole.Count("Endings.Advance")
		for _, p := range whole.Calls() {
			for when, arm := range timings {
				t.Run(name+" "+p.String()+" "+when, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						l := build(w)
						before := w.chunks()
						first := w.restart()
						arm(first, p)
						_, firstErr := w.tiny().Finish(t.Context(), wTenant, l.id, wNow)
						if !w.batch(l.id).Status.Terminal() {
							if firstErr == nil {
								t.Error("success without an end")
							}
							for _, k := range before {
								if !slices.Contains(w.chunks(), k) {
									t.Errorf("not closed, and %s is gone", k)
								}
							}
						}
						second := w.restart()
						now := wNow.Add(time.Second)
						if errors.Is(firstErr, memory.ErrCrashed) {
							now = wNow.Add(10 * time.Minute)
						}
						_, err := w.tiny().Finish(t.Context(), wTenant, l.id, now)
						must(t, err)
						l.expect()
						// Between two records lie 1,500 bytes and a line: 3 pieces, one more for each
						// file that was begun. Calls that failed repeatedly are not pieces.
						if again := sent(first, p) + second.Count("Uploads.PutPiece") - pieces; again > 7 {
							t.Errorf("%d pieces of %d were sent again: the first made %v, the second %v", again, pieces, first.Calls(), second.Calls())
						}
						if at := w.batch(l.id).Progress; at.Step > int64(steps)+2 || at.Line != w.batch(l.id).Lines {
							t.Errorf("%d steps instead of %d, to line %d", at.Step, steps, at.Line)
						}
						if left := w.tails(); firstErr == nil && len(left) > 0 && p.Op != "Objects.Delete" {
							t.Errorf("tails are left: %v", left)
						}
					})
				})
			}
		}
	}
}

// sent is how many different pieces a process stored before p went wrong.
func sent(f *memory.Faults, p memory.Point) int {
	if p.Op == "Uploads.PutPiece" {
		return p.N - 1
	}
	return f.Count("Uploads.PutPiece")
}

// One finisher stalls at any of its calls; another robs it, goes on from what it
// recorded, and closes. Then the first wakes. What it stores has the same names and
// the same bytes, or finds its upload gone; the table takes nothing from it.
//
//	A: Advance(step 3: upload U, 12 pieces), sends piece 13, stalls
//	B: robs A, reads step 3, sends pieces 13, 14, … of U, Advance(step 4), completes U
//	A: wakes: piece 14 of U is the same bytes, or U is gone; Advance(step 4) is refused
func TestTwoFinishersInManyPieces(t *testing.T) {
	for name, build := range larges {
		for _, p := range clean(t, build).Calls() {
			for _, side := range []string{"before", "after"} {
				t.Run(name+" "+side+" "+p.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						l := build(w)
						gate := memory.NewGate()
						if f := w.restart(); side == "before" {
							f.Before(p.Op, p.N, gate.Wait)
						} else {
							f.After(p.Op, p.N, gate.Wait)
						}
						first, said := w.tiny(), make(chan error, 1)
						go func() {
							_, err := first.Finish(t.Context(), wTenant, l.id, wNow)
							said <- err
						}()
						<-gate.Reached()
						w.restart()
						_, err := w.tiny().Finish(t.Context(), wTenant, l.id, wNow.Add(10*time.Minute))
						must(t, err)
						closed := w.batch(l.id)
						l.expect()
						gate.Open()
						// Where only one of several reads stalled, it has learned it before.
						if err := <-said; err != nil && !errors.Is(err, lease.ErrLost) {
							t.Errorf("the first says %v, of a batch that is closed", err)
						}
						l.expect()
						if now := w.batch(l.id); now.Ver != closed.Ver {
							t.Errorf("the first wrote to the closed batch: %+v", now)
						}
					})
				})
			}
		}
	}
}

// A call whose time is nearly up saves and ends; the next ones go on, none of them
// without progress, until the batch is closed.
func TestFinishContinues(t *testing.T) {
	for name, build := range larges {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l := build(w)
				line, calls := int64(0), 0
				for began := time.Now(); ; calls++ {
					// Every piece takes 7 s; a call has a minute, and the margins are 20 s.
					w.restart().Before("Uploads.PutPiece", 0, func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 7*time.Second) })
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					_, err := w.tiny().Finish(ctx, wTenant, l.id, wNow.Add(time.Since(began)))
					if ctx.Err() != nil {
						t.Errorf("call %d took all of its time", calls)
					}
					cancel()
					if err == nil {
						break
					}
					out, ok := errors.AsType[*batch.OutOfTimeError](err)
					if !ok || !errors.Is(err, batch.ErrOutOfTime) || !out.Saved || out.Line < line || calls > 50 {
						t.Fatalf("call %d, which began at line %d: %v", calls, line, err)
					}
					if at := w.batch(l.id); at.Progress.Line != out.Line || at.Status != batch.Finalizing {
						t.Errorf("the error says line %d, stored is %+v", out.Line, at.Progress)
					}
					line = out.Line
				}
				if calls < 3 {
					t.Errorf("only %d calls were cut short", calls)
				}
				l.expect()
				if left := w.chunks(); len(left) > 0 {
					t.Errorf("objects are left: %v", left)
				}
			})
		})
	}
}

// A finisher that is stuck is broken off, says that it got nowhere, and leaves the
// right to the next.
func TestFinishStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := larges["completed"](w)
		w.restart().Before("Uploads.PutPiece", 1, memory.NewGate().Wait)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.tiny().Finish(ctx, wTenant, l.id, wNow)
		out, ok := errors.AsType[*batch.OutOfTimeError](err)
		if !ok || out.Saved || out.Line != 0 || ctx.Err() != nil {
			t.Errorf("got %v", err)
		}
		w.restart()
		_, err = w.tiny().Finish(t.Context(), wTenant, l.id, wNow.Add(50*time.Second))
		must(t, err)
		l.expect()
	})
}

// What fits one piece a file, and is done in a minute, leaves no record.
func TestFinishOfASmallBatchRecordsNothing(t *testing.T) {
	w := newWorld(t)
	r := w.run(40, 9, mixed)
	f := w.restart()
	_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
	must(t, err)
	if n := f.Count("Endings.Advance") + f.Count("Uploads.Begin"); n > 0 || f.Count("Objects.Put") != 3 || w.batch(r.ID).Progress != (batch.Progress{}) {
		t.Errorf("calls %v, progress %+v", f.Calls(), w.batch(r.ID).Progress)
	}
}

// Between two records lie so many bytes or so much time, whichever comes first.
func TestFinishSavesByTimeToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.run(60, 5, mixed)
		f := w.restart()
		o := &batch.FinisherOptions{HeldBytes: 1, SaveEvery: 20 * time.Second}
		f.Before("Objects.Open", 0, func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 5*time.Second) })
		began := time.Now()
		_, err := w.finisher(o).Finish(t.Context(), wTenant, r.ID, wNow)
		must(t, err)
		took := time.Since(began)
		if n := f.Count("Endings.Advance"); n < int(took/(30*time.Second))-1 || n > int(took/(20*time.Second)) {
			t.Errorf("%d records in %s", n, took)
		}
		w.expectClosed(r)
		if left := w.chunks(); len(left) > 0 {
			t.Errorf("objects are left: %v", left)
		}
	})
}

// Another installation's size of a piece doesn't matter once progress is recorded.
func TestFinishKeepsThePiecesOfWhoBegan(t *testing.T) {
	w := newWorld(t)
	l := larges["completed"](w)
	f := w.restart()
	f.After("Endings.Advance", 3, f.Crash)
	_, err := w.tiny().Finish(t.Context(), wTenant, l.id, wNow)
	if !errors.Is(err, memory.ErrCrashed) {
		t.Fatal(err)
	}
	w.restart()
	o := tiny()
	o.PieceBytes = 1001
	_, err = w.finisher(o).Finish(t.Context(), wTenant, l.id, wNow.Add(10*time.Minute))
	must(t, err)
	l.expect()
	if at := w.batch(l.id).Progress; at.Piece != 600 {
		t.Errorf("pieces of %d bytes", at.Piece)
	}
}
