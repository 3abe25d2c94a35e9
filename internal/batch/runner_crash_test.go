package batch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// scenarios are runs whose every call of a port is made to go wrong.
var scenarios = []struct {
	name string
	life time.Duration
	seed func(*rig) // changes how things stand before
}{
	{"to the end", life, nil},
	{"handed over", 185 * time.Second, nil}, // 5 s to send in
	{"stolen", life, func(r *rig) {
		p := r.part(0)
		p.State, p.Owner, p.LeaseUntil, p.Attempts, p.Ver = batch.Leased, "dead", time.Now().Add(-time.Minute), 1, 9
		r.m.Table.SeedPart(p)
	}},
	{"with a suspect, then alone", life, func(r *rig) {
		p := r.part(0)
		p.Attempts, p.Suspect, p.Ver = 2, batch.Suspect{Line: 17, Strikes: 1, By: "dead"}, 9
		r.m.Table.SeedPart(p)
	}},
}

func crashRig(t *testing.T) *rig {
	r := newRig(t, 60, 30, after(time.Second))
	r.opts.CheckpointLines, r.opts.Concurrency = 10, 4
	return r
}

// TestCrashTable ends or disturbs a run at every call it makes of a port, before
// it takes effect and after it did. Whoever comes next must bring every line to
// exactly one result, repeating no more than C + K lines of each part that the
// dead run held; and a single lost call or answer that doesn't end the process
// must repeat nothing.
func TestCrashTable(t *testing.T) {
	for _, s := range scenarios {
		var points []memory.Point
		bubble(t, func(t *testing.T) {
			r := crashRig(t)
			if s.seed != nil {
				s.seed(r)
			}
			f := memory.NewFaults()
			r.run(f, s.life)
			for _, p := range f.Calls() {
				if p.Op != "Model.Call" || p.N%13 == 1 {
					points = append(points, p)
				}
			}
		})
		if len(points) < 10 {
			t.Fatalf("%s: only %d calls", s.name, len(points))
		}
		for _, p := range points {
			for _, when := range []string{"before", "after"} {
				for _, kind := range []string{"crash", "fail"} {
					t.Run(fmt.Sprintf("%s/%s %s %s", s.name, kind, when, p), func(t *testing.T) {
						bubble(t, func(t *testing.T) { crashAt(t, p, when, kind, s.life, s.seed) })
					})
				}
			}
		}
	}
}

func crashAt(t *testing.T, p memory.Point, when, kind string, life time.Duration, seed func(*rig)) {
	r := crashRig(t)
	if seed != nil {
		seed(r)
	}
	f := memory.NewFaults()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hit := false
	var mu sync.Mutex
	hook := func(hookCtx context.Context, p memory.Point) error {
		mu.Lock()
		hit = true
		mu.Unlock()
		if kind == "fail" {
			return memory.ErrInjected
		}
		cancel()
		return f.Crash(hookCtx, p)
	}
	if when == "before" {
		f.Before(p.Op, p.N, hook)
	} else {
		f.After(p.Op, p.N, hook)
	}
	d, _ := r.receive()
	out := r.runner(f).Run(ctx, d, time.Now().Add(life))
	if kind == "crash" && out.Ack && ctx.Err() == nil || kind == "fail" && out.Ack {
		if err := r.m.Queue.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if !hit {
		t.Logf("%v did not happen this time", p)
	}
	r.records() // what counts so far is whole
	r.settle()
	for i, x := range r.conserved() {
		if blamed := kind == "crash" && seed != nil && i == 17; !x.OK && !blamed && p.Op != "Model.Call" {
			t.Errorf("line %d failed: %s", i, x.Result)
		}
	}
	limit := 0
	switch {
	case kind == "crash":
		limit = 2 * (10 + 4)
	case p.Op == "Model.Call":
		limit = 1 // the try that failed
	}
	if n := r.repeats(); n > limit {
		t.Errorf("%d lines repeated, want at most %d", n, limit)
	}
	r.reported("task-0", "task-1")
}

// FuzzOwners lets several workers, a reaper with a bad clock and a queue that
// duplicates messages loose on one batch, with ports that fail, lose answers,
// hang and crash. Whatever the interleaving: progress never goes back, done
// never reopens, and in the end every line has exactly one result.
func FuzzOwners(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T) { owners(t, seed) })
	})
}

// dice is a seeded source that many goroutines throw.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) in(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func owners(t *testing.T, seed uint64) {
	d := &dice{rng: rand.New(rand.NewPCG(seed, 1))}
	r := newRig(t, 80, 40, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
		if err := memory.Wait(ctx, time.Duration(d.in(3000))*time.Millisecond); err != nil {
			return batch.Reply{}, err
		}
		switch d.in(20) {
		case 0:
			return batch.Reply{Status: 429, RetryAfter: time.Duration(d.in(15)) * time.Second}, nil
		case 1:
			return batch.Reply{}, batch.ErrUnreachable
		default:
			return batch.Reply{Status: 200, Body: []byte(`{}`)}, nil
		}
	})
	r.opts = batch.RunnerOptions{
		Concurrency: 4, Floor: 1, Ceiling: 8, CheckpointLines: 8, Lease: 24 * time.Second, LineTimeout: 5 * time.Second,
		Margin: 5 * time.Second, MaxAttempts: 1000,
	}
	bad := 10 * time.Minute // how long things go wrong
	start := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for time.Since(start) < bad && !r.over() {
				if m, ok := r.receive(); ok {
					r.hazard(d, m)
				} else {
					r.pass(time.Second)
				}
			}
		})
	}
	wg.Go(func() {
		last := r.m.Table.PartsOf(tenant, batchID)
		for time.Since(start) < bad && !r.over() {
			r.pass(time.Duration(1+d.in(5000)) * time.Millisecond)
			now := r.m.Table.PartsOf(tenant, batchID)
			for i, p := range now {
				if p.Processed < last[i].Processed || last[i].State == batch.Done && p.State != batch.Done {
					t.Errorf("part %d went from %s/%d to %s/%d", i, last[i].State, last[i].Processed, p.State, p.Processed)
				}
				// The reaper's clock may be far ahead: it takes parts from live owners.
				if early := time.Duration(d.in(20)) * time.Second; p.State == batch.Leased && time.Now().Add(early).After(p.LeaseUntil) {
					c := batch.Claim{PartKey: p.PartKey, Token: p.Owner}
					r.m.Table.Claims.Fail(t.Context(), c, "reaped", time.Now(), time.Now())
				}
				if p.State != batch.Done && d.in(3) == 0 {
					r.sendMessage(i)
				}
			}
			last = now
		}
	})
	wg.Wait()
	r.settle()
	r.conserved()
}

// hazard runs a message in a process to which things happen.
func (r *rig) hazard(d *dice, m batch.Delivery) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	f := memory.NewFaults()
	hook := func(hookCtx context.Context, p memory.Point) error {
		switch n := d.in(400); {
		case n == 0:
			cancel()
			return f.Crash(hookCtx, p)
		case n < 3 && p.Op != "Model.Call":
			return memory.Wait(hookCtx, time.Duration(d.in(40))*time.Second)
		case n < 30:
			return memory.ErrInjected
		}
		return nil
	}
	f.Before("", 0, hook)
	f.After("", 0, hook)
	out := r.runner(f).Run(ctx, m, time.Now().Add(time.Duration(11+d.in(60))*time.Second))
	if out.Ack && ctx.Err() == nil {
		if err := r.m.Queue.Delete(r.t.Context(), m); err != nil {
			r.t.Error(err)
		}
	}
}
