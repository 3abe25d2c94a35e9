package bench

import (
	"container/heap"
	"time"
)

// FleetUse is how well several workers used their slots on one batch.
type FleetUse struct {
	Workers   int
	PartLines int
	Slots     float64       // the sum of what the calls took / slots / elapsed
	Ideal     float64       // the same of one pool of as many slots, which no parts divide
	Elapsed   time.Duration // until the last worker had nothing left
}

// OfIdeal is how much of what one undivided pool would have done they did.
func (u FleetUse) OfIdeal() float64 { return u.Slots / u.Ideal }

// Fleet runs the rig's batch on one queue by so many workers, each a Runner of its
// own as another process would have.
func (r Rig) Fleet(workers int) (FleetUse, error) {
	w, err := r.build(workers)
	if err != nil {
		return FleetUse{}, err
	}
	elapsed, err := w.run()
	if err != nil {
		return FleetUse{}, err
	}
	slots := float64(workers * r.Concurrency)
	u := FleetUse{Workers: workers, PartLines: r.PartLines, Elapsed: elapsed}
	u.Slots = float64(w.busy.Load()) / slots / float64(elapsed)
	pooled, sum := r.pooled(workers * r.Concurrency)
	u.Ideal = float64(sum) / slots / float64(pooled)
	return u, nil
}

// pooled is how long one pool of slots takes for all lines, each sent in order as
// soon as a slot is free, at no other cost; and what they take in sum. It has a
// tail as well: at the end slots are idle while the last lines are under way, the
// more so the more slots there are for a line.
func (r Rig) pooled(slots int) (elapsed, sum time.Duration) {
	free := make(instants, slots)
	for i := range r.Lines {
		took := r.Latency(i)
		sum += took
		free[0] += took
		elapsed = max(elapsed, free[0])
		heap.Fix(&free, 0)
	}
	return elapsed, sum
}

// instants is when each slot is free, the first at the top.
type instants []time.Duration

func (s instants) Len() int           { return len(s) }
func (s instants) Less(i, j int) bool { return s[i] < s[j] }
func (s instants) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *instants) Push(any)          {} // the slots stay as many as they are
func (s *instants) Pop() any          { return nil }
