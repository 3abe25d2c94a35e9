package access_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/access"
)

// guess is a key that is well formed and nobody's.
func guess(t *testing.T) string {
	t.Helper()
	_, secret, err := access.New(good, now)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + secret
}

// right puts a key into the store.
func right(t *testing.T, store *counting) string {
	t.Helper()
	k, secret, err := access.New(good, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	return "Bearer " + secret
}

// shown is what a wrong key comes to: "read", "unread" or a wait.
func shown(t *testing.T, store *counting, cache *access.Cache, header, source string, at time.Time) string {
	t.Helper()
	before := store.reads
	_, err := cache.Authenticate(t.Context(), header, source, at)
	read := store.reads - before
	limited, _ := errors.AsType[*access.LimitError](err)
	switch {
	case limited != nil && errors.Is(err, access.ErrTooManyWrong) && !errors.Is(err, access.ErrInvalidKey) && read == 0:
		return limited.After.String()
	case errors.Is(err, access.ErrInvalidKey) && read == 1:
		return "read"
	case errors.Is(err, access.ErrInvalidKey) && read == 0:
		return "unread"
	case err == nil:
		return "in"
	}
	return fmt.Sprintf("%v after %d reads", err, read)
}

// Ten a minute by default, each of them one read; then none, until some time has
// passed, and for others nothing changes.
func TestWrongKeysOfASource(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, nil)
	const source, other = "192.0.2.1", "192.0.2.2"
	is := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	for n := range 10 {
		is(fmt.Sprint("wrong key ", n), shown(t, store, cache, guess(t), source, now), "read")
	}
	is("the eleventh", shown(t, store, cache, guess(t), source, now), "6s")
	is("a second later", shown(t, store, cache, guess(t), source, now.Add(time.Second)), "5s")
	is("from elsewhere", shown(t, store, cache, guess(t), other, now), "read")
	is("what can't be a key", shown(t, store, cache, "Bearer sk-1", source, now), "unread")
	is("with another port", shown(t, store, cache, guess(t), source+":4711", now), "6s")
	is("after six seconds", shown(t, store, cache, guess(t), source, now.Add(6*time.Second)), "read")
	is("and again", shown(t, store, cache, guess(t), source, now.Add(6*time.Second)), "6s")
	for n := range 10 {
		is(fmt.Sprint("after two minutes ", n), shown(t, store, cache, guess(t), source, now.Add(2*time.Minute)), "read")
	}
	is("the eleventh then", shown(t, store, cache, guess(t), source, now.Add(2*time.Minute)), "6s")
	is("by a clock set back", shown(t, store, cache, guess(t), source, now), "6s")
	for range 40 {
		is("a door without addresses", shown(t, store, cache, guess(t), "", now), "read")
	}
}

// Whoever is known is let in, whatever others at the same address do; who isn't
// known waits, and no longer than that.
func TestRightKeysOfABlockedSource(t *testing.T) {
	const source = "2001:db8:1:2::1"
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 2, Size: 8})
	warm, cold := right(t, store), right(t, store)
	if got := shown(t, store, cache, warm, source, now); got != "in" {
		t.Fatal(got)
	}
	block := func(at time.Time) {
		t.Helper()
		for range 3 {
			shown(t, store, cache, guess(t), source, at)
		}
		if got := shown(t, store, cache, guess(t), "2001:db8:1:2:ffff::9", at); got != "30s" {
			t.Fatalf("not blocked: %s", got) // the same network, too
		}
	}
	for _, at := range []time.Duration{0, 2 * time.Minute, 23 * time.Hour} {
		block(now.Add(at))
		if got := shown(t, store, cache, warm, source, now.Add(at)); got != "in" {
			t.Errorf("a known key after %v: %s", at, got)
		}
	}
	at := now.Add(23 * time.Hour)
	if got := shown(t, store, cache, cold, source, at); got != "30s" {
		t.Errorf("a key that nobody has shown: %s", got)
	}
	if got := shown(t, store, cache, cold, "2001:db8:1:3::1", at); got != "in" {
		t.Errorf("from the next network: %s", got)
	}
	// What was right and no longer is costs a read, and then none.
	hash := access.HashSecret(strings.TrimPrefix(warm, "Bearer "))
	delete(store.keys, hash)
	at = at.Add(time.Minute)
	block(at)
	for n, want := range []string{"read", "unread"} {
		if got := shown(t, store, cache, warm, source, at); got != want {
			t.Errorf("a key that is gone, time %d: %s, want %s", n, got, want)
		}
	}
}

