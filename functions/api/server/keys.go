package server

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// An administrator's view of its tenant's keys. Another tenant's look as if there
// were none. A hash is never shown, a secret once.

// Pages of keys.
const defaultKeys = 20

func (s *Server) listKeys(w http.ResponseWriter, r *request) error {
	page, err := openai.ParsePage(r.URL.Query(), defaultKeys, access.MaxKeys)
	if err != nil {
		return err
	}
	if page.Ascending {
		return openai.Invalid("invalid_order", "order", "Invalid order \"asc\": keys are listed newest first.")
	}
	keys, more, err := s.ports.KeyBook.List(r.Context(), r.caller.Tenant, page.After, page.Limit)
	if errors.Is(err, access.ErrNotFound) {
		return openai.InvalidCursor(page.After)
	}
	if err != nil {
		return err
	}
	data := make([]openai.APIKey, len(keys))
	for i, k := range keys {
		data[i] = keyToWire(k, r.now)
	}
	return openai.WriteList(w, data, more, maxListBytes)
}

// createKey can't be safe to repeat: whoever lost the answer lost the secret. The
// key that then nobody has is in the list, never used, and can be disabled.
func (s *Server) createKey(w http.ResponseWriter, r *request) error {
	in, err := openai.ParseCreateKey(r.Body)
	if err != nil {
		return err
	}
	if in.Tenant != "" && in.Tenant != r.caller.Tenant {
		return openai.ForeignTenant()
	}
	want := access.Key{Tenant: r.caller.Tenant, Principal: in.Principal, Name: in.Name, ExpiresAt: in.ExpiresAt, CreatedBy: r.caller.Key}
	for _, scope := range in.Scopes {
		want.Scopes = append(want.Scopes, access.Scope(scope))
	}
	// Before the rest is looked at: what can't be given need not go well together.
	if scope := access.Ungrantable(want.Scopes); slices.Contains(access.Scopes, scope) {
		return openai.ScopeNotAllowed("scopes", string(scope), texts(access.Grantable))
	}
	key, secret, err := access.New(want, r.now)
	if err != nil {
		return badKey(err)
	}
	if err := s.ports.KeyBook.Put(r.Context(), key); err != nil {
		return err
	}
	return writeSecret(w, keyToWire(key, r.now), secret)
}

// badKey is the answer to fields that won't do: the first of them, as everywhere.
func badKey(err error) error {
	e, ok := errors.AsType[*access.FieldError](err)
	if !ok {
		return err
	}
	field := e.Field
	if field == "expires" {
		field = "expires_at"
	}
	return openai.InvalidKeyField(field, e.Allowed)
}

// disableKey may be repeated. A key that disables itself is answered like any
// other, and is refused from then on: within 60 s, everywhere.
func (s *Server) disableKey(w http.ResponseWriter, r *request) error {
	k, err := s.findKey(r)
	if err != nil {
		return err
	}
	k, err = s.ports.KeyBook.Disable(r.Context(), r.caller.Tenant, k.Hash, r.now)
	if errors.Is(err, access.ErrNotFound) {
		return openai.KeyNotFound(r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, keyToWire(k, r.now))
}

// rotateKey answers with the new key and its secret. Repeated, it is refused with
// the new key's name.
func (s *Server) rotateKey(w http.ResponseWriter, r *request) error {
	grace, err := openai.ParseRotateKey(r.Body, access.DefaultGrace, access.MaxGrace)
	if err != nil {
		return err
	}
	old, err := s.findKey(r)
	if err != nil {
		return err
	}
	if scope := access.Ungrantable(old.Scopes); scope != "" {
		return openai.ScopeNotAllowed("key_id", string(scope), texts(access.Grantable))
	}
	next, _, secret, err := access.Rotate(r.Context(), s.ports.KeyBook, old, r.caller.Key, grace, r.now)
	replaced, _ := errors.AsType[*access.ReplacedError](err)
	switch {
	case err == nil:
		return writeSecret(w, keyToWire(next, r.now), secret)
	case replaced != nil:
		return openai.KeyReplaced(old.ID(), replaced.By)
	case errors.Is(err, access.ErrDisabled):
		return openai.KeyNotActive(old.ID(), "disabled")
	case errors.Is(err, access.ErrExpired):
		return openai.KeyNotActive(old.ID(), "expired")
	case errors.Is(err, access.ErrNotFound):
		return openai.KeyNotFound(old.ID())
	}
	return badKey(err)
}

// findKey reads the key of the caller's tenant that the path names.
func (s *Server) findKey(r *request) (access.Key, error) {
	id := r.PathValue("id")
	k, err := s.ports.KeyBook.Find(r.Context(), r.caller.Tenant, id)
	if errors.Is(err, access.ErrNotFound) {
		return access.Key{}, openai.KeyNotFound(id)
	}
	return k, err
}

// writeSecret answers with a key and its secret, which nobody in between may keep.
func writeSecret(w http.ResponseWriter, k openai.APIKey, secret string) error {
	k.Secret = secret
	w.Header().Set("Cache-Control", "no-store")
	return openai.WriteJSON(w, http.StatusOK, k)
}

func keyToWire(k access.Key, now time.Time) openai.APIKey {
	w := openai.APIKey{
		ID: k.ID(), Object: "api_key", Tenant: k.Tenant, Principal: k.Principal, Scopes: texts(k.Scopes), Name: k.Name,
		Status: k.Status(now), CreatedAt: k.CreatedAt.Unix(), ExpiresAt: unixOrNull(k.ExpiresAt), DisabledAt: unixOrNull(k.DisabledAt),
		CreatedBy: textOrNull(k.CreatedBy), Replaces: textOrNull(k.Replaces), ReplacedBy: textOrNull(k.ReplacedBy),
	}
	if !k.LastUsed.IsZero() {
		w.LastUsedOn = textOrNull(k.LastUsed.UTC().Format(time.DateOnly))
	}
	return w
}

func texts(scopes []access.Scope) []string {
	out := make([]string, len(scopes))
	for i, s := range scopes {
		out[i] = string(s)
	}
	return out
}

func unixOrNull(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	seconds := t.Unix()
	return &seconds
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
