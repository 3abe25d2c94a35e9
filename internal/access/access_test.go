package access_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/access"
)

// counting is a store that counts reads and uses, and can be told to fail them.
type counting struct {
	mu      sync.Mutex
	keys    map[string]access.Key
	reads   int
	fail    error
	touches []time.Time // the days
	deaf    error       // what Touch answers
}

func (c *counting) Touch(_ context.Context, k access.Key, day time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touches = append(c.touches, day)
	if c.deaf != nil {
		return c.deaf
	}
	k = c.keys[k.Hash]
	k.LastUsed = day
	c.keys[k.Hash] = k
	return nil
}

func (c *counting) Put(_ context.Context, k access.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]access.Key{}
	}
	c.keys[k.Hash] = k
	return nil
}

func (c *counting) Get(_ context.Context, hash string) (access.Key, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.fail != nil {
		return access.Key{}, c.fail
	}
	k, ok := c.keys[hash]
	if !ok {
		return access.Key{}, access.ErrNotFound
	}
	return k, nil
}

var (
	now  = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	good = access.Key{Tenant: "acme", Principal: "ann@acme.example", Name: "ci", Scopes: []access.Scope{access.Submit}}
)

func TestNewKeepsNoSecret(t *testing.T) {
	k, secret, err := access.New(good, now.Add(1234*time.Microsecond))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(secret, "hf_") || len(secret) != 3+32 {
		t.Errorf("secret has %d characters, want hf_ and 32 of base32 (160 bits)", len(secret))
	}
	if strings.Contains(fmt.Sprintf("%+v", k), secret[3:]) {
		t.Error("the record holds the secret")
	}
	if k.Hash != access.HashSecret(secret) || len(k.Hash) != 64 {
		t.Errorf("hash is %q", k.Hash)
	}
	if want := now.Add(time.Millisecond); !k.CreatedAt.Equal(want) {
		t.Errorf("created %v, want %v: whole milliseconds", k.CreatedAt, want)
	}
	if _, other, _ := access.New(good, now); other == secret {
		t.Error("two keys have one secret")
	}
}

func TestNewReportsEveryField(t *testing.T) {
	_, _, err := access.New(access.Key{Tenant: "A", ExpiresAt: now}, now)
	for _, field := range []string{"tenant: ", "principal: ", "scopes: ", "name: ", "expires: "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error doesn't name %q: %v", field, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		what  string
		check func(string) error
		good  []string
		bad   []string
	}{
		{"tenant", access.CheckTenant,
			[]string{"a", "0", "acme-west-2", strings.Repeat("a", 63)},
			[]string{"", "-a", "Acme", "a_b", "a/b", "..", "a.b", "a b", "a#b", "ä", "a\n", strings.Repeat("a", 64)}},
		{"principal", access.CheckPrincipal,
			[]string{"ann@acme.example", "arn:aws:iam::123456789012:role/x+y=z", "9", strings.Repeat("a", 128)},
			[]string{"", " ann", "ann smith", "ann\r\nX-Evil: 1", "änn", "-x", strings.Repeat("a", 129)}},
		{"name", access.CheckName,
			[]string{"ci", "Zoë's laptop", strings.Repeat("ä", 100)},
			[]string{"", " ", "x ", "a\nb", "a\x00b", "a\u202eb", "\xff", strings.Repeat("a", 101)}},
		{"scopes", func(s string) error { _, err := access.ParseScopes(s); return err },
			[]string{"submit", "submit,read", "read, admin", "batch_replay", "submit,read,admin,work"},
			[]string{"batch_replay,read", "submit,read,admin,batch_replay,work", "batch_replay,batch_replay", "", "write", "submit,", "read,read", "SUBMIT"}},
	} {
		for _, s := range c.good {
			if err := c.check(s); err != nil {
				t.Errorf("%s %q refused: %v", c.what, s, err)
			}
		}
		for _, s := range c.bad {
			if err := c.check(s); err == nil {
				t.Errorf("%s %q accepted", c.what, s)
			} else if _, ok := errors.AsType[*access.FieldError](err); !ok {
				t.Errorf("%s %q: %T is no FieldError", c.what, s, err)
			}
		}
	}
}

