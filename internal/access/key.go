package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Scope is one thing that a key allows.
type Scope string

// The scopes there are.
const (
	Submit Scope = "submit" // upload files, create batches
	Read   Scope = "read"   // see the tenant's files, batches and results
	Admin  Scope = "admin"  // see and redrive the tenant's dead parts, reclaim, manage its keys
)

// Scopes lists every scope, in the order people are shown.
var Scopes = []Scope{Submit, Read, Admin}

// Key is the record of one API key. The secret itself is kept nowhere.
type Key struct {
	Hash       string // HashSecret of the secret
	Tenant     string // whom it acts for
	Principal  string // in whose name its batches run
	Scopes     []Scope
	Name       string    // for people to tell keys apart
	CreatedAt  time.Time // whole milliseconds, UTC, like the other two
	ExpiresAt  time.Time // zero: never; from this instant on the key is no good
	DisabledAt time.Time // zero: in use
}

// What a Store answers beside success; anything else is trouble of the moment
// and may be retried.
var (
	// ErrNotFound: no key has this hash.
	ErrNotFound = errors.New("no such key")
	// ErrExists: another record is stored under this hash.
	ErrExists = errors.New("key exists already")
)

// Store keeps keys. A call may be repeated after an error that is none of the
// two above. Its suite is in storetest.
type Store interface {
	// Put inserts k if no record has its hash. ErrExists otherwise, except that
	// a record equal to k counts as success: it is this write, whose answer was
	// lost.
	Put(ctx context.Context, k Key) error
	// Get reads the key with this hash, strongly consistent. ErrNotFound.
	// Expired and disabled keys are found: judging is Authenticate's.
	Get(ctx context.Context, hash string) (Key, error)
}

// A secret is the prefix and 160 random bits in lower-case base32. The prefix
// lets scanners recognise one that was published by mistake.
const (
	secretPrefix = "hf_"
	secretBytes  = 20
	secretLength = len(secretPrefix) + secretBytes*8/5
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New makes a key: k's Tenant, Principal, Scopes, Name and ExpiresAt are given,
// the rest is filled in. The secret is returned once, here. The error joins a
// [*FieldError] for each field that won't do.
func New(k Key, now time.Time) (key Key, secret string, err error) {
	raw := make([]byte, secretBytes)
	rand.Read(raw) // never fails: it ends the program instead
	secret = secretPrefix + base32Lower.EncodeToString(raw)
	k.Hash = HashSecret(secret)
	k.Scopes = slices.Clone(k.Scopes)
	k.CreatedAt = now.UTC().Truncate(time.Millisecond)
	if !k.ExpiresAt.IsZero() {
		k.ExpiresAt = k.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	if err := k.validate(); err != nil {
		return Key{}, "", err
	}
	return k, secret, nil
}

// HashSecret is what is stored instead of a secret: lower-case hex of its
// SHA-256. A secret is random and long, so that neither salt nor a slow hash
// would add anything.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// wellFormed reports whether s could be a secret, so that anything else is
// refused without a read.
func wellFormed(s string) bool {
	if len(s) != secretLength || !strings.HasPrefix(s, secretPrefix) {
		return false
	}
	for _, c := range []byte(s[len(secretPrefix):]) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// FieldError is a field of a key that won't do.
type FieldError struct {
	Field   string // "tenant", "principal", "scopes", "name", "expires"
	Allowed string // what would do, in words
}

// Error names the field and what it may be.
func (e *FieldError) Error() string { return e.Field + ": must be " + e.Allowed }

var (
	tenantPattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	principalPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@:/+=-]{0,127}$`)
)

// CheckTenant refuses, with a *FieldError, what is no tenant name. Tenants are
// part of the keys of the table and the buckets: they are URL-safe, lower case
// and short, and none is a prefix of a path ("..", "a/b").
func CheckTenant(s string) error {
	if !tenantPattern.MatchString(s) {
		return &FieldError{"tenant", "1 to 63 of a-z, 0-9 and -, not beginning with -"}
	}
	return nil
}

// CheckPrincipal refuses, with a *FieldError, what is no principal. It is an
// e-mail address, a role name, an ARN: it goes into receipts and headers, so it
// is printable ASCII without spaces.
func CheckPrincipal(s string) error {
	if !principalPattern.MatchString(s) {
		return &FieldError{"principal", "1 to 128 letters, digits and . _ @ : / + = -, beginning with a letter or digit"}
	}
	return nil
}

// CheckName refuses, with a *FieldError, what is no name for a key.
func CheckName(s string) error {
	n := utf8.RuneCountInString(s)
	if !utf8.ValidString(s) || n < 1 || n > 100 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) ||
		strings.TrimSpace(s) != s {
		return &FieldError{"name", "1 to 100 printable characters, without spaces at its ends"}
	}
	return nil
}

// ParseScopes reads scopes separated by commas. It refuses unknown, repeated
// and no scopes with a *FieldError.
func ParseScopes(s string) ([]Scope, error) {
	var scopes []Scope
	for name := range strings.SplitSeq(s, ",") {
		scopes = append(scopes, Scope(strings.TrimSpace(name)))
	}
	return scopes, checkScopes(scopes)
}

func checkScopes(scopes []Scope) error {
	for i, s := range scopes {
		if !slices.Contains(Scopes, s) || slices.Contains(scopes[:i], s) {
			return &FieldError{"scopes", fmt.Sprintf("one or more of %s, each once", listScopes())}
		}
	}
	if len(scopes) == 0 {
		return &FieldError{"scopes", fmt.Sprintf("one or more of %s, each once", listScopes())}
	}
	return nil
}

func listScopes() string {
	var names []string
	for _, s := range Scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func (k Key) validate() error {
	errs := []error{CheckTenant(k.Tenant), CheckPrincipal(k.Principal), checkScopes(k.Scopes), CheckName(k.Name)}
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(k.CreatedAt) {
		errs = append(errs, &FieldError{"expires", "in the future"})
	}
	return errors.Join(errs...)
}
