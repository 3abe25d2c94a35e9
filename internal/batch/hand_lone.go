package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// lone is what a hand knows that sends its lines one at a time, because one of them
// may kill its worker ("Poison" in the design). Who dies with a line alone in flight
// leaves its name in the table, as the part's suspect: the line is to blame when
// that happened twice.
//
// So a line goes alone like this: the worker has no other part, and nothing in
// flight; the suspect is written (C7s), then the line is sent; its result is
// checkpointed, which takes the suspect away, and then comes the next. That is three
// calls a line beside the model's own, for as many lines as the dead worker can have
// had under way. A try without a result takes its strike back (C7s, too), and the next
// one writes it again: a wait can be minutes, and who dies in one dies of something
// else.
type lone struct {
	left    int     // lines still to go alone; 0: the hand works as any other
	found   Suspect // by the claim, until it is dealt with
	accused *line   // its line, once it was read
	blamed  *line   // whose error waits for its checkpoint

	next   *line   // to be sent alone next; it counts as begun
	before Suspect // what the table says of it without this claim's strike
	struck bool    // … and that strike is in the table
	lift   bool    // it is, and is to be taken back: its line waits for another try
	pause  *backoff.ExponentialBackOff
	nextAt time.Time // when the write may be repeated
	since  time.Time // of its first failure
}

// blameAt is how many deaths a line must have been alone in flight at.
const blameAt = 2

// loneFrom is the claim in a row without progress that sends lines alone.
const loneFrom = 2

// errCrashed stands for the reply of a line that is not sent any more.
var errCrashed = errors.New("the line killed its workers")

// suspects decides, at the claim, whether the hand's lines go alone. A suspect whose
// line is done is none.
func (h *hand) suspects() {
	s, o := h.part.Suspect, &h.s.r.o
	if !s.None() && s.Line >= 0 && s.Line < h.part.Lines && !h.done.Has(s.Line) {
		h.lone.found = s
		h.lone.left = 1
	}
	if h.lone.left > 0 || h.part.Attempts >= loneFrom {
		h.lone.left += o.CheckpointLines + o.Ceiling
		h.lone.pause = newPause(200*time.Millisecond, 5*time.Second)
		h.log.Warn("lines go one at a time", "lines", h.lone.left, "suspect", h.part.FirstLine+int64(s.Line), "strikes", s.Strikes)
	}
}

// aside is how long a part whose lines go alone is left alone when a worker had no
// use for it.
const aside = time.Second

// standBack gives a part back whose lines must go alone, because this worker holds
// others: it takes it when it has none. Waiting for those would do as well, but for
// this:
//
//	worker holds part 0, with a line that kills it, and takes part 1
//	dies; dies again in the same way; part 1, waiting, has had its attempts
func (h *hand) standBack(now time.Time) {
	h.because = "its lines go one at a time, and the worker had other parts"
	h.backAt = now.Add(aside)
	h.stop(yielding)
}

// quiet reports whether nothing is at work in the whole worker but its one hand.
func (s *shift) quiet() bool { return len(s.hands) == 1 && s.inFlight == 0 }

// isolate takes the next line that is to go alone as far as its suspect.
func (h *hand) isolate(now time.Time) {
	l := &h.lone
	if l.left == 0 || h.phase != working || h.stopped != goingOn || h.writing {
		return
	}
	if l.lift {
		h.lift(now)
		return
	}
	// Only what is sent as soon as it is written is written: with a stale view
	// nothing is.
	if l.struck || !h.s.quiet() || !h.s.fresh(h.view, now) || l.next == nil && !h.rejoin(now) && !h.single(now) {
		return
	}
	if now.Before(l.nextAt) {
		h.s.at(now, l.nextAt)
		return
	}
	h.strike(now)
}

// rejoin takes the line whose wait for another try is over, if that is so.
func (h *hand) rejoin(now time.Time) bool {
	l := &h.lone
	l.next, l.struck, l.since = h.nextWaiting(now), false, time.Time{}
	return l.next != nil
}

