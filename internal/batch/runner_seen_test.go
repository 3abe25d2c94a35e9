package batch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// seen is what a rig's runners told an observer.
type seen struct {
	mu     sync.Mutex
	counts map[batch.Metric]float64
	on     func(batch.Metric) // called with each, outside the lock
}

// observe counts what the rig's runners tell.
func (r *rig) observe() *seen {
	s := &seen{counts: map[batch.Metric]float64{}}
	r.opts.Observer = func(m batch.Metric, n float64) {
		s.mu.Lock()
		s.counts[m] += n
		on := s.on
		s.mu.Unlock()
		if on != nil {
			on(m)
		}
	}
	return s
}

func (s *seen) of(m batch.Metric) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[m]
}

// events are those of the batch that are of a kind, or all.
func (r *rig) events(kinds ...batch.EventKind) (found []batch.Event) {
	for _, e := range r.m.Table.EventsOf(tenant, batchID) {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// modelFunc is a model that a test makes of another.
type modelFunc func(context.Context, batch.Call) (batch.Reply, error)

func (f modelFunc) Call(ctx context.Context, c batch.Call) (batch.Reply, error) { return f(ctx, c) }

// killer decides about deaths: which lines kill the process that sends them, and
// when processes are killed for nothing that they do.
type killer struct {
	poison map[int64]bool
	after  []time.Duration // a process is killed when it has lived so long, one after the other
	deaths int
}

// process receives a message, if there is one, and runs it in a process that dies
// as the killer wants.
func (r *rig) process(k *killer) {
	r.t.Helper()
	d, ok := r.receive()
	if !ok {
		r.pass(time.Second)
		return
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	f := memory.NewFaults()
	die := sync.OnceFunc(func() {
		k.deaths++
		_ = f.Crash(ctx, memory.Point{})
		cancel()
	})
	r.ports = func(p *batch.RunnerPorts) {
		inner := p.Model
		p.Model = modelFunc(func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			if k.poison[c.Line] {
				if memory.Wait(ctx, 300*time.Millisecond) == nil {
					die()
				}
				return batch.Reply{}, memory.ErrCrashed
			}
			return inner.Call(ctx, c)
		})
	}
	runner := r.runner(f)
	if len(k.after) > 0 {
		timer := time.AfterFunc(k.after[0], die)
		k.after = k.after[1:]
		defer timer.Stop()
	}
	out := runner.Run(ctx, d, time.Now().Add(life))
	if ctx.Err() == nil && out.Ack {
		if err := r.m.Queue.Delete(context.Background(), d); err != nil && !errors.Is(err, batch.ErrNotFound) {
			r.t.Fatal(err)
		}
	}
}

// survive runs processes until every part is over.
func (r *rig) survive(k *killer) {
	r.t.Helper()
	start := time.Now()
	for !r.over() || len(r.m.Queue.Messages()) > 0 {
		if time.Since(start) > 12*time.Hour {
			r.t.Fatalf("parts still open after 12 hours: %+v", r.m.Table.PartsOf(tenant, batchID))
		}
		r.process(k)
	}
}

// deliveryOf receives messages until that of part n comes, and gives the others
// back.
func (r *rig) deliveryOf(n int) (found batch.Delivery) {
	r.t.Helper()
	var others []batch.Delivery
	for {
		d, ok := r.receive()
		if !ok {
			r.t.Fatalf("no message of part %d", n)
		}
		if d.Part == n {
			found = d
			break
		}
		others = append(others, d)
	}
	for _, d := range others {
		if err := r.m.Queue.Hide(r.t.Context(), d, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	return found
}
