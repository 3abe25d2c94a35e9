package memory

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

// Reaps is batch.Reaps over a Table.
type Reaps struct{ port }

var _ batch.Reaps = (*Reaps)(nil)

// Reap is batch.Reaps.Reap.
func (s *Reaps) Reap(ctx context.Context, seen batch.Part, cut, due, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Reaps.Reap", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(seen.PartKey)
		if err != nil {
			return batch.Part{}, err
		}
		if s.rules.must("C11.leased", p.State == batch.Leased) &&
			s.rules.must("C11.seen", p.Ver == seen.Ver) &&
			s.rules.must("C11.lapsed", p.LeaseUntil.Before(millis(cut))) {
			p = given(lapse(p), due)
			return s.writePart(p), nil
		}
		if s.rules.own("C11.own",
			s.rules.must("C11.own.pending", p.State == batch.Pending) &&
				s.rules.must("C11.own.ver", p.Ver == seen.Ver+1) &&
				s.rules.must("C11.own.lapses", p.Lapses == seen.Lapses+1)) {
			return p, nil
		}
		return batch.Part{}, fmt.Errorf("reap part %d of %s, which is %s: %w", p.N, p.Batch, p.State, batch.ErrStale)
	})
}

// Postpone is batch.Reaps.Postpone.
func (s *Reaps) Postpone(ctx context.Context, seen batch.Part, due, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Reaps.Postpone", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(seen.PartKey)
		if err != nil {
			return batch.Part{}, err
		}
		if s.rules.must("postpone.pending", p.State == batch.Pending) && s.rules.must("postpone.seen", p.Ver == seen.Ver) {
			p.Due, p.Resends = due, seen.Resends+1
			return s.writePart(p), nil
		}
		if s.rules.own("postpone.own",
			s.rules.must("postpone.own.pending", p.State == batch.Pending) &&
				s.rules.must("postpone.own.ver", p.Ver == seen.Ver+1) &&
				s.rules.must("postpone.own.resends", p.Resends == seen.Resends+1)) {
			return p, nil
		}
		return batch.Part{}, fmt.Errorf("postpone part %d of %s, which is %s: %w", p.N, p.Batch, p.State, batch.ErrStale)
	})
}

// Defer is batch.Reaps.Defer.
func (s *Reaps) Defer(ctx context.Context, tenant, id string, due, now time.Time) error {
	return effect(ctx, s.faults, "Reaps.Defer", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return err
		}
		if !s.rules.must("defer.open", !b.Status.Terminal()) {
			return refused("defer", b)
		}
		b.Due = due
		b.Ver-- // the write adds one, and this one leaves it as it is
		s.write(b)
		return nil
	})
}

// Parts is batch.Reaps.Parts.
func (s *Reaps) Parts(ctx context.Context, keys []batch.PartKey) ([]batch.Part, error) {
	return call(ctx, s.faults, "Reaps.Parts", func() (found []batch.Part, err error) {
		if len(keys) > batch.MaxParts {
			return nil, fmt.Errorf("read %d parts: at most %d", len(keys), batch.MaxParts)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range keys {
			if p, err := s.part(k); err == nil {
				found = append(found, p)
			}
		}
		return found, nil
	})
}

// row is one row of the due index, with what orders it.
type row struct {
	batch.Due
	pk, sk string
	dead   bool
}

func (r row) cursor() string { return fmt.Sprintf("%020d %s %s", r.At.UnixMilli(), r.pk, r.sk) }

// Due is batch.Reaps.Due.
func (s *Reaps) Due(ctx context.Context, q batch.DueQuery) (batch.DuePage, error) {
	return call(ctx, s.faults, "Reaps.Due", func() (batch.DuePage, error) {
		if q.Shard < 0 || q.Shard >= batch.DueShards || q.Limit < 1 || q.Limit > batch.MaxDue {
			return batch.DuePage{}, fmt.Errorf("due: shard %d and limit %d are not within 0-%d and 1-%d", q.Shard, q.Limit, batch.DueShards-1, batch.MaxDue)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var page batch.DuePage
		for _, r := range s.dueRows(q) {
			if len(page.Rows) == q.Limit {
				return page, nil
			}
			page.Rows, page.Next = append(page.Rows, r.Due), r.cursor()
		}
		page.Next = ""
		return page, nil
	})
}

// dueRows is what q selects, the most overdue first.
func (i *items) dueRows(q batch.DueQuery) (rows []row) {
	add := func(r row) {
		h := fnv.New32a()
		h.Write([]byte(r.pk + "\x00" + r.sk))
		switch {
		case r.At.IsZero() || r.dead != q.Dead || int(h.Sum32()%batch.DueShards) != q.Shard:
		case !q.Before.IsZero() && !r.At.Before(millis(q.Before)), r.At.Before(millis(q.From)):
		case r.cursor() <= q.After:
		default:
			rows = append(rows, r)
		}
	}
	for n, b := range i.batches {
		add(row{batch.Due{Kind: batch.DueBatch, Tenant: n.tenant, ID: n.id, At: b.Due}, "T#" + n.tenant + "#" + n.id, "META", false})
	}
	for n, parts := range i.parts {
		for _, p := range parts {
			add(row{batch.Due{Kind: batch.DuePart, Tenant: n.tenant, ID: n.id, Part: p.N, At: p.Due}, "T#" + n.tenant + "#" + n.id, fmt.Sprintf("PART#%08d", p.N), p.State == batch.Dead})
		}
	}
	for k, r := range i.bridges {
		named := k.Name()
		add(row{batch.Due{Kind: batch.DueBridge, Tenant: k.Tenant, ID: named, At: r.Due}, "BR#" + k.Tenant + "#" + named, "BR", false})
	}
	for n, f := range i.files {
		add(row{batch.Due{Kind: batch.DueFile, Tenant: n.tenant, ID: n.id, At: f.ExpiresAt}, "F#" + n.tenant, n.id, false})
	}
	for n, u := range i.uploads {
		if u.Status == upload.Cancelled || u.Status == upload.Completed {
			continue
		}
		add(row{batch.Due{Kind: batch.DueUpload, Tenant: n.tenant, ID: n.id, At: millis(u.ExpiresAt)}, "U#" + n.tenant, n.id, false})
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.cursor(), b.cursor()) })
	return rows
}