// single picks the next line: first the one that was found. Blamed, it gets its
// error and isn't sent.
func (h *hand) single(now time.Time) bool {
	l, s := &h.lone, h.s
	ln, before := l.accused, l.found
	if before.None() {
		ln = h.queue.first(func(model string) bool { return s.lanes.begins(model, now) })
	}
	blame := before.Strikes >= blameAt
	if h.begun > 0 || ln == nil || !blame && !s.lanes.begins(ln.model, now) {
		return false
	}
	ln.share = int64(len(ln.raw)) + s.guess
	if ln.seat = s.room.admit(ln.share); ln.seat == nil {
		return false // what flew for a part that was lost lands in a moment
	}
	if ln == l.accused {
		l.found, l.accused = Suspect{}, nil
	} else {
		h.queue.remove(ln)
	}
	h.ahead.taken(ln.size())
	h.begun++
	if blame {
		l.blamed = ln
		h.settle(ln, h.record(h.callOf(h.view.batch, ln), ln, Reply{}, errCrashed), now)
		return false
	}
	l.next, l.before, l.struck, l.since = ln, before, false, time.Time{}
	return true
}

// strike writes the suspect. After an error of unknown fate the same is written
// again: a late one does no harm, it is refused once the line is checkpointed.
func (h *hand) strike(now time.Time) {
	l := &h.lone
	ln := l.next
	h.suspect(Suspect{Line: ln.index, Strikes: l.before.Strikes + 1, By: h.claim.Token}, now, func(err error) {
		if err != nil {
			h.strikeAgain(fmt.Errorf("write suspect: %w", err), time.Now())
			return
		}
		l.struck = l.next == ln
		l.pause.Reset()
	})
}

// lift takes the strike of a line back that waits for another try. After an error of
// unknown fate the part is handed over, which takes it back as well: repeated, the
// first write could be late, and take back the strike of the next try.
func (h *hand) lift(now time.Time) {
	h.suspect(h.lone.before, now, func(err error) {
		h.lone.lift = false
		if err != nil && h.stopped == goingOn {
			h.log.Warn("strike not taken back", "error", err)
			h.because = "a line waits, and its strike could not be taken back"
			h.backAt = time.Now().Add(aside)
			h.stop(yielding)
		}
	})
}

// suspect makes s the part's suspect and prolongs the lease with that; then goes on,
// unless the part was lost, or the error is that it is.
func (h *hand) suspect(s Suspect, now time.Time, then func(error)) {
	h.writing = true
	until := now.Add(h.s.r.o.Lease)
	h.s.start(func() func() {
		err := h.s.call(h.ctx, func(ctx context.Context) error {
			return h.s.r.Claims.Suspect(ctx, h.claim, s, h.processed, until, now)
		})
		return func() {
			h.writing = false
			switch {
			case h.phase != working:
				return
			case lost(err):
				h.lose(err)
				return
			case err == nil:
				h.leaseUntil = until
			}
			then(err)
		}
	})
}

// strikeAgain lets the suspect be written again for half a lease, as
// [hand.again] does with a checkpoint.
func (h *hand) strikeAgain(err error, now time.Time) {
	l := &h.lone
	if l.since.IsZero() {
		l.since = now
	}
	if now.Sub(l.since) >= h.s.r.o.Lease/2 {
		h.fail(err)
		return
	}
	l.nextAt = now.Add(l.pause.NextBackOff())
	h.log.Warn("suspect not written", "error", err)
}

// nextAlone is nextLine for a hand whose lines go alone: the line whose suspect is
// written.
func (h *hand) nextAlone(now time.Time) *line {
	l := &h.lone
	ln := l.next
	if ln == nil || !l.struck || !h.s.quiet() || !h.s.lanes.open(ln.model, now) {
		return nil
	}
	l.next, l.struck = nil, false
	return ln
}

// resign gives up what was to go alone next. Its suspect, should it be in the table,
// is taken back when the part is given back.
func (h *hand) resign() {
	if h.lone.next != nil {
		h.drop(h.lone.next)
		h.lone.next = nil
	}
	h.lone.accused = nil
}

// acquit counts lines that went alone and are committed.
func (h *hand) acquit(lines int) {
	l := &h.lone
	l.left = max(l.left-lines, 0)
	if ln := l.blamed; ln != nil {
		l.blamed = nil
		h.s.r.o.Observer.Add(MetricBlamed, 1)
		h.tell(Event{At: time.Now(), Ver: h.part.Ver, Kind: EventBlamed, Owner: h.claim.Token, Attempt: h.part.Attempts,
			Reason: fmt.Sprintf("line %d of the input: %d workers died with it alone in flight", ln.number, blameAt)})
	}
}
