package batch

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/lease"
)

// bury deals with the message of a part that is dead, or that had its attempts and
// so is to be declared dead (C12).
func (h *hand) bury() {
	h.phase = closing
	h.s.start(func() func() {
		seen, dead, err := h.declare()
		return func() { h.buried(seen, dead, err) }
	})
}

// declare reads the part and declares it dead, if it isn't. It is as it was seen
// and as it now is.
func (h *hand) declare() (seen, dead Part, err error) {
	r, o := h.s.r, &h.s.r.o
	now := time.Now().Truncate(time.Millisecond)
	var settled error // what a repetition can't change
	err = h.s.try(h.run, func(ctx context.Context) (err error) {
		found, err := r.Parts.Get(ctx, h.claim.PartKey)
		switch {
		case err != nil:
			return err
		case found.State == Dead:
			dead = found // maybe by a try of ours, whose answer was lost
			return nil
		}
		seen = found
		// The same instant at each try: by it the death is known for one's own.
		dead, err = r.Deaths.Declare(ctx, seen, o.MaxAttempts, lease.Cut(now, o.Skew), now.Add(o.DeadGrace), now)
		if refused(err) || errors.Is(err, ErrStale) || errors.Is(err, ErrAlive) {
			settled, err = err, nil
		}
		return err
	})
	if err == nil {
		err = settled
	}
	if err == nil && !dead.DeadAt.Equal(now) {
		seen = dead // somebody else did it
	}
	return seen, dead, err
}

// buried acks the message of a dead part: a redrive sends another, by its write's
// due time at the latest, and so nothing hangs on this one. Unless it brings a
// task token that the part doesn't have: then the workflow waits for the word of
// whoever has it, and there is no other copy. That message comes back when the
// grace is over and the part is sealed, or at work again.
//
//	redrive                          worker
//	                                 finds the part dead
//	pending; sends a new message
//	                                 acks the old one: the new one is there
func (h *hand) buried(seen, dead Part, err error) {
	held, isHeld := errors.AsType[*HeldError](err)
	switch {
	case errors.Is(err, ErrOver):
		h.reportOver("over")
		return
	case errors.Is(err, ErrNotFound):
		h.depart(end{ack: true, why: "gone"})
		return
	case isHeld:
		h.depart(end{why: "held", wait: h.heldFor(held)})
		return
	case errors.Is(err, ErrStale), errors.Is(err, ErrAlive):
		h.depart(end{why: "exhausted", wait: firstReturn}) // it can be claimed now
		return
	case err != nil:
		h.log.Warn("part not declared dead", "error", err)
		h.depart(end{why: "exhausted", wait: deadWait})
		return
	}
	if seen.State != Dead {
		h.s.r.o.Observer.Add(MetricDeadParts, 1)
		if seen.State == Leased {
			h.tellLapse(HeldError{Until: seen.LeaseUntil, Owner: seen.Owner, Begun: seen.Begun}, dead.Ver, seen.Attempts)
		}
		h.log.Error("part is dead", "attempts", dead.Attempts, "reason", dead.LastError)
	}
	h.s.tell(DeathOf(dead)) // again, maybe: who declared it may not have lived to
	if h.d.TaskToken == "" || h.d.TaskToken == dead.TaskToken {
		h.depart(end{ack: true, why: "dead"})
		return
	}
	h.depart(end{why: "dead", wait: max(time.Until(dead.Due)+time.Minute, deadWait)})
}

// heldFor is how long the message of a held part is hidden: until its lease would
// lapse, margin added.
func (h *hand) heldFor(held *HeldError) time.Duration {
	return max(time.Until(held.Until)+h.s.r.o.Skew, 0) + time.Second
}
