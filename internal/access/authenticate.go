package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What Authenticate and Require answer. Any other error of Authenticate is the
// store's: nobody was refused, try again.
var (
	// ErrNoKey: no usable Authorization header. Nothing was read.
	ErrNoKey = errors.New("no API key given")
	// ErrInvalidKey: the key is malformed, unknown, disabled or expired.
	ErrInvalidKey = errors.New("invalid API key")
	// ErrScope: the key is good but doesn't allow this.
	ErrScope = errors.New("the API key lacks a scope")
	// ErrTooManyWrong: the source has shown so many wrong keys that this one, which
	// may be right, is not looked up for now; see [LimitError].
	ErrTooManyWrong = errors.New("too many wrong API keys")
)

// LimitError is ErrTooManyWrong with when to come again.
type LimitError struct{ After time.Duration }

// Error says when, too.
func (e *LimitError) Error() string { return fmt.Sprintf("%v: again in %v", ErrTooManyWrong, e.After) }

// Unwrap makes errors.Is(err, ErrTooManyWrong) true.
func (e *LimitError) Unwrap() error { return ErrTooManyWrong }

// Caller is who a request counts as.
type Caller struct {
	Tenant    string
	Principal string
	Key       string // ID of the key that was shown; "": none was
	scopes    []Scope
	read      bool // the table was read for its key, just now
}

// NewCaller is a caller that no key stands for: tests and doors without HTTP.
func NewCaller(tenant, principal string, scopes ...Scope) Caller {
	return Caller{Tenant: tenant, Principal: principal, scopes: scopes}
}

// ScopeError is ErrScope with the scope that is missing.
type ScopeError struct{ Scope Scope }

// Error names the scope.
func (e *ScopeError) Error() string { return fmt.Sprintf("%v: %s", ErrScope, e.Scope) }

// Unwrap makes errors.Is(err, ErrScope) true.
func (e *ScopeError) Unwrap() error { return ErrScope }

// Require returns a *ScopeError unless the caller's key has the scope.
func (c Caller) Require(s Scope) error {
	if !slices.Contains(c.scopes, s) {
		return &ScopeError{s}
	}
	return nil
}

// Authenticate tells who shows this value of the Authorization header. It reads
// the store once, and not at all when the value can't be a key. ErrNoKey,
// ErrInvalidKey, or the store's own trouble.
func Authenticate(ctx context.Context, store Records, header string, now time.Time) (Caller, error) {
	hash, err := parseHeader(header)
	if err != nil {
		return Caller{}, err
	}
	k, err := store.Get(ctx, hash)
	if errors.Is(err, ErrNotFound) {
		return Caller{}, ErrInvalidKey
	}
	if err != nil {
		return Caller{}, fmt.Errorf("read key: %w", err)
	}
	return k.judge(hash, now)
}

// parseHeader gives the hash of the secret in the header.
func parseHeader(header string) (hash string, err error) {
	scheme, secret, _ := strings.Cut(header, " ")
	if header == "" || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", ErrNoKey
	}
	if !WellFormed(secret) {
		return "", ErrInvalidKey
	}
	return HashSecret(secret), nil
}

// judge makes a caller of the key found under hash.
func (k Key) judge(hash string, now time.Time) (Caller, error) {
	// The lookup was by hash already. A store that answers with another record
	// must still let nobody in, and how long the comparison takes must not say
	// how much of a hash was right.
	same := subtle.ConstantTimeCompare([]byte(k.Hash), []byte(hash)) == 1
	expired := k.expired(now)
	disabled := !k.DisabledAt.IsZero()
	if !same || expired || disabled {
		return Caller{}, ErrInvalidKey
	}
	return Caller{Tenant: k.Tenant, Principal: k.Principal, Key: k.ID(), scopes: k.Scopes}, nil
}

func (k Key) expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) }
