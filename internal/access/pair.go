package access

import (
	"context"
	"errors"
	"time"
)

// Pairs reads a key and a tenant's record at once.
type Pairs interface {
	// Pair reads the key with this hash and the record of the tenant of this name in
	// one call, both strongly consistent. ErrNotFound where there is no such key. A
	// tenant without a record is the zero Tenant.
	Pair(ctx context.Context, hash, tenant string) (Key, Tenant, error)
}

// get reads a key. Whoever shows a key is asked for the limits of its tenant next,
// and a key that was seen before says which that is: where its record has to be read
// anew too, one call reads both.
func (c *Cache) get(ctx context.Context, hash string, now time.Time) (Key, error) {
	seen, ok := c.keys.last(hash)
	if c.pairs == nil || !ok || c.tenants.fresh(seen.Tenant, now) {
		return c.store.Get(ctx, hash)
	}
	k, t, err := c.pairs.Pair(ctx, hash, seen.Tenant)
	if err != nil {
		return Key{}, err
	}
	c.tenants.learn(seen.Tenant, t, now)
	return k, nil
}

// Limits are the tenant's, as they were at most TTL ago; none where it has no
// record.
func (c *TenantCache) Limits(ctx context.Context, name string, now time.Time) (Limits, error) {
	t, err := c.Get(ctx, name, now)
	if errors.Is(err, ErrNoTenant) {
		return Limits{}, nil
	}
	return t.Limits, err
}

// Pace is Limits for a request of the caller's that counts as name's, and costs it
// no second read: where the table was read for its key just now, what was known of
// the tenant holds once more, however old, and one that this process knows nothing
// of has no limits yet. That will do for requests a minute, which each process counts
// for itself from nothing; what a request is refused for by its own size or kind is
// asked of Limits.
func (c *TenantCache) Pace(ctx context.Context, caller Caller, name string, now time.Time) (Limits, error) {
	if !caller.read {
		return c.Limits(ctx, name, now)
	}
	if t, ok := c.tenants.last(name); ok && t != nil {
		return t.Limits, nil
	}
	return Limits{}, nil
}

// AfterRead is the caller of a request for which the table was read already: see
// [TenantCache.Pace].
func (c Caller) AfterRead() Caller {
	c.read = true
	return c
}

// fresh reports whether Get would answer without a read.
func (c *TenantCache) fresh(name string, now time.Time) bool {
	_, ok := c.tenants.lookup(name, now)
	return ok
}

// learn keeps a record that was read at now; the zero Tenant: there is none.
func (c *TenantCache) learn(name string, t Tenant, now time.Time) {
	if t.Ver == 0 {
		c.keep(name, nil, now)
		return
	}
	c.keep(name, &t, now)
}

// keep keeps what was read of a tenant for as long as it may be believed.
func (c *TenantCache) keep(name string, t *Tenant, now time.Time) {
	ttl := c.ttl
	if t == nil || t.Drop == nil {
		ttl = c.off
	}
	c.tenants.keep(name, t, now, ttl)
}
