// Package bench measures the Runner and the Planner on in-process ports: how well
// the one uses its slots and what it costs itself, how fast the other is and how
// much memory it takes. For cmd/bench and its own test; never part of a function.
//
// The Runner's figures are read off the clock of the caller: in a testing/synctest
// bubble SlotUse is exact and takes no time.
package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// Lognormal returns latencies by line: median times e to the sigma times a
// normal deviate, the same for the same seed.
func Lognormal(lines int, median time.Duration, sigma float64, seed uint64) func(i int) time.Duration {
	rng := rand.New(rand.NewPCG(seed, seed))
	all := make([]time.Duration, lines)
	for i := range all {
		all[i] = time.Duration(float64(median) * math.Exp(sigma*rng.NormFloat64()))
	}
	return func(i int) time.Duration { return all[i] }
}

// Constant returns the same latency for every line.
func Constant(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// SlotUse runs lines in parts of partLines through one Runner with k slots,
// line i taking latency(i), and returns how much of the slots' time was used:
// the sum of what the calls took / k / elapsed, at most 1.
func SlotUse(latency func(i int) time.Duration, k, lines, partLines int) (use float64, elapsed time.Duration, err error) {
	return Rig{Latency: latency, Concurrency: k, Lines: lines, PartLines: partLines}.SlotUse()
}

// Rig is one batch on in-process ports.
type Rig struct {
	Latency     func(i int) time.Duration // of line i at the model; nil: none
	Concurrency int                       // of a worker; it stands still
	Lines       int
	PartLines   int
	// Port is a latency of every call of table, queue and object store, such as a
	// real one has; 0 by default.
	Port time.Duration
	// Waiting is how many parts the workflow waits for at once, as a Distributed Map
	// does: the message of the next is sent when one is reported. 0: all.
	Waiting int
}

// SlotUse is the function SlotUse with everything the rig has.
func (r Rig) SlotUse() (use float64, elapsed time.Duration, err error) {
	w, err := r.build(1)
	if err != nil {
		return 0, 0, err
	}
	elapsed, err = w.run()
	if err != nil {
		return 0, elapsed, err
	}
	// What the calls took by the clock, and not what they were meant to take: a
	// timer that rings late is the machine's, and the slot is in use until it does.
	return float64(w.busy.Load()) / float64(r.Concurrency) / float64(elapsed), elapsed, nil
}

// OwnWork runs lines that the model answers at once and returns how many lines
// a second the Runner manages, and the CPU seconds of the whole process for
// every 1,000 of them: parsing, hashing, records, chunks, and the in-process
// ports, which are part of the figure. Run nothing beside it.
func OwnWork(lines int) (linesPerSecond, cpuSecondsPer1000 float64, err error) {
	r := Rig{Concurrency: 32, Lines: lines, PartLines: 500}
	w, err := r.build(1)
	if err != nil {
		return 0, 0, err
	}
	runtime.GC()
	before := cpu()
	elapsed, err := w.run()
	if err != nil {
		return 0, 0, err
	}
	used := cpu() - before
	return float64(lines) / elapsed.Seconds(), used.Seconds() / float64(lines) * 1000, nil
}

// cpu is what the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// work is a rig ready to start.
type work struct {
	runners []*batch.Runner // one a worker
	queue   *memory.Queue
	lines   int
	sent    *atomic.Int64
	busy    *atomic.Int64 // nanoseconds of calls
	flow    *flow         // nil: all messages are in the queue
}

const (
	tenant  = "bench"
	id      = "batch_bench"
	reply   = `{"id":"chatcmpl-1","object":"chat.completion","model":"sim","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":10,"total_tokens":22}}`
	request = `{"custom_id":"request-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"sim","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Say something about line %d."}],"max_tokens":100}}` + "\n"
)

func (r Rig) build(workers int) (*work, error) {
	ctx := context.Background()
	var f *memory.Faults
	if r.Port > 0 {
		f = memory.NewFaults()
		f.Before("", 0, func(ctx context.Context, p memory.Point) error { return memory.Wait(ctx, r.Port) })
	}
	m := memory.New(memory.Options{})
	var input bytes.Buffer
	var parts []batch.Part
	for i := range r.Lines {
		if i%r.PartLines == 0 {
			parts = append(parts, batch.Part{
				PartKey: batch.PartKey{Tenant: tenant, Batch: id, N: len(parts)}, State: batch.Pending,
				FirstLine: int64(i), FirstPhysical: int64(i + 1), From: int64(input.Len()),
			})
		}
		fmt.Fprintf(&input, request, i, i)
		p := &parts[len(parts)-1]
		p.Lines++
		p.To = int64(input.Len())
	}
	object, err := m.Objects.Put(ctx, batch.Object{Bucket: "inputs", Key: "input"}, input.Bytes())
	if err != nil {
		return nil, err
	}
	m.Table.SeedBatch(batch.Batch{
		Tenant: tenant, ID: id, Status: batch.InProgress, Submitter: "bench", Endpoint: "/v1/chat/completions",
		Input: batch.Input{Object: object}, Parts: len(parts), Lines: int64(r.Lines),
	})
	atOnce := len(parts)
	if r.Waiting > 0 {
		atOnce = min(r.Waiting, atOnce)
	}
	for _, p := range parts {
		m.Table.SeedPart(p)
	}
	for n := range atOnce {
		if err := m.Queue.Send(ctx, message(n), 0); err != nil {
			return nil, err
		}
	}
	var sent, busy atomic.Int64
	answer := modelFunc(func(ctx context.Context, c batch.Call) (batch.Reply, error) {
		sent.Add(1)
		if r.Latency != nil {
			begun := time.Now()
			if err := memory.Wait(ctx, r.Latency(int(c.Line))); err != nil {
				return batch.Reply{}, err
			}
			busy.Add(int64(time.Since(begun)))
		}
		return batch.Reply{Status: 200, RequestID: "req_1", Body: []byte(reply)}, nil
	})
	v := m.With(f)
	w := &work{queue: m.Queue, lines: r.Lines, sent: &sent, busy: &busy}
	var workflow batch.Workflow = v.Workflow
	if r.Waiting > 0 {
		w.flow = &flow{Workflow: v.Workflow, queue: m.Queue, parts: len(parts), next: atOnce}
		workflow = w.flow
	}
	for range workers {
		runner, err := batch.NewRunner(batch.RunnerPorts{
			Batches: v.Table.Batches, Parts: v.Table.Parts, Claims: v.Table.Claims, Steals: v.Table.Claims, Deaths: v.Table.Deaths, Events: v.Table.Events,
			Objects: v.Objects, Queue: v.Queue, Workflow: workflow,
			Model: answer, Log: slog.New(slog.DiscardHandler), Results: "results",
		}, &batch.RunnerOptions{Concurrency: r.Concurrency, Floor: r.Concurrency, Ceiling: r.Concurrency})
		if err != nil {
			return nil, err
		}
		w.runners = append(w.runners, runner)
	}
	return w, nil
}

// modelFunc is a Model that remembers nothing: memory.Model keeps every call.
type modelFunc func(context.Context, batch.Call) (batch.Reply, error)

func (f modelFunc) Call(ctx context.Context, c batch.Call) (batch.Reply, error) { return f(ctx, c) }

// run has every worker take message after message, as its poller does, until none
// is left.
func (w *work) run() (time.Duration, error) {
	start := time.Now()
	lines := make([]int, len(w.runners))
	errs := make([]error, len(w.runners))
	var wg sync.WaitGroup
	for i, runner := range w.runners {
		wg.Go(func() { lines[i], errs[i] = w.poll(runner) })
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return elapsed, err
	}
	done := 0
	for _, n := range lines {
		done += n
	}
	if n := int(w.sent.Load()); done != w.lines || n != w.lines {
		return elapsed, fmt.Errorf("%d of %d lines done, with %d requests", done, w.lines, n)
	}
	return elapsed, nil
}

func (w *work) poll(runner *batch.Runner) (lines int, err error) {
	ctx := context.Background()
	for {
		d, err := w.queue.Receive(ctx)
		if errors.Is(err, batch.ErrEmpty) {
			if w.flow == nil || w.flow.over() {
				return lines, nil
			}
			_ = memory.Wait(ctx, pollAgain)
			continue
		}
		if err != nil {
			return lines, err
		}
		out := runner.Run(ctx, d, time.Now().Add(time.Hour))
		lines += out.Tally.Lines
		if !out.Ack {
			return lines, fmt.Errorf("a part ended as %s", out.Why)
		}
	}
}
