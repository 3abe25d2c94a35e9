package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"holdfast/internal/bridge"
)

// doors is what came of the doors: requests whose owners die, or are robbed, between
// their claim and their batch.
type doors struct {
	Storm   stormed `json:"storm"`
	Slow    []slow  `json:"slow_owners"`
	Orphan  orphan  `json:"http_owner_killed"`
	Seconds float64 `json:"seconds"` // all of it, side by side
}

// slow is an owner who slept through its claim's life.
type slow struct {
	At     string  `json:"stopped_at"`
	Asleep float64 `json:"asleep_seconds"`
	Writes int64   `json:"writes_of_claim"` // claim, steal and confirm
}

// orphan is a create over HTTP whose process was killed, and whose client is gone.
type orphan struct {
	Seconds float64 `json:"seconds"` // from the kill until the reaper had started it
	Writes  int64   `json:"writes_of_claim"`
}

// String is its line of the report.
func (d *doors) String() string {
	s := d.Storm
	line := fmt.Sprintf("one request delivered %d times, %d of %d ingest processes, %d others and %d thieves killed: %d batch, %d execution after %.1f s",
		s.Deliveries, s.Killed, s.Processes, s.Others, s.Thieves, s.Batches, s.Executions, s.Seconds)
	if s.Settled > 0 {
		line += fmt.Sprintf(", all answered after %.1f s", s.Settled)
	}
	return line + fmt.Sprintf("; owners asleep for %.1f and %.1f s: robbed; a create whose process was killed was started after %.1f s; %.1f s in all",
		d.Slow[0].Asleep, d.Slow[1].Asleep, d.Orphan.Seconds, d.Seconds)
}

// act is an order that must have become one batch, once nothing more is under way.
type act struct {
	*order
	what  string
	judge func(v *verdict, batches, executions int)
}

// shown lets all that may befall a claim befall requests of their own, side by side:
// most of the time is the life of a claim, which is waited for.
func (t *tormentor) shown(ctx context.Context, s storming, bound int) (d *doors, vs []verdict, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 4*time.Minute, errors.New("the doors: not within 4m"))
	defer cancel()
	began := time.Now()
	d = &doors{Slow: make([]slow, 2)}
	struck, clear, asleep := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.struck, s.clear = sync.OnceFunc(func() { close(struck) }), clear
	acts := make([]act, 4)
	errs := make([]error, len(acts))
	var all, others sync.WaitGroup
	all.Go(func() { acts[0], errs[0] = t.storm(ctx, s, &d.Storm) })
	for i, do := range []func() (act, error){
		func() (act, error) {
			stopped := sync.OnceFunc(func() { close(asleep) })
			defer stopped()
			return t.robbed(ctx, create, "the batch not recorded", true, stopped, &d.Slow[0])
		},
		func() (act, error) {
			<-asleep // or both might be in one process, which stops but once
			return t.robbed(ctx, launch, "the execution not started", false, func() {}, &d.Slow[1])
		},
		func() (act, error) { return t.orphaned(ctx, &d.Orphan) },
	} {
		others.Go(func() {
			<-struck
			acts[i+1], errs[i+1] = do()
		})
	}
	all.Go(func() { others.Wait(); close(clear) })
	all.Wait()
	for _, a := range acts {
		if a.order != nil {
			defer t.forget(a.run)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return d, nil, err
	}
	if s.whole {
		if err := t.drained(ctx); err != nil {
			return d, nil, err
		}
	}
	for _, a := range acts {
		v, batches, executions, err := t.only(ctx, a.order, a.what, bound)
		if err != nil {
			return d, vs, err
		}
		told := len(v.Faults)
		a.judge(&v, batches, executions)
		for _, f := range v.Faults[told:] {
			t.say("FAULT %s", f)
		}
		vs = append(vs, v)
	}
	d.Seconds = time.Since(began).Seconds()
	return d, vs, nil
}

