package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/access"
)

// RunKeys runs the suite of access.Store.
func RunKeys(t *testing.T, open func(T) access.Store) {
	t.Helper()
	run(t, KeysCases(), open)
}

// KeysCases is the suite of access.Store.
func KeysCases() []Case[access.Store] {
	return append([]Case[access.Store]{
		{"put/a full record and a bare one come back", keyRoundTrip},
		{"put/an equal record is its own lost write", keyAgain},
		{"put/a taken hash is refused, whatever differs", keyTaken},
		{"put/one of many wins", keyRace},
		{"put/what was given or got is not shared", keyShared},
		{"get/unknown", keyUnknown},
		{"get/expired and disabled ones are found", keyExpired},
		{"a context that is over", keysInterrupted},
	}, keysManaged()...)
}

func fullKey() access.Key {
	return access.Key{
		Hash: access.HashSecret(unique()), Tenant: tenant(), Principal: "arn:aws:iam::111122223333:user/é+=,.@-_/x",
		Scopes: []access.Scope{access.Admin, access.Submit}, Name: awkward,
		CreatedAt: at(0), ExpiresAt: at(time.Hour), DisabledAt: at(time.Minute), LastUsed: day(0),
		CreatedBy: "key_maker", Replaces: "key_before", ReplacedBy: "key_after",
	}
}

func lookKey(t T, s access.Store, k access.Key) access.Key {
	t.Helper()
	return value(s.Get(t.Context(), k.Hash))(t, "get key")
}

func keyRoundTrip(t T, s access.Store) {
	bare := access.Key{Hash: fullKey().Hash, Tenant: tenant(), Scopes: []access.Scope{access.Read}, CreatedAt: at(0)}
	for _, k := range []access.Key{fullKey(), bare} {
		succeeds(t, "put", s.Put(t.Context(), k))
		same(t, "stored", lookKey(t, s, k), k)
	}
}

func keyAgain(t T, s access.Store) {
	k := fullKey()
	succeeds(t, "put", s.Put(t.Context(), k))
	succeeds(t, "put again", s.Put(t.Context(), k))
	k.CreatedAt, k.ExpiresAt, k.DisabledAt = stored(k.CreatedAt), stored(k.ExpiresAt), stored(k.DisabledAt)
	succeeds(t, "put as it is stored", s.Put(t.Context(), k))
	same(t, "stored", lookKey(t, s, k), k)
}

func keyTaken(t T, s access.Store) {
	k := fullKey()
	succeeds(t, "put", s.Put(t.Context(), k))
	for name, change := range map[string]func(*access.Key){
		"tenant":      func(k *access.Key) { k.Tenant = tenant() },
		"principal":   func(k *access.Key) { k.Principal = "other" },
		"scopes":      func(k *access.Key) { k.Scopes = []access.Scope{access.Submit, access.Admin} },
		"fewer":       func(k *access.Key) { k.Scopes = k.Scopes[:1] },
		"name":        func(k *access.Key) { k.Name = "" },
		"created_at":  func(k *access.Key) { k.CreatedAt = k.CreatedAt.Add(time.Millisecond) },
		"expires_at":  func(k *access.Key) { k.ExpiresAt = time.Time{} },
		"disabled_at": func(k *access.Key) { k.DisabledAt = time.Time{} },
		"last_used":   func(k *access.Key) { k.LastUsed = day(1) },
		"created_by":  func(k *access.Key) { k.CreatedBy = "" },
		"replaces":    func(k *access.Key) { k.Replaces = "" },
		"replaced_by": func(k *access.Key) { k.ReplacedBy = "" },
	} {
		other := k
		change(&other)
		refuses(t, "put with another "+name, s.Put(t.Context(), other), access.ErrExists)
		same(t, "stored", lookKey(t, s, k), k)
	}
}

func keyRace(t T, s access.Store) {
	k := fullKey()
	errs := race(racers, func(i int) error {
		mine := k
		mine.Name = fmt.Sprint(i)
		return s.Put(t.Context(), mine)
	})
	k.Name = fmt.Sprint(winner(t, errs, access.ErrExists))
	same(t, "stored", lookKey(t, s, k), k)
}

func keyShared(t T, s access.Store) {
	k := fullKey()
	succeeds(t, "put", s.Put(t.Context(), k))
	first, second := lookKey(t, s, k), lookKey(t, s, k)
	k.Scopes[0] = access.Read
	same(t, "after the writer's change", lookKey(t, s, k), first)
	second.Scopes[0] = access.Read
	same(t, "after a reader's change", lookKey(t, s, k), first)
}

func keyUnknown(t T, s access.Store) {
	refuses(t, "unknown", fault(s.Get(t.Context(), fullKey().Hash)), access.ErrNotFound)
	refuses(t, "no hash", fault(s.Get(t.Context(), "")), access.ErrNotFound)
}

func keyExpired(t T, s access.Store) {
	k := fullKey()
	k.CreatedAt, k.ExpiresAt, k.DisabledAt = at(-72*time.Hour), at(-48*time.Hour), at(-49*time.Hour)
	succeeds(t, "put", s.Put(t.Context(), k))
	same(t, "stored", lookKey(t, s, k), k)
}

func keysInterrupted(t T, s access.Store) {
	k, other := fullKey(), fullKey()
	succeeds(t, "put", s.Put(t.Context(), k))
	interrupts(t, map[string]func(context.Context) error{
		"Put":  func(ctx context.Context) error { return s.Put(ctx, other) },
		"Get":  func(ctx context.Context) error { return fault(s.Get(ctx, k.Hash)) },
		"Find": func(ctx context.Context) error { return fault(s.Find(ctx, k.Tenant, k.ID())) },
		"List": func(ctx context.Context) error {
			_, _, err := s.List(ctx, k.Tenant, "", 1)
			return err
		},
		"Disable": func(ctx context.Context) error { return fault(s.Disable(ctx, k.Tenant, k.Hash, at(0))) },
		"Rotate":  func(ctx context.Context) error { return s.Rotate(ctx, k, other, at(0)) },
		"Touch":   func(ctx context.Context) error { return s.Touch(ctx, k, day(2)) },
	})
}
