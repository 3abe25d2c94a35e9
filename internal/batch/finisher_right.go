package batch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/internal/lease"
)

// hold does the work while it renews the right to assemble, and breaks it off
// when the right is lost. When the time is nearly up it raises stop, so that the
// work ends in good order; if it doesn't, it is broken off a margin later.
func (f *Finisher) hold(ctx context.Context, b Batch, tok lease.Token, clock func() time.Time, stop *atomic.Bool, work func(context.Context) (Closed, error)) (Closed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		soon := time.AfterFunc(left-2*f.o.Margin, func() { stop.Store(true) })
		defer soon.Stop()
		now := time.AfterFunc(left-f.o.Margin, func() { cancel(ErrOutOfTime) })
		defer now.Stop()
	}
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		beat := time.NewTicker(f.o.Lease / 4)
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
			at := clock()
			err := f.Endings.Hold(ctx, b.Tenant, b.ID, tok, at.Add(f.o.Lease), at)
			if errors.Is(err, lease.ErrLost) {
				cancel(err)
			} else if err != nil && ctx.Err() == nil {
				// The next one may succeed; if none does we are robbed, and Close says so.
				f.o.Log.WarnContext(ctx, "finalizer heartbeat failed", "tenant", b.Tenant, "batch", b.ID, "error", err)
			}
		}
	}()
	c, err := work(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	// A heartbeat under way must not come after what we do next: giving back.
	cancel(nil)
	<-beating
	return c, err
}

// giveBack ends the right to assemble early, so that the next try needs not wait
// for it to lapse. Best effort: if it fails, the next one waits.
func (f *Finisher) giveBack(ctx context.Context, tenant, id string, tok lease.Token, now time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cleanup())
	defer cancel()
	// Lapsed by every clock that is not further off than it may be.
	lapsed := now.Add(-2*f.o.Skew - time.Second)
	if err := f.Endings.Hold(ctx, tenant, id, tok, lapsed, now); err != nil && !errors.Is(err, lease.ErrLost) {
		f.o.Log.WarnContext(ctx, "finalizer was not given back", "tenant", tenant, "batch", id, "error", err)
	}
}

// cleanup is how long an undone thing may take to be put away.
func (f *Finisher) cleanup() time.Duration { return max(f.o.Margin/3, time.Second) }