// An IPv4 address written as one of IPv6 is that IPv4 address: else whoever comes so
// holds up everybody who does, and has two buckets besides.
func TestMappedSource(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 1})
	for _, c := range []struct{ source, want string }{
		{"192.0.2.1", "read"}, {"::ffff:192.0.2.1", "1m0s"}, {"[::ffff:192.0.2.1]:4711", "1m0s"}, {"::ffff:192.0.2.2", "read"}, {"192.0.2.2", "1m0s"},
		{"none " + strings.Repeat("x", 100), "read"}, {"none " + strings.Repeat("x", 1000), "1m0s"}, // no address: so much of it is kept
	} {
		if got := shown(t, store, cache, guess(t), c.source, now); got != c.want {
			t.Errorf("%s: %s, want %s", c.source, got, c.want)
		}
	}
}

// Trouble of the store is nobody's wrong key.
func TestTroubleIsNotWrong(t *testing.T) {
	store := &counting{fail: errors.New("throttled")}
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 1})
	for range 5 {
		if _, err := cache.Authenticate(t.Context(), guess(t), "192.0.2.1", now); !errors.Is(err, store.fail) {
			t.Errorf("%v", err)
		}
	}
}

// A disabled key is a wrong one, but while it is remembered as such it costs
// nothing and isn't counted.
func TestDisabledKeyOfASource(t *testing.T) {
	store := &counting{}
	header := right(t, store)
	hash := access.HashSecret(strings.TrimPrefix(header, "Bearer "))
	k := store.keys[hash]
	k.DisabledAt = now
	store.keys[hash] = k
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 2})
	for n, want := range []string{"read", "unread", "unread", "unread"} {
		if got := shown(t, store, cache, header, "192.0.2.1", now); got != want {
			t.Errorf("time %d: %s, want %s", n, got, want)
		}
	}
	if got := shown(t, store, cache, guess(t), "192.0.2.1", now); got != "read" {
		t.Errorf("a second wrong key: %s", got)
	}
	if got := shown(t, store, cache, guess(t), "192.0.2.1", now); got != "30s" {
		t.Errorf("a third wrong key: %s", got)
	}
}

// However many addresses there are: who shows many wrong keys is not forgotten for
// those that show one.
func TestManySources(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 3})
	for range 3 {
		shown(t, store, cache, guess(t), "192.0.2.1", now)
	}
	for n := range 10_000 {
		if got := shown(t, store, cache, guess(t), fmt.Sprintf("10.%d.%d.1", n/250, n%250), now); got != "read" {
			t.Fatalf("address %d: %s", n, got)
		}
	}
	if got := shown(t, store, cache, guess(t), "192.0.2.1", now); got != "20s" {
		t.Errorf("forgotten: %s", got)
	}
}

