package reap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holdfast/internal/batch"
)

// Scope narrows a round.
type Scope struct {
	Tenant string // "": every tenant, and the dead letters
}

// Round looks once at everything that is due, until nothing is left or the time
// of ctx is nearly up (the Report's More then; the next round goes on: what was
// done is no longer due). Trouble with one item is counted, logged and left to
// the next round. The error is that of a shard or queue that could not be read;
// the Report says what was done nevertheless.
func (r *Reaper) Round(ctx context.Context, scope Scope, now time.Time) (Report, error) {
	began := time.Now()
	soft, cancel := r.soft(ctx)
	defer cancel()
	o := &round{
		r: r, soft: soft, scope: scope, slots: make(chan struct{}, r.o.Parallel), views: map[viewKey]*view{},
		shares: newShares(), claims: newClaims(),
		clock: func() time.Time { return now.Add(time.Since(began)) },
	}
	var wg sync.WaitGroup
	errs := make([]error, 2*batch.DueShards+1)
	for n := range batch.DueShards {
		wg.Go(func() { errs[2*n] = o.shard(ctx, batch.DueQuery{Shard: n, Before: now, Limit: r.o.Page}) })
		wg.Go(func() { errs[2*n+1] = o.shard(ctx, batch.DueQuery{Shard: n, Before: now, Limit: r.o.Page, Dead: true}) })
	}
	if r.Letters != nil && scope.Tenant == "" {
		wg.Go(func() { errs[len(errs)-1] = o.letters(ctx) })
	}
	wg.Wait()
	o.rest(ctx)
	o.claims.wg.Wait()
	o.flush(ctx)
	err := errors.Join(errs...)
	r.observe(o.report, scope)
	r.o.Log.LogAttrs(ctx, slog.LevelInfo, "round over", slog.Any("report", o.report), slog.Duration("took", time.Since(began)))
	return o.report, err
}

// Look looks at one batch now, whatever the index says: something was heard of
// its execution. batch.ErrNotFound.
func (r *Reaper) Look(ctx context.Context, tenant, id string, now time.Time) (Report, error) {
	o := &round{r: r, soft: ctx, turn: batch.OutOfTurn, clock: func() time.Time { return now }}
	ctx = batch.WithSubject(ctx, tenant, id)
	err := o.batch(ctx, tenant, id)
	o.flush(ctx)
	return o.report, err
}

// soft ends when nothing more is to be begun. What is under way then has the
// margin to come to its end in: a write whose message isn't sent costs minutes.
func (r *Reaper) soft(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-r.o.Margin))
}

// round is one round under way.
type round struct {
	r     *Reaper
	soft  context.Context
	turn  batch.Turn
	scope Scope
	slots chan struct{} // writes
	// shares and claims are of a round over the index.
	shares *shares
	claims *claims
	clock  func() time.Time

	mu     sync.Mutex
	report Report
	events []batch.Event // to be recorded
	views  map[viewKey]*view
}

// shard goes through what is due in one shard, page by page.
func (o *round) shard(ctx context.Context, q batch.DueQuery) error {
	for {
		if o.timeUp() {
			return nil
		}
		page, err := o.r.Reaps.Due(ctx, q)
		if err != nil {
			return fmt.Errorf("read shard %d of what is due: %w", q.Shard, err)
		}
		o.page(ctx, page.Rows)
		if page.Next == "" {
			return nil
		}
		q.After = page.Next
	}
}

// timeUp reports whether nothing more is to be begun, which the report then says.
func (o *round) timeUp() bool {
	if o.soft.Err() == nil {
		return false
	}
	o.count(func(r *Report) { r.More = true })
	return true
}

// page deals with a page's rows: batches one by one, parts many at once, as far as
// their shares go. Claims are only begun.
func (o *round) page(ctx context.Context, rows []batch.Due) {
	var (
		wg    sync.WaitGroup
		parts []batch.PartKey
	)
	for _, row := range rows {
		switch {
		case o.scope.Tenant != "" && row.Tenant != o.scope.Tenant:
		case row.Kind == batch.DuePart:
			parts = append(parts, row.PartKey())
		case row.Kind == batch.DueBatch:
			o.begin(&wg, func() {
				ctx := batch.WithSubject(ctx, row.Tenant, row.ID)
				o.failed(ctx, batch.PartKey{Tenant: row.Tenant, Batch: row.ID, N: batch.NoPart}, o.batch(ctx, row.Tenant, row.ID))
			})
		case row.Kind == batch.DueBridge && o.r.Claims != nil:
			o.begin(&wg, func() { o.claim(row) })
		default:
			o.count(func(r *Report) { r.Left++ })
		}
	}
	parts, full := o.shares.take(parts)
	if full {
		o.count(func(r *Report) { r.More = true })
	}
	for some := range slices.Chunk(parts, batch.MaxParts) {
		o.lot(ctx, some)
	}
	wg.Wait()
	o.flush(ctx)
}

// begin runs do beside others, as soon as there is a slot; not at all once time is
// up.
func (o *round) begin(wg *sync.WaitGroup, do func()) {
	o.slots <- struct{}{} // whoever has one comes to an end
	if o.timeUp() {
		<-o.slots
		return
	}
	wg.Go(func() {
		defer func() { <-o.slots }()
		do()
	})
}

func (o *round) count(f func(*Report)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.report)
}

// failed takes note of what became of one item. That it is gone, or that somebody
// was faster, is no failure: the index was old.
func (o *round) failed(ctx context.Context, k batch.PartKey, err error) {
	for _, fine := range []error{batch.ErrNotFound, batch.ErrStale, batch.ErrOver, batch.ErrAlive, batch.ErrStatus} {
		if errors.Is(err, fine) {
			return
		}
	}
	if err == nil {
		return
	}
	o.count(func(r *Report) { r.Failed++ })
	attrs := []slog.Attr{slog.String("tenant", k.Tenant), slog.String("batch", k.Batch), slog.Any("error", err)}
	if k.N != batch.NoPart {
		attrs = append(attrs, slog.Int("part", k.N))
	}
	o.r.o.Log.LogAttrs(ctx, slog.LevelWarn, "left to the next round", attrs...)
}

// tell notes an event for flush. It comes after the fact and decides nothing.
func (o *round) tell(e batch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// flush records what was told, many events at once: a round may give back
// thousands of parts.
func (o *round) flush(ctx context.Context) {
	o.mu.Lock()
	events := o.events
	o.events = nil
	o.mu.Unlock()
	if len(events) > 0 {
		o.r.record(ctx, events...)
	}
}

func (r *Reaper) record(ctx context.Context, events ...batch.Event) {
	if err := r.Events.RecordAll(ctx, events); err != nil {
		r.o.Log.LogAttrs(ctx, slog.LevelWarn, "events not recorded", slog.Int("events", len(events)), slog.Any("error", err))
	}
}
