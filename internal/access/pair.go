package access

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Pairs reads a key and a tenant's record at once.
type Pairs interface {
	// Pair reads the key with this hash and the record of the tenant of this name in
	// one call, both strongly consistent. ErrNotFound where there is no such key. A
	// tenant without a record is the zero Tenant; "" is none, and asks for none.
	Pair(ctx context.Context, hash, tenant string) (Key, Tenant, error)
}

// get reads a key. Whoever shows a key is asked for the limits of its tenant next,
// and a key that was seen before says which that is: where its record has to be read
// anew too, one call reads both. One that was never seen is read with the tenant of
// which Pace spared a read last, for it may well be that one's. by reads it in any
// case where it is given.
func (c *Cache) get(ctx context.Context, hash string, now time.Time, by Pairs) (Key, error) {
	tenant := c.record(hash, now)
	if by == nil {
		if by = c.pairs; by == nil || tenant == "" {
			return c.store.Get(ctx, hash)
		}
	}
	k, t, err := by.Pair(ctx, hash, tenant)
	if err != nil {
		return Key{}, err
	}
	if tenant != "" {
		c.tenants.Learn(tenant, t, now)
	}
	return k, nil
}

// record is the tenant whose record is to be read with the key; "": nobody's.
func (c *Cache) record(hash string, now time.Time) string {
	if c.tenants == nil {
		return ""
	}
	seen, known := c.keys.last(hash)
	tenant := seen.Tenant
	if !known {
		tenant, known = c.tenants.owed.newest()
	}
	if !known || c.tenants.Fresh(tenant, now) {
		return ""
	}
	return tenant
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

// Pace is Limits for a request of the caller's that counts as name's, and spares it
// a second read where it can: where the table was read for its key just now, and what
// is known of the tenant is too old, one request goes by that all the same, or by no
// limits where nothing is known. The tenant's next one reads, whatever its own key
// cost: who has many keys that no process has seen, or shows them rarely, gets past a
// limit once and no more often. That will do for requests a minute, which each process
// counts for itself from nothing; what a request is refused for by its own size or kind
// is asked of Limits.
func (c *TenantCache) Pace(ctx context.Context, caller Caller, name string, now time.Time) (Limits, error) {
	if !caller.read || CheckTenant(name) != nil || c.Fresh(name, now) {
		return c.Limits(ctx, name, now)
	}
	if !c.owed.add(name) {
		return c.Limits(ctx, name, now)
	}
	if t, ok := c.tenants.last(name); ok && t != nil {
		return t.Limits, nil
	}
	return Limits{}, nil
}

// Fresh reports whether Get would answer without a read.
func (c *TenantCache) Fresh(name string, now time.Time) bool {
	_, ok := c.tenants.lookup(name, now)
	return ok
}

// Learn keeps a record that was read at now, strongly consistent, by somebody else's
// call; the zero Tenant: there is none. Not for what was asked for by a wrong key.
func (c *TenantCache) Learn(name string, t Tenant, now time.Time) {
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
	c.owed.settle(name)
}

// debts are names of tenants, of each of which one read was spared since the last. Safe
// for concurrent use.
type debts struct {
	most int // the oldest makes room

	mu    sync.Mutex
	names []string // the newest last
}

// add reports whether the name was not there yet.
func (d *debts) add(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.names, name) {
		return false
	}
	if len(d.names) >= d.most {
		d.names = slices.Delete(d.names, 0, 1)
	}
	d.names = append(d.names, name)
	return true
}

func (d *debts) settle(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.names, name); i >= 0 {
		d.names = slices.Delete(d.names, i, i+1)
	}
}

// newest is the name that was added last; false where there is none.
func (d *debts) newest() (name string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.names) == 0 {
		return "", false
	}
	return d.names[len(d.names)-1], true
}
