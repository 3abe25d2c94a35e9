package batch

import "context"

// NewPrefetch is newPrefetch, for tests of small reaches.
func NewPrefetch(ctx context.Context, objects Objects, o Object, rangeBytes, block int64, ranges int) *prefetch {
	return newPrefetch(ctx, objects, o, reach{bytes: rangeBytes, block: block, ranges: ranges})
}

// PlanReach is how many bytes a range has that planning reads, and how many
// ranges it reads at once.
func PlanReach() (rangeBytes int64, ranges int) { return planReach.bytes, planReach.ranges }
