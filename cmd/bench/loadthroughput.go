package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"holdfast/internal/bench"
)

// throughput runs many lines at no latency and at 50 ms, each beside its ideal:
// what the Runner manages alone, and every slot used all the time.
func (r *loadRun) throughput(ctx context.Context) ([]figure, error) {
	var all []figure
	for _, latency := range []time.Duration{0, 50 * time.Millisecond} {
		model := "sim"
		if latency > 0 {
			model = fmt.Sprintf("sim-slow-%d", latency.Milliseconds())
		}
		file, err := r.stack.upload(ctx, loadInput(model, r.lines))
		if err != nil {
			return all, err
		}
		b, err := r.run(ctx, file, model, r.lines, 50*time.Millisecond)
		if err != nil {
			return all, err
		}
		took, span := b.over.Sub(b.asked), b.model.Last.Sub(b.model.First)
		slots := min(r.slots, r.settings.InFlight())
		f := []figure{
			unbounded("  first request to last reply", span.Seconds(), "s"),
			unbounded("  over that time", float64(r.lines)/span.Seconds(), "lines/s"),
		}
		if latency == 0 {
			alone, _, err := bench.OwnWork(r.lines)
			if err != nil {
				return all, err
			}
			f = append(f, unbounded("  the Runner alone, in process", alone, "lines/s"))
		} else {
			ideal := time.Duration(r.lines) * latency / time.Duration(slots)
			f = append(f, unbounded(fmt.Sprintf("  ideal, %d in flight all the time", slots), ideal.Seconds(), "s"),
				unbounded("  first request to last reply, beside it", float64(ideal)/float64(span), "of ideal"),
				unbounded("  create to terminal, beside it", float64(ideal)/float64(took), "of ideal"),
				unbounded("  in flight at the model, on average", b.model.Busy/span.Seconds(), "requests"))
		}
		f = append(f,
			// Those that the model refuses for being too many count here too: it is what the
			// work functions sent.
			atMost("  in flight at the model, at most", float64(b.model.MaxInFlight), float64(r.settings.InFlight()), "requests"),
			atMost("  lines lost, doubled or out of order", float64(b.wrong), 0, "lines"))
		f = append(f, b.processors()...)
		head := unbounded(counted(r.lines, fmt.Sprintf("lines at %d ms, create to terminal", latency.Milliseconds())), took.Seconds(), "s")
		all = append(append(all, head), under(head.Name, f...)...)
	}
	return all, nil
}

// processors is what those that a run keeps busy used until it was over, in processors.
// The emulator is one process that runs its own code on one of them: near 1 it is
// what limits the run, and where all of the machine is near its number the machine
// is.
func (b ran) processors() []figure {
	var f []figure
	for _, name := range []string{"emulator", "work", "model", machine} {
		if u, ok := b.after[name]; ok {
			what := name
			if name == machine {
				what = fmt.Sprintf("everything on this machine of %d", runtime.NumCPU())
			}
			f = append(f, unbounded("  processor time of "+what, (u.cpu-b.before[name].cpu).Seconds()/b.over.Sub(b.asked).Seconds(), "processors"))
		}
	}
	return f
}

// wide runs two batches of many small parts: one beyond the inline Map's forty,
// one of thousands.
func (r *loadRun) wide(ctx context.Context) ([]figure, error) {
	var all []figure
	const model = "sim"
	for _, parts := range slices.Compact([]int{min(60, r.parts), r.parts}) {
		lines := parts * r.settings.PartLines
		file, err := r.stack.upload(ctx, loadInput(model, lines))
		if err != nil {
			return all, err
		}
		// A look at a running batch reads the items of all of its parts: often enough
		// would be the load that is measured.
		b, err := r.run(ctx, file, model, lines, max(50*time.Millisecond, time.Duration(parts)*time.Millisecond/3))
		if err != nil {
			return all, fmt.Errorf("%d parts: %w", parts, err)
		}
		took := b.over.Sub(b.asked)
		head := unbounded(counted(parts, fmt.Sprintf("parts of %d lines, create to terminal", r.settings.PartLines)), took.Seconds(), "s")
		all = append(append(all, head), under(head.Name,
			unbounded("  create to first upstream request", b.model.First.Sub(b.asked).Seconds(), "s"),
			unbounded("  last reply to terminal", b.over.Sub(b.model.Last).Seconds(), "s"),
			unbounded("  between those", float64(parts)/b.model.Last.Sub(b.model.First).Seconds(), "parts/s"),
			atMost("  lines lost, doubled or out of order", float64(b.wrong), 0, "lines"))...)
		all = append(all, under(head.Name, b.processors()...)...)
	}
	return all, nil
}
