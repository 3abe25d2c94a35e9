package access_test

import (
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/frozen"
)

// A function that was frozen for a while believes nothing longer than one that ran.
func TestFrozen(t *testing.T) {
	began := time.Now()
	const minute = time.Minute
	store := &counting{}
	k, secret, err := access.New(good, began)
	if err == nil {
		err = store.Put(t.Context(), k)
	}
	if err != nil {
		t.Fatal(err)
	}
	header := "Bearer " + secret
	cache := access.NewCache(store, &access.CacheOptions{WrongKeys: 1})
	if got := shown(t, store, cache, header, "192.0.2.1", began); got != "in" {
		t.Fatal(got)
	}
	k.DisabledAt = began
	store.keys[k.Hash] = k
	if got := shown(t, store, cache, header, "192.0.2.1", frozen.Thawed(t, began, minute)); got != "read" {
		t.Errorf("a key that was disabled a minute ago: %s", got)
	}

	reg := newRegistry(access.Tenant{Name: "acme", Limits: access.Limits{RunningBatches: 1}})
	tenants := access.NewTenantCache(reg, nil)
	if l, err := tenants.Limits(t.Context(), "acme", began); err != nil || l.RunningBatches != 1 {
		t.Fatal(l, err)
	}
	reg.set(access.Tenant{Name: "acme"})
	if l, err := tenants.Limits(t.Context(), "acme", frozen.Thawed(t, began, minute)); err != nil || l.RunningBatches != 0 {
		t.Errorf("a limit that was lifted a minute ago: %+v, %v", l, err)
	}

	shown(t, store, cache, guess(t), "192.0.2.2", began)
	if got := shown(t, store, cache, guess(t), "192.0.2.2", frozen.Thawed(t, began, minute)); got != "read" {
		t.Errorf("a source that has waited for a minute: %s", got)
	}

	var rates access.Rates
	rates.Take("acme", 1, began)
	if wait := rates.Take("acme", 1, frozen.Thawed(t, began, minute)); wait != 0 {
		t.Errorf("a tenant that has waited for a minute waits %v", wait)
	}

	refusals := access.NewRefusals(1)
	refusals.Count("key_a", began)
	if wait := refusals.Wait("key_a", frozen.Thawed(t, began, minute)); wait != 0 {
		t.Errorf("a key that has waited for a minute waits %v", wait)
	}
}
