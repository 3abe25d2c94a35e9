package bench

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/cost"
)

// A batch of two full parts and a short one, counted by hand.
func TestMeteredCountsWhatABatchDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Metered{Workers: 1, Lines: 1200, PartLines: 500, Checkpoint: 100, Concurrency: 32, Memory: 512,
			Latency: Constant(time.Second), Call: 10 * time.Millisecond}
		s, err := m.Run()
		if err != nil {
			t.Fatal(err)
		}
		if s.Work.Parts != 3 || s.Work.Waiting != 1200*1000 || s.Work.Wide {
			t.Errorf("work %+v", s.Work)
		}
		floor := s.Work.Floor()
		for _, k := range []cost.Kind{cost.Compute, cost.ObjectPuts, cost.TableWrites, cost.QueueRequests, cost.Transitions} {
			if s.Usage[k] < floor[k] || s.Usage[k] > 5*floor[k] {
				t.Errorf("%s: %v beside a floor of %v", k, s.Usage[k], floor[k])
			}
		}
		// 38 rounds of a second and what begins and ends them.
		if gbs := s.Usage[cost.Compute]; gbs < 0.5*37.5 || gbs > 0.5*41 {
			t.Errorf("%v GB-s", gbs)
		}
		if s.Usage[cost.Transitions] != planStates+3 || s.Usage[cost.Invocations] != float64(s.Runs+2) {
			t.Errorf("usage %v, runs %d", s.Usage, s.Runs)
		}
	})
}

func TestOverlay(t *testing.T) {
	peak, mean := Overlay([]float64{4, 0, 0, 0}, 1)
	if peak != 4 || mean != 1 {
		t.Errorf("one copy: %v, %v", peak, mean)
	}
	peak, mean = Overlay(slices.Repeat([]float64{3}, 10), 20)
	if peak != 60 || mean != 60 {
		t.Errorf("copies of a constant: %v, %v", peak, mean)
	}
	if peak, mean = Overlay([]float64{4, 0, 0, 0}, 1000); mean < 999 || mean > 1001 || peak < 1000 || peak > 1300 {
		t.Errorf("many copies: %v, %v", peak, mean)
	}
	if peak, mean = Overlay(nil, 3); peak != 0 || mean != 0 {
		t.Error("something of nothing")
	}
}
