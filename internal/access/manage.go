package access

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Grantable are the scopes that an admin key can give over HTTP. The others are
// given with rights on the table only, for what a key with admin makes must be less
// than itself: were it to make others of its kind, one that leaked would live on in
// them after it was disabled. And batch_replay and work act for other tenants,
// which no tenant's administrator may.
var Grantable = []Scope{Submit, Read}

// Ungrantable is the first of the scopes that an admin key can't give; "" if it can
// give them all. It can't rotate a key with such a scope either: whoever rotates a
// key is shown its new secret.
func Ungrantable(scopes []Scope) Scope {
	for _, s := range scopes {
		if !slices.Contains(Grantable, s) {
			return s
		}
	}
	return ""
}

// Grace periods of a key that is rotated.
const (
	DefaultGrace = 24 * time.Hour
	MaxGrace     = 30 * 24 * time.Hour
)

// ErrExpired: the key's time is over.
var ErrExpired = errors.New("key has expired")

// Rotate makes a key that takes the place of old, with its tenant, principal,
// scopes and name, and as long a life if it has an end; by is the admin key's ID
// that asked for it, or "". old, as it was read, is good for grace more (0: it ends
// now, which is known everywhere within 60 s), or until its own end. The secret is
// returned once, here.
//
// It refuses what is disabled (ErrDisabled), over (ErrExpired) or rotated before
// (*ReplacedError): of two who rotate, one gets a key. Whoever lost the answer, and
// the secret with it, rotates the successor.
func Rotate(ctx context.Context, store Store, old Key, by string, grace time.Duration, now time.Time) (next, ended Key, secret string, err error) {
	if grace < 0 || grace > MaxGrace {
		return Key{}, Key{}, "", &FieldError{"grace", "from 0 to 30 days"}
	}
	switch {
	case !old.DisabledAt.IsZero():
		return Key{}, Key{}, "", ErrDisabled
	case old.ReplacedBy != "":
		return Key{}, Key{}, "", &ReplacedError{old.ReplacedBy}
	case old.expired(now):
		return Key{}, Key{}, "", ErrExpired
	}
	want := Key{Tenant: old.Tenant, Principal: old.Principal, Scopes: old.Scopes, Name: old.Name, CreatedBy: by, Replaces: old.ID()}
	if !old.ExpiresAt.IsZero() {
		want.ExpiresAt = now.Add(old.ExpiresAt.Sub(old.CreatedAt))
	}
	if next, secret, err = New(want, now); err != nil {
		return Key{}, Key{}, "", err
	}
	ended = old
	ended.ReplacedBy = next.ID()
	until := now.Add(grace).UTC().Truncate(time.Millisecond)
	if old.ExpiresAt.IsZero() || until.Before(old.ExpiresAt) {
		ended.ExpiresAt = until
	}
	if err := store.Rotate(ctx, old, next, ended.ExpiresAt); err != nil {
		return Key{}, Key{}, "", err
	}
	return next, ended, secret, nil
}

// Status is what has become of a key: "active", "expired" or "disabled". A key that
// was rotated is active until its grace is over.
func (k Key) Status(now time.Time) string {
	switch {
	case !k.DisabledAt.IsZero():
		return "disabled"
	case k.expired(now):
		return "expired"
	}
	return "active"
}
