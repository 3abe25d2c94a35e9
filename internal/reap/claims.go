package reap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Claims goes on with claims on correlation ids whose owners died: a
// [bridge.Bridge].
type Claims interface {
	// Service is [bridge.Bridge.Service].
	Service(ctx context.Context, tenant, name string, now time.Time) (string, error)
	// Resume is [bridge.Bridge.Resume].
	Resume(ctx context.Context, tenant, name string, now time.Time, refused func(ctx context.Context, id string, why error) error) (id string, err error)
}

var _ Claims = (*bridge.Bridge)(nil)

const (
	// tenantClaims and roundClaims are how many claims of a tenant, and of all, a
	// round deals with, of each service; each waits in a goroutine of its own. What is
	// beyond is the next round's: one that was stolen is due no more, whatever became of
	// it.
	tenantClaims = 1_000
	roundClaims  = 10_000
	// tenantSubmits and roundSubmits are how many are under way at once, of each service.
	// A submit may hang for as long as it may take, which a write to the table doesn't; so
	// parts and batches have slots of their own, no tenant can have all of these, and
	// another service that hangs holds up none of our own batches.
	tenantSubmits = 4
	roundSubmits  = 32
)

// claims are those that a round deals with, beside everything else.
type claims struct {
	wg sync.WaitGroup

	mu       sync.Mutex
	services map[string]*service
}

// service is whose jobs some claims are.
type service struct {
	slots   chan struct{}
	n       int // of all tenants
	tenants map[string]*claimant
}

type claimant struct {
	slots chan struct{}
	n     int
}

func newClaims() *claims { return &claims{services: map[string]*service{}} }

// take gives the slots for another claim, the tenant's and the service's; none: the
// round has enough.
func (c *claims) take(name, tenant string) []chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.services[name]
	if to == nil {
		to = &service{slots: make(chan struct{}, roundSubmits), tenants: map[string]*claimant{}}
		c.services[name] = to
	}
	of := to.tenants[tenant]
	if of == nil {
		of = &claimant{slots: make(chan struct{}, tenantSubmits)}
		to.tenants[tenant] = of
	}
	if of.n == tenantClaims || to.n == roundClaims {
		return nil
	}
	of.n++
	to.n++
	return []chan struct{}{of.slots, to.slots}
}

// claim finds out whose job a claim is, and has it dealt with as soon as there is a
// slot; not at all once time is up.
func (o *round) claim(row batch.Due) {
	name, err := o.r.Claims.Service(o.soft, row.Tenant, row.ID, o.clock())
	switch {
	case errors.Is(err, bridge.ErrUnserved):
		// It stays as it is, and due: who serves it finds it so.
		o.count(func(r *Report) { r.Left++ })
		o.r.o.Log.LogAttrs(o.soft, slog.LevelWarn, "stale claim of a service that isn't configured here",
			slog.String("tenant", row.Tenant), slog.String("claim", row.ID), slog.String("service", name))
		return
	case errors.Is(err, bridge.ErrNotFound):
		return
	case err != nil:
		o.left(row, "", err)
		return
	}
	slots := o.claims.take(name, row.Tenant)
	if slots == nil {
		o.count(func(r *Report) { r.More = true })
		return
	}
	o.claims.wg.Go(func() {
		// First the tenant's: who waits for one of those keeps no other's.
		for _, of := range slots {
			of <- struct{}{} // whoever has one comes to an end
			defer func() { <-of }()
		}
		if !o.timeUp() {
			o.resume(row)
		}
	})
}

// resume has a claim's job started, unless somebody was faster. It ends with the
// round's time: a submit that is cut off there leaves its claim to a later round. A
// panic is the claim's own: the round goes on.
func (o *round) resume(row batch.Due) {
	defer func() {
		if p := recover(); p != nil {
			o.count(func(r *Report) { r.Failed++ })
			// Its type only: what it says may quote the request.
			o.r.o.Log.LogAttrs(o.soft, slog.LevelError, "panic over a claim", slog.String("tenant", row.Tenant), slog.String("claim", row.ID),
				slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
		}
	}()
	now := o.clock()
	id, err := o.r.Claims.Resume(o.soft, row.Tenant, row.ID, now, func(ctx context.Context, id string, why error) error {
		// Who asked may be gone, and hears of it no other way. Not with the others at the
		// round's end: by then the claim is gone, and with it who would tell again.
		return o.r.Events.Record(ctx, batch.RefusalOf(row.Tenant, id, why, now))
	})
	attrs := []slog.Attr{slog.String("tenant", row.Tenant), slog.String("claim", row.ID), slog.String("batch", id), slog.Any("error", err)}
	switch {
	case err == nil && id == "":
	case err == nil:
		o.count(func(r *Report) { r.Resubmitted++ })
	case errors.Is(err, bridge.ErrLater):
		o.r.o.Log.LogAttrs(o.soft, slog.LevelInfo, "no room for it; left to a later round", attrs...)
	case errors.Is(err, bridge.ErrRefused):
		o.count(func(r *Report) { r.Refused++ })
		o.r.o.Log.LogAttrs(o.soft, slog.LevelWarn, "refused, and its claim released", attrs...)
	default:
		o.left(row, id, err)
	}
}

// left takes note of a claim that is a later round's.
func (o *round) left(row batch.Due, id string, err error) {
	o.count(func(r *Report) { r.Failed++ })
	o.r.o.Log.LogAttrs(o.soft, slog.LevelWarn, "left to a later round",
		slog.String("tenant", row.Tenant), slog.String("claim", row.ID), slog.String("batch", id), slog.Any("error", err))
}
