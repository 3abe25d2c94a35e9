package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// watched holds the submits to what the claim is for: no two whose time isn't over at
// once, and none just after one that ended in trouble.
type watched struct {
	bridge.Submitter
	w *town
}

func (s watched) Submit(ctx context.Context, id string, r bridge.Request, now time.Time) (string, error) {
	end, _ := ctx.Deadline()
	mine := &stint{ctx: ctx, dated: end.Add(-townSubmit)}
	s.w.mu.Lock()
	for _, other := range s.w.submits[id] {
		rested := other.ended.Add(10*time.Second - 2*townSkew)
		if alone := other.dated.Add(townStale - 2*townSkew); rested.After(alone) {
			rested = alone
		}
		switch {
		case ctx.Err() != nil || end.Before(time.Now()): // it comes to nothing
		case other.ended.IsZero() && other.ctx.Err() == nil:
			s.w.wrong = append(s.w.wrong, fmt.Sprintf("%s is submitted twice at once", id))
		case !other.ended.IsZero() && other.trouble && time.Now().Before(rested):
			s.w.wrong = append(s.w.wrong, fmt.Sprintf("%s is submitted %s after trouble", id, time.Since(other.ended)))
		}
	}
	s.w.submits[id] = append(s.w.submits[id], mine)
	s.w.mu.Unlock()
	job, err := s.Submitter.Submit(ctx, id, r, now)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	mine.ended, mine.trouble = time.Now(), err != nil && !errors.Is(err, bridge.ErrRefused)
	return job, err
}

// audited looks at a row before and after each write.
type audited struct {
	w     *town
	plain bridge.Store
	*memory.Faults
}

func (s audited) write(ctx context.Context, op string, k bridge.Key, tok lease.Token, do func() error) error {
	return s.Around(ctx, "Bridge."+op, func() error {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		before, was := s.w.mem.Table.Row(k.Tenant, k.CorrelationID)
		err := do()
		after, is := s.w.mem.Table.Row(k.Tenant, k.CorrelationID)
		switch changed := was && !reflect.DeepEqual(before, after); {
		case changed && (before.State == bridge.Confirmed || op == "Claim" || op != "Steal" && before.Token != tok):
			s.w.wrong = append(s.w.wrong, fmt.Sprintf("%s by %s made %+v\nof %+v", op, tok, after, before))
		case !was && is && op != "Claim":
			s.w.wrong = append(s.w.wrong, fmt.Sprintf("%s by %s made %+v of nothing", op, tok, after))
		}
		return err
	})
}

func (s audited) Claim(ctx context.Context, r bridge.Row) error {
	return s.write(ctx, "Claim", r.Key, r.Token, func() error { return s.plain.Claim(context.WithoutCancel(ctx), r) })
}

func (s audited) Steal(ctx context.Context, k bridge.Key, seen int64, cut time.Time, tok lease.Token, due, now time.Time) (r bridge.Row, err error) {
	err = s.write(ctx, "Steal", k, tok, func() (err error) {
		r, err = s.plain.Steal(context.WithoutCancel(ctx), k, seen, cut, tok, due, now)
		return err
	})
	return r, err
}

func (s audited) Confirm(ctx context.Context, k bridge.Key, tok lease.Token, job string, expires time.Time) error {
	return s.write(ctx, "Confirm", k, tok, func() error { return s.plain.Confirm(context.WithoutCancel(ctx), k, tok, job, expires) })
}

func (s audited) GiveBack(ctx context.Context, k bridge.Key, tok lease.Token, claimed time.Time) error {
	return s.write(ctx, "GiveBack", k, tok, func() error { return s.plain.GiveBack(context.WithoutCancel(ctx), k, tok, claimed) })
}

func (s audited) Release(ctx context.Context, k bridge.Key, tok lease.Token) error {
	return s.write(ctx, "Release", k, tok, func() error { return s.plain.Release(context.WithoutCancel(ctx), k, tok) })
}

func (s audited) Row(ctx context.Context, tenant, name string) (r bridge.Row, err error) {
	err = s.Around(ctx, "Bridge.Row", func() (err error) { r, err = s.plain.Row(context.WithoutCancel(ctx), tenant, name); return err })
	return r, err
}

// townDoor reads letters of an id and a file.
type townDoor struct {
	w *town
	p *resident
}

func (d townDoor) Open(_ context.Context, l bridge.Letter, _ time.Time) (bridge.Request, error) {
	id, file, _ := strings.Cut(string(l.Body), " ")
	b, was := d.w.mem.Table.Batch("acme", bridge.BatchID("acme", id))
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.were[l.Receipt] = was && b.Input.FileID == file
	return townRequest(id, file), nil
}

func (d townDoor) Same(bridge.Letter, bridge.Request, bridge.Row) bool { return false }

func (d townDoor) Refuse(ctx context.Context, l bridge.Letter, r bridge.Request, why error, _ time.Time) error {
	return d.p.Around(ctx, "Door.Refuse", func() error {
		d.w.mu.Lock()
		was := d.w.were[l.Receipt]
		d.w.mu.Unlock()
		d.w.told(r, "", why, was)
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		d.w.words[l.ID] = true
		return nil
	})
}
