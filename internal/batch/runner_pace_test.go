package batch_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// server is a model server with so many slots: it refuses what comes beyond
// them. Slots may change while it runs.
type server struct {
	mu        sync.Mutex
	slots     int
	busy      int
	most      int
	refusals  int
	answered  int
	latencies time.Duration // of what it answered, in sum
	refuse    func(ctx context.Context) (batch.Reply, error)
	latency   func() time.Duration
}

func newServer(slots int, latency func() time.Duration) *server {
	return &server{slots: slots, latency: latency, refuse: refuseWith(429)}
}

func refuseWith(status int) func(context.Context) (batch.Reply, error) {
	return func(ctx context.Context) (batch.Reply, error) {
		return reply(status, `{}`), memory.Wait(ctx, 10*time.Millisecond)
	}
}

func (s *server) answer(ctx context.Context, _ batch.Call) (batch.Reply, error) {
	s.mu.Lock()
	if s.busy >= s.slots {
		s.refusals++
		s.mu.Unlock()
		return s.refuse(ctx)
	}
	s.busy++
	s.most = max(s.most, s.busy)
	took := s.latency()
	s.mu.Unlock()
	err := memory.Wait(ctx, took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if err == nil {
		s.answered++
		s.latencies += took
	}
	return reply(200, `{"ok":true}`), err
}

func (s *server) set(slots int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = slots
}

// peak is the most it answered at once since peak was asked last.
func (s *server) peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most
	s.most = s.busy
	return most
}

func (s *server) refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusals
}

func second() time.Duration { return time.Second }

func adaptive() batch.RunnerOptions {
	return batch.RunnerOptions{Concurrency: 32, Floor: 1, Ceiling: 128}
}

// A model that answers everything is asked for more and more, by one a round
// trip, up to the ceiling and not beyond.
func TestConcurrencyClimbs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServer(1_000_000, second)
		r := newRig(t, 12_000, 500, s.answer)
		r.opts = adaptive()
		done := r.begin(nil, life)
		r.pass(1500 * time.Millisecond)
		if n := s.peak(); n < 32 || n > 34 {
			t.Errorf("%d in flight in the second round trip, want the start and hardly more", n)
		}
		r.pass(20 * time.Second)
		if n := s.peak(); n < 45 || n > 60 {
			t.Errorf("%d in flight after 21 s, want about one more each second", n)
		}
		expect(t, <-done, true, "done")
		if n := s.peak(); n != 128 {
			t.Errorf("%d in flight at most, want the ceiling", n)
		}
		if _, most := r.model.InFlight(); most != 128 {
			t.Errorf("%d in flight at most, want the ceiling", most)
		}
		r.conserved()
	})
}

// A warm process keeps what it learnt: the second run begins where the first
// ended.
func TestRunnerKeepsItsPace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newServer(1_000_000, second)
		r := newRig(t, 2000, 1000, s.answer)
		r.opts = adaptive()
		runner := r.runner(nil)
		first, _ := r.receive()
		second, _ := r.receive() // not the first run's to take
		expect(t, runner.Run(t.Context(), first, time.Now().Add(life)), true, "done")
		learnt := s.peak()
		if learnt < 40 {
			t.Fatalf("%d in flight at most in the first run", learnt)
		}
		expect(t, func() batch.Outcome {
			done := make(chan batch.Outcome, 1)
			go func() { done <- runner.Run(t.Context(), second, time.Now().Add(life)) }()
			r.pass(900 * time.Millisecond)
			if n := s.peak(); n < learnt-1 {
				t.Errorf("%d in flight at first in the second run, %d at last in the first", n, learnt)
			}
			return <-done
		}(), true, "done")
		r.conserved()
	})
}

// A storm takes the limit to the floor, whatever it is made of, and after it the
// model is asked for as much again. It costs no claim and no line.
func TestStorm(t *testing.T) {
	for name, refuse := range map[string]func(context.Context) (batch.Reply, error){
		"429": refuseWith(429),
		"503": refuseWith(503),
		"timeouts": func(ctx context.Context) (batch.Reply, error) {
			<-ctx.Done() // the Runner's own, for the line
			return batch.Reply{}, ctx.Err()
		},
		"unreachable": func(context.Context) (batch.Reply, error) { return batch.Reply{}, batch.ErrUnreachable },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newServer(1_000_000, second)
				s.refuse = refuse
				r := newRig(t, 5000, 500, s.answer)
				r.opts = adaptive()
				r.opts.LineTimeout = 5 * time.Second
				r.opts.Tries, r.opts.RetryBudget = 5000, time.Hour // what a storm does to results is the breaker's matter
				f := memory.NewFaults()
				done := r.begin(f, life)
				r.pass(20 * time.Second)
				if n := s.peak(); n < 45 {
					t.Fatalf("%d in flight before the storm", n)
				}
				s.set(0)
				r.pass(80 * time.Second) // 11 falls, each after another try
				s.set(1_000_000)
				s.peak()
				r.pass(1500 * time.Millisecond)
				if n := s.peak(); n > 3 {
					t.Errorf("%d in flight right after the storm, want the floor or hardly more", n)
				}
				r.pass(60 * time.Second)
				if n := s.peak(); n < 45 {
					t.Errorf("%d in flight a minute after the storm", n)
				}
				expect(t, <-done, true, "done")
				if claims := f.Count("Claims.Claim"); claims != 10 {
					t.Errorf("%d claims of 10 parts", claims)
				}
				for i, x := range r.conserved() {
					if !x.OK {
						t.Errorf("line %d failed", i)
					}
				}
			})
		})
	}
}

