package door

import (
	"context"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Tenants knows which tenants' drops are switched on. access.TenantCache is one.
type Tenants interface {
	// Get reads a record, which may be up to a minute old. access.ErrNoTenant.
	Get(ctx context.Context, name string, now time.Time) (access.Tenant, error)
}

// Inputs looks at objects of the inputs bucket, which keeps versions. Errors
// other than those named, and batch.ErrArchived and batch.ErrCustomerKey of an object
// whose bytes nobody here will get, are trouble of the moment.
type Inputs interface {
	// Head tells what is stored under this version, or under the newest where
	// version is "", and the metadata that its owner gave it, by lower-case name
	// without prefix. The object's version is never "". batch.ErrNotFound, also
	// where the version is a delete marker.
	Head(ctx context.Context, bucket, key, version string) (bridge.Object, map[string]string, error)
	// Versions lists the versions of this very key, the newest first, at most
	// 1,000 of them. Delete markers are none. None is no error.
	Versions(ctx context.Context, bucket, key string) ([]bridge.Object, error)
	// Peek reads the first most bytes of an object, or all where it has fewer: of
	// the version named, else of the newest. batch.ErrNotFound.
	Peek(ctx context.Context, o bridge.Object, most int64) ([]byte, error)
}

// Refusals takes error objects. batch.Objects is one.
type Refusals interface {
	// Put is batch.Objects.Put.
	Put(ctx context.Context, o batch.Object, data []byte) (batch.Object, error)
}

// Events takes what happened. batch.Events is one.
type Events interface {
	// Record is batch.Events.Record.
	Record(ctx context.Context, e batch.Event) error
}

// DeadLetters keeps messages that nothing came of for people to look at.
type DeadLetters interface {
	// Send keeps the body as it is, with code and reason beside it. What of these
	// two doesn't fit, or can't be sent, is left out or shown as '?', never a
	// reason to fail. Sent twice it is kept twice.
	Send(ctx context.Context, body []byte, code, reason string) error
}
