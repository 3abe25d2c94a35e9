package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
)

// RunTenants runs the suite of access.Tenants.
func RunTenants(t *testing.T, open func(T) access.Tenants) {
	t.Helper()
	run(t, TenantsCases(), open)
}

// TenantsCases is the suite of access.Tenants.
func TenantsCases() []Case[access.Tenants] {
	return []Case[access.Tenants]{
		{"put/a full record and a bare one come back", tenantRoundTrip},
		{"put/not beside one that is there", tenantThere},
		{"put/in place of the one that was read, whatever differs", tenantReplace},
		{"put/not in place of one that came since", tenantChanged},
		{"put/not in place of none", tenantGone},
		{"put/again is its own lost write", tenantAgain},
		{"put/one of many is first, and one of many replaces it", tenantRace},
		{"put/what was given or got is not shared", tenantShared},
		{"put/not what won't do", tenantRefused},
		{"get/unknown", tenantUnknown},
		{"list/by name, page by page", tenantListPages},
		{"list/as they are now", tenantListChanges},
		{"list/limits", tenantListLimits},
		{"a context that is over", tenantsInterrupted},
	}
}

// someTenant has everything that one can have.
func someTenant() access.Tenant {
	return access.Tenant{
		Name: tenant(),
		Drop: &access.Drop{
			Principal: "arn:aws:iam::111122223333:role/Drop+er", Endpoint: "/v1/chat/completions", Window: "24h", Since: stored(at(-time.Hour)),
		},
		Limits:    access.Limits{QueuedLines: access.MaxLimit, RunningBatches: 3, FileBytes: 10 << 30, RequestsPerMinute: 600},
		CreatedAt: at(0), UpdatedAt: at(time.Minute),
	}
}

// lookTenant demands that t is stored, at this ver.
func lookTenant(t T, s access.Tenants, what string, want access.Tenant, ver int64) {
	t.Helper()
	want.Ver = ver
	same(t, what, value(s.Get(t.Context(), want.Name))(t, "get tenant"), want)
}

func tenantRoundTrip(t T, s access.Tenants) {
	full, bare := someTenant(), access.Tenant{Name: tenant(), CreatedAt: at(0), UpdatedAt: at(0)}
	part := access.Tenant{Name: tenant(), Drop: &access.Drop{Principal: "ann", Since: stored(at(0))}, CreatedAt: at(0), UpdatedAt: at(0)}
	for _, x := range []access.Tenant{full, bare, part} {
		succeeds(t, "put", s.Put(t.Context(), x))
		lookTenant(t, s, "stored", x, 1)
	}
	// A caller's clock: stored in whole milliseconds, UTC.
	odd := someTenant()
	odd.Drop.Since = at(0)
	succeeds(t, "put", s.Put(t.Context(), odd))
	if got := value(s.Get(t.Context(), odd.Name))(t, "get").Drop.Since; got != stored(at(0)) {
		t.Errorf("since %v, want %v", got, stored(at(0)))
	}
}

func tenantThere(t T, s access.Tenants) {
	x := someTenant()
	succeeds(t, "put", s.Put(t.Context(), x))
	other := access.Tenant{Name: x.Name, CreatedAt: at(0), UpdatedAt: at(0)}
	refuses(t, "put another", s.Put(t.Context(), other), access.ErrChanged)
	lookTenant(t, s, "stored", x, 1)
}

// tenantChanges is each way in which a record can become another.
func tenantChanges() map[string]func(*access.Tenant) {
	return map[string]func(*access.Tenant){
		"no drop":         func(x *access.Tenant) { x.Drop = nil },
		"principal":       func(x *access.Tenant) { x.Drop.Principal = "other" },
		"endpoint":        func(x *access.Tenant) { x.Drop.Endpoint = "" },
		"window":          func(x *access.Tenant) { x.Drop.Window = "1h" },
		"since":           func(x *access.Tenant) { x.Drop.Since = stored(at(time.Hour)) },
		"queued lines":    func(x *access.Tenant) { x.Limits.QueuedLines-- },
		"running batches": func(x *access.Tenant) { x.Limits.RunningBatches = 0 },
		"file bytes":      func(x *access.Tenant) { x.Limits.FileBytes = 1 },
		"requests":        func(x *access.Tenant) { x.Limits.RequestsPerMinute = 0 },
		"created_at":      func(x *access.Tenant) { x.CreatedAt = at(time.Second) },
		"updated_at":      func(x *access.Tenant) { x.UpdatedAt = at(2 * time.Minute) },
	}
}