// robbed stops the process that has a request's claim on its way to the batch, wakes
// it when somebody else has taken the claim and started the batch, and lets its own
// call arrive then. With again the sender sends once more, and that may be the thief;
// where the batch is recorded already it would be no thief, but find it, and at once.
func (t *tormentor) robbed(ctx context.Context, at step, where string, again bool, stopped func(), out *slow) (act, error) {
	c, err := t.tenant(ctx, fmt.Sprintf("slow-%d", at))
	if err != nil {
		return act{}, err
	}
	o, err := c.order(ctx, "slow owner", input{lines: 5, model: "sim"})
	if err != nil {
		return act{}, err
	}
	t.watch(o.run)
	trap := t.proxy.arm(before, func(c call) bool { return c.step == at && c.tenant == o.tenant && c.role == ingesting })
	if err := o.send(ctx, o.message()); err != nil {
		return act{}, err
	}
	h, err := t.proxy.caught(ctx, trap)
	if err != nil {
		return act{}, fmt.Errorf("nobody came to the step where an owner is stopped, %s: %w", where, err)
	}
	asleep := time.Now()
	wake := func() error { h.release(true); return signal(h.pid, syscall.SIGCONT) }
	defer wake()
	if err := signal(h.pid, syscall.SIGSTOP); err != nil {
		return act{}, err
	}
	t.say("ingest process %d stopped, %s", h.pid, where)
	stopped()
	if again {
		if err := o.send(ctx, o.message()); err != nil {
			return act{}, err
		}
	}
	row, err := o.confirmed(ctx)
	if err != nil {
		return act{}, err
	}
	*out = slow{At: where, Asleep: time.Since(asleep).Seconds(), Writes: row.Ver}
	t.say("ingest process %d woken after %.1f s: robbed", h.pid, out.Asleep)
	return act{o, "slow owner, " + where, func(v *verdict, _, _ int) {
		if row.Ver < 3 {
			v.fault("nobody robbed the owner that slept: the claim was written %d times", row.Ver)
		}
	}}, wake()
}

// orphaned kills the process of a create over HTTP once it has the claim. Nobody
// asks again before the reaper has started the batch; then somebody does.
func (t *tormentor) orphaned(ctx context.Context, out *orphan) (act, error) {
	c, err := t.tenant(ctx, "orphan")
	if err != nil {
		return act{}, err
	}
	o, err := c.order(ctx, "orphan", input{lines: 5, model: "sim"})
	if err != nil {
		return act{}, err
	}
	t.watch(o.run)
	trap := t.proxy.arm(after, func(c call) bool { return c.step == reserve && c.tenant == o.tenant && c.role == answering })
	answered := make(chan string, 1)
	go func() {
		id, _, _ := o.post(ctx)
		answered <- id
	}()
	h, err := t.proxy.caught(ctx, trap)
	if err != nil {
		return act{}, fmt.Errorf("no create over HTTP came to its claim: %w", err)
	}
	killed := time.Now()
	err = signal(h.pid, syscall.SIGKILL)
	h.release(false)
	t.say("api process %d killed with a claim", h.pid)
	id := <-answered
	if err != nil || id != "" {
		return act{}, fmt.Errorf("a create was answered with %q although its process was killed: %w", id, err)
	}
	row, err := o.confirmed(ctx)
	if err != nil {
		return act{}, err
	}
	*out = orphan{Seconds: time.Since(killed).Seconds(), Writes: row.Ver}
	t.say("started by the reaper %.1f s after its process was killed", out.Seconds)
	// A client that comes back after all.
	_, err = o.insist(ctx, make(chan struct{}, 1))
	return act{o, "create over HTTP whose process was killed", func(v *verdict, _, _ int) {
		if row.Ver < 3 {
			v.fault("the claim of a process that was killed was written %d times", row.Ver)
		}
	}}, err
}

// confirmed waits until the order's batch is there, as its claim says.
func (o *order) confirmed(ctx context.Context) (row bridge.Row, err error) {
	err = every(ctx, 200*time.Millisecond, func() (bool, error) {
		row, err = o.row(ctx)
		if errors.Is(err, bridge.ErrNotFound) {
			return false, nil
		}
		return row.State == bridge.Confirmed, err
	})
	if err != nil {
		err = fmt.Errorf("no batch for %q of %s: %w", o.name, o.tenant, err)
	}
	return row, err
}

// drained waits until the ingest queue is empty: every delivery was answered, and
// what the dead had in hand was delivered again.
func (s *stack) drained(ctx context.Context) error {
	left := 0
	err := every(ctx, 500*time.Millisecond, func() (bool, error) {
		n, err := s.waiting(ctx)
		left = n
		return n == 0, err
	})
	if err != nil {
		err = fmt.Errorf("%d messages are left in the ingest queue: %w", left, err)
	}
	return err
}

// only waits for the order's batch to end, and looks for any other of its tenant's.
func (t *tormentor) only(ctx context.Context, o *order, what string, bound int) (v verdict, batches, executions int, err error) {
	b, err := o.ended(ctx, t.say)
	if err != nil {
		return v, 0, 0, err
	}
	if v, err = t.judged(ctx, o.run, b, what, bound); err != nil {
		return v, 0, 0, err
	}
	ids, err := o.batches(ctx)
	if err != nil {
		return v, 0, 0, err
	}
	names, err := o.executions(ctx, o.tenant, o.begun)
	if err != nil {
		return v, 0, 0, err
	}
	told := len(v.Faults)
	if len(ids) != 1 || ids[0] != o.id {
		v.fault("the tenant has the batches %q; %s was to be the only one", ids, o.id)
	}
	if len(names) != 1 || names[0] != o.id {
		v.fault("the executions %q were started; one of %s was to be", names, o.id)
	}
	for _, f := range v.Faults[told:] {
		t.say("FAULT %s", f)
	}
	return v, len(ids), len(names), nil
}
