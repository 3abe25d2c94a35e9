package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"holdfast/internal/bench"
)

// planning measures strict planning beside encoding/json.
func planning() ([]figure, error) {
	var all []figure
	for _, c := range []struct {
		text bench.Text
		name string
		size int
	}{
		{bench.Prose, "0.5 KB", 512},
		{bench.Prose, "1 KB", 1 << 10},
		{bench.Prose, "4 KB", 4 << 10},
		{bench.Tools, "1 KB", 1 << 10},
		{bench.Scripts, "1 KB", 1 << 10},
		{bench.Escaped, "1 KB", 1 << 10},
	} {
		speed, ratio, err := bench.PlanSpeed(c.text, c.size, 11)
		if err != nil {
			return nil, err
		}
		all = append(all, atLeast(fmt.Sprintf("strict planning, lines of %s, %s (%.0f MB/s), median of 11", c.name, c.text, speed/1e6), ratio, 4, "x encoding/json"))
	}
	// Four connections give 360 MB/s, more than a processor judges, while a download
	// waits and needs next to none. So the figure is this machine's spare processor:
	// 2.2 with some to spare, 1.3 was seen with none. One connection alone gives less
	// than 1, which is what the bound tells from that.
	speed, ratio, err := bench.PlanFar(256e6, 30*time.Millisecond, 90e6, 3)
	if err != nil {
		return nil, err
	}
	all = append(all, atLeast(fmt.Sprintf("planning 256 MB from a store that is 30 ms away and gives 90 MB/s a connection (%.0f MB/s), beside one connection's download, best of 3", speed/1e6), ratio, 1.2, "x"))
	return all, nil
}

// planMemory measures the memory of planning, each size in a process of its own.
func planMemory() ([]figure, error) {
	var all []figure
	for _, c := range []struct {
		name string
		size int64
	}{{"1 MB", 1e6}, {"100 MB", 100e6}, {"2 GB", 2e9}, {"10 GB", 10e9}} {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self, planPeakChild, strconv.FormatInt(c.size, 10))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		var p planPeak
		if err := json.Unmarshal(out, &p); err != nil {
			return nil, err
		}
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		const mib = 1 << 20
		all = append(all, atMost(fmt.Sprintf("planning %s, %d lines (%.0f MB/s of processor, making them included): peak memory", c.name, p.Lines, float64(c.size)/1e6/used.Seconds()), float64(p.Peak)/mib, 64+float64(16*p.Lines)/mib, "MiB"))
	}
	return all, nil
}

// planPeakChild is the first argument of a process that plans one input, of as
// many bytes as the second says, and prints a planPeak.
const planPeakChild = "plan-peak"

type planPeak struct {
	Lines int64 `json:"lines"`
	Peak  int64 `json:"peak"` // bytes
}

// mostLines is just below the most that a file may have.
const mostLines = 9_900_000

func runPlanPeak(size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	var p planPeak
	if p.Lines, p.Peak, err = bench.PlanPeak(max(512, int(n/mostLines)), n); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(p)
}