func tenantReplace(t T, s access.Tenants) {
	x := someTenant()
	succeeds(t, "put", s.Put(t.Context(), x))
	ver, full := int64(1), x
	put := func(what string, next access.Tenant) {
		t.Helper()
		next.Ver = ver
		succeeds(t, what, s.Put(t.Context(), next))
		ver++
		lookTenant(t, s, what, next, ver)
	}
	for what, change := range tenantChanges() {
		next := full.Clone()
		change(&next)
		put(what, next)
		put("all of it again", full)
	}
	put("nothing left", access.Tenant{Name: x.Name, CreatedAt: at(0), UpdatedAt: at(0)})
}

func tenantChanged(t T, s access.Tenants) {
	x := someTenant()
	succeeds(t, "put", s.Put(t.Context(), x))
	second := x.Clone()
	second.Ver, second.Limits.RunningBatches = 1, 4
	succeeds(t, "replace", s.Put(t.Context(), second))
	for what, change := range tenantChanges() {
		for _, seen := range []int64{1, 3} {
			late := x.Clone()
			change(&late)
			late.Ver = seen
			refuses(t, fmt.Sprintf("replace what had ver %d: %s", seen, what), s.Put(t.Context(), late), access.ErrChanged)
		}
	}
	// As it is stored, but written by somebody who read it later or never.
	for _, seen := range []int64{0, 3} {
		second.Ver = seen
		refuses(t, "an equal one that isn't this write", s.Put(t.Context(), second), access.ErrChanged)
	}
	lookTenant(t, s, "stored", second, 2)
}

func tenantGone(t T, s access.Tenants) {
	x := someTenant()
	x.Ver = 1
	refuses(t, "replace what is gone", s.Put(t.Context(), x), access.ErrChanged)
	refuses(t, "get", fault(s.Get(t.Context(), x.Name)), access.ErrNoTenant)
}

func tenantAgain(t T, s access.Tenants) {
	x := someTenant()
	for range 2 {
		succeeds(t, "put", s.Put(t.Context(), x))
	}
	x.Ver, x.Drop = 1, nil
	for range 2 {
		succeeds(t, "replace", s.Put(t.Context(), x))
	}
	lookTenant(t, s, "stored", x, 2)
}

func tenantRace(t T, s access.Tenants) {
	x := someTenant()
	for seen := range int64(2) {
		mine := func(i int) access.Tenant {
			m := x.Clone()
			m.Ver, m.Limits.RunningBatches = seen, int(seen+1)*1000+i
			return m
		}
		errs := race(racers, func(i int) error { return s.Put(t.Context(), mine(i)) })
		lookTenant(t, s, "stored", mine(winner(t, errs, access.ErrChanged)), seen+1)
	}
}

func tenantShared(t T, s access.Tenants) {
	x := someTenant()
	succeeds(t, "put", s.Put(t.Context(), x))
	want := x.Clone()
	x.Drop.Principal = "mallory"
	lookTenant(t, s, "after the writer's change", want, 1)
	value(s.Get(t.Context(), x.Name))(t, "get").Drop.Principal = "mallory"
	lookTenant(t, s, "after a reader's change", want, 1)
}

func tenantRefused(t T, s access.Tenants) {
	for what, change := range map[string]func(*access.Tenant){
		"tenant":          func(x *access.Tenant) { x.Name = "No/Tenant" },
		"principal":       func(x *access.Tenant) { x.Drop.Principal = "" },
		"endpoint":        func(x *access.Tenant) { x.Drop.Endpoint = "v1" },
		"window":          func(x *access.Tenant) { x.Drop.Window = "soon" },
		"running_batches": func(x *access.Tenant) { x.Limits.RunningBatches = -1 },
	} {
		x := someTenant()
		change(&x)
		err := s.Put(t.Context(), x)
		if f, ok := errors.AsType[*access.FieldError](err); !ok || f.Field != what {
			t.Errorf("put with a bad %s: %v", what, err)
		}
		refuses(t, "get", fault(s.Get(t.Context(), x.Name)), access.ErrNoTenant)
	}
}

func tenantUnknown(t T, s access.Tenants) {
	for _, name := range []string{tenant(), "", "No/Tenant", strings.Repeat("x", 3000)} {
		refuses(t, fmt.Sprintf("get %.20q", name), fault(s.Get(t.Context(), name)), access.ErrNoTenant)
	}
}

