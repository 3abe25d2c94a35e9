// Command bench measures what Holdfast promises about speed and prints each
// figure beside its bound. It writes the figures as JSON (a list of name,
// value, bound, unit, ok) and exits 1 when a bound is missed; 2 when it could
// not measure.
//
// `bench load` does the same on a deployed stack: see load.go.
//
// Machines are noisy: a figure is a ratio taken in one run, or the best of a
// few runs where what is asked is what the code can do.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"holdfast/internal/bench"
)

// figure is one measured value. Its name says what it is, its bound which side
// is right.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Bound float64 `json:"bound,omitempty"`
	Unit  string  `json:"unit"`
	OK    bool    `json:"ok"`
	Of    string  `json:"of,omitempty"`        // the measurement it belongs to, where its own name doesn't say
	Least bool    `json:"at_least,omitempty"`  // the bound is a floor, not a ceiling
	Free  bool    `json:"unbounded,omitempty"` // there is no bound
}

func atLeast(name string, value, bound float64, unit string) figure {
	return figure{Name: name, Value: value, Bound: bound, Unit: unit, OK: value >= bound, Least: true}
}

func atMost(name string, value, bound float64, unit string) figure {
	return figure{Name: name, Value: value, Bound: bound, Unit: unit, OK: value <= bound}
}

// unbounded is a figure to be read beside another.
func unbounded(name string, value float64, unit string) figure {
	return figure{Name: name, Value: value, Unit: unit, OK: true, Free: true}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == planPeakChild {
		if err := runPlanPeak(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		return
	}
	if len(os.Args) > 2 && (os.Args[1] == finishStore || os.Args[1] == finishRun) {
		err := fmt.Errorf("unexpected arguments %q", os.Args[1:])
		switch {
		case os.Args[1] == finishStore && len(os.Args) == 3:
			err = runFinishStore(os.Args[2])
		case os.Args[1] == finishRun && len(os.Args) == 4:
			err = runFinish(os.Args[2], os.Args[3])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		return
	}
	if len(os.Args) == 5 && os.Args[1] == workPeakChild {
		if err := runWorkPeak(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == fleetChild {
		bench.Bubble(runFleet)
		return
	}
	if len(os.Args) == 2 && os.Args[1] == costChild {
		bench.Bubble(runCost)
		return
	}
	if len(os.Args) == 3 && os.Args[1] == simulationChild {
		runSimulation(os.Args[2])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "load" {
		os.Exit(load(os.Args[2:]))
	}
	out := flag.String("json", "", "file for the figures as JSON; empty writes none")
	functions := flag.String("functions", "", "folder of built functions, one below it for each: <name>/bootstrap")
	only := flag.String("only", "", "part of a measurement's name; the others are left out")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	figures, err := measure(*functions, *only)
	if err != nil {
		// What was measured before it took minutes, and is worth reading.
		show(figures)
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if *out != "" {
		if err := write(*out, figures); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
	}
	if show(figures) > 0 {
		os.Exit(1)
	}
}

// show prints every figure beside its bound and returns how many missed theirs.
func show(figures []figure) (missed int) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		if f.Free {
			fmt.Fprintf(w, "%s\t%.4g %s\t\t\n", f.Name, f.Value, f.Unit)
			continue
		}
		side, verdict := "at most", "ok"
		if f.Least {
			side = "at least"
		}
		if !f.OK {
			verdict = "MISSED"
			missed++
		}
		fmt.Fprintf(w, "%s\t%.4g %s\t%s %.4g\t%s\n", f.Name, f.Value, f.Unit, side, f.Bound, verdict)
	}
	w.Flush()
	fmt.Printf("%d figures, %d missed\n", len(figures), missed)
	return missed
}

// measure runs every measurement in turn: side by side they would measure each
// other.
//
// Of them only those are made whose name has `only` in it; "" is in all. With an
// error come the figures of those before it.
func measure(functions, only string) ([]figure, error) {
	var all []figure
	for _, m := range []struct {
		what string
		run  func() ([]figure, error)
	}{
		{"the Runner's slots", slots},
		{"the Runner's own work", ownWork},
		{"several workers on one batch", fleet},
		{"the memory of working", workMemory},
		{"what batches cost", costs},
		{"10,000 lives of a batch", simulation},
		{"what the doors' claims cost", draining},
		{"the speed of planning", planning},
		{"the memory of planning", planMemory},
		{"finishing", finishing},
		{"the API's own cost", apiCalls},
		{"what the gateway adds", gatewayCalls},
		{"what access reads", accessReads},
		{"the memory of the API", func() ([]figure, error) { return apiMemory(functions) }},
		{"the memory of large uploads", func() ([]figure, error) { return uploadMemory(functions) }},
		{"zips and starts of the functions", func() ([]figure, error) { return starts(functions) }},
	} {
		if !strings.Contains(m.what, only) {
			continue
		}
		begun := time.Now()
		fmt.Fprintf(os.Stderr, "measuring %s … ", m.what)
		f, err := m.run()
		if err != nil {
			return all, fmt.Errorf("%s: %w", m.what, err)
		}
		fmt.Fprintf(os.Stderr, "%.1f s\n", time.Since(begun).Seconds())
		all = append(all, f...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no measurement has %q in its name", only)
	}
	return all, nil
}

func write(path string, figures []figure) error {
	b, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
