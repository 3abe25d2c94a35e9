package memory

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

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
		return s.byHash(hash)
	})
}

// Find is access.Store.Find.
func (s *Keys) Find(ctx context.Context, tenant, id string) (access.Key, error) {
	return call(ctx, s.faults, "Keys.Find", func() (access.Key, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.key(tenant, id)
	})
}

func (i *items) key(tenant, id string) (access.Key, error) {
	for _, k := range i.keys {
		if k.Tenant == tenant && k.ID() == id {
			return cloneKey(k), nil
		}
	}
	return access.Key{}, fmt.Errorf("find key: %w", access.ErrNotFound)
}

// List is access.Store.List.
func (s *Keys) List(ctx context.Context, tenant, after string, limit int) ([]access.Key, bool, error) {
	type answer struct {
		page []access.Key
		more bool
	}
	newest := func(a, b access.Key) int {
		return -cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Hash, b.Hash))
	}
	a, err := call(ctx, s.faults, "Keys.List", func() (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if limit < 1 || limit > access.MaxKeys {
			return answer{}, fmt.Errorf("list keys: limit %d is not within 1-%d", limit, access.MaxKeys)
		}
		var last access.Key
		if after != "" {
			var err error
			if last, err = s.key(tenant, after); err != nil {
				return answer{}, err
			}
		}
		var all []access.Key
		for _, k := range s.keys {
			if k.Tenant == tenant && (after == "" || newest(last, k) < 0) {
				all = append(all, cloneKey(k))
			}
		}
		slices.SortFunc(all, newest)
		return answer{all[:min(limit, len(all))], len(all) > limit}, nil
	})
	return a.page, a.more, err
}

// Disable is access.Store.Disable.
func (s *Keys) Disable(ctx context.Context, tenant, hash string, now time.Time) (access.Key, error) {
	return call(ctx, s.faults, "Keys.Disable", func() (access.Key, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		k, there := s.keys[hash]
		if !there || !s.rules.must("keys.disable.tenant", k.Tenant == tenant) {
			return access.Key{}, fmt.Errorf("disable key: %w", access.ErrNotFound)
		}
		if s.rules.must("keys.disable.enabled", k.DisabledAt.IsZero()) {
			k.DisabledAt = millis(now)
			s.keys[hash] = k
		}
		return cloneKey(k), nil
	})
}

// Rotate is access.Store.Rotate.
func (s *Keys) Rotate(ctx context.Context, old, next access.Key, until time.Time) error {
	return effect(ctx, s.faults, "Keys.Rotate", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		next := cloneKey(next)
		k, there := s.keys[old.Hash]
		if !there || !s.rules.must("keys.rotate.tenant", k.Tenant == old.Tenant) {
			return fmt.Errorf("rotate key: %w", access.ErrNotFound)
		}
		enabled := s.rules.must("keys.rotate.enabled", k.DisabledAt.IsZero())
		unreplaced := s.rules.must("keys.rotate.unreplaced", k.ReplacedBy == "")
		taken, is := s.keys[next.Hash]
		absent := s.rules.must("keys.rotate.absent", !is)
		switch {
		case enabled && unreplaced && absent:
			k.ReplacedBy, k.ExpiresAt = next.ID(), millis(until)
			s.keys[k.Hash], s.keys[next.Hash] = k, next
			return nil
		case s.rules.own("keys.rotate.own", s.rules.must("keys.rotate.own.by", k.ReplacedBy == next.ID()) &&
			s.rules.must("keys.rotate.own.equal", reflect.DeepEqual(taken, next))):
			return nil
		case k.ReplacedBy != "":
			return fmt.Errorf("rotate key: %w", &access.ReplacedError{By: k.ReplacedBy})
		case !k.DisabledAt.IsZero():
			return fmt.Errorf("rotate key: %w", access.ErrDisabled)
		}
		return fmt.Errorf("rotate key: %w", access.ErrExists)
	})
}

// Touch is access.Store.Touch.
func (s *Keys) Touch(ctx context.Context, k access.Key, day time.Time) error {
	return effect(ctx, s.faults, "Keys.Touch", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		found, there := s.keys[k.Hash]
		if !there {
			return fmt.Errorf("touch key: %w", access.ErrNotFound)
		}
		if s.rules.must("keys.touch.later", found.LastUsed.Before(day)) {
			found.LastUsed = millis(day)
			s.keys[k.Hash] = found
		}
		return nil
	})
}

func cloneKey(k access.Key) access.Key {
	k.Scopes = slices.Clone(k.Scopes)
	k.CreatedAt, k.ExpiresAt, k.DisabledAt, k.LastUsed = millis(k.CreatedAt), millis(k.ExpiresAt), millis(k.DisabledAt), millis(k.LastUsed)
	return k
}
