package batch_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// damage flips a bit in the last line's result of a part's chunks, where it stays
// a record; the second time it flips it back.
func (w *world) damage(id string, part int) {
	w.t.Helper()
	p := w.truth.Table.PartsOf(wTenant, id)[part]
	last := mixed(p.FirstLine + int64(p.Lines) - 1).Result
	const bit = len(`{"custom_id":"c`)
	flipped := bytes.Clone(last)
	flipped[bit] ^= 1
	for _, c := range p.Chunks {
		data := w.truth.Objects.Bytes(wResults, c.Key)
		if at := max(bytes.Index(data, last), bytes.Index(data, flipped)); at >= 0 {
			data[at+bit] ^= 1
			_, err := w.truth.Objects.Put(w.t.Context(), batch.Object{Bucket: wResults, Key: c.Key}, data)
			must(w.t, err)
			return
		}
	}
	w.t.Fatalf("part %d has no line %d", part, p.FirstLine+int64(p.Lines)-1)
}

// Progress is recorded within a part, but never past it before its chunks are
// proven: a damaged one is refused by the first finisher and by every other, and
// the batch closes once the chunk is what it was.
func TestFinishNeverGoesPastADamagedChunk(t *testing.T) {
	for name, held := range map[string]int{"held": 12 << 20, "streamed": 1} {
		for _, part := range []int{2, 4} { // in the middle, and the last
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				w.truth.Objects.LeastPiece(1)
				r := w.run(40, 9, mixed)
				finish := func() error {
					o := tiny()
					o.SaveBytes, o.HeldBytes = 1, held // a record for each line
					_, err := w.finisher(o).Finish(t.Context(), wTenant, r.ID, wNow)
					return err
				}
				w.damage(r.ID, part)
				for range 3 {
					if err := finish(); !errors.Is(err, batch.ErrConservation) {
						t.Fatalf("answered %v", err)
					}
					p := w.truth.Table.PartsOf(wTenant, r.ID)[part]
					if at := w.batch(r.ID).Progress; at.Line < p.FirstLine || at.Line >= p.FirstLine+int64(p.Lines) {
						t.Errorf("progress is at line %d, the damaged part begins at %d", at.Line, p.FirstLine)
					}
				}
				w.damage(r.ID, part) // back
				// What was stored of it meanwhile can't be trusted: once anew, then it closes.
				if err := finish(); err != nil {
					must(t, finish())
				}
				w.expectClosed(r)
			})
		}
	}
}

// A part that is held is proven before anything of it is handed on.
func TestMergeProvesWhatItHoldsFirst(t *testing.T) {
	w := newWorld(t)
	r := w.run(9, 9, mixed)
	w.damage(r.ID, 0)
	handed := 0
	err := batch.MergeHolding(t.Context(), w.m.Objects, wResults, w.truth.Table.PartsOf(wTenant, r.ID)[0], wholeParts, func(batch.Record) error {
		handed++
		return nil
	})
	if !errors.Is(err, batch.ErrConservation) || handed > 0 {
		t.Errorf("%d records were handed on before %v", handed, err)
	}
}

// A call that saves at no other time saves when its time is nearly up.
func TestFinishSavesAtTheEndOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.truth.Objects.LeastPiece(1)
		r := w.run(40, 9, mixed)
		o := &batch.FinisherOptions{LeastPiece: 1, PieceBytes: 600}
		slow := func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 3*time.Second) }
		line, began := int64(0), time.Now()
		for calls := 1; ; calls++ {
			f := w.restart()
			f.Before("Uploads.PutPiece", 0, slow)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			_, err := w.finisher(o).Finish(ctx, wTenant, r.ID, wNow.Add(time.Since(began)))
			cancel()
			if err == nil {
				if calls < 3 {
					t.Errorf("it took %d calls", calls)
				}
				break
			}
			out, ok := errors.AsType[*batch.OutOfTimeError](err)
			if !ok || !out.Saved || out.Line <= line || f.Count("Endings.Advance") != 1 {
				t.Fatalf("call %d, from line %d: %v, after %d records", calls, line, err, f.Count("Endings.Advance"))
			}
			line = out.Line
		}
		w.expectClosed(r)
	})
}
