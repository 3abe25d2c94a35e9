package memory

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// Endings is batch.Endings over a Table.
type Endings struct{ port }

var _ batch.Endings = (*Endings)(nil)

// End is batch.Endings.End. Any other ending than Completed, Expired or
// Cancelled is an error.
func (s *Endings) End(ctx context.Context, tenant, id string, ending batch.Status, now time.Time) (batch.Batch, error) {
	return call(ctx, s.faults, "Endings.End", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return batch.Batch{}, err
		}
		var from bool
		switch ending {
		case batch.Completed:
			from = s.rules.must("C15.end.in_progress", b.Status == batch.InProgress)
		case batch.Cancelled, batch.Expired:
			from = s.rules.must("C15.end.from", b.Status == batch.Validating || b.Status == batch.InProgress)
		default:
			return batch.Batch{}, fmt.Errorf("end batch %s: %q is no ending", id, ending)
		}
		if from && s.rules.must("C15.end.undecided", b.Ending == "") {
			b.Ending, b.EndingAt = ending, now
			return s.write(b), nil
		}
		if s.rules.own("C15.end.own", s.rules.must("C15.end.own.equal", b.Ending == ending)) {
			return b, nil
		}
		return batch.Batch{}, refused("end", b)
	})
}

// Finalize is batch.Endings.Finalize. Its read and its write are one here, so
// that `ver unchanged since read` always holds and is no clause.
func (s *Endings) Finalize(ctx context.Context, tenant, id string, tok lease.Token, until, cut, now time.Time) (batch.Batch, error) {
	return call(ctx, s.faults, "Endings.Finalize", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return batch.Batch{}, err
		}
		first := s.rules.must("C15.finalize.from", b.Status == batch.InProgress) &&
			s.rules.must("C15.finalize.decided", b.Ending != "")
		own := s.rules.own("C15.finalize.own",
			s.rules.must("C15.finalize.own.state", b.Status == batch.Finalizing) &&
				s.rules.must("C15.finalize.own.owner", b.Finalizer == tok))
		rob := s.rules.must("C15.rob.finalizing", b.Status == batch.Finalizing) &&
			s.rules.must("C15.rob.lapsed", b.FinalizerUntil.Before(millis(cut)))
		switch {
		case first:
			b.Status, b.FinalizingAt = batch.Finalizing, now
			b.Finalizer, b.FinalizerUntil = tok, until
			return s.write(b), nil
		case own:
			return b, nil
		case rob:
			b.Finalizer, b.FinalizerUntil = tok, until
			return s.write(b), nil
		case b.Status == batch.Finalizing:
			return batch.Batch{}, fmt.Errorf("finalize batch %s: %w", id, &batch.HeldError{Until: b.FinalizerUntil, Ver: b.Ver})
		default:
			return batch.Batch{}, refused("finalize", b)
		}
	})
}

// Hold is batch.Endings.Hold.
func (s *Endings) Hold(ctx context.Context, tenant, id string, tok lease.Token, until, now time.Time) error {
	return effect(ctx, s.faults, "Endings.Hold", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return err
		}
		if !s.rules.must("C15.hold.finalizing", b.Status == batch.Finalizing) ||
			!s.rules.must("C15.hold.finalizer", b.Finalizer == tok) {
			return fmt.Errorf("hold batch %s, which is %s: %w", id, b.Status, lease.ErrLost)
		}
		b.FinalizerUntil = until
		s.write(b)
		return nil
	})
}

// Advance is batch.Endings.Advance.
func (s *Endings) Advance(ctx context.Context, tenant, id string, tok lease.Token, p batch.Progress, until, now time.Time) error {
	return effect(ctx, s.faults, "Endings.Advance", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return err
		}
		if s.rules.must("C15.advance.finalizing", b.Status == batch.Finalizing) &&
			s.rules.must("C15.advance.finalizer", b.Finalizer == tok) &&
			s.rules.must("C15.advance.step", b.Progress.Step == p.Step-1) {
			b.Progress, b.FinalizerUntil = p, until
			s.write(b)
			return nil
		}
		if s.rules.own("C15.advance.own",
			s.rules.must("C15.advance.own.finalizing", b.Status == batch.Finalizing) &&
				s.rules.must("C15.advance.own.finalizer", b.Finalizer == tok) &&
				s.rules.must("C15.advance.own.step", b.Progress.Step == p.Step)) {
			return nil
		}
		return fmt.Errorf("advance batch %s, which is %s, to step %d: %w", id, b.Status, p.Step, lease.ErrLost)
	})
}

// Close is batch.Endings.Close.
func (s *Endings) Close(ctx context.Context, tenant, id string, tok lease.Token, c batch.Closed, now time.Time) (batch.Batch, error) {
	return call(ctx, s.faults, "Endings.Close", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return batch.Batch{}, err
		}
		if s.rules.must("C16.finalizing", b.Status == batch.Finalizing) &&
			s.rules.must("C16.finalizer", b.Finalizer == tok) {
			b.Status, b.Due = b.Ending, time.Time{}
			b.Counts, b.Usage, b.Troubles = c.Counts, c.Usage, c.Troubles
			b.OutputFileID, b.ErrorFileID = c.OutputFileID, c.ErrorFileID
			switch b.Ending {
			case batch.Completed:
				b.CompletedAt = now
			case batch.Expired:
				b.ExpiredAt = now
			case batch.Cancelled:
				b.CancelledAt = now
			}
			return s.write(b), nil
		}
		if s.rules.own("C16.own", b.Status.Terminal() && s.rules.must("C16.own.finalizer", b.Finalizer == tok)) {
			return b, nil
		}
		return batch.Batch{}, fmt.Errorf("close batch %s, which is %s: %w", id, b.Status, lease.ErrLost)
	})
}
