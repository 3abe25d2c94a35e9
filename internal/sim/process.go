package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// process is one of a Lambda function, from its start to its death: what it sees
// of the world are the ports below.
type process struct {
	w       *World
	name    string
	kind    string // work, reap, plan, finish, api
	purpose string
	faults  *memory.Faults
	ctx     context.Context
	cancel  context.CancelFunc
	offset  time.Duration // its clock shows that much more than the world's

	mu    sync.Mutex
	dead  bool
	owns  map[lease.Token]batch.PartKey // claims that took effect
	holds map[batch.PartKey]lease.Token // the last of each part
}

// start is a new process. Its name says all that its fate depends on.
func (w *World) start(kind string, n ...int) *process {
	purpose := kind
	if kind == "cancel" || kind == "redrive" {
		kind = "api"
	}
	p := &process{
		w: w, kind: kind, purpose: purpose, name: purpose + strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", "."), "[]"),
		faults: memory.NewFaults(), owns: map[lease.Token]batch.PartKey{}, holds: map[batch.PartKey]lease.Token{},
	}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	if most := int(w.Skew / time.Millisecond); most > 0 && kind != "api" {
		p.offset = time.Duration(w.dice.in(2*most+1, "offset", p.name)-most) * time.Millisecond
	}
	p.faults.Before("", 0, p.hook("before"))
	p.faults.After("", 0, p.hook("after"))
	w.mu.Lock()
	w.processes[kind] = append(w.processes[kind], p)
	number := len(w.processes[kind])
	w.mu.Unlock()
	if w.OnStart != nil {
		w.OnStart(kind, number, p)
	}
	return p
}

// Purpose is what a process of kind "api" is for: api (create), cancel, redrive.
func (p *process) Purpose() string { return p.purpose }

// Kill ends the process where it stands. What it sent before may still land.
func (p *process) Kill(why string) {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	p.mu.Unlock()
	p.faults.Crash(p.ctx, memory.Point{})
	p.cancel()
	p.w.died(p, why)
}

func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead
}

func (p *process) took(tok lease.Token, k batch.PartKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owns[tok], p.holds[k] = k, tok
}

// errFault is what calls fail with here.
var errFault = errors.New("sim: fault")

// hook decides what becomes of a call at one of its ends.
func (p *process) hook(when string) memory.Hook {
	return func(ctx context.Context, at memory.Point) error {
		w := p.w
		if w.Calm() {
			return nil
		}
		key := []string{p.name, when, at.Op}
		roll := func(what string, perMille int) bool {
			return perMille > 0 && w.dice.at(1000, int64(at.N), append(key, what)...) < perMille
		}
		model := at.Op == "Model.Call" // whose own faults are the model's
		switch {
		case roll("kill", w.Kill) && p.kind != "api":
			p.Kill(when + " " + at.String())
			return memory.ErrCrashed
		case roll("stall", w.Stall) && !model:
			d := time.Duration(w.dice.at(40_000, int64(at.N), append(key, "for")...)) * time.Millisecond
			w.note(p, at.String(), "stalls "+when+" for "+d.String(), nil)
			<-time.After(d) // whatever ctx says: the process stands still, or the network holds the call
		case roll("fail", w.Fail) && !model:
			w.note(p, at.String(), "fails "+when, nil)
			return errFault
		}
		return nil
	}
}

// write is a call of op that writes. What it sends may land late, although its
// caller has been told that it failed, and it may land once more later: a request
// that was sent again below, as clients of stores do. Be the caller dead by then.
func write[V any](ctx context.Context, p *process, op string, do func() (V, error)) (got V, err error) {
	w := p.w
	n := int64(p.faults.Count(op))
	roll := func(what string, perMille int) (time.Duration, bool) {
		if perMille == 0 || w.Calm() || ctx.Err() != nil || w.dice.at(1000, n, p.name, what, op) >= perMille {
			return 0, false
		}
		most := []int{1_000, 10_000, 100_000}[w.dice.at(3, n, p.name, what, "how", op)]
		return time.Duration(1+w.dice.at(most, n, p.name, what, "for", op)) * time.Millisecond, true
	}
	land := func(d time.Duration) {
		w.wg.Go(func() {
			<-time.After(d)
			do()
		})
	}
	if d, late := roll("late", w.Late); late {
		// It counts as a call, which the hooks see as any other.
		err := p.faults.Around(ctx, op, func() error {
			w.note(p, op, "will land in "+d.String(), nil)
			land(d)
			return nil
		})
		memory.Wait(ctx, min(d, time.Duration(w.dice.at(5_000, n, p.name, "told", op))*time.Millisecond))
		return got, errors.Join(err, ctx.Err(), errFault)
	}
	err = p.faults.Around(ctx, op, func() (err error) {
		got, err = do()
		if d, again := roll("echo", w.Echo); again {
			land(d)
		}
		return err
	})
	return got, err
}

// in is t, by the process's clock, as the stores get it; out the other way.
func (p *process) in(t time.Time) time.Time  { return shift(t, p.offset) }
func (p *process) out(t time.Time) time.Time { return shift(t, -p.offset) }

func shift(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

// partOut is a part with its times as the process's clock would show them.
func (p *process) partOut(x batch.Part) batch.Part {
	for _, t := range []*time.Time{&x.LeaseUntil, &x.Due, &x.DeadAt, &x.CreatedAt} {
		*t = p.out(*t)
	}
	return x
}

func (p *process) partIn(x batch.Part) batch.Part {
	for _, t := range []*time.Time{&x.LeaseUntil, &x.Due, &x.DeadAt, &x.CreatedAt} {
		*t = p.in(*t)
	}
	return x
}

func batchTimes(b *batch.Batch) []*time.Time {
	return []*time.Time{
		&b.CreatedAt, &b.InProgressAt, &b.FinalizingAt, &b.EndingAt, &b.CompletedAt, &b.FailedAt, &b.ExpiredAt, &b.CancelledAt,
		&b.Deadline, &b.Due, &b.FinalizerUntil,
	}
}

func (p *process) batchOut(b batch.Batch) batch.Batch {
	for _, t := range batchTimes(&b) {
		*t = p.out(*t)
	}
	return b
}

func (p *process) batchIn(b batch.Batch) batch.Batch {
	for _, t := range batchTimes(&b) {
		*t = p.in(*t)
	}
	return b
}

// errOut is an error with its time as the process's clock would show it.
func (p *process) errOut(err error) error {
	if held, ok := errors.AsType[*batch.HeldError](err); ok {
		own := *held
		own.Until = p.out(own.Until)
		return fmt.Errorf("sim: %w", &own)
	}
	return err
}
