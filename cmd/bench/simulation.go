package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"holdfast/internal/bench"
	"holdfast/internal/sim"
)

// simulated is how many seeds are lived through.
const simulated = 10_000

// simulation lives through so many batches while all goes wrong that may (see
// package sim). Beside what was violated, which is nothing, it prints how rough it
// was. Violations go to stderr, with the seed and the last steps. On two cores it
// takes two to three minutes.
func simulation() ([]figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, simulationChild, strconv.Itoa(simulated))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var sum lives
	// Behind it is what the bubbles' test says.
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&sum); err != nil {
		return nil, err
	}
	of := fmt.Sprintf(", %d lives of a batch", sum.Seeds)
	return []figure{
		atMost("seeds with a violation"+of, float64(sum.Violated), 0, ""),
		unbounded("  processes killed", float64(sum.Deaths), ""),
		unbounded("  leases that lapsed", float64(sum.Lapses), ""),
		unbounded("  parts stolen", float64(sum.Steals), ""),
		unbounded("  lines blamed", float64(sum.Blamed), ""),
		unbounded("  parts declared dead", float64(sum.Dead), ""),
		unbounded("  lines answered more than once, a part in dead hands", float64(sum.Repeats)/float64(max(sum.Held, 1)), ""),
		unbounded("  the longest life after its faults had stopped", sum.Longest.Minutes(), "min"),
	}, nil
}

// simulationChild begins the arguments of a process that lives through as many
// seeds as the second says, and prints lives.
const simulationChild = "simulation"

// lives is what became of all seeds.
type lives struct {
	Seeds, Violated, Deaths, Lapses, Steals, Blamed, Dead, Repeats, Held int

	Longest time.Duration
}

func runSimulation(count string) {
	n, err := strconv.Atoi(count)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	var mu sync.Mutex
	var sum lives
	bench.Bubbles(n, func(i int) {
		s := sim.Draw(uint64(i) + 1)
		r := sim.NewWorld(context.Background(), s, "").Run()
		mu.Lock()
		defer mu.Unlock()
		if len(r.Violations) > 0 {
			if sum.Violated++; sum.Violated <= 3 {
				fmt.Fprintln(os.Stderr, r)
			}
		}
		sum.Seeds++
		sum.Deaths += r.Deaths
		sum.Lapses += r.Lapses
		sum.Steals += r.Steals
		sum.Blamed += r.Blamed
		sum.Dead += r.Dead
		sum.Repeats += r.Repeats
		sum.Held += r.Held
		sum.Longest = max(sum.Longest, r.Took-s.Bad)
	}, func() error { return json.NewEncoder(os.Stdout).Encode(sum) })
}
