package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/config"
)

// loadRun is a load run on a deployed stack: what it was told, and what it
// watches.
type loadRun struct {
	stack    *stack
	settings config.Settings // those that the stack was deployed with
	folder   string
	slots    int // of the model
	batches  int
	lines    int
	parts    int
	lapsed   int
	watch    *watch
}

// loadPhases are what a load run can measure, by name. A stack has one size of
// parts, so localstack/load.sh deploys it anew between some of them.
var loadPhases = []struct {
	name, what string
	within     time.Duration
	run        func(*loadRun, context.Context) ([]figure, error)
}{
	{"waits", "what surrounds a small batch", 90 * time.Second, (*loadRun).waits},
	{"doors", "the doors beside HTTP", 3 * time.Minute, (*loadRun).doors},
	{"lines", "many lines through a few workers", 3 * time.Minute, (*loadRun).throughput},
	{"reap", "parts whose workers all died", 5 * time.Minute, (*loadRun).reaping},
	{"parts", "many small parts", 6 * time.Minute, (*loadRun).wide},
}

// load is the command `bench load`: figures of the deployed stack whose env file
// this shell has loaded. It returns the process's exit status.
func load(args []string) int {
	flags := flag.NewFlagSet("bench load", flag.ContinueOnError)
	r := &loadRun{}
	out := flags.String("json", "", "file for the figures as JSON; empty writes none")
	after := flags.String("after", "", "such a file of the run before this one, whose figures come first; empty: none")
	flags.StringVar(&r.folder, "stack", ".local/load", "folder of the stack (HOLDFAST_LOCAL)")
	flags.IntVar(&r.slots, "slots", 100, "requests that the model answers at once")
	flags.IntVar(&r.batches, "batches", 10, "small batches, for waits")
	flags.IntVar(&r.lines, "lines", 10_000, "lines of a batch, for lines")
	flags.IntVar(&r.lapsed, "lapsed", 10_000, "parts of dead workers, for reap")
	flags.IntVar(&r.parts, "parts", 3_000, "parts of the larger batch, for parts")
	if flags.Parse(args) != nil {
		return 2
	}
	figures, err := r.measure(*after, flags.Args())
	if *out != "" && figures != nil {
		err = errors.Join(err, write(*out, figures))
	}
	missed := show(figures)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench load:", err)
		return 2
	case missed > 0:
		return 1
	}
	return 0
}

// measure runs the phases that were named, in their own order. Beside an error it
// returns what was measured until then.
func (r *loadRun) measure(after string, phases []string) (all []figure, err error) {
	if len(phases) == 0 || r.slots < 1 || r.batches < 1 || r.lines < 1 || r.parts < 1 || r.lapsed < 1 {
		return nil, errors.New("name the phases (waits, doors, lines, reap, parts), and counts of one at least")
	}
	if after != "" {
		if err := readJSON(after, &all); err != nil {
			return nil, err
		}
	}
	if r.stack, err = stackFromEnv(); err != nil {
		return all, err
	}
	if r.settings, err = config.Parse(os.Getenv); err != nil {
		return all, err
	}
	for _, p := range loadPhases {
		if !slices.Contains(phases, p.name) {
			continue
		}
		if r.watch, err = newWatch(r.folder); err != nil {
			return all, err
		}
		begun := time.Now()
		fmt.Fprintf(os.Stderr, "measuring %s … ", p.what)
		ctx, cancel := context.WithTimeout(context.Background(), p.within)
		figures, err := p.run(r, ctx)
		cancel()
		r.watch.close()
		fmt.Fprintf(os.Stderr, "%.1f s\n", time.Since(begun).Seconds())
		all = append(all, figures...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", p.what, err)
		}
		disk, err := diskOf(r.folder)
		if err != nil {
			return all, err
		}
		size := unbounded("disk of the stack's folder, after "+p.what, float64(disk)/mib, "MiB")
		all = append(append(all, size), under(p.what, peaks(r.watch.usage())...)...)
	}
	return all, nil
}