// tenantNames walks the whole list. Other cases put tenants, too, so that pages
// have some of theirs in them.
func tenantNames(t T, s access.Tenants, limit int) (names []string) {
	t.Helper()
	after := ""
	for {
		page, more, err := s.List(t.Context(), after, limit)
		succeeds(t, "list", err)
		if len(page) > limit || more && len(page) < limit {
			t.Fatalf("a page of %d, limit %d, more=%v", len(page), limit, more)
		}
		for _, x := range page {
			names = append(names, x.Name)
			after = x.Name
		}
		if !more {
			return names
		}
	}
}

func tenantListPages(t T, s access.Tenants) {
	who := tenant()
	var want []access.Tenant
	for _, i := range []int{4, 1, 3, 0, 2} {
		x := someTenant()
		x.Name = fmt.Sprintf("%s-%d", who, i)
		if i%2 == 0 {
			x.Drop = nil
		}
		succeeds(t, "put", s.Put(t.Context(), x))
		x.Ver = 1
		want = append(want, x)
	}
	slices.SortFunc(want, func(a, b access.Tenant) int { return strings.Compare(a.Name, b.Name) })
	// Names that begin alike have no stranger's between them.
	var page []access.Tenant
	eventually(t, "all five are listed", func() bool {
		var err error
		page, _, err = s.List(t.Context(), who, 5)
		succeeds(t, "list", err)
		return len(page) == 5 && page[4].Name == want[4].Name
	})
	for i := range want {
		same(t, fmt.Sprintf("entry %d", i), page[i], want[i])
	}
	for i, x := range want[:3] {
		page, more, err := s.List(t.Context(), x.Name, 1)
		if err != nil || !more || len(page) != 1 || page[0].Name != want[i+1].Name {
			t.Errorf("after entry %d: %d tenants, more=%v, %v", i, len(page), more, err)
		}
	}
	for _, limit := range []int{7, access.MaxTenants} {
		names := tenantNames(t, s, limit)
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("limit %d: out of order, or one twice", limit)
		}
		for _, x := range want {
			if !slices.Contains(names, x.Name) {
				t.Errorf("limit %d: %s isn't listed", limit, x.Name)
			}
		}
	}
	last := strings.Repeat("z", 63)
	if page, more, err := s.List(t.Context(), last, 10); err != nil || more || len(page) != 0 {
		t.Errorf("after the last name there can be: %d tenants, more=%v, %v", len(page), more, err)
	}
}

func tenantListChanges(t T, s access.Tenants) {
	x := someTenant()
	x.Name += "-1"
	succeeds(t, "put", s.Put(t.Context(), x))
	x.Ver, x.Drop, x.Limits.FileBytes = 1, nil, 0
	succeeds(t, "replace", s.Put(t.Context(), x))
	x.Ver = 2
	var got access.Tenant
	eventually(t, "the change is listed", func() bool {
		page, _, err := s.List(t.Context(), strings.TrimSuffix(x.Name, "-1"), 1)
		succeeds(t, "list", err)
		if len(page) == 1 {
			got = page[0]
		}
		return got.Name == x.Name && got.Ver == 2
	})
	same(t, "listed", got, x)
}

func tenantListLimits(t T, s access.Tenants) {
	for _, limit := range []int{-1, 0, access.MaxTenants + 1} {
		if _, _, err := s.List(t.Context(), "", limit); err == nil {
			t.Errorf("a limit of %d is accepted", limit)
		}
	}
	if _, _, err := s.List(t.Context(), "any/thing", 1); err != nil {
		t.Errorf("after what is no name: %v", err)
	}
}

func tenantsInterrupted(t T, s access.Tenants) {
	x, other := someTenant(), someTenant()
	succeeds(t, "put", s.Put(t.Context(), x))
	next := x.Clone()
	next.Ver, next.Drop = 1, nil
	interrupts(t, map[string]func(context.Context) error{
		"Put":         func(ctx context.Context) error { return s.Put(ctx, other) },
		"Put instead": func(ctx context.Context) error { return s.Put(ctx, next) },
		"Get":         func(ctx context.Context) error { return fault(s.Get(ctx, x.Name)) },
		"List": func(ctx context.Context) error {
			_, _, err := s.List(ctx, "", 1)
			return err
		},
	})
	lookTenant(t, s, "stored", x, 1)
}
