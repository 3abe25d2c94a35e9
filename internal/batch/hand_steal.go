package batch

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/lease"
)

// seize claims the part (C5) or, where its holder went without a word, steals it
// (C6). t.robbed is the holder it was stolen from; nil: it was free.
func (h *hand) seize(t *taken) error {
	r, o := h.s.r, &h.s.r.o
	until := t.now.Add(o.Lease)
	err := h.s.call(h.ctx, func(ctx context.Context) (err error) {
		t.part, err = r.Claims.Claim(ctx, h.claim, h.d.TaskToken, o.MaxAttempts, until, t.now)
		return err
	})
	if err == nil {
		// After a steal whose answer was lost this is where it is found out that it
		// was made. The version tells it from a claim of a part that was given back
		// in between.
		if t.robbed != nil && t.part.Ver != t.robbed.Ver+1 {
			t.robbed = nil
		}
		return nil
	}
	held, isHeld := errors.AsType[*HeldError](err)
	cut := lease.Cut(t.now, o.Skew).Truncate(time.Millisecond) // as leases are stored
	if !isHeld || !held.Until.Before(cut) {
		return err
	}
	t.robbed = held
	err = h.s.call(h.ctx, func(ctx context.Context) (err error) {
		t.part, err = r.Steals.Steal(ctx, h.claim, h.d.TaskToken, held.Ver, o.MaxAttempts, cut, until, t.now)
		return err
	})
	if err == nil && t.part.Ver != held.Ver+1 {
		// Ours already: the claim before it has landed after all, when the part had been
		// given back.
		t.robbed = nil
	}
	return err
}

// tellClaim tells how the part came to be held.
func (h *hand) tellClaim(t taken) {
	o, p := &h.s.r.o, t.part
	o.Observer.Add(MetricClaims, 1)
	if t.robbed == nil {
		h.tell(Event{At: t.now, Ver: p.Ver, Kind: EventClaimed, Owner: p.Owner, Attempt: p.Attempts})
		return
	}
	o.Observer.Add(MetricSteals, 1)
	h.tellLapse(*t.robbed, p.Ver, p.Attempts-1)
	h.tell(Event{At: t.now, Ver: p.Ver, Kind: EventStolen, Owner: p.Owner, Attempt: p.Attempts, Reason: "from " + string(t.robbed.Owner)})
}

// tellLapse tells of a lease that ended without its holder's word; ver is the
// part's after the write that found it.
func (h *hand) tellLapse(was HeldError, ver int64, attempt int) {
	h.s.r.o.Observer.Add(MetricLeaseExpired, 1)
	h.s.r.o.Observer.Add(MetricRepeats, float64(was.Begun))
	h.tell(Event{At: was.Until, Ver: ver, Kind: EventLeaseExpired, Owner: was.Owner, Attempt: attempt})
}
