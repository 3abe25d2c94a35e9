package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/openai"
)

// PlanGCPercent is what a process that plans gives to debug.SetGCPercent, once. Go
// lets garbage grow to as much as is live before it collects, which would make the
// ids of ten million lines, 160 MB, cost twice that. They hold no pointer, so that
// collecting more often costs next to nothing.
const PlanGCPercent = 15

// planReserve is what Plan keeps of its caller's time, at most a tenth of it: to
// say that it was not enough is two calls of the table.
const planReserve = 10 * time.Second

const codeTimedOut = "validation_timed_out"

// inTime runs plan until little is left of ctx's time. A planning can't be gone on
// with, because the ids of the lines it read went with it; so a file that is too
// much for one call is too much for the next, and without an end here would be
// read again until its batch expires, with no word of why. But the store may have
// had a bad quarter of an hour. So the first call to run out of time says so in the
// batch and fails with [ErrOutOfTime], for another to try; the second refuses the
// batch. They are counted there, because nothing else tells a second from a first
// that came late: behind a full queue of executions, or from one that replaced
// another. A count that is lost on its way costs one call more.
func (p *Planner) inTime(ctx context.Context, tenant, id string, now time.Time, plan func(context.Context) (Plan, error)) (Plan, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return plan(ctx)
	}
	began := time.Now()
	reserve := min(planReserve, deadline.Sub(began)/10)
	inner, cancel := context.WithDeadlineCause(ctx, deadline.Add(-reserve), ErrOutOfTime)
	defer cancel()
	done, err := plan(inner)
	if err == nil || !errors.Is(context.Cause(inner), ErrOutOfTime) || errors.Is(err, ErrCut) || errors.Is(err, ErrNotFound) {
		return done, err
	}
	took := time.Since(began)
	// Whatever else err says: what was tried again and again was so until the end.
	err = fmt.Errorf("%w after %s: %w", ErrOutOfTime, took.Round(time.Second), err)
	b, lost := p.batches.Overrun(ctx, tenant, id, now.Add(took))
	switch {
	case errors.Is(lost, ErrStatus):
		return p.settle(ctx, b, tenant, id, lost) // somebody else decided
	case lost != nil:
		return Plan{}, errors.Join(err, lost)
	case b.Overruns < 2:
		return Plan{}, err
	}
	b, refused := p.batches.Refuse(ctx, tenant, id, []openai.BatchError{timedOut(took)}, now.Add(took))
	return p.settle(ctx, b, tenant, id, refused)
}

func timedOut(took time.Duration) openai.BatchError {
	return openai.BatchError{Code: codeTimedOut, Message: fmt.Sprintf(
		"The file could not be validated within %s, twice. Create the batch again, or split the file into several batches.", took.Round(time.Second))}
}
