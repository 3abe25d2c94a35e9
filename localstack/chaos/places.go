package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"
)

// place is where in the protocol a worker is met.
type place struct {
	name  string
	step  step // other: wherever it happens to be
	side  side
	spare bool // a part there has made no progress: don't let it run out of attempts
}

// places are gone through in an order that changes each time.
var places = []place{
	{name: "anywhere"},
	{name: "claim made, no line sent", step: read, spare: true},
	{name: "chunk written, checkpoint not", step: checkpoint},
	{name: "anywhere"},
	{name: "message received, nothing done", step: arrival},
	{name: "checkpoint made, answer lost", step: checkpoint, side: after},
	{name: "part done, not reported", step: report},
	{name: "anywhere"},
	{name: "claim on its way", step: claim, spare: true},
	{name: "claim made, answer lost", step: claim, side: after, spare: true},
}

// tormentor deals blows while a batch runs.
type tormentor struct {
	*field
	random *rand.Rand
	sleep  time.Duration // how long a stopped worker sleeps: beyond its lease
	turn   int
	order  []int // of places, in this turn and those that follow
}

// next is where a worker is to be met.
func (t *tormentor) next() place {
	if len(t.order) == 0 {
		t.order = t.random.Perm(len(places))
	}
	p := places[t.order[0]]
	t.order = t.order[1:]
	return p
}

// patience is how long a place is waited for: nobody may come there while a batch
// ends.
const patience = 4 * time.Second

// torment deals so many blows of each fate, or as many as there is somebody for
// until ctx ends. Between them is gap on average.
func (t *tormentor) torment(ctx context.Context, kills, stops int, gap time.Duration) (int, int, error) {
	for every := max(kills/max(stops, 1), 1); kills+stops > 0 && pause(ctx, time.Duration((0.3+1.4*t.random.Float64())*float64(gap))); {
		f := killed
		if kills == 0 || stops > 0 && t.turn%(every+1) == every {
			f = stopped
		}
		b, err := t.meet(ctx, t.next(), f)
		if err != nil {
			return kills, stops, err
		}
		t.turn++
		switch {
		case b == nil:
		case f == killed:
			kills--
		default:
			stops--
		}
	}
	return kills, stops, nil
}

// meet waits for a worker at a place and deals the blow; nil when none came.
func (t *tormentor) meet(ctx context.Context, p place, f fate) (*blow, error) {
	if p.step == other {
		return t.somewhere(ctx, p, f)
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h, err := t.proxy.caught(soon, t.proxy.arm(p.side, func(c call) bool { return c.step == p.step && !t.gone(c.pid) }))
	if err != nil {
		return nil, nil // nobody came
	}
	b, err := t.strike(ctx, h.pid, p.name, f, p.spare, h.call)
	if err != nil || b == nil {
		h.release(true)
		return nil, err
	}
	// A dead worker's call may arrive yet, late, or never.
	land := t.random.IntN(2) == 0
	t.told(b, land)
	if f == stopped {
		t.rouse(ctx, b, func() { h.release(land) })
		return b, nil
	}
	time.AfterFunc(time.Duration(t.random.Int64N(int64(time.Second))), func() { h.release(land) })
	return b, nil
}

// somewhere strikes whoever holds a part.
func (t *tormentor) somewhere(ctx context.Context, p place, f fate) (*blow, error) {
	holders := map[int]bool{}
	for _, r := range t.running() {
		parts, err := r.parts(ctx, r.id)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if pid := t.proxy.holder(p.Owner); p.State == "leased" && pid != 0 && !t.gone(pid) {
				holders[pid] = true
			}
		}
	}
	var able []int
	for _, pid := range t.processes.workers() {
		if holders[pid] {
			able = append(able, pid)
		}
	}
	if len(able) == 0 {
		return nil, nil
	}
	b, err := t.strike(ctx, able[t.random.IntN(len(able))], p.name, f, true, call{})
	if err != nil || b == nil {
		return nil, err
	}
	t.told(b, true)
	if f == stopped {
		t.rouse(ctx, b, func() {})
	}
	return b, nil
}

// rouse wakes a stopped worker once it is late. also comes first: a call of its
// that was held back meets whoever took its part.
func (t *tormentor) rouse(ctx context.Context, b *blow, also func()) {
	go func() {
		pause(ctx, t.sleep) // whatever ctx says, nobody stays stopped
		also()
		t.wake(b.pid)
	}()
}

func (t *tormentor) told(b *blow, land bool) {
	lost := 0
	for _, h := range b.held {
		lost += h.lost
	}
	late := ""
	if !land {
		late = ", its call lost"
	}
	t.say("%s worker %d, %s%s: %d parts in hand, %d lines to be sent again", b.fate, b.pid, b.place, late, len(b.held), lost)
}

// executioner kills whoever has a poison line at the model, until ctx ends.
func (f *field) executioner(ctx context.Context) error {
	return every(ctx, 20*time.Millisecond, func() (bool, error) {
		all, err := f.flights(ctx)
		if err != nil {
			return false, err
		}
		for _, one := range all {
			for _, r := range f.running() {
				if one.Batch != r.id || !r.in.poison[one.key().line] {
					continue
				}
				pid := f.processes.at(one.port()).pid
				if pid == 0 || f.gone(pid) {
					continue
				}
				b, err := f.strike(ctx, pid, "poison", killed, false, call{})
				if err != nil {
					return false, err
				}
				if b != nil {
					f.say("line %d killed worker %d: alone %t", one.key().line, pid, b.alone == one.key())
				}
				return false, nil // who else flies now is another look's
			}
		}
		return false, nil
	})
}

// wakeAll is for the end: nothing of the stack stays stopped.
func (f *field) wakeAll() {
	for _, pid := range f.processes.workers() {
		signal(pid, syscall.SIGCONT)
	}
}
