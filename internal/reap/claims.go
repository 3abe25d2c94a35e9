package reap

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Claims goes on with claims on correlation ids whose owners died: a
// [bridge.Bridge].
type Claims interface {
	// Resume is [bridge.Bridge.Resume].
	Resume(ctx context.Context, tenant, name string, now time.Time) (id string, err error)
}

var _ Claims = (*bridge.Bridge)(nil)

const (
	// tenantClaims and roundClaims are how many claims of a tenant, and of all, a
	// round deals with; each waits in a goroutine of its own. What is beyond is the
	// next round's: one that was stolen is due no more, whatever became of it.
	tenantClaims = 1_000
	roundClaims  = 10_000
	// tenantSubmits and roundSubmits are how many are under way at once. A submit may
	// hang for as long as it may take, which a write to the table doesn't; so
	// parts and batches have slots of their own, and no tenant can have all of these.
	tenantSubmits = 4
	roundSubmits  = 32
)

// claims are those that a round deals with, beside everything else.
type claims struct {
	wg    sync.WaitGroup
	slots chan struct{}

	mu      sync.Mutex
	tenants map[string]*claimant
	n       int // of all
}

type claimant struct {
	slots chan struct{}
	n     int
}

func newClaims() *claims {
	return &claims{slots: make(chan struct{}, roundSubmits), tenants: map[string]*claimant{}}
}

// take gives the tenant's slots for another claim; nil: the round has enough.
func (c *claims) take(tenant string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.tenants[tenant]
	if of == nil {
		of = &claimant{slots: make(chan struct{}, tenantSubmits)}
		c.tenants[tenant] = of
	}
	if of.n == tenantClaims || c.n == roundClaims {
		return nil
	}
	of.n++
	c.n++
	return of.slots
}

// claim deals with a claim as soon as there is a slot; not at all once time is up.
func (o *round) claim(row batch.Due) {
	slots := o.claims.take(row.Tenant)
	if slots == nil {
		o.count(func(r *Report) { r.More = true })
		return
	}
	o.claims.wg.Go(func() {
		// First the tenant's: who waits for one of those keeps no other's.
		for _, of := range []chan struct{}{slots, o.claims.slots} {
			of <- struct{}{} // whoever has one comes to an end
			defer func() { <-of }()
		}
		if !o.timeUp() {
			o.resume(row)
		}
	})
}

// resume has a claim's job started, unless somebody was faster. It ends with the
// round's time: a submit that is cut off there leaves its claim to a later round.
func (o *round) resume(row batch.Due) {
	now := o.clock()
	id, err := o.r.Claims.Resume(o.soft, row.Tenant, row.ID, now)
	attrs := []slog.Attr{slog.String("tenant", row.Tenant), slog.String("claim", row.ID), slog.String("batch", id), slog.Any("error", err)}
	switch {
	case err == nil && id == "":
	case err == nil:
		o.count(func(r *Report) { r.Resubmitted++ })
	case errors.Is(err, bridge.ErrLater):
		o.r.o.Log.LogAttrs(o.soft, slog.LevelInfo, "no room for it; left to a later round", attrs...)
	case errors.Is(err, bridge.ErrRefused):
		// Who asked may be gone, and hears of it no other way.
		o.count(func(r *Report) { r.Refused++ })
		o.tell(batch.RefusalOf(row.Tenant, id, err, now))
		o.r.o.Log.LogAttrs(o.soft, slog.LevelWarn, "refused, and its claim released", attrs...)
	default:
		o.count(func(r *Report) { r.Failed++ })
		o.r.o.Log.LogAttrs(o.soft, slog.LevelWarn, "left to a later round", attrs...)
	}
}
