package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/limits"
)

var (
	_ access.Pairs   = (*Keys)(nil)
	_ limits.Batches = (*Batches)(nil)
)

// Pair is access.Pairs.Pair.
func (s *Keys) Pair(ctx context.Context, hash, tenant string) (access.Key, access.Tenant, error) {
	type pair struct {
		key    access.Key
		tenant access.Tenant
	}
	p, err := call(ctx, s.faults, "Keys.Pair", func() (pair, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		k, ok := s.keys[hash]
		if !ok {
			return pair{}, fmt.Errorf("get key and tenant: %w", access.ErrNotFound)
		}
		return pair{cloneKey(k), cloneTenant(s.tenants[tenant])}, nil
	})
	return p.key, p.tenant, err
}

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
