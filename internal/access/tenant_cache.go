package access

import (
	"context"
	"errors"
	"time"
)

// TenantCacheOptions adjust a TenantCache. The zero value works.
type TenantCacheOptions struct {
	TTL  time.Duration // how long a record is believed; 30 s by default, 60 s at most
	Off  time.Duration // how long a switch is believed to be off; 5 s by default, TTL at most
	Size int           // tenants kept; 1,024 by default
}

// TenantCache reads a tenant's record at most once per TTL, so that each object
// of a flood doesn't cost a read. What it may not be is late: who is told that a
// door is closed is told for good (an object gets its error object, and nobody
// delivers it again), and an operator opens a door and then tries it. So "there
// is no record" and "its drop is off" are believed for Off alone. They are kept
// for as long as that because a stranger may put objects under any name: a
// thousand of them in one folder are one read, too. A name that is none costs
// nothing at all. Safe for concurrent use.
type TenantCache struct {
	store    Tenants
	ttl, off time.Duration
	tenants  *memo[*Tenant] // nil: there is none
	owed     debts          // reads that Pace has spared
}

// NewTenantCache returns an empty cache over store.
func NewTenantCache(store Tenants, opts *TenantCacheOptions) *TenantCache {
	ttl, off, size := 30*time.Second, 5*time.Second, 1024
	if opts != nil && opts.TTL > 0 {
		ttl = min(opts.TTL, maxTTL)
	}
	if opts != nil && opts.Off > 0 {
		off = opts.Off
	}
	if opts != nil && opts.Size > 0 {
		size = opts.Size
	}
	return &TenantCache{store, ttl, min(off, ttl), newMemo[*Tenant](size), debts{most: size}}
}

// Get is the record as it was at most TTL ago. ErrNoTenant, or the store's own
// trouble, which is not kept.
func (c *TenantCache) Get(ctx context.Context, name string, now time.Time) (Tenant, error) {
	if CheckTenant(name) != nil {
		return Tenant{}, ErrNoTenant
	}
	if t, ok := c.tenants.lookup(name, now); ok {
		if t == nil {
			return Tenant{}, ErrNoTenant
		}
		return t.Clone(), nil
	}
	t, err := c.store.Get(ctx, name)
	switch {
	case errors.Is(err, ErrNoTenant):
		c.keep(name, nil, now)
		return Tenant{}, ErrNoTenant
	case err != nil:
		return Tenant{}, err
	}
	c.keep(name, &t, now)
	return t.Clone(), nil
}
