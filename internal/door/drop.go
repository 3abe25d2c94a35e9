package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// DropPorts are what the S3 door needs.
type DropPorts struct {
	Tenants  Tenants
	Inputs   Inputs
	Refusals Refusals
	Events   Events
	Dead     DeadLetters // for events that concern no tenant
}

// Drops is the S3 door: an object under in/<tenant>/ is a request of the tenant's.
// Safe for concurrent use.
type Drops struct {
	ports DropPorts
	site  Site
	o     Options
}

var _ bridge.Door = (*Drops)(nil)

// NewDrops returns the S3 door of an installation.
func NewDrops(p DropPorts, s Site, o *Options) *Drops { return &Drops{p, s, o.orDefault()} }

// Open makes a request of an event of EventBridge. What it refuses comes with as
// much of the request as Refuse needs: tenant, object and correlation id.
//
//	no event of S3, or another bucket's      refused; concerns no tenant
//	no new object, or not below in/          nothing
//	a folder's mark, a sidecar               nothing
//	below in/, but of no tenant's name       refused; concerns no tenant
//	the tenant's drop is off                 refused
//	gone before it was read, too old         refused
//	in an archive, under its owner's key     refused
//	empty, too large, not JSONL, bad wishes  refused
func (d *Drops) Open(ctx context.Context, l bridge.Letter, now time.Time) (bridge.Request, error) {
	ev, fault := readEvent(l.Body)
	if fault != nil {
		return bridge.Request{}, refused(fault)
	}
	o := ev.object()
	tenant, name, ok := tenantOf(o.Key)
	switch {
	case ev.DetailType != created:
		return bridge.Request{}, d.nothing(ctx, l, ev, "no new object")
	case o.Bucket != d.site.Inputs:
		return bridge.Request{}, refused(openai.Invalid("invalid_bucket", "bucket", "The object lies in the bucket %q, which isn't this installation's.", clip(o.Bucket, 100)))
	case !strings.HasPrefix(o.Key, folder):
		return bridge.Request{}, d.nothing(ctx, l, ev, "outside "+folder)
	case ev.folder(): // of a tenant or not
		return bridge.Request{}, d.nothing(ctx, l, ev, "a folder")
	case !ok:
		return bridge.Request{}, refused(openai.Invalid("invalid_key", "key", "The key lies in no tenant's folder; put it under %s<tenant>/.", folder))
	case strings.HasSuffix(name, sidecarEnd):
		return bridge.Request{}, d.nothing(ctx, l, ev, "a sidecar")
	}
	r := d.request(l, tenant, o)
	err := d.fill(ctx, &r, ev, name, now)
	return r, err
}

// request is a request for o, without what is to be found out.
func (d *Drops) request(l bridge.Letter, tenant string, o bridge.Object) bridge.Request {
	return bridge.Request{
		Tenant: tenant, CorrelationID: o.CorrelationID(), RequestID: l.ID,
		FileID: o.FileID(tenant), Object: &o, Service: d.site.Service,
	}
}

// fill finds out what the request is, in the order of what it costs.
func (d *Drops) fill(ctx context.Context, r *bridge.Request, ev event, name string, now time.Time) error {
	version, named := r.Object.Version, checkName(name)
	if version == "" {
		versions, err := d.ports.Inputs.Versions(ctx, r.Object.Bucket, r.Object.Key)
		switch {
		case err != nil && named != nil: // which version doesn't matter, and such a name is what lists can't hold
			return refused(named)
		case err != nil:
			return fmt.Errorf("look for the version of an event: %w", err)
		}
		found, ok := ev.among(versions)
		if !ok {
			return refused(gone(*r.Object))
		}
		version = found.Version
		// What is refused from here on is told of that version.
		r.CorrelationID, r.FileID, r.Object = found.CorrelationID(), found.FileID(r.Tenant), &found
	}
	if named != nil {
		return refused(named)
	}
	t, err := d.ports.Tenants.Get(ctx, r.Tenant, now)
	switch {
	case errors.Is(err, access.ErrNoTenant), err == nil && t.Drop == nil:
		return refused(openai.Invalid("drop_not_enabled", "", "The tenant %s has no drop: an operator switches it on with 'holdfast tenant drop enable %[1]s --principal WHO'; then put the object again.", r.Tenant))
	case err != nil:
		return fmt.Errorf("read tenant %s: %w", r.Tenant, err)
	}
	r.Submitter = t.Drop.Principal
	o, given, err := d.ports.Inputs.Head(ctx, r.Object.Bucket, r.Object.Key, version)
	switch fault := unreadable(err); {
	case errors.Is(err, batch.ErrNotFound), err == nil && ev.replaced(o):
		return refused(gone(bridge.Object{Version: version}))
	case fault != nil:
		return refused(fault)
	case err != nil:
		return fmt.Errorf("look at an object: %w", err)
	}
	r.CorrelationID, r.FileID, r.Object = o.CorrelationID(), o.FileID(r.Tenant), &o
	if len(r.CorrelationID) > bridge.MaxCorrelationID {
		return refused(openai.Invalid("invalid_key", "key", "The key is too long once escaped; choose a shorter name."))
	}
	if fault := d.site.expired(o, now); fault != nil {
		return refused(fault)
	}
	if fault := d.site.size(o, t.Limits.FileBytes); fault != nil {
		return refused(fault)
	}
	w, err := d.wishes(ctx, o, given, *t.Drop)
	if err != nil {
		return err
	}
	if fault := d.site.settle(r, w); fault != nil {
		return refused(fault)
	}
	begin, err := d.ports.Inputs.Peek(ctx, o, peekedBytes)
	switch fault := unreadable(err); {
	case errors.Is(err, batch.ErrNotFound):
		return refused(gone(o))
	case fault != nil:
		return refused(fault)
	case err != nil:
		return fmt.Errorf("look into an object: %w", err)
	}
	if fault := looksLikeJSONL(begin, int64(len(begin)) >= o.Bytes); fault != nil {
		return refused(fault)
	}
	return nil
}

// Same is bridge.Door.Same: an object is started once, whatever it is to be run with by
// now. Under its id there may be a row for something else: anybody of the tenant can use
// it as an idempotency key of theirs.
func (d *Drops) Same(_ bridge.Letter, r bridge.Request, found bridge.Row) bool {
	return r.Object != nil && found.Request.FileID == r.FileID
}

// nothing is bridge.ErrNothing, and says so to whoever wonders.
func (d *Drops) nothing(ctx context.Context, l bridge.Letter, ev event, why string) error {
	d.o.Log.LogAttrs(ctx, slog.LevelInfo, "object starts nothing", slog.String("message", l.ID),
		slog.String("object", clip(ev.Detail.Object.Key, 200)), slog.String("detail_type", clip(ev.DetailType, 100)), slog.String("why", why))
	return bridge.ErrNothing
}
