package access_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/access"
)

// registry is access.Tenants that counts reads, can be told to fail them, and
// lets somebody else in before a write.
type registry struct {
	mu      sync.Mutex
	tenants map[string]access.Tenant
	reads   int
	writes  int
	fail    error
	between func(n int) // before the n-th write, from 1
}

func newRegistry(all ...access.Tenant) *registry {
	r := &registry{tenants: map[string]access.Tenant{}}
	for _, t := range all {
		r.set(t)
	}
	return r
}

// set stores t whatever was there.
func (r *registry) set(t access.Tenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = t.Clone()
	t.Ver = r.tenants[t.Name].Ver + 1
	r.tenants[t.Name] = t
}

func (r *registry) Get(_ context.Context, name string) (access.Tenant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	if r.fail != nil {
		return access.Tenant{}, r.fail
	}
	t, ok := r.tenants[name]
	if !ok {
		return access.Tenant{}, fmt.Errorf("get: %w", access.ErrNoTenant)
	}
	return t.Clone(), nil
}

func (r *registry) Put(_ context.Context, t access.Tenant) error {
	r.writes++
	if r.between != nil {
		r.between(r.writes)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants[t.Name].Ver != t.Ver {
		return fmt.Errorf("put: %w", access.ErrChanged)
	}
	t = t.Clone()
	t.Ver++
	r.tenants[t.Name] = t
	return nil
}

func (r *registry) List(context.Context, string, int) ([]access.Tenant, bool, error) {
	return nil, false, errors.New("nobody lists here")
}

func on(name string) access.Tenant {
	return access.Tenant{Name: name, CreatedAt: now, UpdatedAt: now, Drop: &access.Drop{Principal: "ann", Since: now}}
}

func TestTenantCheck(t *testing.T) {
	full := on("acme")
	full.Drop.Endpoint, full.Drop.Window = "/v1/chat/completions", "24h"
	full.Limits = access.Limits{QueuedLines: access.MaxLimit, RunningBatches: access.MaxLimit, FileBytes: access.MaxLimit, RequestsPerMinute: access.MaxLimit}
	for _, good := range []access.Tenant{{Name: "acme"}, on("acme"), full} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	bad := access.Tenant{Name: "A", Drop: &access.Drop{Endpoint: "v1", Window: "soon"}, Limits: access.Limits{-1, -1, access.MaxLimit + 1, -1}}
	err := bad.Check()
	for _, field := range []string{
		"tenant: ", "principal: ", "endpoint: ", "window: ", "queued_lines: ", "running_batches: ", "file_bytes: ", "requests_per_minute: ",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error doesn't name %q: %v", field, err)
		}
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		what  string
		check func(string) error
		good  []string
		bad   []string
	}{
		{"endpoint", access.CheckEndpoint,
			[]string{"/v1/chat/completions", "/v1/x", "/v1/" + strings.Repeat("a", 252)},
			[]string{"", "/", "/v1/", "/v2/x", "v1/x", "/v1//x", "/v1/../x", "/v1/x?y", "/v1/x#y", "/v1/%2e", "/v1/x y", "/v1/x\n", "/v1/\u202e", "/v1/\xff", `/v1/\x`, "/v1/" + strings.Repeat("a", 253)}},
		{"window", access.CheckWindow,
			[]string{"24h", "1h", "15s", "168h", "1h30m"},
			[]string{"", "24", "0s", "-1h", "500ms", "1.5s", "169h", "soon", "24h\n", "1h" + strings.Repeat("0h", 100)}},
	} {
		for _, s := range c.good {
			if err := c.check(s); err != nil {
				t.Errorf("%s %q refused: %v", c.what, s, err)
			}
		}
		for _, s := range c.bad {
			if f, ok := errors.AsType[*access.FieldError](c.check(s)); !ok || f.Field != c.what {
				t.Errorf("%s %q: %v", c.what, s, c.check(s))
			}
		}
	}
}

