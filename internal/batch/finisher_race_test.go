package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// A finisher stalls at some call, another one robs it and closes, and the first
// goes on. It may write nothing that counts, and what it writes is the same.
//
//	A: Finalize(token a), merges, stalls
//	B: the lease of a lapsed: Finalize(token b), merges, Close, deletes the chunks
//	A: wakes; its Close names token a: refused
func TestTwoFinishers(t *testing.T) {
	clean := newWorld(t)
	want := clean.run(40, 9, mixed)
	clean.restart()
	_, err := clean.finisher(nil).Finish(t.Context(), wTenant, want.ID, wNow)
	must(t, err)
	for _, p := range clean.faults.Calls() {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.run(40, 9, mixed)
				gate := memory.NewGate()
				w.restart().Before(p.Op, p.N, gate.Wait)
				first := w.finisher(nil)
				done := make(chan error)
				go func() {
					_, err := first.Finish(t.Context(), wTenant, r.ID, wNow)
					done <- err
				}()
				<-gate.Reached()
				w.restart()
				_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow.Add(10*time.Minute))
				must(t, err)
				closed := w.batch(r.ID)
				gate.Open()
				if err := <-done; err != nil {
					t.Errorf("the first says %v, of a batch that is closed", err)
				}
				w.expectClosed(r)
				if now := w.batch(r.ID); now.Ver != closed.Ver || now.Finalizer != closed.Finalizer {
					t.Errorf("the first wrote to the closed batch: %+v", now)
				}
			})
		})
	}
}

// The right to assemble is renewed as long as it takes.
func TestFinishKeepsItsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.run(20, 6, mixed)
		gate := memory.NewGate()
		w.restart().Before("Objects.Put", 1, gate.Wait)
		done := make(chan error)
		f := w.finisher(nil)
		go func() {
			_, err := f.Finish(t.Context(), wTenant, r.ID, wNow)
			done <- err
		}()
		<-gate.Reached()
		start := time.Now()
		for range 20 {
			time.Sleep(time.Minute) // of the bubble
			held, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow.Add(time.Since(start)))
			if !errors.Is(err, lease.ErrHeld) {
				t.Fatalf("after %s another may finish: %+v, %v", time.Since(start), held, err)
			}
		}
		gate.Open()
		must(t, <-done)
		w.expectClosed(r)
	})
}

// A finisher that was robbed learns it from its heartbeat and stops.
func TestFinishStopsWhenRobbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.run(20, 6, mixed)
		f := w.restart()
		f.Before("Objects.Put", 1, func(ctx context.Context, p memory.Point) error {
			b := w.batch(r.ID)
			b.Finalizer = "somebody else"
			w.truth.Table.SeedBatch(b)
			<-ctx.Done() // nobody but the heartbeat ends this
			return ctx.Err()
		})
		_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
		if !errors.Is(err, lease.ErrLost) {
			t.Errorf("got %v", err)
		}
		if n := f.Count("Endings.Close") + f.Count("Files.Put"); n > 0 {
			t.Errorf("it wrote %d times more", n)
		}
	})
}

// Near the end of its time a finisher stops in order, so that the next one needs
// not wait for its right to lapse.
func TestFinishOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.run(20, 6, mixed)
		w.restart().Before("Objects.Put", 1, memory.NewGate().Wait) // never opens
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.finisher(nil).Finish(ctx, wTenant, r.ID, wNow)
		if !errors.Is(err, batch.ErrOutOfTime) || ctx.Err() != nil {
			t.Errorf("got %v, with the caller's time at %v", err, ctx.Err())
		}
		w.restart()
		_, err = w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow.Add(50*time.Second))
		must(t, err)
		w.expectClosed(r)
	})
}

// With the sizes of a real store: whole pieces, and one record of progress before
// the first file is completed.
func TestFinishLargeFiles(t *testing.T) {
	pad := bytes.Repeat([]byte("x"), 1<<20)
	large := func(i int64) batch.Record {
		r := mixed(i)
		r.Result = fmt.Appendf(nil, `{"i":%d,"pad":"%s"}`, i, pad[:len(pad)-int(i)*1000])
		return r
	}
	w := newWorld(t)
	r := w.run(14, 5, large)
	f := w.restart()
	_, err := w.finisher(&batch.FinisherOptions{PieceBytes: 5 << 20}).Finish(t.Context(), wTenant, r.ID, wNow)
	must(t, err)
	w.expectClosed(r)
	// The puts are of two small files and of what is saved of them.
	if n := f.Count("Uploads.PutPiece"); n != 3 || f.Count("Uploads.Complete") != 1 || f.Count("Objects.Put") != 4 || f.Count("Endings.Advance") != 1 {
		t.Errorf("calls: %v", f.Calls())
	}
	if left := w.chunks(); len(left) > 0 {
		t.Errorf("objects are left: %v", left)
	}
}
