package main

import (
	"fmt"
	"time"

	"holdfast/internal/bench"
)

// gatewayCalls measures what the gateway adds to a call, beside a bare reverse proxy
// in the same run. Every call with a key and a batch of its own is as cold as calls
// get; the bound is the same.
func gatewayCalls() ([]figure, error) {
	const keys, batches, calls = 1_000, 10_000, 300
	c, err := bench.GatewayCalls(time.Second, keys, batches, calls)
	if err != nil {
		return nil, err
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	added := func(d time.Duration) float64 { return 100 * (float64(d)/float64(c.Proxy) - 1) }
	many := fmt.Sprintf("%d keys, %d batches, each call with others", keys, batches)
	return []figure{
		atMost("gateway beside a bare reverse proxy, upstream of 1 s: added", added(c.Gateway), 5, "%"),
		atMost("  "+many+": added", added(c.Full), 5, "%"),
		unbounded("  the proxy", ms(c.Proxy), "ms"),
		unbounded("  the gateway, table reads of 5 ms and writes of 10 ms", ms(c.Gateway), "ms"),
		unbounded("  "+many, ms(c.Full), "ms"),
		atMost("gateway, one key and one batch: reads of the table a call", c.Reads, 0.5, "reads"),
		atMost("  "+many, c.FullReads, 1, "reads"),
	}, nil
}