const mib = 1 << 20

// under says what the figures belong to.
func under(of string, figures ...figure) []figure {
	for i := range figures {
		figures[i].Of = of
	}
	return figures
}

// peaks is what the processes took of memory. Work and finish have bounds,
// those that cmd/bench holds them to on larger replies.
func peaks(all map[string]usage) []figure {
	var f []figure
	for _, of := range []struct {
		name  string
		bound float64 // MiB; 0: none
	}{{"emulator", 0}, {"api", 0}, {"ingest", 0}, {"plan", 0}, {"work", 128}, {"finish", 96}} {
		u, ok := all[of.name]
		if !ok {
			continue // or this system doesn't tell
		}
		name, peak := fmt.Sprintf("  %s: peak RSS, largest of %d", of.name, u.processes), float64(u.peak)/mib
		if of.bound == 0 {
			f = append(f, unbounded(name, peak, "MiB"))
			continue
		}
		f = append(f, atMost(name, peak, of.bound, "MiB"))
	}
	return f
}

// waits measures what a batch of one small part waits for beside its lines: the
// issue's bounds are for a machine like this one, everything on it.
func (r *loadRun) waits(ctx context.Context) ([]figure, error) {
	const lines, bound = 20, 1.5
	var first, end []float64
	wrong := 0
	for range r.batches {
		file, err := r.stack.upload(ctx, loadInput("sim", lines))
		if err != nil {
			return nil, err
		}
		b, err := r.run(ctx, file, "sim", lines, 10*time.Millisecond)
		if err != nil {
			return nil, err
		}
		first = append(first, b.model.First.Sub(b.asked).Seconds())
		end = append(end, b.over.Sub(b.model.Last).Seconds())
		wrong += b.wrong
	}
	slices.Sort(first)
	slices.Sort(end)
	of := fmt.Sprintf("median of %d", r.batches)
	begin := atMost("create to first upstream request, "+of, middle(first), bound, "s")
	finish := atMost("last reply to terminal, "+of, middle(end), bound, "s")
	all := append([]figure{begin}, under(begin.Name, unbounded("  the slowest", first[len(first)-1], "s"))...)
	return append(append(all, finish), under(finish.Name,
		unbounded("  the slowest", end[len(end)-1], "s"),
		atMost("  lines lost, doubled or out of order", float64(wrong), 0, "lines"))...), nil
}

// middle is the median of sorted values.
func middle(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ran is one batch, from its create to its end.
type ran struct {
	asked time.Time // before create was called
	over  time.Time // the API said so
	model modelStats
	wrong int // result lines that are missing or wrong, and requests too many

	before, after map[string]usage // at asked and at over
}

// run runs a batch of an uploaded file to its end, looking at the model and then
// at the batch each tick.
func (r *loadRun) run(ctx context.Context, file, model string, lines int, tick time.Duration) (b ran, err error) {
	b.before, b.asked = r.watch.usage(), time.Now()
	id, err := r.stack.create(ctx, file)
	if err != nil {
		return b, err
	}
	// While lines are sent only the model is asked: it costs the stack nothing.
	if b.model, err = r.stack.replied(ctx, id, lines, tick); err != nil {
		return b, err
	}
	wire, err := r.stack.terminal(ctx, id, tick)
	if err != nil {
		return b, fmt.Errorf("%w; its first request came after %s, its last reply after %s", err, b.model.First.Sub(b.asked), b.model.Last.Sub(b.asked))
	}
	b.over, b.after = time.Now(), r.watch.usage()
	if b.model, err = r.stack.stats(ctx, id); err != nil { // one too many would come late
		return b, err
	}
	b.wrong, err = r.stack.strays(ctx, wire, model, lines)
	b.wrong += max(b.model.Requests-lines, 0)
	return b, err
}

// counted says how many of what, with the thousands set apart.
func counted(n int, what string) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s + " " + what
}