// ways is both ways to authenticate; a Cache is new each time.
var ways = map[string]func(access.Records) func(context.Context, string, time.Time) (access.Caller, error){
	"Authenticate": func(s access.Records) func(context.Context, string, time.Time) (access.Caller, error) {
		return func(ctx context.Context, h string, now time.Time) (access.Caller, error) {
			return access.Authenticate(ctx, s, h, now)
		}
	},
	"Cache": func(s access.Records) func(context.Context, string, time.Time) (access.Caller, error) {
		c := access.NewCache(s, nil)
		return func(ctx context.Context, h string, now time.Time) (access.Caller, error) {
			return c.Authenticate(ctx, h, "192.0.2.1", now)
		}
	},
}

func TestAuthenticate(t *testing.T) {
	store := &counting{}
	add := func(k access.Key, change func(*access.Key)) string {
		k, secret, err := access.New(k, now)
		if err != nil {
			t.Fatal(err)
		}
		change(&k)
		if err := store.Put(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		return secret
	}
	valid := add(good, func(*access.Key) {})
	expires := add(good, func(k *access.Key) { k.ExpiresAt = now.Add(time.Hour) })
	expired := add(good, func(k *access.Key) { k.ExpiresAt = now })
	disabled := add(good, func(k *access.Key) { k.DisabledAt = now.Add(-time.Second) })
	// A store that answers with somebody else's record.
	_, swapped, _ := access.New(good, now)
	store.keys[access.HashSecret(swapped)] = store.keys[access.HashSecret(valid)]
	_, unknown, _ := access.New(good, now)

	for _, c := range []struct {
		name, header string
		want         error
		reads        int
	}{
		{"valid", "Bearer " + valid, nil, 1},
		{"scheme in lower case", "bearer " + valid, nil, 1},
		{"before expiry", "Bearer " + expires, nil, 1},
		{"at expiry", "Bearer " + expired, access.ErrInvalidKey, 1},
		{"disabled", "Bearer " + disabled, access.ErrInvalidKey, 1},
		{"unknown", "Bearer " + unknown, access.ErrInvalidKey, 1},
		{"another record", "Bearer " + swapped, access.ErrInvalidKey, 1},
		{"no header", "", access.ErrNoKey, 0},
		{"scheme alone", "Bearer", access.ErrNoKey, 0},
		{"empty secret", "Bearer ", access.ErrNoKey, 0},
		{"basic", "Basic " + valid, access.ErrNoKey, 0},
		{"no scheme", valid, access.ErrNoKey, 0},
		{"another prefix", "Bearer sk_" + valid[3:], access.ErrInvalidKey, 0},
		{"too short", "Bearer " + valid[:len(valid)-1], access.ErrInvalidKey, 0},
		{"too long", "Bearer " + valid + "a", access.ErrInvalidKey, 0},
		{"two keys", "Bearer " + valid + ", Bearer " + valid, access.ErrInvalidKey, 0},
		{"upper case", "Bearer hf_" + strings.ToUpper(valid[3:]), access.ErrInvalidKey, 0},
		{"not base32", "Bearer hf_" + strings.Repeat("1", 32), access.ErrInvalidKey, 0},
		{"huge", "Bearer hf_" + strings.Repeat("a", 1<<20), access.ErrInvalidKey, 0},
	} {
		for way, over := range ways {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				store.reads = 0
				caller, err := over(store)(t.Context(), c.header, now)
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if store.reads != c.reads {
					t.Errorf("%d reads, want %d", store.reads, c.reads)
				}
				if err == nil && (caller.Tenant != "acme" || caller.Principal != "ann@acme.example" || !strings.HasPrefix(caller.Key, "key_")) {
					t.Errorf("caller %+v", caller)
				}
				if err != nil && caller.Tenant != "" {
					t.Error("a refused caller has a tenant")
				}
			})
		}
	}

	// Trouble of the store refuses nobody: it is neither of the two errors.
	store.fail = errors.New("throttled")
	for way, over := range ways {
		_, err := over(store)(t.Context(), "Bearer "+valid, now)
		if !errors.Is(err, store.fail) || errors.Is(err, access.ErrInvalidKey) {
			t.Errorf("%s: %v", way, err)
		}
	}
}

func TestScopesImplyNothing(t *testing.T) {
	for _, has := range access.Scopes {
		caller := access.NewCaller("acme", "ann", has)
		for _, need := range access.Scopes {
			err := caller.Require(need)
			if ok := err == nil; ok != (has == need) {
				t.Errorf("a key with %s, %s required: %v", has, need, err)
			}
			if err != nil && (!errors.Is(err, access.ErrScope) || !strings.Contains(err.Error(), string(need))) {
				t.Errorf("error %v doesn't say which scope", err)
			}
		}
	}
	if err := (access.Caller{}).Require(access.Read); err == nil {
		t.Error("nobody may read")
	}
}

