package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"holdfast/internal/openai"
)

// scene is one thing that is shown.
type scene struct {
	what   string
	in     input
	kills  int
	stops  int
	gap    time.Duration // between two blows, on average
	purge  float64       // share of lines that are over when the queue is emptied; 0: it isn't
	halt   float64       // ... when the execution is stopped
	within time.Duration
}

// show runs a scene's batch under its blows until it has ended unaided, and
// judges it. Kills and stops that it had no time for are returned.
func (t *tormentor) show(ctx context.Context, s scene, bound int) (v verdict, kills, stops int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.within, fmt.Errorf("not within %v", s.within))
	defer cancel()
	c, err := t.tenant(ctx, "chaos")
	if err != nil {
		return v, 0, 0, err
	}
	r, err := c.begin(ctx, s.in)
	if err != nil {
		return v, 0, 0, err
	}
	t.say("%s: batch %s of %d lines", s.what, r.id, s.in.lines)
	t.watch(r)
	defer t.forget(r)

	blows, end := context.WithCancel(ctx)
	defer end()
	dealt := make(chan error, 2)
	kills, stops = s.kills, s.stops
	go func() {
		err := error(nil)
		if kills+stops > 0 {
			kills, stops, err = t.torment(blows, kills, stops, s.gap)
		}
		dealt <- err
	}()
	go func() { dealt <- t.cut(blows, r, s) }()
	b, err := r.ended(ctx, t.say)
	end()
	err = errors.Join(err, unlessOver(<-dealt), unlessOver(<-dealt))
	if err != nil {
		return v, kills, stops, fmt.Errorf("%s: %w", s.what, err)
	}
	v, err = t.judged(ctx, r, b, s.what, bound)
	return v, kills, stops, err
}

// unlessOver is err, unless it says that the scene is over.
func unlessOver(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// judged is the verdict on a batch that is over.
func (t *tormentor) judged(ctx context.Context, r *run, b openai.Batch, what string, bound int) (verdict, error) {
	v, err := r.verify(ctx, b)
	if err != nil {
		return v, err
	}
	v.What = what
	a, err := r.account(ctx, r.id)
	if err != nil {
		return v, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	v.judge(a, t.blows, bound)
	t.say("%s: %s after %.1f s, %d lost, %d doubled, %d wrong, %d blamed, %d dead parts, %d lapses, %d steals, %d lines sent again of %d allowed",
		what, v.Status, v.Seconds, v.Lost, v.Doubled, v.Wrong, len(v.Blamed), v.Dead, v.Lapses, v.Steals, v.Repeats, v.Allowed)
	for _, f := range v.Faults {
		t.say("FAULT %s", f)
	}
	return v, nil
}

// cut takes the hints away: the queue's messages, and the execution.
func (t *tormentor) cut(ctx context.Context, r *run, s scene) error {
	for _, c := range []struct {
		share float64
		what  string
		do    func(context.Context) error
	}{{s.purge, "queue purged", t.purge}, {s.halt, "execution stopped", func(ctx context.Context) error { return t.stop(ctx, r.id) }}} {
		if c.share == 0 {
			continue
		}
		done := 0
		err := every(ctx, 200*time.Millisecond, func() (bool, error) {
			b, err := r.state(ctx)
			done = b.RequestCounts.Completed + b.RequestCounts.Failed
			return over(b.Status) || float64(done) >= c.share*float64(s.in.lines), err
		})
		if err != nil {
			return err
		}
		if err := c.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		t.say("%s with %d of %d lines over", c.what, done, s.in.lines)
	}
	return nil
}

// ending is what a cancel among others' work came to.
type ending struct {
	Parts   int     `json:"parts"`
	Backlog int     `json:"backlog_parts"` // of another tenant, waiting or at work
	Seconds float64 `json:"seconds"`       // from cancel to cancelled
}

// cancelBound is how long a cancelled batch of queued parts may take, whoever else
// waits.
const cancelBound = 60 * time.Second

// cancelled cancels a batch of queued parts while another tenant's backlog keeps
// every worker busy.
func (t *tormentor) cancelled(ctx context.Context, parts, partLines, workers, bound int) (e ending, vs []verdict, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not within 5m"))
	defer cancel()
	begin := func(name string, in input, moving func(b openai.Batch, a account) bool) (r *run, err error) {
		c, err := t.tenant(ctx, name)
		if err == nil {
			r, err = c.begin(ctx, in)
		}
		if err != nil {
			return nil, err
		}
		return r, every(ctx, 200*time.Millisecond, func() (bool, error) {
			b, err := r.state(ctx)
			if err != nil || over(b.Status) {
				return true, err
			}
			a, err := r.account(ctx, r.id)
			return moving(b, a), err
		})
	}
	e = ending{Parts: parts, Backlog: 10 * workers}
	busy, err := begin("backlog", input{lines: e.Backlog * partLines, model: "sim-slow-2000"}, func(_ openai.Batch, a account) bool { return a.Requests > 0 })
	if err != nil {
		return e, nil, err
	}
	queued, err := begin("cancel", input{lines: parts * partLines, model: "sim"}, func(b openai.Batch, _ account) bool { return b.Status == openai.StatusInProgress })
	if err != nil {
		return e, nil, err
	}
	t.say("cancel: batch %s of %d parts behind %d parts of another tenant", queued.id, parts, e.Backlog)
	asked := time.Now()
	for _, r := range []*run{queued, busy} {
		if _, err := r.get(ctx, "POST", "/v1/batches/"+r.id+"/cancel", "", nil); err != nil {
			return e, nil, err
		}
		b, err := r.ended(ctx, t.say)
		if err != nil {
			return e, nil, err
		}
		what := "cancelled behind a backlog"
		if r == queued {
			e.Seconds = time.Since(asked).Seconds()
		} else {
			what = "the backlog, cancelled after that"
		}
		v, err := t.judged(ctx, r, b, what, bound)
		if err != nil {
			return e, nil, err
		}
		vs = append(vs, v)
	}
	if e.Seconds > cancelBound.Seconds() {
		vs[0].fault("a cancelled batch of %d queued parts took %.1f s", parts, e.Seconds)
	}
	return e, vs, nil
}

// poisoned are the lines that kill: one alone, two side by side, the last of a part
// and the first of the next.
func poisoned(lines, partLines int) map[int]bool {
	all := map[int]bool{}
	for _, i := range []int{partLines / 5, partLines/5 + 1, 2*partLines - 1, 2 * partLines} {
		if i < lines {
			all[i] = true
		}
	}
	return all
}

func newTormentor(f *field, seed uint64, sleep time.Duration) *tormentor {
	return &tormentor{field: f, random: rand.New(rand.NewPCG(seed, 6)), sleep: sleep}
}
