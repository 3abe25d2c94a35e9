package reap

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// lot deals with parts that are due, at most batch.MaxParts: it reads them in one
// call, and their messages go out by the ten.
//
// A part that was given back has its message sent after the write: before, a
// worker could come and find it still held. One whose message is overdue is
// postponed after that is sent. Dying in between costs a copy of the message in
// the one case, and a few minutes in the other.
func (o *round) lot(ctx context.Context, keys []batch.PartKey) {
	parts, err := o.r.Reaps.Parts(ctx, keys)
	if err != nil {
		for _, k := range keys {
			o.failed(ctx, k, err)
		}
		return
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		send    []batch.Message
		overdue []batch.Part
	)
	for _, p := range parts {
		if !o.due(p) {
			continue // the index was old
		}
		o.begin(&wg, func() {
			ctx := batch.WithSubject(ctx, p.Tenant, p.Batch)
			after, err := o.part(ctx, p)
			o.failed(ctx, p.PartKey, err)
			mu.Lock()
			defer mu.Unlock()
			if after == sendNow || after == sendFirst {
				send = append(send, batch.MessageOf(p))
			}
			if after == sendFirst {
				overdue = append(overdue, p)
			}
		})
	}
	wg.Wait()
	if len(send) == 0 {
		return
	}
	if err := o.r.Queue.SendAll(ctx, send); err != nil {
		o.failed(ctx, keys[0], err)
		return // they are due still, or again soon
	}
	for _, p := range overdue {
		// Time that is up doesn't matter here: the message is out.
		o.slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-o.slots }()
			ctx := batch.WithSubject(ctx, p.Tenant, p.Batch)
			o.failed(ctx, p.PartKey, o.resent(ctx, p))
		})
	}
	wg.Wait()
}

// due reports whether there is something to do about p now.
func (o *round) due(p batch.Part) bool {
	now := o.clock()
	switch p.State {
	case batch.Leased:
		// A lease that ended just now is believed for as long as two clocks may differ.
		return p.LeaseUntil.Before(lease.Cut(now, o.r.o.Skew))
	case batch.Pending, batch.Dead:
		return !p.Due.IsZero() && !p.Due.After(now)
	}
	return false
}

// after says what becomes of a part's message.
type after int

const (
	sendNone after = iota
	sendNow
	sendFirst // and then the part is postponed
)

// part deals with one part that is due.
func (o *round) part(ctx context.Context, p batch.Part) (after, error) {
	now := o.clock()
	if p.State == batch.Dead {
		return sendNone, o.bury(ctx, p, now)
	}
	v, err := o.view(ctx, p.PartKey)
	switch {
	case err != nil:
		return sendNone, err
	case v.over():
		// A planning that died left it behind, and the file was refused after that.
		return sendNone, o.seal(ctx, p, now, "its batch is over")
	case v.running() && o.r.exhausted(p):
		return sendNone, o.declare(ctx, p, now)
	case p.State == batch.Leased:
		if err := o.reap(ctx, p, now); err != nil || !v.running() {
			return sendNone, err
		}
		return sendNow, nil
	case v.running() && o.sent(ctx, v, p):
		return sendFirst, nil
	}
	// It has no message yet, or is to be sealed soon.
	_, err = o.r.Reaps.Postpone(ctx, p, now.Add(o.r.o.Overdue), now)
	return sendNone, err
}

// exhausted reports whether p may be claimed no more.
func (r *Reaper) exhausted(p batch.Part) bool {
	return p.Attempts >= r.o.MaxAttempts && p.Suspect.None()
}

// reap gives back what a worker left without a word (C11).
func (o *round) reap(ctx context.Context, p batch.Part, now time.Time) error {
	reaped, err := o.r.Reaps.Reap(ctx, p, lease.Cut(now, o.r.o.Skew), now.Add(o.r.o.Resend), now)
	if err != nil {
		return fmt.Errorf("reap part %d: %w", p.N, err)
	}
	o.count(func(r *Report) { r.Reaped++ })
	o.lapsed(p, reaped)
	return nil
}

