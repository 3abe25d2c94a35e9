package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/access"
)

// keysManaged are the cases of what happens to a key once it is made.
func keysManaged() []Case[access.Store] {
	return []Case[access.Store]{
		{"find/by id, within the tenant", keyFind},
		{"list/newest first, in pages", keyPages},
		{"list/a cursor that names nothing, a limit that is none", keyPageRefusals},
		{"disable/once, and the first time stays", keyDisable},
		{"disable/another tenant's, and none", keyDisableNone},
		{"rotate/both keys are written", keyRotate},
		{"rotate/its own lost write", keyRotateAgain},
		{"rotate/once only", keyRotateTwice},
		{"rotate/one of many wins", keyRotateRace},
		{"rotate/a disabled key", keyRotateDisabled},
		{"rotate/another tenant's, and none", keyRotateNone},
		{"rotate/onto a hash that is taken", keyRotateTaken},
		{"touch/the latest day stays", keyTouch},
		{"touch/none", keyTouchNone},
	}
}

// day is the n-th day after the one that cases count from.
func day(n int) time.Time {
	return at(0).UTC().Truncate(24*time.Hour).AddDate(0, 0, n)
}

// plainKey is one in use.
func plainKey(tenant string, created time.Duration) access.Key {
	return access.Key{
		Hash: access.HashSecret(unique()), Tenant: tenant, Principal: "ann@acme.example", Scopes: []access.Scope{access.Read, access.Submit},
		Name: awkward, CreatedAt: at(created),
	}
}

// findKey reads by id what may not be there at once.
func findKey(t T, s access.Store, k access.Key) (found access.Key) {
	t.Helper()
	eventually(t, "find", func() bool {
		var err error
		found, err = s.Find(t.Context(), k.Tenant, k.ID())
		if err != nil && !errors.Is(err, access.ErrNotFound) {
			t.Fatalf("find: %v", err)
		}
		return err == nil
	})
	return found
}

func keyFind(t T, s access.Store) {
	k, other := fullKey(), plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), k))
	succeeds(t, "put", s.Put(t.Context(), other))
	same(t, "found", findKey(t, s, k), k)
	same(t, "found", findKey(t, s, other), other)
	refuses(t, "another tenant's", fault(s.Find(t.Context(), other.Tenant, k.ID())), access.ErrNotFound)
	for _, id := range []string{
		"", "key_", k.Hash, k.ID() + "0", k.ID()[:20], "KEY_" + k.ID()[4:], access.KeyID(access.HashSecret("none")), "key_" + k.Hash, "key_zzzzzzzzzzzzzzzzzzzzzzzz", "key_\x00",
	} {
		refuses(t, fmt.Sprintf("id %q", id), fault(s.Find(t.Context(), k.Tenant, id)), access.ErrNotFound)
	}
}