func TestEnableDropKeepsSince(t *testing.T) {
	x := access.Tenant{Name: "acme"}
	x.EnableDrop("ann", "", "1h", now.Add(1234*time.Microsecond))
	first := now.Add(time.Millisecond)
	if want := (access.Drop{Principal: "ann", Window: "1h", Since: first}); *x.Drop != want {
		t.Errorf("%+v, want %+v", *x.Drop, want)
	}
	before := x.Drop
	x.EnableDrop("bob", "/v1/x", "", now.Add(time.Hour))
	if want := (access.Drop{Principal: "bob", Endpoint: "/v1/x", Since: first}); *x.Drop != want {
		t.Errorf("%+v, want %+v", *x.Drop, want)
	}
	if before.Principal != "ann" {
		t.Error("what somebody else may hold was changed")
	}
}

func TestChangeTenant(t *testing.T) {
	limit := func(n int) func(*access.Tenant) error {
		return func(x *access.Tenant) error { x.Limits.RunningBatches = n; return nil }
	}
	change := func(r *registry, create bool, do func(*access.Tenant) error) (access.Tenant, error) {
		got, err := access.ChangeTenant(t.Context(), r, "acme", create, now.Add(time.Hour+time.Nanosecond), do)
		if stored := r.tenants["acme"]; err == nil && !reflect.DeepEqual(got, stored) {
			t.Errorf("answered %+v, stored %+v", got, stored)
		}
		return got, err
	}

	r := newRegistry()
	if _, err := change(r, false, limit(1)); !errors.Is(err, access.ErrNoTenant) || r.writes != 0 {
		t.Errorf("none there: %v, %d writes", err, r.writes)
	}
	later := now.Add(time.Hour)
	if got, err := change(r, true, limit(1)); err != nil || !got.CreatedAt.Equal(later) || !got.UpdatedAt.Equal(later) || got.Ver != 1 || got.Limits.RunningBatches != 1 {
		t.Errorf("created %+v, %v", got, err)
	}

	r = newRegistry(on("acme"))
	if got, err := change(r, true, limit(2)); err != nil || got.Ver != 2 || !got.CreatedAt.Equal(now) || !got.UpdatedAt.Equal(later) || got.Drop == nil {
		t.Errorf("changed %+v, %v", got, err)
	}
	if got, err := change(r, true, limit(2)); err != nil || got.Ver != 2 || r.writes != 1 {
		t.Errorf("what changes nothing writes %d times: %+v, %v", r.writes-1, got, err)
	}

	sorry := errors.New("sorry")
	if _, err := change(r, true, func(x *access.Tenant) error { x.Limits.FileBytes = 9; return sorry }); err != sorry || r.writes != 1 {
		t.Errorf("refused by the change: %v, %d writes", err, r.writes)
	}
	if _, err := change(r, true, limit(-1)); r.writes != 1 || err == nil {
		t.Errorf("what won't do: %v, %d writes", err, r.writes)
	} else if f, ok := errors.AsType[*access.FieldError](err); !ok || f.Field != "running_batches" {
		t.Errorf("what won't do: %v", err)
	}
	r.fail = errors.New("throttled")
	if _, err := change(r, true, limit(3)); !errors.Is(err, r.fail) {
		t.Errorf("store in trouble: %v", err)
	}
}

// TestChangeTenantAmongOthers: a change is made to what is there when it is
// written, and nobody else's is undone.
func TestChangeTenantAmongOthers(t *testing.T) {
	r := newRegistry(on("acme"))
	r.between = func(n int) {
		if n == 1 { // the door is switched off while a limit is being set
			x := r.tenants["acme"].Clone()
			x.Drop = nil
			r.set(x)
		}
	}
	set := func(x *access.Tenant) error { x.Limits.QueuedLines = 5; return nil }
	got, err := access.ChangeTenant(t.Context(), r, "acme", false, now, set)
	if err != nil || got.Drop != nil || got.Limits.QueuedLines != 5 || got.Ver != 3 {
		t.Errorf("%+v, %v", got, err)
	}

	r.set(on("acme"))
	r.writes, r.between = 0, func(int) { r.set(on("acme")) }
	if _, err := access.ChangeTenant(t.Context(), r, "acme", false, now, set); !errors.Is(err, access.ErrChanged) || r.writes != 5 {
		t.Errorf("always changed: %v after %d writes", err, r.writes)
	}
}

