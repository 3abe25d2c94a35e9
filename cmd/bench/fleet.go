package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"holdfast/internal/bench"
	"holdfast/internal/config"
)

// fleet measures several workers on one batch, in virtual time and so without the
// machine's noise: a second a line at the median, ports of 15 ms a call. Each figure
// is the median of five batches. The measure is one pool of as many slots that no
// parts divide; what of its slots was in use stands beside it, because at 256 slots
// for 10,000 lines even that pool is idle in its tail.
func fleet() ([]figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, fleetChild)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var all []fleetRow
	// Behind them is what the bubble's test says.
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&all); err != nil {
		return nil, err
	}
	var figures []figure
	for _, u := range all {
		name := fmt.Sprintf("%d workers, K=%d, %d lines in parts of %d", u.Workers, u.Slots, u.Lines, u.PartLines)
		if u.Workers == 1 {
			name = fmt.Sprintf("1 worker, K=%d, %d lines in parts of %d", u.Slots, u.Lines, u.PartLines)
		}
		if u.Waiting > 0 {
			name += fmt.Sprintf(", %d waited for at once", u.Waiting)
		}
		use := unbounded("  slots in use", u.Use, "")
		if u.Ideal >= 0.9 { // otherwise even the pool doesn't reach it
			use = atLeast("  slots in use, "+name, u.Use, 0.9, "")
		}
		figures = append(figures,
			atLeast(name, u.OfIdeal, u.Bound, "of one pool"),
			use,
			unbounded("  slots in use of the pool", u.Ideal, ""),
			unbounded("  times one worker's speed at K=32, P=500", u.Speed, "x"),
		)
	}
	return figures, nil
}

// fleetChild is the only argument of a process that runs the fleets in virtual time,
// and prints a list of fleetRow.
const fleetChild = "fleet"

type fleetRow struct {
	Workers   int     `json:"workers"`
	Slots     int     `json:"slots"` // of each
	Lines     int     `json:"lines"`
	PartLines int     `json:"part_lines"`
	Waiting   int     `json:"waiting"` // parts that the workflow waits for at once; 0: all
	Bound     float64 `json:"bound"`
	Use       float64 `json:"use"`
	Ideal     float64 `json:"ideal"`
	OfIdeal   float64 `json:"of_ideal"`
	Speed     float64 `json:"speed"`
}

func runFleet() error {
	rows := []fleetRow{
		{Workers: 1, Slots: 32, PartLines: 500}, {Workers: 2, Slots: 32, PartLines: 500},
		{Workers: 4, Slots: 32, PartLines: 500}, {Workers: 8, Slots: 32, PartLines: 500},
		{Workers: 8, Slots: 32, PartLines: 250}, {Workers: 8, Slots: 32, PartLines: 100},
		{Workers: 1, Slots: 128, PartLines: 500},
		// Such small parts last a worker for a moment. What the Map waits for must not be
		// what holds it up: were it four parts a worker, this would be 0.6.
		{Workers: 10, Slots: 128, PartLines: 100, Lines: 40_000, Waiting: config.Settings{MaxConcurrency: 10}.Waiting(), Bound: 0.85},
	}
	var alone float64 // lines a second
	for i := range rows {
		r := &rows[i]
		if r.Lines == 0 {
			r.Lines, r.Bound = 10_000, 0.9
		}
		var use, ideal, of, speed []float64
		for seed := range uint64(5) {
			u, err := bench.Rig{
				Latency: bench.Lognormal(r.Lines, time.Second, 0.9, seed), Concurrency: r.Slots, Lines: r.Lines, PartLines: r.PartLines, Port: 15 * time.Millisecond,
				Waiting: r.Waiting,
			}.Fleet(r.Workers)
			if err != nil {
				return err
			}
			use, ideal, of = append(use, u.Slots), append(ideal, u.Ideal), append(of, u.OfIdeal())
			speed = append(speed, float64(r.Lines)/u.Elapsed.Seconds())
		}
		r.Use, r.Ideal, r.OfIdeal = medianOf(use), medianOf(ideal), medianOf(of)
		if i == 0 {
			alone = medianOf(speed)
		}
		r.Speed = medianOf(speed) / alone
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

func medianOf(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
