package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

var _ access.Store = (*Keys)(nil)

// Keys is access.Store. Errors name no hash: it is what a key is found by.
type Keys struct{ t *table }

// Put implements access.Store.
func (s *Keys) Put(ctx context.Context, k access.Key) error {
	want := newKeyItem(k)
	out, err := s.t.insert(ctx, want, insertKey())
	if err == nil && out.refused {
		var found keyItem
		if found, err = decode[keyItem](out.item); err == nil && !reflect.DeepEqual(found.key(), want.key()) {
			err = access.ErrExists
		}
	}
	if err != nil {
		return fmt.Errorf("put key %q of %s: %w", k.Name, k.Tenant, err)
	}
	return nil
}

// Get implements access.Store.
func (s *Keys) Get(ctx context.Context, hash string) (access.Key, error) {
	if !storable(hash) {
		return access.Key{}, fmt.Errorf("get key: %w", access.ErrNotFound)
	}
	a, err := s.t.get(ctx, accessKey(hash))
	if errors.Is(err, batch.ErrNotFound) {
		err = access.ErrNotFound
	}
	if err != nil {
		return access.Key{}, fmt.Errorf("get key: %w", err)
	}
	i, err := decode[keyItem](a)
	if err != nil {
		return access.Key{}, fmt.Errorf("get key: %w", err)
	}
	return i.key(), nil
}
