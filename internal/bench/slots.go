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
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
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
	Concurrency int
	Lines       int
	PartLines   int
	// Port is a latency of every call of table, queue and object store, such as a
	// real one has; 0 by default.
	Port time.Duration
}

// SlotUse is the function SlotUse with everything the rig has.
func (r Rig) SlotUse() (use float64, elapsed time.Duration, err error) {
	w, err := r.build()
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
	w, err := r.build()
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
	runner *batch.Runner
	queue  *memory.Queue
	lines  int
	sent   *atomic.Int64
	busy   *atomic.Int64 // nanoseconds of calls
}

const (
	tenant  = "bench"
	id      = "batch_bench"
	reply   = `{"id":"chatcmpl-1","object":"chat.completion","model":"sim","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog."},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":10,"total_tokens":22}}`
	request = `{"custom_id":"request-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"sim","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Say something about line %d."}],"max_tokens":100}}` + "\n"
)

func (r Rig) build() (*work, error) {
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
	for _, p := range parts {
		m.Table.SeedPart(p)
		if err := m.Queue.Send(ctx, batch.Message{V: 1, Tenant: tenant, Batch: id, Part: p.N, TaskToken: "t"}, 0); err != nil {
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
	runner, err := batch.NewRunner(batch.RunnerPorts{
		Batches: v.Table.Batches, Claims: v.Table.Claims, Objects: v.Objects, Queue: v.Queue, Workflow: v.Workflow,
		Model: answer, Log: slog.New(slog.DiscardHandler), Results: "results",
	}, &batch.RunnerOptions{Concurrency: r.Concurrency})
	if err != nil {
		return nil, err
	}
	return &work{runner: runner, queue: m.Queue, lines: r.Lines, sent: &sent, busy: &busy}, nil
}

// modelFunc is a Model that remembers nothing: memory.Model keeps every call.
type modelFunc func(context.Context, batch.Call) (batch.Reply, error)

func (f modelFunc) Call(ctx context.Context, c batch.Call) (batch.Reply, error) { return f(ctx, c) }

// run takes message after message, as one worker's poller does, until none is
// left.
func (w *work) run() (time.Duration, error) {
	ctx := context.Background()
	start := time.Now()
	done := 0
	for done < w.lines {
		d, err := w.queue.Receive(ctx)
		if err != nil {
			return time.Since(start), fmt.Errorf("%d of %d lines done: %w", done, w.lines, err)
		}
		out := w.runner.Run(ctx, d, time.Now().Add(time.Hour))
		done += out.Tally.Lines
		if !out.Ack {
			return time.Since(start), fmt.Errorf("a part ended as %s", out.Why)
		}
	}
	elapsed := time.Since(start)
	if n := int(w.sent.Load()); n != w.lines {
		return elapsed, fmt.Errorf("%d requests for %d lines", n, w.lines)
	}
	return elapsed, nil
}
