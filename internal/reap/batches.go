package reap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// batch looks after a batch: that somebody plans it, runs it, or ends it.
func (o *round) batch(ctx context.Context, tenant, id string) error {
	b, err := o.r.Batches.Get(ctx, tenant, id)
	if err != nil || b.Status.Terminal() {
		return err
	}
	now := o.clock()
	past := !b.Deadline.IsZero() && !b.Deadline.After(now)
	if past && b.Ending == "" {
		if b, err = o.expire(ctx, b, now); b.Status.Terminal() {
			return err
		}
	}
	if past && b.Deadline.Add(o.r.o.Late).Before(now) {
		o.count(func(r *Report) { r.Overdue++ })
		// The metric has no names; whoever its alarm calls finds them here.
		o.r.o.Log.LogAttrs(ctx, slog.LevelWarn, "batch overdue", slog.String("tenant", b.Tenant), slog.String("batch", b.ID),
			slog.String("status", string(b.Status)), slog.String("ending", string(b.Ending)), slog.Time("deadline", b.Deadline))
	}
	next := o.r.o.Soon
	if err == nil {
		next, err = o.attend(ctx, b, now)
	}
	// The next look comes, whatever became of this one.
	due := now.Add(next)
	if b.Ending == "" && b.Deadline.After(now) && b.Deadline.Before(due) {
		due = b.Deadline
	}
	if o.turn == batch.OutOfTurn && !b.Due.IsZero() && b.Due.Before(due) {
		due = b.Due // the look that is due stays: what waits for it would wait for ever
	}
	if derr := o.r.Reaps.Defer(ctx, tenant, id, due, now); !errors.Is(derr, batch.ErrStatus) {
		err = errors.Join(err, derr)
	}
	return err
}

// expire decides that a batch whose window is over ends as expired, and sees to
// it that somebody finishes it. Another ending that came first stands. What is
// answered is the batch as it is after that, as far as it is known.
func (o *round) expire(ctx context.Context, b batch.Batch, now time.Time) (batch.Batch, error) {
	ended, err := o.r.Ender.Expire(ctx, b.Tenant, b.ID, now)
	if err != nil && !errors.Is(err, batch.ErrNotHandedOn) {
		return b, err
	}
	if ended.Ending == batch.Expired {
		o.count(func(r *Report) { r.Expired++ })
		o.tell(batch.Event{
			Tenant: b.Tenant, Batch: b.ID, Part: batch.NoPart, At: ended.EndingAt, Ver: ended.Ver,
			Kind: batch.EventEnding, Reason: string(batch.Expired),
		})
	}
	return ended, err
}

// attend sees to it that somebody is at the batch. Its answer is when to look
// again.
func (o *round) attend(ctx context.Context, b batch.Batch, now time.Time) (next time.Duration, err error) {
	switch {
	case b.Status == batch.Validating:
		return o.run(ctx, b, now, "its execution was gone before its plan was whole")
	case b.Status == batch.Finalizing && !b.FinalizerUntil.Before(lease.Cut(now, o.r.o.Skew)):
		// A finisher is alive, and prolongs that, or has closed the batch by then.
		return max(b.FinalizerUntil.Add(o.r.o.Skew+time.Second).Sub(now), time.Second), nil
	case b.Ending == "":
		alive, err := o.r.Ender.Alive(ctx, b, now)
		if err != nil {
			return o.r.o.Soon, err
		}
		over, err := o.partsOver(ctx, b)
		if err != nil {
			return o.r.o.Soon, err
		}
		switch {
		case over: // and its execution, if it runs, wasn't told, and would wait for hours
		case alive:
			return o.r.o.Look, nil
		default:
			return o.run(ctx, b, now, "its execution was gone before its parts were over")
		}
	}
	// Its ending is decided, or nothing is left to run.
	a, err := o.r.Ender.Finish(ctx, b, o.turn, now)
	if err != nil {
		return o.r.o.Soon, err
	}
	if a == batch.Replaced {
		o.count(func(r *Report) { r.Finished++ })
	}
	return o.attended(ctx, b, a, o.r.o.Soon, now, "nobody was there to finish it"), nil
}

// run sees to it that the batch is planned and waited for.
func (o *round) run(ctx context.Context, b batch.Batch, now time.Time, why string) (next time.Duration, err error) {
	a, err := o.r.Ender.Run(ctx, b, o.turn, now)
	if err != nil {
		return o.r.o.Soon, err
	}
	if a == batch.Replaced {
		o.count(func(r *Report) { r.Started++ })
	}
	return o.attended(ctx, b, a, o.r.o.Look, now, why), nil
}

// attended tells what an Ender came to. Its answer is when to look again: after
// well, where somebody was there.
func (o *round) attended(ctx context.Context, b batch.Batch, a batch.Attendance, well time.Duration, now time.Time, why string) time.Duration {
	switch a {
	case batch.Replaced:
		o.tell(batch.Event{
			Tenant: b.Tenant, Batch: b.ID, Part: batch.NoPart, At: now, Ver: b.Ver, Kind: batch.EventRestarted, Reason: why,
		})
		return o.r.o.Soon
	case batch.Paused:
		return o.r.o.Soon
	case batch.GivenUp:
		o.r.o.Log.LogAttrs(ctx, slog.LevelError, "executions of a batch fell one after the other; the next is started in an hour at most",
			slog.String("tenant", b.Tenant), slog.String("batch", b.ID), slog.String("status", string(b.Status)))
		return o.r.o.Look
	}
	return well
}

// partsOver reports whether nothing of the batch is left to run.
func (o *round) partsOver(ctx context.Context, b batch.Batch) (bool, error) {
	n := 0
	for p, err := range o.r.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			return false, fmt.Errorf("read the parts of %s: %w", b.ID, err)
		}
		if !p.Over() {
			return false, nil
		}
		n++
	}
	return n == b.Parts, nil
}