// What one model refuses is nothing to another, in one part as well: its lines
// pass by those that wait.
func TestModelsAreIndependent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		good, bad := newServer(1_000_000, second), newServer(0, second)
		r := newModelRig(t, 500, 500, 0, func(i int) string { return []string{"good", "bad"}[i%2] },
			func(ctx context.Context, c batch.Call) (batch.Reply, error) {
				if c.Line%2 == 0 {
					return good.answer(ctx, c)
				}
				return bad.answer(ctx, c)
			})
		r.opts = adaptive()
		r.opts.Tries, r.opts.RetryBudget = 1000, time.Hour
		done := r.begin(nil, life)
		r.pass(12 * time.Second)
		// 250 lines at 32 a second and rising.
		if n := good.answered; n != 250 {
			t.Errorf("%d of 250 lines of the good model answered beside a model that refuses everything", n)
		}
		if n := good.peak(); n < 32 {
			t.Errorf("%d in flight to the good model", n)
		}
		before := bad.refused()
		r.pass(10 * time.Second)
		if n := bad.refused() - before; n > 100 {
			t.Errorf("%d requests in 10 s to a model that refuses everything", n)
		}
		bad.set(1_000_000)
		expect(t, <-done, true, "done")
		r.conserved()
	})
}

// All models together stay below the ceiling, and so does what a crash repeats.
func TestCeilingHoldsOverModels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newModelRig(t, 2000, 1000, 0, func(i int) string { return fmt.Sprint("m", i%50) }, after(time.Second))
		r.opts = batch.RunnerOptions{Concurrency: 4, Floor: 1, Ceiling: 20, CheckpointLines: 10}
		f := memory.NewFaults()
		f.Before("Objects.Put", 20, memory.Fail(nil))
		gate := memory.NewGate()
		f.Before("Objects.Put", 40, gate.Wait)
		done := r.begin(f, life)
		<-gate.Reached()
		r.pass(10 * time.Second)
		if n := len(r.model.Calls()) - r.part(0).Processed - r.part(1).Processed; n != 10+20 {
			t.Errorf("%d lines sent and not committed, want C + the ceiling", n)
		}
		gate.Open()
		expect(t, <-done, true, "done")
		if _, most := r.model.InFlight(); most != 20 {
			t.Errorf("%d in flight at most, want the ceiling", most)
		}
		r.conserved()
	})
}

// A server of 20 slots that refuses the rest: what is in flight settles around 20,
// the server is busy, few are refused, and nobody's result suffers.
func TestSettlesAtWhatTheModelTakes(t *testing.T) {
	for _, c := range []struct{ workers, slots int }{{1, 20}, {4, 60}} {
		t.Run(fmt.Sprintf("%d workers, %d slots", c.workers, c.slots), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 5))
				s := newServer(c.slots, func() time.Duration {
					return time.Duration(float64(time.Second) * math.Exp(0.5*rng.NormFloat64()))
				})
				const lines = 8000
				r := newRig(t, lines, 500, s.answer)
				r.opts = adaptive()
				f := memory.NewFaults()
				var wg sync.WaitGroup
				start := time.Now()
				for range c.workers {
					d, _ := r.receive()
					wg.Go(func() { r.runDelivery(t.Context(), f, d, life) })
				}
				r.pass(30 * time.Second)
				refusals, answered := s.refused(), s.answered
				wg.Wait()
				r.settle()
				elapsed := time.Since(start)
				goodput := s.latencies.Seconds() / elapsed.Seconds() / float64(c.slots)
				late := float64(s.refused()-refusals) / float64(s.answered-answered)
				t.Logf("goodput %.3f of ideal; %d refusals in the first 30 s, then %.4f a line; %s", goodput, refusals, late, elapsed)
				if goodput < 0.8 {
					t.Errorf("goodput %.3f of ideal, want 0.8", goodput)
				}
				if late > 0.05 {
					t.Errorf("%.3f refusals a line after settling", late)
				}
				for i, x := range r.conserved() {
					if !x.OK {
						t.Errorf("line %d failed", i)
					}
				}
				if claims := f.Count("Claims.Claim"); claims != lines/500 {
					t.Errorf("%d claims of %d parts", claims, lines/500)
				}
			})
		})
	}
}
