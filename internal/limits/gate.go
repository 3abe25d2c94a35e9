package limits

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

const (
	// comeAgain is what a refused client is told to wait. When a batch ends nobody
	// knows; official clients heed up to a minute.
	comeAgain = 30 * time.Second
	// refusedFor is how long a refusal holds without another look, in this process:
	// a client that doesn't wait costs nothing.
	refusedFor = 3 * time.Second
	// lag is how long after its creation a batch is looked for again, whatever was
	// seen: the index may lag, and clocks differ.
	lag = time.Minute
	// beyond is how long after its window a batch may be open still: drained,
	// assembled, waiting for a redrive.
	beyond = 24 * time.Hour
	// maxParts is the most parts that one decision looks at, some 10 MB. Lines of the
	// others count as waiting.
	maxParts = 10_000
	// maxKept bounds the memory: tenants of which something is remembered.
	maxKept = 1024
)

// Gate decides whether a batch may be created. Safe for concurrent use.
type Gate struct {
	tenants Tenants
	batches Batches
	parts   batch.Parts
	span    time.Duration

	mu   sync.Mutex
	kept map[string]kept
}

// kept is what this process remembers of a tenant.
type kept struct {
	floor time.Time // what was created before is over: nothing over is ever opened again

	refusal *openai.Error // nil: none
	limits  access.Limits // that it was refused by
	at      time.Time
}

// New returns a Gate. longest is the longest completion window that is offered.
func New(t Tenants, b Batches, p batch.Parts, longest time.Duration) *Gate {
	return &Gate{tenants: t, batches: b, parts: p, span: longest + beyond, kept: map[string]kept{}}
}

// Admit is batch.CreatorOptions.Admit: an *openai.Error where the tenant's limits
// leave no room for r, whose input is f. The batch of r's own id, should it be there
// already, takes up none. Any other error is a port's trouble.
func (g *Gate) Admit(ctx context.Context, r batch.Request, f batch.File, now time.Time) error {
	l, err := g.tenants.Limits(ctx, r.Tenant, now)
	switch {
	case err != nil:
		return fmt.Errorf("limits of %s: %w", r.Tenant, err)
	case l.FileBytes > 0 && f.Object.Bytes > l.FileBytes:
		e := openai.FileTooLarge(l.FileBytes)
		e.Param = "input_file_id"
		return e
	case l.RunningBatches <= 0 && l.QueuedLines <= 0:
		return nil
	}
	if e := g.refused(r.Tenant, l, now); e != nil {
		return e
	}
	open, err := g.open(ctx, r.Tenant, now)
	if err != nil {
		return fmt.Errorf("look for the batches of %s: %w", r.Tenant, err)
	}
	open = slices.DeleteFunc(open, func(o Open) bool { return o.ID == r.ID })
	if l.RunningBatches > 0 && len(open) >= l.RunningBatches {
		return g.refuse(r.Tenant, l, openai.RunningLimit(l.RunningBatches, comeAgain), now)
	}
	full, err := g.full(ctx, r.Tenant, open, l.QueuedLines)
	if err != nil {
		return fmt.Errorf("count the lines of %s: %w", r.Tenant, err)
	}
	if full {
		return g.refuse(r.Tenant, l, openai.EnqueuedLimit(int(l.QueuedLines), comeAgain), now)
	}
	return nil
}

// open is what the tenant has running. What was over at the last look needs no other.
func (g *Gate) open(ctx context.Context, tenant string, now time.Time) ([]Open, error) {
	recent := now.Add(-lag)
	since := now.Add(-g.span)
	if floor := g.recall(tenant).floor; floor.After(since) {
		since = floor
	}
	if since.After(recent) {
		since = recent // a clock that was set back
	}
	open, err := g.batches.Open(ctx, tenant, since)
	if err != nil {
		return nil, err
	}
	floor := recent
	for _, o := range open {
		if o.CreatedAt.Before(floor) {
			floor = o.CreatedAt
		}
	}
	g.change(tenant, func(k *kept) { k.floor = floor })
	return open, nil
}

// full reports whether as many lines as the limit (0: none) wait already. Parts are
// looked at only if it depends on them, and as few as will tell: those of the oldest
// batch first, which is the furthest.
func (g *Gate) full(ctx context.Context, tenant string, open []Open, limit int64) (bool, error) {
	if limit <= 0 {
		return false, nil
	}
	var waiting int64
	for _, o := range open {
		waiting += o.Lines
	}
	if waiting < limit {
		return false, nil
	}
	looked := 0
	for _, o := range slices.Backward(open) {
		if o.Lines == 0 {
			continue
		}
		for p, err := range g.parts.All(ctx, tenant, o.ID) {
			if err != nil {
				return false, err
			}
			waiting -= int64(p.Processed)
			if waiting < limit {
				return false, nil
			}
			if looked++; looked == maxParts {
				return true, nil
			}
		}
	}
	return true, nil
}

// refused is the refusal of a moment ago, if the limits are as they were.
func (g *Gate) refused(tenant string, l access.Limits, now time.Time) error {
	k := g.recall(tenant)
	age := now.Sub(k.at)
	if k.refusal == nil || k.limits != l || age < 0 || age >= refusedFor {
		return nil
	}
	return k.refusal
}

func (g *Gate) refuse(tenant string, l access.Limits, e *openai.Error, now time.Time) error {
	// By the wall clock: the other one stands still while Lambda has a function frozen,
	// and a refusal would hold for as long after.
	g.change(tenant, func(k *kept) { k.refusal, k.limits, k.at = e, l, now.Round(0) })
	return e
}

func (g *Gate) recall(tenant string) kept {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kept[tenant]
}

func (g *Gate) change(tenant string, do func(*kept)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, there := g.kept[tenant]
	if !there && len(g.kept) >= maxKept {
		for one := range g.kept { // any one: it costs its next look more
			delete(g.kept, one)
			break
		}
	}
	do(&k)
	g.kept[tenant] = k
}