func TestTenantCache(t *testing.T) {
	r := newRegistry(on("acme"))
	cache := access.NewTenantCache(r, &access.TenantCacheOptions{TTL: time.Hour}) // cut to 60 s
	step := func(at time.Duration, wantReads int, principal string) {
		t.Helper()
		got, err := cache.Get(t.Context(), "acme", now.Add(at))
		if err != nil || got.Name != "acme" || (got.Drop == nil) != (principal == "") || got.Drop != nil && got.Drop.Principal != principal {
			t.Errorf("after %v: %+v, %v", at, got, err)
		}
		if r.reads != wantReads {
			t.Errorf("after %v: %d reads, want %d", at, r.reads, wantReads)
		}
	}
	step(0, 1, "ann")
	step(59*time.Second, 1, "ann")
	r.set(access.Tenant{Name: "acme"})
	step(60*time.Second, 2, "") // a door that was switched off is closed within 60 s
	step(64*time.Second, 2, "")
	r.set(on("acme"))
	step(65*time.Second, 3, "ann") // one that was switched on is open within 5 s
	step(-time.Second, 4, "ann")   // a clock set back reads again

	cache = access.NewTenantCache(r, nil)
	step(0, 5, "ann")
	step(29*time.Second, 5, "ann")
	step(30*time.Second, 6, "ann")

	// For who asks for limits alone, a door that is off is no reason to read.
	r.set(access.Tenant{Name: "acme"})
	cache = access.NewTenantCache(r, &access.TenantCacheOptions{Off: time.Hour})
	step(0, 7, "")
	step(29*time.Second, 7, "")
	step(30*time.Second, 8, "")
}

func TestTenantCacheOfNone(t *testing.T) {
	r := newRegistry()
	cache := access.NewTenantCache(r, nil)
	none := func(name string, at time.Duration, wantReads int) {
		t.Helper()
		if got, err := cache.Get(t.Context(), name, now.Add(at)); !errors.Is(err, access.ErrNoTenant) || got.Name != "" {
			t.Errorf("after %v: %+v, %v", at, got, err)
		}
		if r.reads != wantReads {
			t.Errorf("%q after %v: %d reads, want %d", name, at, r.reads, wantReads)
		}
	}
	none("acme", 0, 1)
	none("acme", 4999*time.Millisecond, 1)
	none("acme", 5*time.Second, 2)
	for _, name := range []string{"", "A", "a/b", strings.Repeat("a", 64)} { // what is no name is not read
		none(name, 0, 2)
	}
	r.set(on("acme"))
	if got, err := cache.Get(t.Context(), "acme", now.Add(10*time.Second)); err != nil || got.Drop == nil {
		t.Errorf("enabled five seconds ago: %+v, %v", got, err)
	}

	// Trouble is neither an answer nor kept.
	r = newRegistry(on("acme"))
	r.fail = errors.New("throttled")
	cache = access.NewTenantCache(r, nil)
	if _, err := cache.Get(t.Context(), "acme", now); !errors.Is(err, r.fail) {
		t.Errorf("trouble: %v", err)
	}
	r.fail = nil
	if got, err := cache.Get(t.Context(), "acme", now); err != nil || got.Drop == nil {
		t.Errorf("after the trouble: %+v, %v", got, err)
	}
}

func TestTenantCacheShares(t *testing.T) {
	r := newRegistry(on("acme"))
	cache := access.NewTenantCache(r, nil)
	for range 3 {
		got, err := cache.Get(t.Context(), "acme", now)
		if err != nil || got.Drop.Principal != "ann" {
			t.Fatalf("%+v, %v: a reader changed what others get", got, err)
		}
		got.Drop.Principal = "mallory"
	}
}

func TestTenantCacheIsBounded(t *testing.T) {
	r := newRegistry()
	cache := access.NewTenantCache(r, &access.TenantCacheOptions{Size: 3})
	round := func() int {
		r.reads = 0
		for i := range 10 {
			if _, err := cache.Get(t.Context(), fmt.Sprint("t", i), now); !errors.Is(err, access.ErrNoTenant) {
				t.Error(err)
			}
		}
		return r.reads
	}
	round()
	if n := round(); n < 7 {
		t.Errorf("%d reads: more than three tenants were kept", n)
	}
}

func TestTenantCacheConcurrently(t *testing.T) {
	cache := access.NewTenantCache(newRegistry(on("t0"), on("t1")), &access.TenantCacheOptions{Size: 2})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 200 {
				_, err := cache.Get(t.Context(), fmt.Sprint("t", i), now.Add(time.Duration(n)*time.Second))
				if (err != nil) != (i > 1) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
