package batch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// Sweeping up after a batch that is closed takes as long as the store makes it. It
// may not take the time in which to say that the batch is closed.
func TestSweepLeavesTimeToAnswer(t *testing.T) {
	const life = 15 * time.Minute
	for name, slow := range map[string]memory.Hook{
		"a store that hangs": func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 2*life) },
		"one that is slow":   func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 4*time.Minute) },
	} {
		for _, again := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.run(2500, 1, mixed) // 2,500 chunks are three calls to delete them
				if again {
					w.restart().Before("Objects.Delete", 0, memory.Fail(context.DeadlineExceeded))
					_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
					must(t, err)
				}
				w.restart().Before("Objects.Delete", 0, slow)
				ctx, cancel := context.WithTimeout(t.Context(), life)
				defer cancel()
				began := time.Now()
				b, err := w.finisher(nil).Finish(ctx, wTenant, r.ID, wNow)
				if err != nil || b.Status != batch.Completed || time.Since(began) > life-5*time.Second || ctx.Err() != nil {
					t.Errorf("%s, again %t: %s, %v after %s", name, again, b.Status, err, time.Since(began))
				}
				if left := len(w.chunks()); (left == 0) != (name == "one that is slow") {
					t.Errorf("%s: %d chunks are left", name, left)
				}
			})
		}
	}
}