// A disabled key stops within 60 s in every process, however it is configured.
func TestDisabledWithinAMinute(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Second, 59 * time.Second, 24 * time.Hour} {
		store := &counting{}
		header := right(t, store)
		caches := []*access.Cache{access.NewCache(store, &access.CacheOptions{TTL: ttl}), access.NewCache(store, &access.CacheOptions{TTL: ttl})}
		for i, c := range caches {
			// Read at the last moment before it is disabled.
			if got := shown(t, store, c, header, "", now.Add(time.Duration(i)*time.Millisecond)); got != "in" {
				t.Fatal(got)
			}
		}
		hash := access.HashSecret(strings.TrimPrefix(header, "Bearer "))
		disabled := now.Add(2 * time.Millisecond)
		k := store.keys[hash]
		k.DisabledAt = disabled
		store.keys[hash] = k
		for i, c := range caches {
			if got := shown(t, store, c, header, "", disabled.Add(time.Minute)); got != "read" {
				t.Errorf("ttl %v, process %d: %s a minute after it was disabled", ttl, i, got)
			}
		}
	}
}

// The day of the last use is written once a key, process and day, and no request
// fails for it.
func TestTouch(t *testing.T) {
	var log strings.Builder
	store := &counting{}
	header := right(t, store)
	open := func() *access.Cache {
		return access.NewCache(store, &access.CacheOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	}
	one, two := open(), open()
	use := func(c *access.Cache, at time.Duration, want int) {
		t.Helper()
		if got := shown(t, store, c, header, "", now.Add(at)); got != "in" {
			t.Error(got)
		}
		if len(store.touches) != want {
			t.Errorf("after %v: %d touches, want %d", at, len(store.touches), want)
		}
	}
	use(one, 0, 1)
	use(one, time.Second, 1)
	use(one, time.Hour, 1)
	use(two, time.Hour, 1) // the record says so
	use(one, 15*time.Hour, 2)
	if want := now.Truncate(24 * time.Hour); !store.touches[0].Equal(want) || !store.touches[1].Equal(want.Add(24*time.Hour)) {
		t.Errorf("days %v", store.touches)
	}
	if log.Len() > 0 {
		t.Errorf("log: %s", log.String())
	}
	store.deaf = errors.New("throttled")
	use(one, 40*time.Hour, 3)
	use(one, 41*time.Hour, 3) // tried once
	use(two, 41*time.Hour, 4)
	for _, line := range []string{"last use of a key not recorded", "throttled", "tenant=acme", "key=key_"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("log lacks %s: %s", line, log.String())
		}
	}
	secret := strings.TrimPrefix(header, "Bearer ")
	if strings.Contains(log.String(), secret) || strings.Contains(log.String(), access.HashSecret(secret)) {
		t.Errorf("log: %s", log.String())
	}
	// What isn't let in isn't a use.
	k := store.keys[access.HashSecret(secret)]
	k.DisabledAt = now
	store.keys[k.Hash] = k
	shown(t, store, one, header, "", now.Add(90*time.Hour))
	if len(store.touches) != 4 {
		t.Error("a disabled key was used")
	}
}

// stuck is a store whose Touch has no answer.
type stuck struct{ *counting }

func (stuck) Touch(ctx context.Context, _ access.Key, _ time.Time) error {
	<-ctx.Done()
	return ctx.Err()
}

// Recording a use holds a request up for a second at most.
func TestTouchWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := stuck{&counting{}}
		header := right(t, store.counting)
		cache, began := access.NewCache(store, nil), time.Now()
		if _, err := cache.Authenticate(t.Context(), header, "", now); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Guesses throw nobody out who is known: what isn't there isn't kept.
func TestGuessesForgetNobody(t *testing.T) {
	store := &counting{}
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 1, Size: 4})
	var owners []string
	for range 4 {
		owners = append(owners, right(t, store))
		if got := shown(t, store, cache, owners[len(owners)-1], "192.0.2.1", now); got != "in" {
			t.Fatal(got)
		}
	}
	for n := range 100 {
		shown(t, store, cache, guess(t), fmt.Sprintf("10.0.0.%d", n), now)
	}
	at := now.Add(time.Minute)
	shown(t, store, cache, guess(t), "192.0.2.1", at) // their address is held up from here on
	for n, header := range owners {
		if got := shown(t, store, cache, header, "192.0.2.1", at); got != "in" {
			t.Errorf("owner %d: %s", n, got)
		}
	}
}