func keyPages(t T, s access.Store) {
	mine := tenant()
	var want []string
	for n := range 7 {
		k := plainKey(mine, time.Duration(n)*time.Hour)
		if n == 3 {
			k.DisabledAt = at(0) // and what is of no use any more stays listed
		}
		succeeds(t, "put", s.Put(t.Context(), k))
		want = append(want, k.ID())
	}
	succeeds(t, "put another tenant's", s.Put(t.Context(), plainKey(mine+"x", 0)))
	slices.Reverse(want)
	for _, limit := range []int{1, 3, 7, access.MaxKeys} {
		var got []string
		eventually(t, "list", func() bool {
			got = nil
			for after, more := "", true; more; {
				page, further, err := s.List(t.Context(), mine, after, limit)
				succeeds(t, "list", err)
				if len(page) > limit || further && len(page) < limit {
					t.Fatalf("a page of %d for %d, more: %v", len(page), limit, further)
				}
				for _, k := range page {
					got = append(got, k.ID())
					after = k.ID()
				}
				more = further
			}
			return len(got) == len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("by %d: %v\nwant %v", limit, got, want)
		}
	}
	page, more, err := s.List(t.Context(), tenant(), "", 5)
	if len(page) != 0 || more || err != nil {
		t.Errorf("nobody's: %d keys, %v, %v", len(page), more, err)
	}
}

func keyPageRefusals(t T, s access.Store) {
	k, other := plainKey(tenant(), 0), plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), k))
	succeeds(t, "put", s.Put(t.Context(), other))
	list := func(after string, limit int) error {
		_, _, err := s.List(t.Context(), k.Tenant, after, limit)
		return err
	}
	findKey(t, s, other)
	for _, after := range []string{"x", other.ID(), k.Hash} {
		refuses(t, "after "+after[:1], list(after, 5), access.ErrNotFound)
	}
	for _, limit := range []int{-1, 0, access.MaxKeys + 1} {
		if err := list("", limit); err == nil || errors.Is(err, access.ErrNotFound) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

func keyDisable(t T, s access.Store) {
	k := plainKey(tenant(), 0)
	k.ExpiresAt, k.LastUsed = at(time.Hour), day(0)
	succeeds(t, "put", s.Put(t.Context(), k))
	want := k
	want.DisabledAt = at(time.Minute)
	same(t, "disabled", value(s.Disable(t.Context(), k.Tenant, k.Hash, at(time.Minute)))(t, "disable"), want)
	same(t, "again", value(s.Disable(t.Context(), k.Tenant, k.Hash, at(2*time.Minute)))(t, "disable again"), want)
	same(t, "stored", lookKey(t, s, k), want)
}

func keyDisableNone(t T, s access.Store) {
	k := plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), k))
	refuses(t, "another tenant's", fault(s.Disable(t.Context(), tenant(), k.Hash, at(0))), access.ErrNotFound)
	same(t, "stored", lookKey(t, s, k), k)
	ended := k
	ended.Hash, ended.DisabledAt = access.HashSecret(unique()), at(0)
	succeeds(t, "put", s.Put(t.Context(), ended))
	refuses(t, "another tenant's that is disabled", fault(s.Disable(t.Context(), tenant(), ended.Hash, at(0))), access.ErrNotFound)
	refuses(t, "none", fault(s.Disable(t.Context(), k.Tenant, access.HashSecret(unique()), at(0))), access.ErrNotFound)
	refuses(t, "no hash", fault(s.Disable(t.Context(), k.Tenant, "", at(0))), access.ErrNotFound)
}

// successor is what old may be rotated into.
func successor(old access.Key) access.Key {
	next := old
	next.Hash, next.CreatedAt, next.Replaces, next.ReplacedBy, next.CreatedBy = access.HashSecret(unique()), at(time.Minute), old.ID(), "", "key_maker"
	return next
}

func keyRotate(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	old.LastUsed = day(0)
	succeeds(t, "put", s.Put(t.Context(), old))
	next := successor(old)
	next.LastUsed, next.ExpiresAt = time.Time{}, at(48*time.Hour)
	succeeds(t, "rotate", s.Rotate(t.Context(), old, next, at(time.Hour)))
	same(t, "the new one", lookKey(t, s, next), next)
	want := old
	want.ReplacedBy, want.ExpiresAt = next.ID(), at(time.Hour)
	same(t, "the old one", lookKey(t, s, old), want)
	same(t, "found", findKey(t, s, next), next)
}

func keyRotateAgain(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), old))
	next := successor(old)
	succeeds(t, "rotate", s.Rotate(t.Context(), old, next, at(time.Hour)))
	was := lookKey(t, s, old)
	succeeds(t, "rotate again", s.Rotate(t.Context(), old, next, at(2*time.Hour)))
	same(t, "the old one", lookKey(t, s, old), was)
	// Replaced by the same key, but not as it is stored: that was somebody else.
	changed := next
	changed.Name = "another"
	replacedBy(t, "rotate into another record", s.Rotate(t.Context(), old, changed, at(time.Hour)), next.ID())
	same(t, "the new one", lookKey(t, s, next), next)
}

func replacedBy(t T, what string, err error, id string) {
	t.Helper()
	refuses(t, what, err, access.ErrReplaced)
	if e, ok := errors.AsType[*access.ReplacedError](err); !ok || e.By != id {
		t.Errorf("%s: %v doesn't name %s", what, err, id)
	}
}

