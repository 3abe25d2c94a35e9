package memory

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"holdfast/internal/access"
)

// Keys is access.Store over a Table.
type Keys struct{ port }

var _ access.Store = (*Keys)(nil)

// Put is access.Store.Put.
func (s *Keys) Put(ctx context.Context, k access.Key) error {
	return effect(ctx, s.faults, "Keys.Put", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		k := cloneKey(k)
		old, there := s.keys[k.Hash]
		if s.rules.must("keys.absent", !there) {
			s.keys[k.Hash] = k
			return nil
		}
		if s.rules.own("keys.own", s.rules.must("keys.own.equal", reflect.DeepEqual(old, k))) {
			return nil
		}
		return fmt.Errorf("put key: %w", access.ErrExists)
	})
}

// Get is access.Store.Get.
func (s *Keys) Get(ctx context.Context, hash string) (access.Key, error) {
	return call(ctx, s.faults, "Keys.Get", func() (access.Key, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		k, ok := s.keys[hash]
		if !ok {
			return access.Key{}, fmt.Errorf("get key: %w", access.ErrNotFound)
		}
		return cloneKey(k), nil
	})
}

func cloneKey(k access.Key) access.Key {
	k.Scopes = slices.Clone(k.Scopes)
	k.CreatedAt, k.ExpiresAt, k.DisabledAt = millis(k.CreatedAt), millis(k.ExpiresAt), millis(k.DisabledAt)
	return k
}
