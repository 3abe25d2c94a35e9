package openai

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Ours: the API keys of a tenant, as its administrators see them.

// APIKey is a key without what opens anything, but for the answer that makes it.
// Every time is Unix seconds; what is nil is written as null.
type APIKey struct {
	ID         string   `json:"id"`
	Object     string   `json:"object"` // api_key
	Tenant     string   `json:"tenant"`
	Principal  string   `json:"principal"`
	Scopes     []string `json:"scopes"`
	Name       string   `json:"name"`
	Status     string   `json:"status"` // active, expired or disabled
	CreatedAt  int64    `json:"created_at"`
	ExpiresAt  *int64   `json:"expires_at"`   // null: never
	DisabledAt *int64   `json:"disabled_at"`  // null: it isn't
	LastUsedOn *string  `json:"last_used_on"` // a day, UTC: 2026-10-12; null: never, as far as is known
	CreatedBy  *string  `json:"created_by"`   // the admin key that made it; null: the operator
	Replaces   *string  `json:"replaces"`     // the key that it was rotated from
	ReplacedBy *string  `json:"replaced_by"`  // the key that it was rotated into

	// Secret is what a client sends as its key. It is told once, to whoever made the
	// key or rotated another into it, and kept nowhere.
	Secret string `json:"secret,omitempty"`
}

// ObjectID is the cursor of a list.
func (k APIKey) ObjectID() string { return k.ID }

// CreateKey is the request of POST /admin/keys.
type CreateKey struct {
	Principal string
	Name      string
	Scopes    []string
	Tenant    string    // "": not said
	ExpiresAt time.Time // whole seconds, UTC; zero: not said, or null
}

// ParseCreateKey reads the body of POST /admin/keys. Whether a principal, a name, a
// scope or a time will do is not asked here. Every error is an [*Error] that names
// the parameter at fault.
func ParseCreateKey(r io.Reader) (k CreateKey, err error) {
	var raw struct {
		Principal jsontext.Value `json:"principal"`
		Name      jsontext.Value `json:"name"`
		Scopes    jsontext.Value `json:"scopes"`
		Tenant    jsontext.Value `json:"tenant"`
		ExpiresAt jsontext.Value `json:"expires_at"`
	}
	if err := readUploadJSON(r, &raw); err != nil {
		return k, err
	}
	if k.Principal, err = requiredText("principal", raw.Principal); err != nil {
		return k, err
	}
	if k.Name, err = requiredText("name", raw.Name); err != nil {
		return k, err
	}
	if absent(raw.Scopes) {
		return k, MissingParameter("scopes")
	}
	if k.Scopes, err = texts("scopes", raw.Scopes); err != nil {
		return k, err
	}
	if !absent(raw.Tenant) {
		if k.Tenant, err = requiredText("tenant", raw.Tenant); err != nil {
			return k, err
		}
	}
	if !absent(raw.ExpiresAt) {
		n, err := strconv.ParseInt(string(raw.ExpiresAt), 10, 64)
		if err != nil || n < 1 || n > maxUnix {
			return k, InvalidType("expires_at", "a time in whole seconds since 1970")
		}
		k.ExpiresAt = time.Unix(n, 0).UTC()
	}
	return k, nil
}

// maxUnix is the end of the year 9999: what comes after has no form in RFC 3339.
const maxUnix = 253402300799

// texts reads an array of strings.
func texts(name string, v jsontext.Value) ([]string, error) {
	if v.Kind() != '[' {
		return nil, InvalidType(name, "an array of strings")
	}
	var values []jsontext.Value
	if err := jsonx.Unmarshal(v, &values); err != nil {
		return nil, InvalidType(name, "an array of strings")
	}
	out := make([]string, 0, len(values))
	for _, v := range values {
		if v.Kind() != '"' {
			return nil, InvalidType(name, "an array of strings")
		}
		out = append(out, string(appendText(nil, v)))
	}
	return out, nil
}

// ParseRotateKey reads the body of POST /admin/keys/{id}/rotate, which may be empty:
// the grace of the old key, or usual where none is said.
func ParseRotateKey(r io.Reader, usual, most time.Duration) (grace time.Duration, err error) {
	var raw struct {
		Grace jsontext.Value `json:"grace_seconds"`
	}
	body := bufio.NewReader(r)
	if _, err := body.Peek(1); errors.Is(err, io.EOF) {
		return usual, nil
	}
	if err := readUploadJSON(body, &raw); err != nil {
		return 0, err
	}
	if absent(raw.Grace) {
		return usual, nil
	}
	n, ok := wholeNumber(raw.Grace)
	if !ok || time.Duration(n)*time.Second > most {
		return 0, Invalid("invalid_grace_seconds", "grace_seconds", "Invalid 'grace_seconds': it must be a whole number from 0 to %d.", int64(most/time.Second))
	}
	return time.Duration(n) * time.Second, nil
}

// InvalidKeyField is the 400 for a field of a key that won't do; allowed says what
// would.
func InvalidKeyField(field, allowed string) *Error {
	return Invalid("invalid_"+field, field, "Invalid '%s': it must be %s.", field, allowed)
}

// ForeignTenant is the 400 for a key of another tenant than the caller's.
func ForeignTenant() *Error {
	return Invalid("invalid_tenant", "tenant", "Invalid 'tenant': a key is made for the tenant of the key that makes it. Leave it out.")
}

// ScopeNotAllowed is the 403 for giving or taking over, by way of the API, a scope
// that only the operator gives.
func ScopeNotAllowed(param, scope string, grantable []string) *Error {
	return refuse(http.StatusForbidden, "scope_not_allowed", param,
		"Over HTTP keys are made and rotated with the scopes %s only; '%s' is given by the operator: holdfast key with AWS credentials.",
		strings.Join(grantable, " and "), scope)
}

// KeyNotFound is the 404 for a key that is unknown or another tenant's.
func KeyNotFound(id string) *Error {
	return refuse(http.StatusNotFound, "key_not_found", "key_id", "No such key: %s.", clip(id))
}

// KeyNotActive is the 400 for rotating a key that is good for nothing any more.
func KeyNotActive(id, status string) *Error {
	return Invalid("key_not_active", "key_id", "The key %s is %s and can't be rotated; make a new one.", clip(id), status)
}

// KeyReplaced is the 400 for rotating a key twice.
func KeyReplaced(id, by string) *Error {
	return Invalid("key_replaced", "key_id",
		"The key %s was rotated into %s already. Its secret was shown then; if it is lost, rotate %[2]s.", clip(id), clip(by))
}
