package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// machine runs the executions that are started, as the deployed state machine
// does.
func (w *World) machine() {
	for n := 0; w.wait(time.Second); {
		for _, e := range w.stores.Workflow.Executions()[n:] {
			n++
			number := n
			w.spawn(func() { w.execution(number, e) })
		}
	}
}

// fallen reports whether the execution was stopped, or killed.
func (w *World) fallen(name string) bool {
	seen, err := w.stores.Workflow.Seen(context.Background(), name)
	return err != nil || seen != batch.Running
}

func (w *World) execution(n int, e memory.Execution) {
	ok := (e.Finish || w.plan(n, e.Name)) && !w.fallen(e.Name) && w.finish(n, e.Name)
	switch {
	case w.ended() || w.fallen(e.Name):
	case ok:
		w.stores.Workflow.End(e.Name)
	default:
		w.stores.Workflow.Kill(e.Name)
	}
}

// limit is how often a state is tried again for one kind of error.
type limit struct {
	every time.Duration
	times int
}

// task is one state: a function that is called until it succeeds, its error is one
// that nothing can be done about, or the tries for that kind of error are used up.
func (w *World) task(n int, name, kind string, call func(ctx context.Context, p *process) (again limit, err error)) bool {
	used := map[limit]int{}
	for try := 0; !w.ended() && !w.fallen(name); try++ {
		p := w.start(kind, n, try)
		ctx, cancel := context.WithTimeout(p.ctx, 40*time.Second)
		again, err := call(ctx, p)
		cancel()
		w.note(p, name, "done", err)
		if err == nil {
			return true
		}
		if !p.alive() {
			again = limit{10 * time.Second, 3} // the function's process exited
		}
		if used[again]++; used[again] > again.times {
			return false
		}
		w.wait(again.every)
	}
	return false
}

var moment = limit{10 * time.Second, 3} // trouble of the moment

// plan plans the batch, sends each part's message and waits for its report.
// Whether there is anything to finish.
func (w *World) plan(n int, name string) bool {
	var plan batch.Plan
	planned := w.task(n, name, "plan", func(ctx context.Context, p *process) (limit, error) {
		var err error
		plan, err = p.planner().Plan(ctx, tenant, batchID, time.Now())
		if errors.Is(err, batch.ErrNotFound) || errors.Is(err, batch.ErrCut) {
			return limit{}, err
		}
		return moment, err
	})
	if !planned {
		return false
	}
	task := func(part, try int) string { return fmt.Sprintf("task-%d-%d-%d", n, part, try) }
	waiting := plan.Parts
	for try := 0; ; try++ {
		for _, part := range waiting {
			w.send(name, batch.Message{V: 1, Tenant: tenant, Batch: batchID, Part: part, TaskToken: task(part, try)}, 0)
		}
		for range 1200 { // the wait's heartbeat times out after 20 minutes, and a new message is sent
			reports := w.stores.Workflow.Reports()
			waiting = slices.DeleteFunc(waiting, func(part int) bool { return slices.Contains(reports, task(part, try)) })
			if len(waiting) == 0 {
				return true
			}
			if w.ended() || w.fallen(name) {
				return false
			}
			w.wait(time.Second)
		}
	}
}

// finish assembles the results.
func (w *World) finish(n int, name string) bool {
	return w.task(n, name, "finish", func(ctx context.Context, p *process) (limit, error) {
		_, err := p.finisher().Finish(ctx, tenant, batchID, time.Now())
		out, timeUp := errors.AsType[*batch.OutOfTimeError](err)
		switch {
		case errors.Is(err, batch.ErrConservation):
			w.violated("%s: %v", p.name, err)
			return limit{}, err
		case errors.Is(err, batch.ErrNotFound), errors.Is(err, batch.ErrStatus):
			return limit{}, err
		case timeUp && out.Saved:
			return limit{time.Second, 200}, err
		case errors.Is(err, batch.ErrDraining):
			return limit{3 * time.Second, int((drain + time.Minute) / (3 * time.Second))}, err
		case errors.Is(err, lease.ErrHeld), errors.Is(err, batch.ErrPartsOpen):
			return limit{15 * time.Second, int((leaseTime+margin+time.Minute)/(15*time.Second)) + 1}, err
		}
		return moment, err
	})
}

