package access_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/access"
)

// both is a store of keys and tenants' records that counts its reads, by kind.
type both struct {
	*counting
	*registry
	pairs int
	fail  error
}

func (b *both) Get(ctx context.Context, hash string) (access.Key, error) {
	return b.counting.Get(ctx, hash)
}

func (b *both) Pair(ctx context.Context, hash, tenant string) (access.Key, access.Tenant, error) {
	b.pairs++
	if b.fail != nil {
		return access.Key{}, access.Tenant{}, b.fail
	}
	k, ok := b.keys[hash]
	if !ok {
		return access.Key{}, access.Tenant{}, access.ErrNotFound
	}
	return k, b.tenants[tenant], nil
}

func (b *both) reads() string {
	s := fmt.Sprintf("key %d, tenant %d, both %d", b.counting.reads, b.registry.reads, b.pairs)
	b.counting.reads, b.registry.reads, b.pairs = 0, 0, 0
	return s
}

const noReads = "key 0, tenant 0, both 0"

func held(perMinute int) access.Tenant {
	return access.Tenant{Name: "acme", Limits: access.Limits{RequestsPerMinute: perMinute}}
}

func newBoth(t *testing.T, all ...access.Tenant) (b *both, cache *access.Cache, tenants *access.TenantCache, header func(name string) string) {
	t.Helper()
	b = &both{counting: &counting{}, registry: newRegistry(all...)}
	tenants = access.NewTenantCache(b.registry, &access.TenantCacheOptions{Off: time.Minute})
	cache = access.NewCache(b, &access.CacheOptions{Tenants: tenants, Pairs: b})
	return b, cache, tenants, func(name string) string {
		k := good
		k.Name = name
		k, secret, err := access.New(k, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.counting.Put(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		return "Bearer " + secret
	}
}

// Access costs a request one read at most, and none when it is warm.
func TestOneReadARequest(t *testing.T) {
	b, cache, tenants, header := newBoth(t, held(600))
	first, second := header("one"), header("two")
	for _, step := range []struct {
		what  string
		key   string
		after time.Duration
		reads string
		limit int
	}{
		{"nothing is known", first, 0, "key 1, tenant 0, both 0", 0},
		{"its tenant isn't", first, time.Second, "key 0, tenant 1, both 0", 600},
		{"all is", first, 2 * time.Second, noReads, 600},
		{"another key of the tenant's", second, 3 * time.Second, "key 1, tenant 0, both 0", 600},
		{"warm", second, 29 * time.Second, noReads, 600},
		{"the key is stale", first, 30 * time.Second, "key 1, tenant 0, both 0", 600},
		{"the tenant is", first, 31 * time.Second, "key 0, tenant 1, both 0", 600},
		{"both are", first, 70 * time.Second, "key 0, tenant 0, both 1", 600},
		{"warm again", first, 71 * time.Second, noReads, 600},
		{"an hour later", second, time.Hour, "key 0, tenant 0, both 1", 600},
		{"a clock set back", second, 0, "key 0, tenant 0, both 1", 600},
	} {
		at := now.Add(step.after)
		caller, err := cache.Authenticate(t.Context(), step.key, "", at)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		l, err := tenants.Pace(t.Context(), caller, "acme", at)
		if got := b.reads(); err != nil || got != step.reads || l.RequestsPerMinute != step.limit {
			t.Errorf("%s: %s, want %s; %+v, %v", step.what, got, step.reads, l, err)
		}
	}

	// A tenant without a record costs no more.
	delete(b.tenants, "acme")
	for after, want := range []string{"key 0, tenant 0, both 1", noReads} {
		at := now.Add(2*time.Hour + time.Duration(after)*time.Second)
		caller, err := cache.Authenticate(t.Context(), first, "", at)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tenants.Pace(t.Context(), caller, "acme", at)
		if got := b.reads(); err != nil || got != want || l != (access.Limits{}) {
			t.Errorf("no record: %s, want %s; %+v, %v", got, want, l, err)
		}
		if x, err := tenants.Get(t.Context(), "acme", at); !errors.Is(err, access.ErrNoTenant) || b.reads() != noReads {
			t.Errorf("no record: %+v, %v", x, err)
		}
	}
}

// What depends on a limit asks for it, whatever the key cost.
func TestLimitsAreAskedFor(t *testing.T) {
	b, cache, tenants, header := newBoth(t, held(7))
	if _, err := cache.Authenticate(t.Context(), header("one"), "", now); err != nil {
		t.Fatal(err)
	}
	if l, err := tenants.Limits(t.Context(), "acme", now); err != nil || l.RequestsPerMinute != 7 {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := tenants.Limits(t.Context(), "none", now); err != nil || l != (access.Limits{}) {
		t.Errorf("no record: %+v, %v", l, err)
	}
	if got := b.reads(); got != "key 1, tenant 2, both 0" {
		t.Error(got)
	}
	b.registry.fail = errors.New("throttled")
	if _, err := tenants.Limits(t.Context(), "acme", now.Add(time.Minute)); !errors.Is(err, b.registry.fail) {
		t.Errorf("%v: trouble is no answer", err)
	}
	if _, err := tenants.Pace(t.Context(), access.Caller{}, "acme", now.Add(time.Minute)); !errors.Is(err, b.registry.fail) {
		t.Errorf("%v: trouble is no answer", err)
	}
}

// A key that is read with its tenant is judged as one that is read alone.
func TestPairedKeys(t *testing.T) {
	b, cache, tenants, header := newBoth(t, held(7))
	key := header("one")
	if _, err := cache.Authenticate(t.Context(), key, "", now); err != nil {
		t.Fatal(err)
	}
	if _, err := tenants.Limits(t.Context(), "acme", now); err != nil {
		t.Fatal(err)
	}
	hash := access.HashSecret(key[len("Bearer "):])

	b.fail = errors.New("throttled")
	if _, err := cache.Authenticate(t.Context(), key, "", now.Add(time.Minute)); !errors.Is(err, b.fail) {
		t.Errorf("trouble: %v", err)
	}
	b.fail = nil
	k := b.keys[hash]
	k.DisabledAt = now
	b.keys[hash] = k
	if _, err := cache.Authenticate(t.Context(), key, "", now.Add(2*time.Minute)); !errors.Is(err, access.ErrInvalidKey) {
		t.Errorf("disabled: %v", err)
	}
	delete(b.keys, hash)
	b.reads()
	if _, err := cache.Authenticate(t.Context(), key, "", now.Add(3*time.Minute)); !errors.Is(err, access.ErrInvalidKey) {
		t.Errorf("gone: %v", err)
	}
	if got := b.reads(); got != "key 0, tenant 0, both 1" {
		t.Error(got)
	}
}

// Keys that no process has seen don't get past a limit, however many they are; nor
// does who shows them rarely go by a limit of long ago.
func TestPaceOfUnknownKeys(t *testing.T) {
	b, cache, tenants, header := newBoth(t, held(7))
	pace := func(at time.Time) (limit int, reads string) {
		t.Helper()
		caller, err := cache.Authenticate(t.Context(), header("new"), "", at)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tenants.Pace(t.Context(), caller, "acme", at)
		if err != nil {
			t.Fatal(err)
		}
		return l.RequestsPerMinute, b.reads()
	}
	is := func(what string, at time.Time, limit int, reads string) {
		t.Helper()
		if l, r := pace(at); l != limit || r != reads {
			t.Errorf("%s: limit %d after %s, want %d after %s", what, l, r, limit, reads)
		}
	}
	is("the first", now, 0, "key 1, tenant 0, both 0")
	is("the second", now.Add(time.Millisecond), 7, "key 0, tenant 0, both 1")
	for range 50 {
		is("the next", now.Add(time.Second), 7, "key 1, tenant 0, both 0")
	}
	lowered := held(3)
	lowered.Ver = 2
	b.tenants["acme"] = lowered
	is("an hour later", now.Add(time.Hour), 7, "key 1, tenant 0, both 0")
	is("the next hour", now.Add(2*time.Hour), 3, "key 0, tenant 0, both 1")
	is("and then", now.Add(2*time.Hour+29*time.Second), 3, "key 1, tenant 0, both 0")
	delete(b.tenants, "acme")
	is("without a record", now.Add(3*time.Hour), 3, "key 1, tenant 0, both 0")
	is("the one after it", now.Add(3*time.Hour), 0, "key 0, tenant 0, both 1")
	is("known to have none", now.Add(3*time.Hour+time.Second), 0, "key 1, tenant 0, both 0")
	// Two tenants have a read spared, and the key says of neither: then there are two.
	at := now.Add(4 * time.Hour)
	is("of acme", at, 0, "key 1, tenant 0, both 0")
	if _, err := tenants.Pace(t.Context(), access.AfterRead(access.Caller{}), "another", at.Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	is("of acme again", at.Add(time.Second), 0, "key 0, tenant 1, both 1")
	if l, err := tenants.Pace(t.Context(), access.AfterRead(access.Caller{}), "no tenant's name", now); err != nil || l != (access.Limits{}) || b.reads() != noReads {
		t.Errorf("%+v, %v", l, err)
	}
}

// However many tenants there are of which a read was spared, they are bounded.
func TestSparedReadsAreBounded(t *testing.T) {
	b := newRegistry(held(7))
	tenants := access.NewTenantCache(b, &access.TenantCacheOptions{Size: 2})
	pace := func(name string, reads int) {
		t.Helper()
		if _, err := tenants.Pace(t.Context(), access.AfterRead(access.Caller{}), name, now); err != nil {
			t.Fatal(err)
		}
		if b.reads != reads {
			t.Errorf("%s: %d reads, want %d", name, b.reads, reads)
		}
	}
	pace("acme", 0)
	pace("two", 0)
	pace("three", 0) // for the oldest
	pace("two", 1)
	pace("three", 2)
	pace("acme", 2)
	pace("acme", 3)
}
