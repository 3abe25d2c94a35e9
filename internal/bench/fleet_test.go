package bench

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/config"
)

// Slots of several workers on one batch, as deployed: a second a line, ports that
// take 15 ms a call, in virtual time. Beside the slots in use, what one pool would
// have made of them: the more slots, the longer its own tail.
func TestFleet(t *testing.T) {
	for _, c := range []struct {
		workers, k, lines, part int
		ofIdeal                 float64 // at least
	}{
		{1, 32, 10_000, 500, 0.98},
		{2, 32, 10_000, 500, 0.98},
		{4, 32, 10_000, 500, 0.94},
		{8, 32, 10_000, 500, 0.84}, // 20 parts are 2.5 for each worker
		{8, 32, 10_000, 250, 0.94},
		{8, 32, 10_000, 100, 0.97},
		{1, 128, 20_000, 500, 0.98},
		{1, 128, 20_000, 250, 0.97},
		// Parts so small that a worker needs several at once, of a workflow that waits
		// for no more than so many: as good as one that waits for all.
		{10, 128, 40_000, 100, 0.85},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%d workers, K=%d, %d lines, P=%d, seed %d", c.workers, c.k, c.lines, c.part, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u, err := Rig{
						Latency: Lognormal(c.lines, time.Second, 0.9, seed), Concurrency: c.k, Lines: c.lines, PartLines: c.part, Port: 15 * time.Millisecond,
						Waiting: config.Settings{MaxConcurrency: c.workers}.Waiting(),
					}.Fleet(c.workers)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("slots %.4f, one pool's %.4f, of them %.4f, %s", u.Slots, u.Ideal, u.OfIdeal(), u.Elapsed)
					if u.Slots > 1 {
						t.Errorf("slot use %.4f, more than all", u.Slots)
					}
					if u.OfIdeal() < c.ofIdeal {
						t.Errorf("%.4f of what one pool makes of them, want %.2f", u.OfIdeal(), c.ofIdeal)
					}
				})
			})
		}
	}
}
