package batch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// What was recorded can't be used any more. The call that notices records that, and
// the next one makes everything anew: nobody goes round in circles, and nothing is
// closed with other bytes.
func TestFinishBeginsAnew(t *testing.T) {
	uploads := func(w *world) []string { return w.truth.Objects.OpenUploads() }
	for name, spoil := range map[string]func(w *world, id string){
		"an upload is gone": func(w *world, _ string) { w.truth.Objects.Drop(uploads(w)[0]) },
		"all uploads are gone": func(w *world, _ string) {
			for _, id := range uploads(w) {
				w.truth.Objects.Drop(id)
			}
		},
		"a tail is gone": func(w *world, id string) {
			must(w.t, w.truth.Objects.Delete(w.t.Context(), wResults, []string{w.receiptsTail(id)}))
		},
		"a tail is another": func(w *world, id string) {
			o := batch.Object{Bucket: wResults, Key: w.receiptsTail(id)}
			data := w.truth.Objects.Bytes(wResults, o.Key)
			data[len(data)/2] ^= 1
			_, err := w.truth.Objects.Put(w.t.Context(), o, data)
			must(w.t, err)
		},
		"what was stored of a part is another": func(w *world, id string) {
			b := w.batch(id)
			if b.Progress.Part == "" {
				w.t.Fatal("the progress doesn't end within a part")
			}
			b.Progress.Part = strings.Repeat("0", 64)
			w.truth.Table.SeedBatch(b)
		},
		"a piece has another size": func(w *world, id string) {
			at := w.batch(id).Progress.Receipts
			_, err := w.truth.Objects.PutPiece(w.t.Context(), batch.Object{Bucket: wResults, Key: batch.ResultKey(wTenant, id, batch.ReceiptsFile)}, at.Upload, 1, make([]byte, 599))
			must(w.t, err)
		},
		"a piece is gone": func(w *world, id string) {
			b := w.batch(id)
			b.Progress.Receipts.Pieces += 2
			b.Progress.Receipts.Bytes += 2 * b.Progress.Piece
			w.truth.Table.SeedBatch(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l := larges["completed"](w)
				f := w.restart()
				f.After("Endings.Advance", 3, f.Crash)
				w.truth.Objects.LeastPiece(1)
				// Parts are streamed, so that what is stored of one is not proven yet.
				o := tiny()
				o.HeldBytes = 1
				_, err := w.finisher(o).Finish(t.Context(), wTenant, l.id, wNow)
				if !errors.Is(err, memory.ErrCrashed) {
					t.Fatal(err)
				}
				spoil(w, l.id)
				w.restart()
				_, err = w.tiny().Finish(t.Context(), wTenant, l.id, wNow.Add(10*time.Minute))
				if err == nil || errors.Is(err, batch.ErrNotFound) || errors.Is(err, batch.ErrConservation) {
					t.Errorf("answered %v", err)
				}
				if at := w.batch(l.id); at.Progress != (batch.Progress{Step: 4}) || at.Status != batch.Finalizing {
					t.Errorf("stored is %+v", at)
				}
				if open := uploads(w); len(open) > 0 {
					t.Errorf("uploads are left: %v", open)
				}
				w.restart()
				_, err = w.tiny().Finish(t.Context(), wTenant, l.id, wNow.Add(11*time.Minute))
				must(t, err)
				l.expect()
			})
		})
	}
}

// The upload is gone when it is to be completed. An object of the right size is
// what became of it; none, or another, and all begins anew.
func TestFinishFindsTheUploadGone(t *testing.T) {
	for name, c := range map[string]struct {
		object func(w *world, key string, want []byte)
		anew   bool
	}{
		"completed by another": {func(w *world, key string, want []byte) {
			_, err := w.truth.Objects.Put(w.t.Context(), batch.Object{Bucket: wResults, Key: key}, want)
			must(w.t, err)
		}, false},
		"no object": {func(*world, string, []byte) {}, true},
		"an object of another size": {func(w *world, key string, want []byte) {
			_, err := w.truth.Objects.Put(w.t.Context(), batch.Object{Bucket: wResults, Key: key}, want[1:])
			must(w.t, err)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.run(40, 9, mixed)
				w.restart().Before("Uploads.Complete", 1, func(context.Context, memory.Point) error {
					w.truth.Objects.Drop(w.batch(r.ID).Progress.Output.Upload)
					c.object(w, batch.ResultKey(wTenant, r.ID, batch.OutputFile), r.want[batch.OutputFile])
					return nil
				})
				_, err := w.tiny().Finish(t.Context(), wTenant, r.ID, wNow)
				if c.anew != (err != nil) {
					t.Errorf("answered %v", err)
				}
				w.restart()
				_, err = w.tiny().Finish(t.Context(), wTenant, r.ID, wNow.Add(time.Second))
				must(t, err)
				w.expectClosed(r)
			})
		})
	}
}
