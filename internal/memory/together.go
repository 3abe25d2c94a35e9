package memory

import (
	"context"
	"fmt"
	"slices"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

var _ access.Pairs = (*Keys)(nil)

// Pair is access.Pairs.Pair.
func (s *Keys) Pair(ctx context.Context, hash, tenant string) (access.Key, access.Tenant, error) {
	of, err := call(ctx, s.faults, "Keys.Pair", func() (together, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		k, err := s.byHash(hash)
		return together{key: k, tenants: s.records(tenant)}, err
	})
	return of.key, of.tenants[tenant], err
}

// Replay is gateway.Replays.Replay.
func (s *Keys) Replay(ctx context.Context, hash, tenant, id string, records ...string) (access.Key, batch.Batch, map[string]access.Tenant, error) {
	of, err := call(ctx, s.faults, "Keys.Replay", func() (of together, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, n := range records {
			if slices.Contains(records[:i], n) {
				return of, fmt.Errorf("get tenant %s: asked for twice", n) // as DynamoDB has it
			}
		}
		if hash != "" {
			of.key, err = s.byHash(hash)
		}
		of.batch, _ = s.batch(tenant, id) // one that isn't there is zero
		of.tenants = s.records(records...)
		return of, err
	})
	return of.key, of.batch, of.tenants, err
}

// together is what one call read; zero where there is nothing.
type together struct {
	key     access.Key
	batch   batch.Batch
	tenants map[string]access.Tenant
}

// byHash is under the store's lock.
func (s *Keys) byHash(hash string) (access.Key, error) {
	k, ok := s.keys[hash]
	if !ok {
		return access.Key{}, fmt.Errorf("get key: %w", access.ErrNotFound)
	}
	return cloneKey(k), nil
}

// records are those that there are; under the store's lock.
func (s *Keys) records(names ...string) map[string]access.Tenant {
	found := map[string]access.Tenant{}
	for _, n := range names {
		if x, ok := s.tenants[n]; ok {
			found[n] = cloneTenant(x)
		}
	}
	return found
}
