package memory

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
)

// Deaths is batch.Deaths over a Table.
type Deaths struct{ port }

var _ batch.Deaths = (*Deaths)(nil)

// Declare is batch.Deaths.Declare.
func (s *Deaths) Declare(ctx context.Context, seen batch.Part, maxAttempts int, cut, grace, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Deaths.Declare", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(seen.PartKey)
		if err != nil {
			return batch.Part{}, err
		}
		lapsed := p.LeaseUntil.Before(millis(cut))
		if s.rules.must("C12.seen", p.Ver == seen.Ver) &&
			s.rules.must("C12.attempts", p.Attempts >= maxAttempts) &&
			s.rules.must("C12.suspect", p.Suspect.None()) &&
			s.rules.must("C12.state", p.State == batch.Pending || p.State == batch.Leased) &&
			s.rules.must("C12.lapsed", p.State != batch.Leased || lapsed) {
			if p.State == batch.Leased {
				p = lapse(p)
			}
			p = given(p, grace)
			p.State, p.DeadAt = batch.Dead, now
			return s.writePart(p), nil
		}
		if s.rules.own("C12.own", s.rules.must("C12.own.dead", p.State == batch.Dead)) {
			return p, nil
		}
		why := batch.ErrAlive
		switch {
		case p.Over():
			why = batch.ErrOver
		case p.State == batch.Leased && !lapsed:
			why = &batch.HeldError{Until: p.LeaseUntil, Ver: p.Ver, Owner: p.Owner, Begun: p.Begun}
		case p.Ver != seen.Ver:
			why = batch.ErrStale
		}
		return batch.Part{}, fmt.Errorf("declare part %d of %s dead, which is %s: %w", p.N, p.Batch, p.State, why)
	})
}

// Redrive is batch.Deaths.Redrive.
func (s *Deaths) Redrive(ctx context.Context, seen batch.Part, due, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Deaths.Redrive", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(seen.PartKey)
		if err != nil {
			return batch.Part{}, err
		}
		b := s.batches[name{seen.Tenant, seen.Batch}]
		open := s.rules.must("C14.status", b.Status == batch.InProgress) && s.rules.must("C14.ending", b.Ending == "")
		if s.rules.must("C14.dead", p.State == batch.Dead) && s.rules.must("C14.seen", p.Ver == seen.Ver) && open {
			p = given(p, due)
			p.Attempts, p.Resends, p.DeadAt = 0, 0, time.Time{}
			return s.writePart(p), nil
		}
		if s.rules.own("C14.own",
			s.rules.must("C14.own.dead", seen.State == batch.Dead) &&
				s.rules.must("C14.own.pending", p.State == batch.Pending) &&
				s.rules.must("C14.own.ver", p.Ver == seen.Ver+1)) {
			return p, nil
		}
		why := batch.ErrAlive
		switch {
		case p.Over():
			why = batch.ErrOver
		case p.State == batch.Dead && !open:
			why = batch.ErrStatus
		case p.State == batch.Dead:
			why = batch.ErrStale
		}
		return batch.Part{}, fmt.Errorf("redrive part %d of %s, which is %s: %w", p.N, p.Batch, p.State, why)
	})
}
