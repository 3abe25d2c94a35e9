package bench

import (
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/cost"
)

// A month of nothing to do is what the README may promise, every part of it named.
func TestIdle(t *testing.T) {
	idle, err := IdleStack(false)
	if err != nil {
		t.Fatal(err)
	}
	// Of each shard what is due and what is dead; and a look at the dead letters.
	if want := 2 * batch.DueShards * 0.5; idle.RunReads != want || idle.RunRequests != 1 {
		t.Errorf("a round takes %v read units, want %v, and %v receives", idle.RunReads, want, idle.RunRequests)
	}
	if idle.RunLog < 900 || idle.RunLog > 2000 {
		t.Errorf("a round logs %v bytes", idle.RunLog)
	}
	b := idle.Monthly().Price(nil)
	if b.Total > 1 || b.Total < 0.5 {
		t.Errorf("an idle month costs $%.2f", b.Total)
	}
	if polls := b.Line(cost.QueueRequests).Quantity; polls < 690_000 || polls > 710_000 {
		t.Errorf("%v receives a month", polls)
	}
	// The doors beside HTTP are one more queue to poll, and nothing else.
	open, err := IdleStack(true)
	if err != nil {
		t.Fatal(err)
	}
	if more := open.Monthly().Price(nil).Total - b.Total; more < 0.26 || more > 0.27 {
		t.Errorf("doors cost $%.2f a month", more)
	}
	// What each minute's metric would cost, and why there is none.
	idle.Metrics = 1
	if b := idle.Monthly().Price(nil); b.Total <= 1 {
		t.Errorf("$%.2f with a metric", b.Total)
	}
}
