package limits

import (
	"context"
	"time"

	"holdfast/internal/access"
)

// Open is a batch that isn't over.
type Open struct {
	ID        string
	CreatedAt time.Time
	// Lines is how many it has, with a result or without, while it is in progress and
	// nobody has decided how it ends; else 0: not known yet, or not to be begun any more.
	Lines int64
}

// Batches finds what a tenant has running. Its suite is in storetest.
type Batches interface {
	// Open gives the tenant's batches that are not terminal, of those created at or
	// after since, newest first. It is eventually consistent: one of the last second
	// may be missing, or be as it was. Where there are more than 10,000 of any status,
	// older ones may be left out.
	Open(ctx context.Context, tenant string, since time.Time) ([]Open, error)
}

// Tenants knows limits. *access.TenantCache is one.
type Tenants interface {
	// Limits are the tenant's, which may be up to a minute old; none where it has no
	// record.
	Limits(ctx context.Context, tenant string, now time.Time) (access.Limits, error)
}
