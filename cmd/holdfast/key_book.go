package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/openai"
)

// keyBook is where keys are managed: the table, or the API. A key is named by its
// id; hash is given too where its secret was, else it is "".
type keyBook interface {
	create(ctx context.Context, want access.Key, now time.Time) (made keyRecord, secret string, err error)
	list(ctx context.Context, now time.Time) ([]keyRecord, error)
	disable(ctx context.Context, id, hash string, now time.Time) (keyRecord, error)
	rotate(ctx context.Context, id, hash string, grace time.Duration, now time.Time) (made keyRecord, secret string, err error)
}

// keyRecord is a key as --json prints it, whichever way it was come by.
type keyRecord struct {
	Secret     string     `json:"secret,omitempty"`
	ID         string     `json:"id"`
	Tenant     string     `json:"tenant"`
	Principal  string     `json:"principal"`
	Scopes     []string   `json:"scopes"`
	Name       string     `json:"name"`
	Status     string     `json:"status"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	DisabledAt *time.Time `json:"disabled_at"`
	LastUsedOn *string    `json:"last_used_on"`
	CreatedBy  *string    `json:"created_by"`
	Replaces   *string    `json:"replaces"`
	ReplacedBy *string    `json:"replaced_by"`
}

// openKeys is where keys are kept, with the AWS credentials at hand.
func openKeys(ctx context.Context, table string) (access.Store, error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	return dynamo.Open(cfg, table).Keys, nil
}

// tableKeys are a tenant's keys in the table: the operator's way.
type tableKeys struct {
	a      *app
	store  access.Store
	table  string
	tenant string
}

func (t *tableKeys) create(ctx context.Context, want access.Key, now time.Time) (keyRecord, string, error) {
	key, secret, err := access.New(want, now)
	if err != nil {
		return keyRecord{}, "", usage("See holdfast key create --help.", "the key won't do: %v", err)
	}
	if err := t.store.Put(ctx, key); err != nil {
		return keyRecord{}, "", t.trouble("store the key", err)
	}
	return fromKey(key, now), secret, nil
}

func (t *tableKeys) list(ctx context.Context, now time.Time) ([]keyRecord, error) {
	all := []keyRecord{}
	for after, more := "", true; more; {
		page, next, err := t.store.List(ctx, t.tenant, after, access.MaxKeys)
		if err != nil {
			return nil, t.trouble("list keys", err)
		}
		for _, k := range page {
			all = append(all, fromKey(k, now))
			after = k.ID()
		}
		more = next
	}
	return all, nil
}

func (t *tableKeys) disable(ctx context.Context, id, hash string, now time.Time) (keyRecord, error) {
	k, err := t.find(ctx, id, hash)
	if err == nil {
		k, err = t.store.Disable(ctx, t.tenant, k.Hash, now)
	}
	if err != nil {
		return keyRecord{}, t.trouble("disable the key", err)
	}
	return fromKey(k, now), nil
}

func (t *tableKeys) rotate(ctx context.Context, id, hash string, grace time.Duration, now time.Time) (keyRecord, string, error) {
	old, err := t.find(ctx, id, hash)
	var next access.Key
	var secret string
	if err == nil {
		next, _, secret, err = access.Rotate(ctx, t.store, old, "", grace, now)
	}
	if err != nil {
		return keyRecord{}, "", t.trouble("rotate the key", err)
	}
	return fromKey(next, now), secret, nil
}

// find reads a key by its hash if that is known: then one that no list shows yet is
// found too. Whoever found a secret can't know whose it is, so that another tenant's
// is told.
func (t *tableKeys) find(ctx context.Context, id, hash string) (access.Key, error) {
	if hash == "" {
		return t.store.Find(ctx, t.tenant, id)
	}
	k, err := t.store.Get(ctx, hash)
	if err == nil && k.Tenant != t.tenant {
		return access.Key{}, failed("If it is the one you mean: --tenant "+k.Tenant, access.ErrNotFound,
			"the tenant %s has no such key: %s is a key of the tenant %s", t.tenant, id, k.Tenant)
	}
	return k, err
}

// trouble words what the table says.
func (t *tableKeys) trouble(doing string, err error) error {
	replaced, _ := errors.AsType[*access.ReplacedError](err)
	field, _ := errors.AsType[*access.FieldError](err)
	if f, told := errors.AsType[*failure](err); told {
		return f
	}
	switch {
	case errors.Is(err, context.Canceled) && doing == "store the key":
		return failed("", err, "interrupted; the key may exist, but its secret is gone")
	case errors.Is(err, context.Canceled):
		return failed("", err, "interrupted; look at holdfast key list what came of it")
	case errors.Is(err, access.ErrNotFound):
		return failed("holdfast key list --tenant "+t.tenant+" shows the ids. One that was made within the last second may not be found yet.", err,
			"can't %s: the tenant %s has no such key", doing, t.tenant)
	case replaced != nil:
		return failed("If the secret was lost, rotate that one.", err, "can't %s: it was rotated into %s already", doing, replaced.By)
	case errors.Is(err, access.ErrDisabled), errors.Is(err, access.ErrExpired):
		return failed("Make a new one: holdfast key create", err, "can't %s: %v", doing, rootOf(err))
	case field != nil: // one of an older release, which no key of today may be like
		return failed("Make a new one: holdfast key create", err, "can't %s: its %v", doing, field)
	}
	return t.a.tableTrouble(t.table, doing, err)
}

// rootOf is what a sentinel says, without who passed it on.
func rootOf(err error) error {
	for _, e := range []error{access.ErrDisabled, access.ErrExpired} {
		if errors.Is(err, e) {
			return e
		}
	}
	return err
}

func fromKey(k access.Key, now time.Time) keyRecord {
	r := keyRecord{
		ID: k.ID(), Tenant: k.Tenant, Principal: k.Principal, Name: k.Name, Status: k.Status(now), CreatedAt: k.CreatedAt,
		ExpiresAt: timeOrNull(k.ExpiresAt), DisabledAt: timeOrNull(k.DisabledAt),
		CreatedBy: textOrNull(k.CreatedBy), Replaces: textOrNull(k.Replaces), ReplacedBy: textOrNull(k.ReplacedBy),
	}
	for _, s := range k.Scopes {
		r.Scopes = append(r.Scopes, string(s))
	}
	if !k.LastUsed.IsZero() {
		r.LastUsedOn = textOrNull(k.LastUsed.Format(time.DateOnly))
	}
	return r
}

// apiKeys are the keys of an admin key's tenant, through the API.
type apiKeys struct{ c *client }

func (k *apiKeys) create(ctx context.Context, want access.Key, _ time.Time) (keyRecord, string, error) {
	body := map[string]any{"principal": want.Principal, "name": want.Name, "scopes": want.Scopes}
	if !want.ExpiresAt.IsZero() {
		body["expires_at"] = want.ExpiresAt.Unix()
	}
	return k.post(ctx, "make a key", "/v1/admin/keys", body)
}

func (k *apiKeys) list(ctx context.Context, _ time.Time) ([]keyRecord, error) {
	keys, err := list[openai.APIKey](ctx, k.c, "/v1/admin/keys", 0)
	if err != nil {
		return nil, k.c.trouble("list keys", err)
	}
	all := make([]keyRecord, len(keys))
	for i, w := range keys {
		all[i] = fromWire(w)
	}
	return all, nil
}

func (k *apiKeys) disable(ctx context.Context, id, _ string, _ time.Time) (keyRecord, error) {
	r, _, err := k.post(ctx, "disable the key", "/v1/admin/keys/"+url.PathEscape(id)+"/disable", map[string]any{})
	return r, err
}

func (k *apiKeys) rotate(ctx context.Context, id, _ string, grace time.Duration, _ time.Time) (keyRecord, string, error) {
	return k.post(ctx, "rotate the key", "/v1/admin/keys/"+url.PathEscape(id)+"/rotate", map[string]any{"grace_seconds": int64(grace / time.Second)})
}

// post asks once: a second key, made because an answer was lost, would be one that
// nobody knows of.
func (k *apiKeys) post(ctx context.Context, doing, path string, body map[string]any) (keyRecord, string, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return keyRecord{}, "", failed("", err, "%s: %v", doing, err)
	}
	var w openai.APIKey
	if err := k.c.post(ctx, path, "application/json", bytes.NewReader(b), int64(len(b)), &w); err != nil {
		return keyRecord{}, "", k.trouble(doing, err)
	}
	return fromWire(w), w.Secret, nil
}

// trouble is the client's, and says where a key may be there although its answer, and
// the secret with it, never came.
func (k *apiKeys) trouble(doing string, err error) error {
	told := k.c.trouble(doing, err)
	if !mayBeDone(err) {
		return told
	}
	return alsoHint(told, "It may have been done all the same. Look at holdfast key list --api: rotate or disable a key whose secret nobody has.")
}

func fromWire(w openai.APIKey) keyRecord {
	r := keyRecord{
		ID: w.ID, Tenant: w.Tenant, Principal: w.Principal, Scopes: w.Scopes, Name: w.Name, Status: w.Status, CreatedAt: time.Unix(w.CreatedAt, 0).UTC(),
		LastUsedOn: w.LastUsedOn, CreatedBy: w.CreatedBy, Replaces: w.Replaces, ReplacedBy: w.ReplacedBy,
	}
	if w.ExpiresAt != nil {
		r.ExpiresAt = timeOrNull(time.Unix(*w.ExpiresAt, 0).UTC())
	}
	if w.DisabledAt != nil {
		r.DisabledAt = timeOrNull(time.Unix(*w.DisabledAt, 0).UTC())
	}
	return r
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
