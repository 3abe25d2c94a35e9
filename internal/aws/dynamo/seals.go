package dynamo

import (
	"context"
	"time"

	"holdfast/internal/batch"
)

var _ batch.Seals = (*Seals)(nil)

// Seals is batch.Seals.
type Seals struct{ t *table }

// Seal implements batch.Seals (C13).
func (s *Seals) Seal(ctx context.Context, k batch.PartKey, ver int64, _ time.Time) (batch.Part, error) {
	out, err := s.t.update(ctx, partKey(k), c13Seal(ver), true)
	if err == nil && out.item == nil {
		err = batch.ErrNotFound
	}
	if err != nil {
		return batch.Part{}, partErr("seal", k, err)
	}
	i, err := decode[partItem](out.item)
	p := i.part()
	if err == nil && out.refused && !p.Over() { // one that is over was sealed by us, or needs no seal
		err = batch.ErrStale
	}
	if err != nil {
		return batch.Part{}, partErr("seal", k, err)
	}
	return p, nil
}
