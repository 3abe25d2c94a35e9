package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"holdfast/internal/batch"
)

// fate is what happens to a worker.
type fate string

const (
	killed  fate = "killed"  // kill -9
	stopped fate = "stopped" // beyond its lease, and woken
)

// blow is what happened to one worker, and what it held just then.
type blow struct {
	at    time.Time
	pid   int
	place string
	fate  fate
	held  []*holding
	alone lineKey // the line that was alone in flight; zero: none was

	flights  []lineKey // at the model, while the worker was stopped
	suspects []lineKey // of claims that wrote so themselves
}

type lineKey struct {
	batch string
	line  int
}

// holding is a part that was in hand.
type holding struct {
	part      batch.Part
	claimed   bool // false: the claim was held back, and may come true yet
	lost      int  // lines of it that the model got under this claim and no checkpoint kept: they come again
	sent      map[lineKey]int
	freed     time.Duration // from the blow until the part was given back or stolen; zero: not yet, or struck again before
	recovered time.Duration // ... until its next progress, which in a long queue waits for a worker
	ended     bool
}

// begun are the lines of a part that the model has got and no checkpoint kept, and
// how often it has got each.
func begun(p batch.Part, a account) map[lineKey]int {
	lines := map[lineKey]int{}
	for i := range p.Lines {
		n := int(p.FirstLine) + i
		if tries := a.Lines[strconv.Itoa(n)].Tries; tries > 0 && !p.DoneLines.Has(i) {
			lines[lineKey{p.Batch, n}] = tries
		}
	}
	return lines
}

// lose counts what is lost with the holding: not the lines that were lost to the
// claim before it and not sent again since.
func (h *holding) lose(before map[lineKey]int) {
	for line, tries := range h.sent {
		if tries > before[line] {
			h.lost++
		}
		before[line] = tries
	}
	h.sent = nil
}

// field is where blows fall.
type field struct {
	*stack
	proxy     *proxy
	processes processes
	say       func(format string, args ...any)

	striking sync.Mutex // one blow at a time
	mu       sync.Mutex
	open     []*run
	blows    []*blow
	out      map[int]bool // workers that are stopped, or were killed: the system shows one for a moment longer
	last     map[batch.PartKey]*holding
	sent     map[lineKey]int       // how often a line had been sent when it was last lost
	lapses   map[batch.PartKey]int // those that are accounted for: by blows, or seen since
}

func newField(s *stack, p *proxy, w processes, say func(string, ...any)) *field {
	return &field{stack: s, proxy: p, processes: w, say: say, out: map[int]bool{}, last: map[batch.PartKey]*holding{}, sent: map[lineKey]int{}, lapses: map[batch.PartKey]int{}}
}

// underway is how long what a stopped worker has sent may take to the model.
const underway = 30 * time.Millisecond

