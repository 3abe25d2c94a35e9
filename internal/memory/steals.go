package memory

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
)

var _ batch.Steals = (*Claims)(nil)

// Steal is batch.Steals.Steal.
func (s *Claims) Steal(ctx context.Context, c batch.Claim, taskToken string, ver int64, maxAttempts int, cut, until, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Claims.Steal", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(c.PartKey)
		if err != nil {
			return batch.Part{}, err
		}
		leased := s.rules.must("C6.leased", p.State == batch.Leased)
		seen := s.rules.must("C6.seen", p.Ver == ver)
		lapsed := s.rules.must("C6.lapsed", p.LeaseUntil.Before(millis(cut)))
		left := s.rules.must("C6.attempts", p.Attempts < maxAttempts || s.rules.own("C6.suspect", !p.Suspect.None()))
		if leased && seen && lapsed && left {
			p = claimed(lapse(p), c, taskToken, until)
			p.Steals++
			return s.writePart(p), nil
		}
		if s.rules.own("C6.own",
			s.rules.must("C6.own.leased", p.State == batch.Leased) &&
				s.rules.must("C6.own.owner", p.Owner == c.Token)) {
			return p, nil
		}
		why := whyNot(p)
		switch {
		case p.State == batch.Pending:
			why = batch.ErrStale
		case p.State == batch.Leased && seen && lapsed:
			why = batch.ErrExhausted
		}
		return batch.Part{}, fmt.Errorf("steal part %d of %s at version %d, now %d: %w", p.N, p.Batch, ver, p.Ver, why)
	})
}
