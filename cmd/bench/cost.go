package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"holdfast/internal/bench"
	"holdfast/internal/cost"
)

// costChild is the argument that makes this program the child which counts what
// batches use, in virtual time.
const costChild = "cost-in-virtual-time"

// spending is what the child says.
type spending struct {
	Second    bench.Spent // every line takes a second
	Lognormal bench.Spent // they take one on average
	Crowd     bench.Spent // crowd of them at once
}

const (
	costLines = 50_000 // twenty to a million: what a batch costs but once is tiny

	// A thousand workers are so many copies of this crowd.
	crowd, copies = 25, 40
	crowdLines    = 65_000
)

func runCost() error {
	worker := bench.Metered{Workers: 1, Lines: costLines, PartLines: 500, Checkpoint: 100, Concurrency: 32, Memory: 512,
		Call: 10 * time.Millisecond}
	// Its mean is a second: e to the sigma squared over 2 is 1.5.
	lognormal := func(lines int) func(int) time.Duration { return bench.Lognormal(lines, 667*time.Millisecond, 0.9, 1) }
	var c spending
	var err error
	worker.Latency = bench.Constant(time.Second)
	if c.Second, err = worker.Run(); err != nil {
		return err
	}
	worker.Latency = lognormal(costLines)
	if c.Lognormal, err = worker.Run(); err != nil {
		return err
	}
	many := worker
	many.Workers, many.Lines, many.Spread, many.Latency = crowd, crowdLines, 20*time.Second, lognormal(crowdLines)
	if c.Crowd, err = many.Run(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}

// costs prices a million lines and an idle month, and looks for the hottest
// partition.
func costs() ([]figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(self, costChild).Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	var c spending
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&c); err != nil {
		return nil, fmt.Errorf("%w in %s", err, out)
	}
	bill := million(c.Second)
	figures := []figure{atMost("a million lines of 1 s, K=32, 512 MB, P=500, C=100", bill.Total, 0.45, "$")}
	for _, l := range bill.Lines {
		figures = append(figures, unbounded(fmt.Sprintf("  %s (%.4g %s)", l.Name, l.Quantity, l.Unit), l.Dollars, "$"))
	}
	figures = append(figures,
		unbounded("  of which no implementation could save: the floor", bill.Floor, "$"),
		unbounded("  of which waiting for the model", bill.Line(cost.Compute).Floor, "$"),
		atMost("a million lines of 1 s on average, lognormal (sigma 0.9)", million(c.Lognormal).Total, 0.45, "$"))

	quiet, err := bench.IdleStack(true)
	if err != nil {
		return nil, err
	}
	shut, err := bench.IdleStack(false)
	if err != nil {
		return nil, err
	}
	idle := quiet.Monthly().Price(nil)
	figures = append(figures,
		atMost("a month idle with HTTP alone (doors=off), with a secret and the reaper, beside alarms", shut.Monthly().Price(nil).Total, 1, "$"),
		atMost("a month idle, as it is deployed: with the S3 and queue doors, too", idle.Total, 1.15, "$"))
	for _, l := range idle.Lines {
		figures = append(figures, unbounded(fmt.Sprintf("  %s (%.4g %s)", l.Name, l.Quantity, l.Unit), l.Dollars, "$"))
	}

	peak, mean := bench.Overlay(c.Crowd.Writes, copies)
	due, _ := bench.Overlay(c.Crowd.DueWrites, copies)
	return append(figures,
		atMost("hottest partition, 1,000 workers on one batch, busiest second", peak, 1000, "write units"),
		unbounded("  on average", mean, "write units/s"),
		unbounded("  the due index's hottest partition, busiest second", due, "write units")), nil
}

// million prices a million of the lines.
func million(s bench.Spent) cost.Bill {
	times := 1e6 / float64(s.Work.Lines)
	usage, floor := cost.Usage{}, cost.Usage{}
	usage.Merge(s.Usage, times)
	floor.Merge(s.Work.Floor(), times)
	return usage.Price(floor)
}
