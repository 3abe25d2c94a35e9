package main

import (
	"context"

	"holdfast/internal/bench"
)

// draining counts what the doors' claim costs of the table.
func draining() ([]figure, error) {
	c, err := bench.CountDrain(context.Background(), 1_000)
	if err != nil {
		return nil, err
	}
	return []figure{
		atMost("table calls of a drained message, beyond a bare submit's", c.Message-c.Bare, 2, ""),
		unbounded("  of a bare submit", c.Bare, ""),
		atMost("table calls that refuse a duplicate", c.Duplicate, 2, ""),
	}, nil
}
