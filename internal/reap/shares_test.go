package reap_test

import (
	"context"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// One tenant has more that is due than a round can deal with. What the workers of
// somebody else left behind, due after all of that, is found in the same round: of
// another tenant where it is many batches', of another batch where it is one's. And
// what had to wait is dealt with, too, in the end.
func TestOneTenantsFlood(t *testing.T) {
	for name, batches := range map[string]int{"one batch": 1, "many batches": 150} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				const flood = 12_000
				for range batches {
					n := flood / batches
					b := w.batch(n)
					for n := range n {
						// No message was sent yet, or one that may be lost.
						w.part(b, n, func(p *batch.Part) { p.TaskToken, p.Due = "", time.Now().Add(-2*time.Minute) })
					}
				}
				left := 16
				if batches > 1 {
					left = 700 // more than a tenant's share
				}
				other := w.batch(left)
				if batches > 1 {
					other.Tenant = "other"
					w.truth.Table.SeedBatch(other)
				}
				for n := range left {
					w.part(other, n, lapsed(1))
				}
				slow := func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 200*time.Millisecond) }
				w.faults.Before("Reaps.Postpone", 0, slow)
				w.faults.Before("Reaps.Reap", 0, slow)
				rounds := 0
				for more := true; more; rounds++ {
					if rounds == 5 {
						w.t.Fatal("there is no end to it")
					}
					ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
					rep, err := w.reaper.Round(ctx, reap.Scope{}, time.Now())
					cancel()
					if err != nil || rep.Failed > 0 {
						w.t.Fatalf("%+v, %v", rep, err)
					}
					if more = rep.More; rounds == 0 && (rep.Reaped != left || !more) {
						t.Errorf("the first round did %+v", rep)
					}
				}
				w.idle()
			})
		})
	}
}
