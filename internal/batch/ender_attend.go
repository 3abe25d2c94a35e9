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
	GivenUp                    // so many fell in a row that the next is started in an hour
)

// Alive reports whether an execution runs that plans the batch and waits for its
// parts, be it one that replaced another.
func (c *Ender) Alive(ctx context.Context, b Batch) (bool, error) {
	for n := 1; n <= spentNames; n++ {
		seen, err := c.seen(ctx, nth(mainName(b), n))
		if err != nil || seen == Running {
			return seen == Running, err
		}
		if seen == Never {
			return false, nil
		}
	}
	return false, nil
}

// Run sees to it that an execution runs that plans b and waits for its parts. One
// that fell is replaced, from the start: its successor is told what the plan found
// and sends each part's message again. So parts that had not had their turn in a
// wide batch get it, no faster than the workflow does that (docs/adr/0014-a-fallen-execution-is-replaced.md).
func (c *Ender) Run(ctx context.Context, b Batch, now time.Time) (Attendance, error) {
	a, err := c.replace(ctx, b, mainName(b), now, func(name string) error { return c.workflow.Start(ctx, name, b.Tenant, b.ID) })
	if err != nil {
		return a, fmt.Errorf("run %s again: %w", b.ID, err)
	}
	return a, nil
}

// Finish sees to it that an execution runs that finishes b, as it now is: its
// ending is decided, or nothing of it is left to run. Where it ends early the one
// that waits for parts is stopped, as with [Ender.Cancel].
func (c *Ender) Finish(ctx context.Context, b Batch, now time.Time) (Attendance, error) {
	a, err := c.replace(ctx, b, FinishName(b), now, func(name string) error { return c.workflow.Finish(ctx, name, b.Tenant, b.ID) })
	if err == nil && early(b) && b.Status == InProgress {
		err = c.stop(ctx, b)
	}
	if err != nil {
		return a, fmt.Errorf("finish %s: %w", b.ID, err)
	}
	return a, nil
}

// replace starts an execution unless one of these names runs: name, name-2 and so
// on. When all of those fell, something is wrong that trying again by the minute
// won't cure, and one is started each hour, until somebody has cured it.
func (c *Ender) replace(ctx context.Context, b Batch, name string, now time.Time, start func(name string) error) (Attendance, error) {
	for n := 1; n <= spentNames+1; n++ {
		free := nth(name, n)
		if n > spentNames {
			free = fit("batch-again-", name+"-h"+strconv.FormatInt(now.Unix()/3600, 10))
		}
		seen, err := c.seen(ctx, free)
		switch {
		case err != nil:
			return Attended, err
		case seen == Running:
			return Attended, nil
		case seen != Never:
			continue
		}
		// What was seen of the executions may be later than what is known of the batch:
		//
		//	reaper reads the batch: in progress
		//	its execution finishes it, and is over
		//	reaper finds no execution that runs, and would start another
		var as Batch
		if err := tryAgain(ctx, func() (err error) { as, err = c.batches.Get(ctx, b.Tenant, b.ID); return err }); err != nil {
			return Attended, err
		}
		if as.Ver != b.Ver {
			return Attended, nil
		}
		err = tryAgain(ctx, func() error { return start(free) })
		if err == nil || !errors.Is(err, ErrExists) {
			return Replaced, err
		}
	}
	return GivenUp, nil
}

func (c *Ender) seen(ctx context.Context, name string) (seen Execution, err error) {
	err = tryAgain(ctx, func() (err error) { seen, err = c.workflow.Seen(ctx, name); return err })
	if err != nil {
		return "", fmt.Errorf("look at execution %s: %w", name, err)
	}
	return seen, nil
}
