package memory

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"holdfast/internal/access"
)

// Tenants is access.Tenants over a Table.
type Tenants struct{ port }

var _ access.Tenants = (*Tenants)(nil)

// Get is access.Tenants.Get.
func (s *Tenants) Get(ctx context.Context, name string) (access.Tenant, error) {
	return call(ctx, s.faults, "Tenants.Get", func() (access.Tenant, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		t, ok := s.tenants[name]
		if !ok {
			return access.Tenant{}, fmt.Errorf("get tenant: %w", access.ErrNoTenant)
		}
		return cloneTenant(t), nil
	})
}

// Put is access.Tenants.Put.
func (s *Tenants) Put(ctx context.Context, t access.Tenant) error {
	return effect(ctx, s.faults, "Tenants.Put", func() error {
		if err := t.Check(); err != nil {
			return fmt.Errorf("put tenant: %w", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		seen, found := t.Ver, s.tenants[t.Name]
		holds := s.rules.must("tenants.absent", found.Ver == 0)
		if seen != 0 {
			holds = s.rules.must("tenants.seen", found.Ver == seen)
		}
		t = cloneTenant(t)
		t.Ver++
		if holds {
			s.tenants[t.Name] = t
			return nil
		}
		if s.rules.own("tenants.own", s.rules.must("tenants.own.equal", reflect.DeepEqual(found, t))) {
			return nil
		}
		return fmt.Errorf("put tenant: %w", access.ErrChanged)
	})
}

// List is access.Tenants.List.
func (s *Tenants) List(ctx context.Context, after string, limit int) ([]access.Tenant, bool, error) {
	type answer struct {
		page []access.Tenant
		more bool
	}
	a, err := call(ctx, s.faults, "Tenants.List", func() (a answer, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if limit < 1 || limit > access.MaxTenants {
			return answer{}, fmt.Errorf("list tenants: limit %d is not within 1-%d", limit, access.MaxTenants)
		}
		for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
			switch {
			case name <= after:
			case len(a.page) == limit:
				a.more = true
				return a, nil
			default:
				a.page = append(a.page, cloneTenant(s.tenants[name]))
			}
		}
		return a, nil
	})
	return a.page, a.more, err
}

func cloneTenant(t access.Tenant) access.Tenant {
	t = t.Clone()
	t.CreatedAt, t.UpdatedAt = millis(t.CreatedAt), millis(t.UpdatedAt)
	if t.Drop != nil {
		t.Drop.Since = millis(t.Drop.Since)
	}
	return t
}
