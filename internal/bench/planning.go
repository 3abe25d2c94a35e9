package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// PlanSpeed plans an input of lines of about lineBytes, and reads the same bytes
// with bufio and encoding/json, which unmarshals each line's envelope and checks
// nothing. It returns the bytes a second of CPU that planning manages, and how
// many times that is of encoding/json's: the median over turns, in each of which
// both run once, on one core. Planning is all of it: Planner.Plan with its
// reader, every check, the ids and the parts, on in-process ports.
func PlanSpeed(text Text, lineBytes, turns int) (bytesPerSecond, ratio float64, err error) {
	in, err := NewInput(text, lineBytes, 16<<20)
	if err != nil {
		return 0, 0, err
	}
	m, object, raw, err := stored(in)
	if err != nil {
		return 0, 0, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ratios, took []float64
	for turn := range turns + 1 { // the first is to warm up
		ours, err := cpuOf(func() error { return plan(m, m.Objects, object, fmt.Sprint("batch_", turn), in.Lines()) })
		if err != nil {
			return 0, 0, err
		}
		theirs, err := cpuOf(func() error { return unmarshalEach(m.Objects, object, in.Lines()) })
		if err != nil {
			return 0, 0, err
		}
		if turn > 0 {
			took = append(took, ours.Seconds())
			ratios = append(ratios, float64(theirs)/float64(ours))
		}
	}
	return float64(len(raw)) / median(took), median(ratios), nil
}

// cpuOf is the CPU that f takes, from a clean heap: neither side pays for the
// other's garbage, each for its own.
func cpuOf(f func() error) (time.Duration, error) {
	runtime.GC()
	before := cpu()
	err := f()
	return cpu() - before, err
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// plan plans the object as a batch of that id, which must come to so many lines.
func plan(m *memory.Memory, objects batch.Objects, object batch.Object, id string, lines int64) error {
	m.Table.SeedBatch(batch.Batch{Tenant: tenant, ID: id, Status: batch.Validating, Submitter: "bench",
		Endpoint: "/v1/chat/completions", Input: batch.Input{Object: object}})
	p, err := batch.NewPlanner(m.Table.Batches, m.Table.Parts, objects, "results", &batch.PlannerOptions{Lines: 10_000_000, Bytes: 10e9})
	if err != nil {
		return err
	}
	plan, err := p.Plan(context.Background(), tenant, id, time.Now())
	if err != nil {
		return err
	}
	b, err := m.Table.Batches.Get(context.Background(), tenant, id)
	if err != nil {
		return err
	}
	if plan.Status != batch.Planned || b.Lines != lines {
		return fmt.Errorf("planning came to %s with %d of %d lines: %v", plan.Status, b.Lines, lines, b.Errors)
	}
	return nil
}

// unmarshalEach is what planning is compared with.
func unmarshalEach(objects batch.Objects, object batch.Object, lines int64) error {
	body, err := objects.Open(context.Background(), object, 0, object.Bytes)
	if err != nil {
		return err
	}
	defer body.Close()
	r := bufio.NewReaderSize(body, 64<<10)
	for n := int64(0); ; n++ {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			if n != lines {
				return fmt.Errorf("encoding/json read %d of %d lines", n, lines)
			}
			return nil
		}
		if err != nil {
			return err
		}
		var envelope struct {
			CustomID string          `json:"custom_id"`
			Method   string          `json:"method"`
			URL      string          `json:"url"`
			Body     json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(line, &envelope); err != nil {
			return err
		}
	}
}

// PlanPeak plans a generated input of at most size bytes, in lines of about
// lineBytes, and returns how many lines it had and the most memory that this
// process was ever given, in bytes. So it wants a process of its own, which it
// makes collect garbage as the plan function does. The input
// is made as it is read; the parts are in memory, as an addition to the planner's
// own need.
func PlanPeak(lineBytes int, size int64) (lines, peak int64, err error) {
	in, err := NewInput(Prose, lineBytes, size)
	if err != nil {
		return 0, 0, err
	}
	debug.SetGCPercent(batch.PlanGCPercent)
	object := batch.Object{Bucket: "inputs", Key: "input", Bytes: in.Bytes()}
	m := memory.New(memory.Options{})
	if err := plan(m, inputObjects{m.Objects, in}, object, id, in.Lines()); err != nil {
		return 0, 0, err
	}
	peak, err = peakRSS()
	return in.Lines(), peak, err
}

// peakRSS is the process's peak resident set. Linux tells it of the program alone
// in /proc; its rusage also counts what the parent had when it forked.
func peakRSS() (int64, error) {
	if runtime.GOOS == "linux" {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return 0, err
		}
		_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			return 0, errors.New("/proc/self/status has no VmHWM")
		}
		kb, err := strconv.ParseInt(string(fields[0]), 10, 64)
		return kb << 10, err
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return int64(u.Maxrss), nil // bytes, on a Mac
}

// stored is in-process ports that hold the input as an object.
func stored(in *Input) (*memory.Memory, batch.Object, []byte, error) {
	raw, err := io.ReadAll(in.Open())
	if err != nil {
		return nil, batch.Object{}, nil, err
	}
	m := memory.New(memory.Options{})
	object, err := m.Objects.Put(context.Background(), batch.Object{Bucket: "inputs", Key: "input"}, raw)
	return m, object, raw, err
}
