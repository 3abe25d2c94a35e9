package reap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holdfast/internal/batch"
)

// MaxDead is the most dead parts that are listed at once.
const MaxDead = batch.MaxParts

// Place is where a dead part stands among those of its tenant: by the end of its
// grace, then batch and number. The zero value is before them all.
type Place struct {
	At    time.Time // in whole milliseconds
	Batch string
	Part  int
}

func (p Place) compare(other Place) int {
	return cmp.Or(p.At.Compare(other.At), cmp.Compare(p.Batch, other.Batch), cmp.Compare(p.Part, other.Part))
}

// PlaceOf is p's place.
func PlaceOf(p batch.Part) Place { return Place{p.Due, p.Batch, p.N} }

// Dead lists a tenant's dead parts, those first whose grace ends first, from the
// one behind after; at most limit (1 to MaxDead), and whether there are more.
// Eventually consistent; a part that was redriven or sealed a moment ago is left
// out.
func (r *Reaper) Dead(ctx context.Context, tenant string, after Place, limit int) (page []batch.Part, more bool, err error) {
	if limit < 1 || limit > MaxDead {
		return nil, false, fmt.Errorf("dead parts: limit %d is not within 1-%d", limit, MaxDead)
	}
	// A page whose parts were all redriven meanwhile would look like the last.
	for more = true; more && len(page) == 0; {
		var places []Place
		if places, more, err = r.places(ctx, tenant, after, limit); err != nil || len(places) == 0 {
			break
		}
		after = places[len(places)-1]
		keys := make([]batch.PartKey, len(places))
		for i, p := range places {
			keys[i] = batch.PartKey{Tenant: tenant, Batch: p.Batch, N: p.Part}
		}
		if page, err = r.Reaps.Parts(ctx, keys); err != nil {
			break
		}
		page = slices.DeleteFunc(page, func(p batch.Part) bool { return p.State != batch.Dead })
	}
	if err != nil {
		return nil, false, fmt.Errorf("dead parts: %w", err)
	}
	slices.SortFunc(page, func(a, b batch.Part) int { return PlaceOf(a).compare(PlaceOf(b)) })
	return page, more, nil
}

// places are the tenant's first behind after, at most limit.
func (r *Reaper) places(ctx context.Context, tenant string, after Place, limit int) (all []Place, more bool, err error) {
	var found [batch.DueShards][]Place
	var errs [batch.DueShards]error
	var wg sync.WaitGroup
	for n := range batch.DueShards {
		wg.Go(func() { found[n], errs[n] = r.deadIn(ctx, n, tenant, after, limit+1) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, false, err
	}
	all = slices.Concat(found[:]...)
	slices.SortFunc(all, Place.compare)
	return all[:min(len(all), limit)], len(all) > limit, nil
}

// deadIn finds the first places of one shard that are the tenant's and behind
// after.
func (r *Reaper) deadIn(ctx context.Context, shard int, tenant string, after Place, most int) (found []Place, err error) {
	q := batch.DueQuery{Shard: shard, Dead: true, From: after.At, Limit: batch.MaxDue}
	for {
		page, err := r.Reaps.Due(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Rows {
			p := Place{row.At, row.ID, row.Part}
			if row.Kind == batch.DuePart && row.Tenant == tenant && p.compare(after) > 0 {
				found = append(found, p)
			}
		}
		// Rows of one instant come in an order of their own: all of them are needed
		// before the first can be told.
		if page.Next == "" || len(found) >= most && len(page.Rows) > 0 && page.Rows[len(page.Rows)-1].At.After(found[most-1].At) {
			return found, nil
		}
		q.After = page.Next
	}
}

// Redrive brings a dead part back (C14) and sends its message; the answer is the
// part as it then is. Errors are those of [batch.Deaths].Redrive: ErrNotFound,
// ErrAlive, ErrOver, ErrStatus, ErrStale.
func (r *Reaper) Redrive(ctx context.Context, k batch.PartKey, now time.Time) (batch.Part, error) {
	ctx = batch.WithSubject(ctx, k.Tenant, k.Batch)
	p, err := r.Parts.Get(ctx, k)
	if err != nil {
		return batch.Part{}, fmt.Errorf("redrive part %d of %s: %w", k.N, k.Batch, err)
	}
	driven, err := r.Deaths.Redrive(ctx, p, now.Add(r.o.Resend), now)
	if err != nil {
		return batch.Part{}, fmt.Errorf("redrive part %d of %s: %w", k.N, k.Batch, err)
	}
	r.record(ctx, batch.Event{
		Tenant: k.Tenant, Batch: k.Batch, Part: k.N, At: now, Ver: driven.Ver, Kind: batch.EventRedriven,
	})
	if err := r.Queue.Send(ctx, batch.MessageOf(driven), 0); err != nil {
		// It is done all the same: the part is due again in some minutes.
		r.o.Log.LogAttrs(ctx, slog.LevelWarn, "redriven, but its message was not sent", slog.String("tenant", k.Tenant),
			slog.String("batch", k.Batch), slog.Int("part", k.N), slog.Any("error", err))
	}
	return driven, nil
}