func keyRotateTwice(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), old))
	first, second := successor(old), successor(old)
	succeeds(t, "rotate", s.Rotate(t.Context(), old, first, at(time.Hour)))
	was := lookKey(t, s, old)
	replacedBy(t, "rotate twice", s.Rotate(t.Context(), old, second, at(2*time.Hour)), first.ID())
	same(t, "the old one", lookKey(t, s, old), was)
	refuses(t, "the second new one", fault(s.Get(t.Context(), second.Hash)), access.ErrNotFound)
	// One that was there before: the record of the new key alone proves nothing.
	succeeds(t, "put", s.Put(t.Context(), second))
	replacedBy(t, "rotate into what is there", s.Rotate(t.Context(), old, second, at(2*time.Hour)), first.ID())
}

func keyRotateRace(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), old))
	next := make([]access.Key, 8) // transactions on one item get in each other's way: few are enough
	for i := range next {
		next[i] = successor(old)
	}
	errs := race(len(next), func(i int) error {
		// Lost to another's write again and again is trouble, and is tried again.
		var err error
		for range 50 {
			if err = s.Rotate(t.Context(), old, next[i], at(time.Hour)); err == nil || errors.Is(err, access.ErrReplaced) {
				break
			}
		}
		return err
	})
	won := winner(t, errs, access.ErrReplaced)
	if got := lookKey(t, s, old).ReplacedBy; got != next[won].ID() {
		t.Errorf("replaced by %s, want %s", got, next[won].ID())
	}
	for i, k := range next {
		if err := fault(s.Get(t.Context(), k.Hash)); (err == nil) != (i == won) {
			t.Errorf("new key %d of the winner %d: %v", i, won, err)
		}
	}
}

func keyRotateDisabled(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	old.DisabledAt = at(time.Second)
	succeeds(t, "put", s.Put(t.Context(), old))
	read := old
	read.DisabledAt = time.Time{} // as it was read before
	next := successor(read)
	refuses(t, "rotate", s.Rotate(t.Context(), read, next, at(time.Hour)), access.ErrDisabled)
	same(t, "the old one", lookKey(t, s, old), old)
	refuses(t, "the new one", fault(s.Get(t.Context(), next.Hash)), access.ErrNotFound)
}

func keyRotateNone(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	succeeds(t, "put", s.Put(t.Context(), old))
	foreign := old
	foreign.Tenant = tenant()
	missing := plainKey(tenant(), 0)
	for what, k := range map[string]access.Key{"another tenant's": foreign, "none": missing, "no hash": {Tenant: old.Tenant}} {
		next := successor(k)
		refuses(t, what, s.Rotate(t.Context(), k, next, at(time.Hour)), access.ErrNotFound)
		refuses(t, what+": the new one", fault(s.Get(t.Context(), next.Hash)), access.ErrNotFound)
	}
	same(t, "stored", lookKey(t, s, old), old)
}

func keyRotateTaken(t T, s access.Store) {
	old := plainKey(tenant(), 0)
	next := successor(old)
	succeeds(t, "put", s.Put(t.Context(), old))
	succeeds(t, "put", s.Put(t.Context(), next))
	changed := next
	changed.Name = "another"
	for _, k := range []access.Key{next, changed} {
		refuses(t, "rotate", s.Rotate(t.Context(), old, k, at(time.Hour)), access.ErrExists)
	}
	same(t, "the old one", lookKey(t, s, old), old)
	same(t, "the other one", lookKey(t, s, next), next)
}

func keyTouch(t T, s access.Store) {
	k := plainKey(tenant(), 0)
	k.ExpiresAt = at(time.Hour)
	succeeds(t, "put", s.Put(t.Context(), k))
	want := k
	for _, c := range []struct{ day, is int }{{1, 1}, {1, 1}, {3, 3}, {2, 3}, {4, 4}} {
		succeeds(t, "touch", s.Touch(t.Context(), k, day(c.day))) // k as it was read: long ago
		want.LastUsed = day(c.is)
		same(t, fmt.Sprintf("after day %d", c.day), lookKey(t, s, k), want)
	}
	same(t, "found", findKey(t, s, k), want, "LastUsed")
}

func keyTouchNone(t T, s access.Store) {
	k := plainKey(tenant(), 0)
	refuses(t, "none", s.Touch(t.Context(), k, day(1)), access.ErrNotFound)
	refuses(t, "still none", fault(s.Get(t.Context(), k.Hash)), access.ErrNotFound)
	refuses(t, "no hash", s.Touch(t.Context(), access.Key{Tenant: k.Tenant}, day(1)), access.ErrNotFound)
}
