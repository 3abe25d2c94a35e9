package sim

import (
	"context"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// claims are Claims and Steals as one process sees them.
type claims struct{ p *process }

var (
	_ batch.Claims = claims{}
	_ batch.Steals = claims{}
)

// owned is a write by a claim's token.
func (c claims) owned(ctx context.Context, op string, k batch.Claim, do func(context.Context, *memory.Claims) error) error {
	_, err := c.taken(ctx, op, k, func(ctx context.Context, s *memory.Claims) (batch.Part, error) { return batch.Part{}, do(ctx, s) })
	return err
}

func (c claims) taken(ctx context.Context, op string, k batch.Claim, do func(context.Context, *memory.Claims) (batch.Part, error)) (batch.Part, error) {
	op = "Claims." + op
	return c.p.answer(write(ctx, c.p, op, func() (batch.Part, error) {
		return onPart(c.p, act{op: op, key: k.PartKey, token: k.Token}, func(ctx context.Context, t *memory.Table) (batch.Part, error) {
			return do(ctx, t.Claims)
		})
	}))
}

// answer is a part as the process gets it.
func (p *process) answer(got batch.Part, err error) (batch.Part, error) {
	if err != nil {
		return batch.Part{}, p.errOut(err)
	}
	return p.partOut(got), nil
}

func (c claims) Claim(ctx context.Context, k batch.Claim, task string, most int, until, now time.Time) (batch.Part, error) {
	return c.taken(ctx, "Claim", k, func(ctx context.Context, s *memory.Claims) (batch.Part, error) {
		return s.Claim(ctx, k, task, most, c.p.in(until), c.p.in(now))
	})
}

func (c claims) Steal(ctx context.Context, k batch.Claim, task string, ver int64, most int, cut, until, now time.Time) (batch.Part, error) {
	return c.taken(ctx, "Steal", k, func(ctx context.Context, s *memory.Claims) (batch.Part, error) {
		return s.Steal(ctx, k, task, ver, most, c.p.in(cut), c.p.in(until), c.p.in(now))
	})
}

func (c claims) Heartbeat(ctx context.Context, k batch.Claim, begun int, until, now time.Time) error {
	return c.owned(ctx, "Heartbeat", k, func(ctx context.Context, s *memory.Claims) error {
		return s.Heartbeat(ctx, k, begun, c.p.in(until), c.p.in(now))
	})
}

func (c claims) Suspect(ctx context.Context, k batch.Claim, x batch.Suspect, processed int, until, now time.Time) error {
	return c.owned(ctx, "Suspect", k, func(ctx context.Context, s *memory.Claims) error {
		return s.Suspect(ctx, k, x, processed, c.p.in(until), c.p.in(now))
	})
}

func (c claims) Checkpoint(ctx context.Context, k batch.Claim, x batch.Checkpoint, until, now time.Time) error {
	return c.owned(ctx, "Checkpoint", k, func(ctx context.Context, s *memory.Claims) error {
		return s.Checkpoint(ctx, k, x, c.p.in(until), c.p.in(now))
	})
}

func (c claims) Finish(ctx context.Context, k batch.Claim, lines int, now time.Time) error {
	return c.owned(ctx, "Finish", k, func(ctx context.Context, s *memory.Claims) error { return s.Finish(ctx, k, lines, c.p.in(now)) })
}

func (c claims) HandOver(ctx context.Context, k batch.Claim, attempts int, due, now time.Time) error {
	return c.owned(ctx, "HandOver", k, func(ctx context.Context, s *memory.Claims) error {
		return s.HandOver(ctx, k, attempts, c.p.in(due), c.p.in(now))
	})
}

func (c claims) Fail(ctx context.Context, k batch.Claim, reason string, due, now time.Time) error {
	return c.owned(ctx, "Fail", k, func(ctx context.Context, s *memory.Claims) error {
		return s.Fail(ctx, k, reason, c.p.in(due), c.p.in(now))
	})
}

// reaps are Reaps, Deaths and Seals as one process sees them.
type reaps struct{ p *process }

var (
	_ batch.Reaps  = reaps{}
	_ batch.Deaths = reaps{}
	_ batch.Seals  = reaps{}
)

// write is a write to a part by somebody who doesn't own it.
func (r reaps) write(ctx context.Context, op string, key batch.PartKey, do func(context.Context, *memory.Table) (batch.Part, error)) (batch.Part, error) {
	return r.p.answer(write(ctx, r.p, op, func() (batch.Part, error) { return onPart(r.p, act{op: op, key: key}, do) }))
}

func (r reaps) Reap(ctx context.Context, seen batch.Part, cut, due, now time.Time) (batch.Part, error) {
	return r.write(ctx, "Reaps.Reap", seen.PartKey, func(ctx context.Context, t *memory.Table) (batch.Part, error) {
		return t.Reaps.Reap(ctx, r.p.partIn(seen), r.p.in(cut), r.p.in(due), r.p.in(now))
	})
}

func (r reaps) Postpone(ctx context.Context, seen batch.Part, due, now time.Time) (batch.Part, error) {
	return r.write(ctx, "Reaps.Postpone", seen.PartKey, func(ctx context.Context, t *memory.Table) (batch.Part, error) {
		return t.Reaps.Postpone(ctx, r.p.partIn(seen), r.p.in(due), r.p.in(now))
	})
}

func (r reaps) Declare(ctx context.Context, seen batch.Part, most int, cut, grace, now time.Time) (batch.Part, error) {
	return r.write(ctx, "Deaths.Declare", seen.PartKey, func(ctx context.Context, t *memory.Table) (batch.Part, error) {
		return t.Deaths.Declare(ctx, r.p.partIn(seen), most, r.p.in(cut), r.p.in(grace), r.p.in(now))
	})
}

func (r reaps) Redrive(ctx context.Context, seen batch.Part, due, now time.Time) (batch.Part, error) {
	return r.write(ctx, "Deaths.Redrive", seen.PartKey, func(ctx context.Context, t *memory.Table) (batch.Part, error) {
		return t.Deaths.Redrive(ctx, r.p.partIn(seen), r.p.in(due), r.p.in(now))
	})
}

func (r reaps) Seal(ctx context.Context, key batch.PartKey, ver int64, now time.Time) (batch.Part, error) {
	return r.write(ctx, "Seals.Seal", key, func(ctx context.Context, t *memory.Table) (batch.Part, error) {
		return t.Seals.Seal(ctx, key, ver, r.p.in(now))
	})
}

func (r reaps) Due(ctx context.Context, q batch.DueQuery) (page batch.DuePage, err error) {
	q.From, q.Before = r.p.in(q.From), r.p.in(q.Before)
	err = r.p.faults.Around(ctx, "Reaps.Due", func() (err error) {
		page, err = r.p.w.stores.Table.Reaps.Due(ctx, q)
		return err
	})
	for i := range page.Rows {
		page.Rows[i].At = r.p.out(page.Rows[i].At)
	}
	return page, err
}

func (r reaps) Parts(ctx context.Context, keys []batch.PartKey) (got []batch.Part, err error) {
	err = r.p.faults.Around(ctx, "Reaps.Parts", func() (err error) {
		got, err = r.p.w.stores.Table.Reaps.Parts(ctx, keys)
		return err
	})
	for i := range got {
		got[i] = r.p.partOut(got[i])
	}
	return got, err
}

func (r reaps) Defer(ctx context.Context, tenant, id string, due, now time.Time) error {
	_, err := write(ctx, r.p, "Reaps.Defer", func() (batch.Batch, error) {
		return onBatch(r.p, act{op: "Reaps.Defer"}, tenant, id, func(ctx context.Context, t *memory.Table) (batch.Batch, error) {
			return batch.Batch{}, t.Reaps.Defer(ctx, tenant, id, r.p.in(due), r.p.in(now))
		})
	})
	return err
}

// act is a write as the judge is told of it.
type act struct {
	op     string
	key    batch.PartKey
	token  lease.Token  // under which it was made; "" for who needs none
	ending batch.Status // of Endings.End
}