// strike stops a worker, notes what it holds, and kills it or leaves it stopped. It
// spares one that could make a part dead, if told to, and answers nil then.
func (f *field) strike(ctx context.Context, pid int, place string, fate fate, spare bool, at call) (*blow, error) {
	f.striking.Lock()
	defer f.striking.Unlock()
	if f.gone(pid) || !slices.Contains(f.processes.workers(), pid) {
		return nil, nil
	}
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	b := &blow{at: time.Now(), pid: pid, place: place, fate: fate}
	quiet, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pause(quiet, underway)
	every(quiet, 5*time.Millisecond, func() (bool, error) { return f.proxy.quiet(pid), nil })
	err := f.inspect(ctx, b, at)
	if err != nil || spare && b.fatal() {
		signal(pid, syscall.SIGCONT)
		return nil, err
	}
	if fate == killed {
		err = signal(pid, syscall.SIGKILL)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out[pid] = true
	f.blows = append(f.blows, b)
	for _, h := range b.held {
		if before := f.last[h.part.PartKey]; before != nil {
			before.ended = true
		}
		f.last[h.part.PartKey] = h
		h.lose(f.sent)
		if h.claimed {
			f.lapses[h.part.PartKey]++
		}
	}
	b.alone = b.lonely()
	return b, err
}

// fatal reports whether one more death here could leave a part without attempts.
func (b *blow) fatal() bool {
	for _, h := range b.held {
		if h.part.Attempts >= 2 && h.part.Suspect.None() {
			return true
		}
	}
	return false
}

// inspect finds out what a stopped worker is at.
func (f *field) inspect(ctx context.Context, b *blow, at call) error {
	for _, r := range f.running() {
		parts, err := r.parts(ctx, r.id)
		if err != nil {
			return err
		}
		a, err := r.account(ctx, r.id)
		if err != nil {
			return err
		}
		for _, p := range parts {
			// A claim that is held back may still come true.
			if p.State == batch.Leased && f.proxy.holder(p.Owner) == b.pid || at.step == claim && p.PartKey == at.part {
				h := &holding{part: p, claimed: p.State == batch.Leased && f.proxy.holder(p.Owner) == b.pid}
				if h.claimed {
					h.sent = begun(p, a)
				}
				b.held = append(b.held, h)
				if !p.Suspect.None() && p.Suspect.By == p.Owner {
					b.suspects = append(b.suspects, lineKey{r.id, int(p.FirstLine) + p.Suspect.Line})
				}
			}
		}
	}
	var err error
	b.flights, err = f.flightsOf(ctx, b.pid)
	return err
}

// lonely is the line that was alone in flight. What the model has answered since the
// worker stopped is in flight still, for the worker: so nothing else may have been
// lost with it. And one that was answered, or not yet sent, in that moment is told by
// what its claim wrote.
func (b *blow) lonely() lineKey {
	lost := 0
	for _, h := range b.held {
		lost += h.lost
	}
	switch {
	case lost > 1:
	case len(b.flights) == 1:
		return b.flights[0]
	case len(b.flights) == 0 && len(b.suspects) == 1:
		return b.suspects[0]
	}
	return lineKey{}
}

// flightsOf are the requests that a worker has at the model.
func (f *field) flightsOf(ctx context.Context, pid int) (lines []lineKey, err error) {
	all, err := f.flights(ctx)
	its := ports(pid)
	for _, one := range all {
		if its[one.port()] {
			lines = append(lines, one.key())
		}
	}
	return lines, err
}

// wake lets a stopped worker go on: a zombie, if its lease has lapsed.
func (f *field) wake(pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.out, pid)
	return signal(pid, syscall.SIGCONT)
}

// gone reports whether a worker is not to be struck again.
func (f *field) gone(pid int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out[pid]
}

// watch adds a batch to those that blows are counted for.
func (f *field) watch(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, r)
}

func (f *field) running() []*run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*run(nil), f.open...)
}

// forget takes a batch out that is over.
func (f *field) forget(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, other := range f.open {
		if other == r {
			f.open = append(f.open[:i], f.open[i+1:]...)
			break
		}
	}
}

// follow notes when struck parts come to progress.
func (f *field) follow(ctx context.Context) error {
	return every(ctx, 200*time.Millisecond, func() (bool, error) {
		for _, r := range f.running() {
			parts, err := r.parts(ctx, r.id)
			if err != nil {
				return false, fmt.Errorf("follow %s: %w", r.id, err)
			}
			f.progressed(parts, time.Now())
			if f.lapsed(parts) {
				a, err := r.account(ctx, r.id)
				if err != nil {
					return false, err
				}
				f.settle(parts, a)
			}
		}
		return false, nil
	})
}

// lapsed reports whether a lease ended that no blow accounts for: of a worker that
// this machine had no time for.
func (f *field) lapsed(parts []batch.Part) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(parts, func(p batch.Part) bool { return p.Lapses > f.lapses[p.PartKey] })
}

// settle notes what was lost with such a lease, so that no later blow is charged
// with it.
func (f *field) settle(parts []batch.Part, a account) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range parts {
		if p.Lapses > f.lapses[p.PartKey] {
			f.lapses[p.PartKey] = p.Lapses
			(&holding{sent: begun(p, a)}).lose(f.sent)
		}
	}
}

func (f *field) progressed(parts []batch.Part, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := map[batch.PartKey]batch.Part{}
	for _, p := range parts {
		at[p.PartKey] = p
	}
	for _, b := range f.blows {
		for _, h := range b.held {
			p, ok := at[h.part.PartKey]
			if !ok || h.ended {
				continue
			}
			on := p.Processed > h.part.Processed || p.Over() && !h.part.Over()
			if h.freed == 0 && (on || p.Lapses > h.part.Lapses) {
				h.freed = now.Sub(b.at)
			}
			if on {
				h.ended, h.recovered = true, now.Sub(b.at)
			}
		}
	}
}
