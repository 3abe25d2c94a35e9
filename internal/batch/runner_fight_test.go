package batch_test

import (
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// Sixty-four workers fight for two hundred parts, half of which were left by
// workers that died, each with four messages about: every part is won once, none
// is sent twice, and none waits for more than a lease.
func TestFight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const workers, parts, lines, lease = 64, 200, 4, 120 * time.Second
		r := newRig(t, parts*lines, lines, after(time.Second))
		told := r.observe()
		start := time.Now()
		for n := range parts {
			for range 3 {
				r.sendMessage(n)
			}
			if n%2 == 0 {
				p := r.part(n)
				// It had made progress, or the part would be a lone one now.
				p.State, p.Owner, p.Ver, p.LeaseUntil = batch.Leased, "of-a-dead-one", 1, start.Add(-time.Minute)
				r.m.Table.SeedPart(p)
			}
		}
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for !r.over() {
					d, ok := r.receive()
					if !ok {
						if memory.Wait(t.Context(), time.Second) != nil {
							return
						}
						continue
					}
					r.runDelivery(t.Context(), nil, d, life)
				}
			})
		}
		wg.Wait()
		if c, s := told.of(batch.MetricClaims), told.of(batch.MetricSteals); c != parts || s != parts/2 {
			t.Errorf("%v claims, %v of them steals; want %d and %d", c, s, parts, parts/2)
		}
		won := map[int]int{}
		for _, e := range r.events(batch.EventClaimed, batch.EventStolen) {
			won[e.Part]++
			if waited := e.At.Sub(start); waited > lease {
				t.Errorf("part %d waited for %s", e.Part, waited)
			}
		}
		for n := range parts {
			if p := r.part(n); p.State != batch.Done || won[n] == 0 || p.Attempts != 0 {
				t.Errorf("part %d was won %d times: %+v", n, won[n], p)
			}
		}
		if n := len(r.model.Calls()); n != parts*lines {
			t.Errorf("%d requests for %d lines", n, parts*lines)
		}
		r.conserved()
	})
}
