package main

import (
	"fmt"

	"holdfast/internal/bench"
)

// accessReads counts what access reads of the table, by both doors: nothing when a
// process knows the key, and otherwise once, however many keys and batches there are.
func accessReads() ([]figure, error) {
	const keys, batches = 1_000, 10_000
	few, err := bench.CountAccess(1, 1)
	if err != nil {
		return nil, err
	}
	many, err := bench.CountAccess(keys, batches)
	if err != nil {
		return nil, err
	}
	var out []figure
	for _, c := range []struct {
		with string
		cost bench.AccessCost
	}{{"1 key", few}, {fmt.Sprintf("%d keys, %d batches", keys, batches), many}} {
		out = append(out,
			atMost("access, "+c.with+": most reads of the table by a request with a new key", float64(c.cost.Cold), 1, "reads"),
			atMost("  by the next one with it", float64(c.cost.Next), 1, "reads"),
			atMost("  by those that follow", float64(c.cost.Warm), 0, "reads"),
			atMost("  by the first after a minute", float64(c.cost.Later), 1, "reads"),
		)
	}
	return out, nil
}
