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
	Submit      Scope = "submit"       // upload files, create batches
	Read        Scope = "read"         // see the tenant's files, batches and results
	Admin       Scope = "admin"        // see and redrive the tenant's dead parts, reclaim, manage its keys
	BatchReplay Scope = "batch_replay" // act for the tenant of a batch that runs, whichever tenant that is, and nothing else
	Work        Scope = "work"         // lease parts from elsewhere; nothing asks for it yet
)

// Scopes lists every scope, in the order people are shown.
var Scopes = []Scope{Submit, Read, Admin, BatchReplay, Work}

// Key is the record of one API key. The secret itself is kept nowhere.
type Key struct {
	Hash       string // HashSecret of the secret; found by it, and shown to nobody
	Tenant     string // whom it acts for
	Principal  string // in whose name its batches run
	Scopes     []Scope
	Name       string    // for people to tell keys apart
	CreatedAt  time.Time // whole milliseconds, UTC, like the other times
	ExpiresAt  time.Time // zero: never; from this instant on the key is no good
	DisabledAt time.Time // zero: in use
	LastUsed   time.Time // the day on which somebody was last let in with it, 00:00 UTC; zero: never, as far as is known
	CreatedBy  string    // ID of the admin key that made it; "": somebody with rights on the table
	Replaces   string    // ID of the key that it was rotated from; "": none
	ReplacedBy string    // ID of the key that it was rotated into; "": none
}

// ID is the key's public name: what lists show, and what a key is disabled and
// rotated by. It is made of the hash, and leads back neither to that nor to the
// secret.
func (k Key) ID() string { return KeyID(k.Hash) }

const (
	idPrefix = "key_"
	idDigits = 24 // of the hash: 96 bits, so that no two keys ever share them
)

// KeyID is the ID of the key with this hash.
func KeyID(hash string) string { return idPrefix + hash[:min(idDigits, len(hash))] }

// HashPrefix is what the hash of the key with this ID begins with; false where no
// key can have it.
func HashPrefix(id string) (prefix string, ok bool) {
	prefix, ok = strings.CutPrefix(id, idPrefix)
	if !ok || len(prefix) != idDigits || strings.Trim(prefix, "0123456789abcdef") != "" {
		return "", false
	}
	return prefix, true
}

// What a Store answers beside success; anything else is trouble of the moment
// and may be retried.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("no such key")
	// ErrExists: another record is stored under this hash.
	ErrExists = errors.New("key exists already")
	// ErrDisabled: the key is disabled.
	ErrDisabled = errors.New("key is disabled")
	// ErrReplaced: the key was rotated before; see [ReplacedError].
	ErrReplaced = errors.New("key was replaced already")
)

// ReplacedError is ErrReplaced with the key that came after.
type ReplacedError struct{ By string } // its ID

// Error names the successor.
func (e *ReplacedError) Error() string { return fmt.Sprintf("%v: by %s", ErrReplaced, e.By) }

// Unwrap makes errors.Is(err, ErrReplaced) true.
func (e *ReplacedError) Unwrap() error { return ErrReplaced }

// MaxKeys is the most keys that List returns at once.
const MaxKeys = 100

// Records is what authentication needs of a Store.
type Records interface {
	// Get reads the key with this hash, strongly consistent. ErrNotFound.
	// Expired and disabled keys are found: judging is Authenticate's.
	Get(ctx context.Context, hash string) (Key, error)
	// Touch records that k, as it was read, was used on a day (00:00 UTC). A later
	// day stays: then nothing is written, which is success too. A key of an older
	// program, which no list shows, is in its tenant's from then on. ErrNotFound.
	Touch(ctx context.Context, k Key, day time.Time) error
}

// Store keeps keys. Nothing is ever deleted. A call may be repeated after an error
// that is none of the four above. No error names a hash. Its suite is in
// storetest.
type Store interface {
	Records
	// Put inserts k if no record has its hash. ErrExists otherwise, except that
	// a record equal to k counts as success: it is this write, whose answer was
	// lost.
	Put(ctx context.Context, k Key) error
	// Find reads the tenant's key with this ID, and List up to limit (1 to MaxKeys)
	// of its keys, the newest first, those behind the key named after ("": from the
	// first), and whether there are more. ErrNotFound where the tenant has no key
	// of this ID. Both are eventually consistent: a key that was made or changed
	// within the last second may be missing, or as it was.
	Find(ctx context.Context, tenant, id string) (Key, error)
	List(ctx context.Context, tenant, after string, limit int) (page []Key, more bool, err error)
	// Disable ends a key's use for good and returns it as it then is. One that is
	// disabled stays as it is, with the time of the first, which is success.
	// ErrNotFound where the tenant has no key with this hash.
	Disable(ctx context.Context, tenant, hash string, now time.Time) (Key, error)
	// Rotate inserts next and lets old end at until, both or neither: old's
	// ReplacedBy becomes next's ID and its ExpiresAt until. It must be neither
	// disabled nor replaced: ErrDisabled, *ReplacedError; replaced by this very
	// next counts as success. ErrNotFound where old's tenant has no such key;
	// ErrExists where next's hash is taken.
	Rotate(ctx context.Context, old, next Key, until time.Time) error
}

// A secret is the prefix and 160 random bits in lower-case base32. The prefix
// lets scanners recognise one that was published by mistake.
const (
	secretPrefix = "hf_"
	secretBytes  = 20
	secretLength = len(secretPrefix) + secretBytes*8/5
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New makes a key: k's Tenant, Principal, Scopes, Name, ExpiresAt, CreatedBy and
// Replaces are given, the rest is filled in. The secret is returned once, here. The error joins a
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

// WellFormed reports whether s could be a secret, so that anything else is
// refused without a read.
func WellFormed(s string) bool {
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

// FieldError is a field of a key or of a tenant's record that won't do.
type FieldError struct {
	Field   string // "tenant", "principal", "scopes", "name", "expires", "grace"; "endpoint", "window", "queued_lines" and the other limits
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
// and no scopes, and batch_replay beside another, with a *FieldError.
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
			return badScopes()
		}
	}
	// Under the replay rule the others lend it nothing: whoever gave them along would
	// be mistaken.
	if len(scopes) == 0 || len(scopes) > 1 && slices.Contains(scopes, BatchReplay) {
		return badScopes()
	}
	return nil
}

func badScopes() error {
	return &FieldError{"scopes", fmt.Sprintf("one or more of %s, each once, and %s alone", listScopes(), BatchReplay)}
}

func listScopes() string {
	var names []string
	for _, s := range Scopes {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// maxYear is the last in which a key may end: what comes after has no form in JSON, and
// one such key would spoil every list that it is in.
const maxYear = 9999

func (k Key) validate() error {
	errs := []error{CheckTenant(k.Tenant), CheckPrincipal(k.Principal), checkScopes(k.Scopes), CheckName(k.Name)}
	if !k.ExpiresAt.IsZero() && (!k.ExpiresAt.After(k.CreatedAt) || k.ExpiresAt.Year() > maxYear) {
		errs = append(errs, &FieldError{"expires", "in the future, and not after the year 9999"})
	}
	return errors.Join(errs...)
}
