package dynamo

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var _ batch.Endings = (*Endings)(nil)

// Endings is batch.Endings.
type Endings struct{ t *table }

// End implements batch.Endings (C15).
func (s *Endings) End(ctx context.Context, tenant, id string, ending batch.Status, now time.Time) (batch.Batch, error) {
	if ending != batch.Completed && ending != batch.Cancelled && ending != batch.Expired {
		return batch.Batch{}, batchErr("end", tenant, id, fmt.Errorf("%q is no ending", ending))
	}
	return s.t.transition(ctx, "end", tenant, id, c15End(ending, now), func(b batch.Batch) error {
		if b.Ending == ending {
			return nil
		}
		return batch.ErrStatus
	})
}

// Finalize implements batch.Endings (C15).
func (s *Endings) Finalize(ctx context.Context, tenant, id string, tok lease.Token, until, cut, now time.Time) (batch.Batch, error) {
	return s.t.transition(ctx, "finalize", tenant, id, c15Finalize(tok, until, cut, now), func(b batch.Batch) error {
		switch {
		case b.Status != batch.Finalizing:
			return batch.ErrStatus
		case b.Finalizer == tok:
			return nil // our own write, whose answer was lost
		}
		return &batch.HeldError{Until: b.FinalizerUntil, Ver: b.Ver}
	})
}

// Hold implements batch.Endings.
func (s *Endings) Hold(ctx context.Context, tenant, id string, tok lease.Token, until, _ time.Time) error {
	_, err := s.t.transition(ctx, "hold", tenant, id, c15Hold(tok, until), func(batch.Batch) error { return lease.ErrLost })
	return err
}

// Advance implements batch.Endings.
func (s *Endings) Advance(ctx context.Context, tenant, id string, tok lease.Token, p batch.Progress, until, _ time.Time) error {
	_, err := s.t.transition(ctx, "advance", tenant, id, c15Advance(tok, p, until), func(b batch.Batch) error {
		if b.Status == batch.Finalizing && b.Finalizer == tok && b.Progress.Step == p.Step {
			return nil // our own write, whose answer was lost
		}
		return lease.ErrLost
	})
	return err
}

// Close implements batch.Endings (C16).
func (s *Endings) Close(ctx context.Context, tenant, id string, tok lease.Token, c batch.Closed, now time.Time) (batch.Batch, error) {
	return s.t.transition(ctx, "close", tenant, id, c16Close(tok, c, now), func(b batch.Batch) error {
		if b.Status.Terminal() && b.Finalizer == tok {
			return nil // our own write, whose answer was lost
		}
		return lease.ErrLost
	})
}