func TestCache(t *testing.T) {
	store := &counting{}
	k, secret, _ := access.New(good, now)
	store.Put(t.Context(), k)
	header := "Bearer " + secret
	cache := access.NewCache(store, &access.CacheOptions{TTL: time.Hour}) // cut to 60 s

	step := func(at time.Duration, wantReads int, want error) {
		t.Helper()
		if _, err := cache.Authenticate(t.Context(), header, "", now.Add(at)); !errors.Is(err, want) {
			t.Errorf("after %v: %v, want %v", at, err, want)
		}
		if store.reads != wantReads {
			t.Errorf("after %v: %d reads, want %d", at, store.reads, wantReads)
		}
	}
	step(0, 1, nil)
	step(59*time.Second, 1, nil)
	k.DisabledAt = now.Add(10 * time.Second)
	store.Put(t.Context(), k)
	step(60*time.Second, 2, access.ErrInvalidKey) // disabled keys stop within 60 s
	step(61*time.Second, 2, access.ErrInvalidKey)
	k.DisabledAt = time.Time{}
	store.Put(t.Context(), k)
	step(-time.Second, 3, nil) // a clock set back reads again

	// Expiry is judged anew although the record is warm.
	k.ExpiresAt = now.Add(5 * time.Second)
	store.Put(t.Context(), k)
	step(2*time.Minute, 4, access.ErrInvalidKey)
	step(4*time.Minute, 5, access.ErrInvalidKey)
	cache = access.NewCache(store, nil)
	step(4*time.Second, 6, nil)
	step(5*time.Second, 6, access.ErrInvalidKey)
}

// A key works the moment it is made, whatever was shown before; what was shown and was
// none costs nothing for a while, and holds nobody up.
func TestCacheNewKeyWorksAtOnce(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 2})
	wrong := guess(t)
	for n, at := range []time.Duration{0, 0, time.Second, 30*time.Second - 1, 30 * time.Second, 59 * time.Second} {
		want := "unread"
		if n == 0 || at == 30*time.Second {
			want = "read"
		}
		if got := shown(t, store, cache, wrong, "192.0.2.1", now.Add(at)); got != want {
			t.Errorf("a wrong key, after %v: %s, want %s", at, got, want)
		}
	}
	k, secret, err := access.New(good, now)
	if err != nil {
		t.Fatal(err)
	}
	store.Put(t.Context(), k)
	if _, err := cache.Authenticate(t.Context(), "Bearer "+secret, "192.0.2.1", now.Add(time.Minute)); err != nil {
		t.Errorf("a key made just now: %v", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{Size: 3})
	var secrets []string
	for range 10 {
		k, secret, _ := access.New(good, now)
		store.Put(t.Context(), k)
		secrets = append(secrets, secret)
	}
	round := func(at time.Time, secrets ...string) int {
		store.reads = 0
		for _, s := range secrets {
			if _, err := cache.Authenticate(t.Context(), "Bearer "+s, "192.0.2.1", at); err != nil {
				t.Error(err)
			}
		}
		return store.reads
	}
	round(now, secrets...)
	// Whichever three are kept, at least seven of ten need a read.
	if n := round(now, secrets...); n < 7 {
		t.Errorf("%d reads: more than three keys were kept", n)
	}
	// Stale ones make room before fresh ones do.
	later := now.Add(time.Minute)
	round(later, secrets[0])
	round(later.Add(29*time.Second), secrets[1], secrets[2])
	if n := round(later.Add(29*time.Second), secrets[0], secrets[1], secrets[2]); n != 0 {
		t.Errorf("%d reads for three keys that fit", n)
	}
}

func TestCacheConcurrently(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{Size: 2})
	secrets := map[string]bool{}
	for range 4 {
		k, secret, _ := access.New(good, now)
		store.Put(t.Context(), k)
		secrets[secret] = true
	}
	var wg sync.WaitGroup
	for _, secret := range slices.Collect(maps.Keys(secrets)) {
		wg.Go(func() {
			for i := range 200 {
				if _, err := cache.Authenticate(t.Context(), "Bearer "+secret, "192.0.2.1", now.Add(time.Duration(i)*time.Second)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
