package access_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
)

func TestKeyID(t *testing.T) {
	k, _, err := access.New(good, now)
	if err != nil {
		t.Fatal(err)
	}
	id := k.ID()
	if len(id) != 28 || !strings.HasPrefix(id, "key_") || !strings.HasPrefix(k.Hash, id[4:]) {
		t.Errorf("id %s of %s", id, k.Hash)
	}
	if prefix, ok := access.HashPrefix(id); !ok || prefix != k.Hash[:24] {
		t.Errorf("%q, %v", prefix, ok)
	}
	for _, bad := range []string{"", "key_", id[:27], id + "0", "KEY_" + id[4:], "key_" + strings.ToUpper("abcdefabcdefabcdefabcdef"), "key_gggggggggggggggggggggggg", k.Hash} {
		if _, ok := access.HashPrefix(bad); ok {
			t.Errorf("%q is an id", bad)
		}
	}
	if access.KeyID("") != "key_" || access.KeyID("short") != "key_short" {
		t.Error("a hash that is none")
	}
}

// rotating keeps what Rotate was told.
type rotating struct {
	access.Store
	old, next access.Key
	until     time.Time
	calls     int
	err       error
}

func (r *rotating) Rotate(_ context.Context, old, next access.Key, until time.Time) error {
	r.old, r.next, r.until = old, next, until
	r.calls++
	return r.err
}

func TestRotate(t *testing.T) {
	at := now.Add(10 * 24 * time.Hour)
	life := 30 * 24 * time.Hour
	for name, c := range map[string]struct {
		expires       time.Time
		grace         time.Duration
		until, expiry time.Time
	}{
		"for ever":             {time.Time{}, time.Hour, at.Add(time.Hour), time.Time{}},
		"at once":              {time.Time{}, 0, at, time.Time{}},
		"with an end":          {now.Add(life), time.Hour, at.Add(time.Hour), at.Add(life)},
		"ends before its time": {now.Add(life), 25 * 24 * time.Hour, now.Add(life), at.Add(life)},
	} {
		t.Run(name, func(t *testing.T) {
			g := good
			g.ExpiresAt, g.Scopes = c.expires, []access.Scope{access.Submit, access.Read}
			old, first, err := access.New(g, now)
			if err != nil {
				t.Fatal(err)
			}
			store := &rotating{}
			next, ended, secret, err := access.Rotate(t.Context(), store, old, "key_admin", c.grace, at)
			if err != nil {
				t.Fatal(err)
			}
			want := access.Key{
				Hash: access.HashSecret(secret), Tenant: old.Tenant, Principal: old.Principal, Scopes: old.Scopes, Name: old.Name,
				CreatedAt: at, ExpiresAt: c.expiry, CreatedBy: "key_admin", Replaces: old.ID(),
			}
			if !reflect.DeepEqual(next, want) || !reflect.DeepEqual(store.next, want) || secret == first {
				t.Errorf("made %+v\nwant %+v", next, want)
			}
			if !store.until.Equal(c.until) || !ended.ExpiresAt.Equal(c.until) || ended.ReplacedBy != next.ID() || !reflect.DeepEqual(store.old, old) {
				t.Errorf("until %v, want %v; ended %+v", store.until, c.until, ended)
			}
		})
	}
}

func TestRotateRefusals(t *testing.T) {
	old, _, err := access.New(good, now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*access.Key)) access.Key {
		k := old
		change(&k)
		return k
	}
	taken := errors.New("throttled")
	for name, c := range map[string]struct {
		old   access.Key
		grace time.Duration
		store error
		want  error
	}{
		"disabled":  {old: with(func(k *access.Key) { k.DisabledAt = now }), want: access.ErrDisabled},
		"replaced":  {old: with(func(k *access.Key) { k.ReplacedBy = "key_x" }), want: access.ErrReplaced},
		"expired":   {old: with(func(k *access.Key) { k.ExpiresAt = now }), want: access.ErrExpired},
		"refused":   {old: old, store: &access.ReplacedError{By: "key_y"}, want: access.ErrReplaced},
		"trouble":   {old: old, store: taken, want: taken},
		"no grace":  {old: old, grace: -1},
		"too great": {old: old, grace: access.MaxGrace + 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := &rotating{err: c.store}
			next, ended, secret, err := access.Rotate(t.Context(), store, c.old, "", c.grace, now)
			if _, field := errors.AsType[*access.FieldError](err); c.want == nil && !field || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if secret != "" || next.Hash != "" || ended.Hash != "" {
				t.Error("a refusal with a key in it")
			}
			if (store.calls > 0) != (c.store != nil) {
				t.Errorf("%d writes", store.calls)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	end := now.Add(time.Hour)
	for _, c := range []struct {
		key  access.Key
		at   time.Time
		want string
	}{
		{access.Key{}, now, "active"},
		{access.Key{ExpiresAt: end, ReplacedBy: "key_x"}, now, "active"},
		{access.Key{ExpiresAt: end}, end, "expired"},
		{access.Key{ExpiresAt: end, DisabledAt: now}, end, "disabled"},
	} {
		if got := c.key.Status(c.at); got != c.want {
			t.Errorf("%+v: %s, want %s", c.key, got, c.want)
		}
	}
}

// What an admin key gives is less than itself.
func TestGrantable(t *testing.T) {
	for _, s := range access.Scopes {
		want := s
		if s == access.Submit || s == access.Read {
			want = ""
		}
		if got := access.Ungrantable([]access.Scope{access.Read, s}); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}