// worker is one slot of the poller: while it lives, a process is given one message
// after the other.
func (w *World) worker(i int) {
	for generation := 0; !w.ended(); generation++ {
		p := w.start("work", i, generation)
		r := p.runner()
		for turn := int64(0); p.alive() && !w.ended(); turn++ {
			d, err := w.stores.Queue.Receive(context.Background())
			if errors.Is(err, batch.ErrEmpty) {
				w.wait(time.Second + time.Duration(w.dice.at(2000, turn, "poll", p.name))*time.Millisecond)
				continue
			}
			life := w.Life
			if life == 0 {
				life = 25*time.Second + time.Duration(w.dice.at(60_000, turn, "life", p.name))*time.Millisecond
			}
			w.note(p, "message", fmt.Sprintf("received for part %d, for the %d. time", d.Part, d.Receives), nil)
			out := r.Run(p.ctx, d, time.Now().Add(life))
			w.note(p, "run", fmt.Sprintf("part %d: %s", d.Part, out.Why), nil)
			if p.alive() && out.Ack {
				w.stores.Queue.Delete(context.Background(), d)
			}
		}
		p.cancel()
		w.wait(time.Second)
	}
}

// reaper does a round each minute, each in a process of its own.
func (w *World) reaper(i int) {
	w.wait(w.Silence)
	w.wait(time.Duration(w.dice.in(60_000, "reaper", fmt.Sprint(i))) * time.Millisecond)
	for n := 0; !w.ended(); n++ {
		w.Reap(i, n)
		w.wait(time.Minute)
	}
}

// Reap does one round.
func (w *World) Reap(n ...int) reap.Report {
	p := w.start("reap", n...)
	defer p.cancel()
	ctx, cancel := context.WithTimeout(p.ctx, 50*time.Second)
	defer cancel()
	rep, err := p.reap().Round(ctx, reap.Scope{}, time.Now())
	if err != nil || rep.Done() > 0 {
		w.note(p, "round", fmt.Sprintf("%+v", rep), err)
	}
	return rep
}

// operate is what people do to the batch, and what befalls the whole.
func (w *World) operate() {
	if w.Operator != nil {
		w.Operator()
		return
	}
	for n := 0; !w.ended(); n++ {
		past := time.Since(w.began)
		due := func(at time.Duration) bool { return at > 0 && past >= at && past < at+time.Second }
		if due(w.Cancel) {
			w.CancelBatch()
		}
		if due(w.Purge) {
			w.EmptyQueue()
		}
		if due(w.Fall) {
			w.Fell()
		}
		if w.Redrive && n%20 == 19 {
			w.RedriveAll(n)
		}
		w.wait(time.Second)
	}
}

// CancelBatch cancels the batch, again until that is answered.
func (w *World) CancelBatch() {
	for n := 0; !w.ended() && w.begin("cancel", n, func(p *process) bool {
		_, err := p.ender().Cancel(p.ctx, tenant, batchID, time.Now())
		w.note(p, "cancel", "", err)
		return err != nil && !errors.Is(err, batch.ErrNotFound)
	}); n++ {
		w.wait(time.Second)
	}
}

// Fell makes every execution fall.
func (w *World) Fell() {
	for _, e := range w.stores.Workflow.Executions() {
		w.stores.Workflow.Kill(e.Name)
	}
}

// Wait lets time pass, as an operator does; false: there is nothing left to do.
func (w *World) Wait(d time.Duration) bool { return w.wait(d) }

// RedriveAll redrives every part that is dead.
func (w *World) RedriveAll(n int) {
	for _, x := range w.stores.Table.PartsOf(tenant, batchID) {
		if x.State == batch.Dead {
			w.begin("redrive", n, func(p *process) bool {
				_, err := p.reap().Redrive(p.ctx, x.PartKey, time.Now())
				w.note(p, "redrive", "", err)
				return false
			})
		}
	}
}
