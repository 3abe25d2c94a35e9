package sim

import (
	"context"
	"iter"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// batches are Batches and Endings as one process sees them.
type batches struct{ p *process }

var (
	_ batch.Batches = batches{}
	_ batch.Endings = batches{}
)

// write is a write to a batch that answers with it.
func (s batches) write(ctx context.Context, a act, tenant, id string, do func(context.Context, *memory.Table) (batch.Batch, error)) (batch.Batch, error) {
	got, err := write(ctx, s.p, a.op, func() (batch.Batch, error) { return onBatch(s.p, a, tenant, id, do) })
	if err != nil {
		return batch.Batch{}, s.p.errOut(err)
	}
	return s.p.batchOut(got), nil
}

func (s batches) Create(ctx context.Context, b batch.Batch) error {
	_, err := s.write(ctx, act{op: "Batches.Create"}, b.Tenant, b.ID, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return batch.Batch{}, t.Batches.Create(ctx, s.p.batchIn(b))
	})
	return err
}

func (s batches) Get(ctx context.Context, tenant, id string) (got batch.Batch, err error) {
	err = s.p.faults.Around(ctx, "Batches.Get", func() (err error) {
		got, err = s.p.w.stores.Table.Batches.Get(ctx, tenant, id)
		return err
	})
	if err != nil {
		return batch.Batch{}, err
	}
	return s.p.batchOut(got), nil
}

func (s batches) List(ctx context.Context, tenant, after string, limit int) ([]batch.Batch, bool, error) {
	return s.p.w.stores.Table.Batches.List(ctx, tenant, after, limit)
}

func (s batches) Reading(ctx context.Context, tenant, file string, since time.Time) (string, error) {
	return s.p.w.stores.Table.Batches.Reading(ctx, tenant, file, s.p.in(since))
}

func (s batches) Start(ctx context.Context, tenant, id string, x batch.Started, now time.Time) (batch.Batch, error) {
	return s.write(ctx, act{op: "Batches.Start"}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return t.Batches.Start(ctx, tenant, id, x, s.p.in(now))
	})
}

func (s batches) Refuse(ctx context.Context, tenant, id string, why []openai.BatchError, now time.Time) (batch.Batch, error) {
	return s.write(ctx, act{op: "Batches.Refuse"}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return t.Batches.Refuse(ctx, tenant, id, why, s.p.in(now))
	})
}

func (s batches) Overrun(ctx context.Context, tenant, id string, now time.Time) (batch.Batch, error) {
	return s.write(ctx, act{op: "Batches.Overrun"}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return t.Batches.Overrun(ctx, tenant, id, s.p.in(now))
	})
}

func (s batches) End(ctx context.Context, tenant, id string, ending batch.Status, now time.Time) (batch.Batch, error) {
	return s.write(ctx, act{op: "Endings.End", ending: ending}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return t.Endings.End(ctx, tenant, id, ending, s.p.in(now))
	})
}

func (s batches) Finalize(ctx context.Context, tenant, id string, tok lease.Token, until, cut, now time.Time) (batch.Batch, error) {
	return s.write(ctx, act{op: "Endings.Finalize", token: tok}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return t.Endings.Finalize(ctx, tenant, id, tok, s.p.in(until), s.p.in(cut), s.p.in(now))
	})
}

func (s batches) Hold(ctx context.Context, tenant, id string, tok lease.Token, until, now time.Time) error {
	_, err := s.write(ctx, act{op: "Endings.Hold", token: tok}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return batch.Batch{}, t.Endings.Hold(ctx, tenant, id, tok, s.p.in(until), s.p.in(now))
	})
	return err
}

func (s batches) Advance(ctx context.Context, tenant, id string, tok lease.Token, x batch.Progress, until, now time.Time) error {
	_, err := s.write(ctx, act{op: "Endings.Advance", token: tok}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return batch.Batch{}, t.Endings.Advance(ctx, tenant, id, tok, x, s.p.in(until), s.p.in(now))
	})
	return err
}

func (s batches) Close(ctx context.Context, tenant, id string, tok lease.Token, c batch.Closed, now time.Time) (batch.Batch, error) {
	return s.write(ctx, act{op: "Endings.Close", token: tok}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
		return t.Endings.Close(ctx, tenant, id, tok, c, s.p.in(now))
	})
}

// parts are Parts as one process sees them.
type parts struct{ p *process }

var _ batch.Parts = parts{}

func (s parts) Insert(ctx context.Context, all []batch.Part) error {
	own := make([]batch.Part, len(all))
	for i, x := range all {
		own[i] = s.p.partIn(x)
	}
	_, err := write(ctx, s.p, "Parts.Insert", func() (struct{}, error) { return struct{}{}, s.p.w.insert(s.p, own) })
	return err
}

func (s parts) Get(ctx context.Context, key batch.PartKey) (got batch.Part, err error) {
	err = s.p.faults.Around(ctx, "Parts.Get", func() (err error) {
		got, err = s.p.w.stores.Table.Parts.Get(ctx, key)
		return err
	})
	return s.p.partOut(got), err
}

func (s parts) All(ctx context.Context, tenant, id string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		var all []batch.Part
		err := s.p.faults.Around(ctx, "Parts.All", func() error {
			all = s.p.w.stores.Table.PartsOf(tenant, id)
			return nil
		})
		if err != nil {
			yield(batch.Part{}, err)
			return
		}
		for _, x := range all {
			if !yield(s.p.partOut(x), nil) {
				return
			}
		}
	}
}

// files are Files as one process sees them.
type files struct{ p *process }

var _ batch.Files = files{}

func (s files) store() *memory.Files { return s.p.w.stores.Table.With(s.p.faults).Files }

func (s files) Put(ctx context.Context, f batch.File) error {
	f.CreatedAt, f.ExpiresAt = s.p.in(f.CreatedAt), s.p.in(f.ExpiresAt)
	return s.store().Put(ctx, f)
}

func (s files) Get(ctx context.Context, tenant, id string) (batch.File, error) {
	f, err := s.store().Get(ctx, tenant, id)
	f.CreatedAt, f.ExpiresAt = s.p.out(f.CreatedAt), s.p.out(f.ExpiresAt)
	return f, err
}

func (s files) List(ctx context.Context, tenant string, q batch.FileQuery, now time.Time) ([]batch.File, bool, error) {
	return s.store().List(ctx, tenant, q, s.p.in(now))
}

func (s files) Delete(ctx context.Context, tenant, id string, now time.Time) error {
	return s.store().Delete(ctx, tenant, id, s.p.in(now))
}

// events are Events as one process sees them.
type events struct{ p *process }

var _ batch.Events = events{}

func (s events) store() *memory.Events { return s.p.w.stores.Table.With(s.p.faults).Events }

func (s events) Record(ctx context.Context, e batch.Event) error {
	e.At = s.p.in(e.At)
	return s.store().Record(ctx, e)
}

func (s events) RecordAll(ctx context.Context, all []batch.Event) error {
	own := make([]batch.Event, len(all))
	for i, e := range all {
		e.At = s.p.in(e.At)
		own[i] = e
	}
	return s.store().RecordAll(ctx, own)
}

func (s events) List(ctx context.Context, tenant, id, after string, limit int) ([]batch.Event, bool, error) {
	return s.store().List(ctx, tenant, id, after, limit)
}
