package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"holdfast/internal/limits"
)

var _ limits.Batches = (*Batches)(nil)

// Open is limits.Batches.Open.
func (s *Batches) Open(ctx context.Context, tenant string, since time.Time) ([]limits.Open, error) {
	return call(ctx, s.faults, "Batches.Open", func() (open []limits.Open, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for n, b := range s.batches {
			if n.tenant != tenant || b.Status.Terminal() || b.CreatedAt.Before(millis(since)) {
				continue
			}
			o := limits.Open{ID: b.ID, CreatedAt: b.CreatedAt}
			if b.Running() {
				o.Lines = b.Lines
			}
			open = append(open, o)
		}
		slices.SortFunc(open, func(a, b limits.Open) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), compare(b.ID, a.ID))
		})
		return open, nil
	})
}
