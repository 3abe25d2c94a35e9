package memory

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
)

// Seals is batch.Seals over a Table.
type Seals struct{ port }

var _ batch.Seals = (*Seals)(nil)

// Seal is batch.Seals.Seal.
func (s *Seals) Seal(ctx context.Context, key batch.PartKey, ver int64, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Seals.Seal", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(key)
		if err != nil {
			return batch.Part{}, err
		}
		open := p.State == batch.Pending || p.State == batch.Leased || p.State == batch.Dead
		if s.rules.must("C13.open", open) && s.rules.must("C13.seen", p.Ver == ver) {
			p.State, p.Owner, p.Due = batch.Sealed, "", time.Time{}
			return s.writePart(p), nil
		}
		if s.rules.own("C13.own", s.rules.must("C13.own.over", p.Over())) {
			return p, nil
		}
		return batch.Part{}, fmt.Errorf("seal part %d of %s at version %d, now %d: %w", p.N, p.Batch, ver, p.Ver, batch.ErrStale)
	})
}