// lapsed tells of a lease that ended without its holder's word.
func (o *round) lapsed(before, after batch.Part) {
	o.r.o.Observer.Add(batch.MetricLeaseExpired, 1)
	o.r.o.Observer.Add(batch.MetricRepeats, float64(after.Repeats-before.Repeats))
	o.tell(batch.Event{
		Tenant: before.Tenant, Batch: before.Batch, Part: before.N, At: before.LeaseUntil, Ver: after.Ver,
		Kind: batch.EventLeaseExpired, Owner: before.Owner, Attempt: before.Attempts,
	})
}

// resent postpones a part whose message was just sent again: nobody has come with
// it for so long that it may be lost.
func (o *round) resent(ctx context.Context, p batch.Part) error {
	now := o.clock()
	o.count(func(r *Report) { r.Resent++ })
	later, err := o.r.Reaps.Postpone(ctx, p, now.Add(o.r.wait(p)), now)
	if err != nil {
		return fmt.Errorf("postpone part %d: %w", p.N, err)
	}
	o.tell(batch.Event{
		Tenant: p.Tenant, Batch: p.Batch, Part: p.N, At: now, Ver: later.Ver, Kind: batch.EventResent,
	})
	return nil
}

// longestWait bounds the wait between two messages, in Overdues.
const longestWait = 4

// wait is how long the message that was just sent may stay unseen.
func (r *Reaper) wait(p batch.Part) time.Duration {
	first := r.o.Overdue
	if p.Lapses > 0 {
		first = r.o.Resend
	}
	return min(first<<min(p.Resends+1, 16), longestWait*r.o.Overdue)
}

// declare ends the attempts at a part (C12). It waits for a redrive from then on.
func (o *round) declare(ctx context.Context, p batch.Part, now time.Time) error {
	dead, err := o.r.Deaths.Declare(ctx, p, o.r.o.MaxAttempts, lease.Cut(now, o.r.o.Skew), now.Add(o.r.o.DeadGrace), now)
	if err != nil {
		return fmt.Errorf("declare part %d dead: %w", p.N, err)
	}
	o.count(func(r *Report) { r.Dead++ })
	o.r.o.Log.LogAttrs(ctx, slog.LevelError, "part is dead", slog.String("tenant", p.Tenant), slog.String("batch", p.Batch),
		slog.Int("part", p.N), slog.Int("attempts", p.Attempts), slog.String("reason", p.LastError))
	if p.State == batch.Leased {
		o.lapsed(p, dead)
	}
	o.tell(batch.DeathOf(dead))
	return nil
}

// headStart is how long a message that goes ahead of a seal is held back.
const headStart = time.Minute

// bury closes a dead part that nobody redrove in time: its lines end as part_dead.
// A message goes ahead: should we die before the workflow is told, that one finds
// the part sealed and tells it. Without it the workflow would wait for hours.
func (o *round) bury(ctx context.Context, p batch.Part, now time.Time) error {
	if err := o.r.Queue.Send(ctx, batch.MessageOf(p), headStart); err != nil {
		return fmt.Errorf("send a message ahead of the seal of part %d: %w", p.N, err)
	}
	return o.seal(ctx, p, now, "dead, and not redriven in time")
}

// seal closes a part for good (C13) and tells its workflow.
func (o *round) seal(ctx context.Context, p batch.Part, now time.Time, why string) error {
	sealed, err := o.r.Seals.Seal(ctx, p.PartKey, p.Ver, now)
	if err != nil {
		return fmt.Errorf("seal part %d: %w", p.N, err)
	}
	o.count(func(r *Report) { r.Sealed++ })
	o.tell(batch.Event{
		Tenant: p.Tenant, Batch: p.Batch, Part: p.N, At: now, Ver: sealed.Ver, Kind: batch.EventSealed, Reason: why,
	})
	if err := o.r.Workflow.Report(ctx, p.TaskToken); err != nil {
		return fmt.Errorf("report part %d: %w", p.N, err)
	}
	return nil
}
