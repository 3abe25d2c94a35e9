package batch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Attendance says who is at a batch.
type Attendance int

// What an Ender finds, or brings about.
const (
	Attended Attendance = iota // an execution runs, or whoever wrote to the batch just now saw to that
	Replaced                   // none did: one was started
	Paused                     // two fell already: the next is started in its turn
	GivenUp                    // so many fell in a row that the next is started in an hour
)

// Turn says why a batch is looked at.
type Turn int

// A look out of its turn replaces the first execution that fell. When its successor
// fell too, the next waits for the look that is due: events alone would use all
// names up in seconds.
const (
	InTurn    Turn = iota // it is due
	OutOfTurn             // something was heard of an execution
)

// Alive reports whether an execution runs that plans the batch and waits for its
// parts, be it one that replaced another.
func (c *Ender) Alive(ctx context.Context, b Batch, now time.Time) (bool, error) {
	for n := 1; n <= spentNames; n++ {
		seen, err := c.seen(ctx, nth(mainName(b), n))
		if err != nil || seen == Running {
			return seen == Running, err
		}
		if seen == Never {
			return false, nil
		}
	}
	_, seen, err := c.latest(ctx, b, mainName(b), now)
	return seen == Running, err
}

// Run sees to it that an execution runs that plans b and waits for its parts. One
// that fell is replaced, from the start: its successor is told what the plan found
// and sends each part's message again. So parts that had not had their turn in a
// wide batch get it, no faster than the workflow does that (docs/adr/0014-a-fallen-execution-is-replaced.md).
func (c *Ender) Run(ctx context.Context, b Batch, turn Turn, now time.Time) (Attendance, error) {
	a, err := c.replace(ctx, b, mainName(b), turn, now, func(name string) error { return c.workflow.Start(ctx, name, b.Tenant, b.ID) })
	if err != nil {
		return a, fmt.Errorf("run %s again: %w", b.ID, err)
	}
	return a, nil
}

// Finish sees to it that an execution runs that finishes b, as it now is: its
// ending is decided, or nothing of it is left to run. Where it ends early the one
// that waits for parts is stopped, as with [Ender.Cancel].
func (c *Ender) Finish(ctx context.Context, b Batch, turn Turn, now time.Time) (Attendance, error) {
	a, err := c.replace(ctx, b, FinishName(b), turn, now, func(name string) error { return c.workflow.Finish(ctx, name, b.Tenant, b.ID) })
	if err == nil && early(b) && b.Status == InProgress {
		err = c.stop(ctx, b, now)
	}
	if err != nil {
		return a, fmt.Errorf("finish %s: %w", b.ID, err)
	}
	return a, nil
}

// replace starts an execution unless one of these names runs: name, name-2 and so
// on. When all of those fell, something is wrong that trying again by the minute
// won't cure, and one is started each hour in which none runs, until somebody has
// cured it.
func (c *Ender) replace(ctx context.Context, b Batch, name string, turn Turn, now time.Time, start func(name string) error) (Attendance, error) {
	for n := 1; n <= spentNames; n++ {
		seen, err := c.seen(ctx, nth(name, n))
		switch {
		case err != nil || seen == Running:
			return Attended, err
		case seen != Never:
			continue
		case n > 2 && turn == OutOfTurn:
			return Paused, nil
		}
		a, err := c.unlessMoved(ctx, b, func() error { return start(nth(name, n)) })
		if !errors.Is(err, ErrExists) {
			return a, err
		}
	}
	hour, seen, err := c.latest(ctx, b, name, now)
	switch {
	case err != nil || seen == Running:
		return Attended, err
	case seen != Never && hour == hourOf(now):
		return GivenUp, nil
	case turn == OutOfTurn:
		return Paused, nil
	}
	a, err := c.unlessMoved(ctx, b, func() error { return start(hourly(name, hourOf(now))) })
	if errors.Is(err, ErrExists) {
		return GivenUp, nil
	}
	return a, err
}

// unlessMoved starts one, unless the batch was written to since it was read. What
// was seen of its executions may be later than what is known of it:
//
//	reaper reads the batch: in progress
//	its execution finishes it, and is over
//	reaper finds no execution that runs, and would start another
func (c *Ender) unlessMoved(ctx context.Context, b Batch, start func() error) (Attendance, error) {
	var as Batch
	if err := tryAgain(ctx, func() (err error) { as, err = c.batches.Get(ctx, b.Tenant, b.ID); return err }); err != nil {
		return Attended, err
	}
	if as.Ver != b.Ver {
		return Attended, nil
	}
	return Replaced, tryAgain(ctx, start)
}

// longestLook is how many hours back an execution by the hour is looked for: more
// than a batch of the longest window takes. A younger batch has none before its
// creation.
const longestLook = 14 * 24

// latest finds the latest execution by the hour. One is started only where none
// ran, so that no other can be running. It costs a look for each hour since then.
func (c *Ender) latest(ctx context.Context, b Batch, name string, now time.Time) (hour int64, seen Execution, err error) {
	last := hourOf(now)
	for hour := last; hour >= max(hourOf(b.CreatedAt), last-longestLook); hour-- {
		if seen, err := c.seen(ctx, hourly(name, hour)); err != nil || seen != Never {
			return hour, seen, err
		}
	}
	return last, Never, nil
}

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// hourly names the execution that is started in an hour.
func hourly(name string, hour int64) string {
	return fit("batch-again-", name+"-h"+strconv.FormatInt(hour, 10))
}

func (c *Ender) seen(ctx context.Context, name string) (seen Execution, err error) {
	err = tryAgain(ctx, func() (err error) { seen, err = c.workflow.Seen(ctx, name); return err })
	if err != nil {
		return "", fmt.Errorf("look at execution %s: %w", name, err)
	}
	return seen, nil
}
