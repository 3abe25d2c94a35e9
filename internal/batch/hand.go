package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"holdfast/internal/lease"
)

// hand is one part in hand: a message, the claim made for it, and how far its
// lines are. It belongs to its shift's loop.
//
// A line of it is, in this order: queued (read, not sent), flying (being sent)
// or waiting (for its next try), a result, part of the chunk being saved, done.
type hand struct {
	s      *shift
	d      Delivery
	first  bool // the message that the run came with
	log    *slog.Logger
	run    context.Context // the shift's, for this hand's batch: see Subject
	ctx    context.Context // of everything done under the claim
	cancel context.CancelFunc
	phase  phase

	claim      Claim
	part       Part // as claimed; its progress is below
	view       *view
	leaseUntil time.Time // by our own clock, as last written
	beatAt     time.Time
	heldAt     time.Time // when it was claimed
	writing    bool      // a write to the part is under way

	mayUntil atomic.Pointer[time.Time] // read beside the loop: see ready

	ahead      *ahead
	stopRead   context.CancelFunc
	queue      backlog
	allRead    bool
	flying     int
	waiting    []*line
	begun      int // lines flying or waiting, to go alone next, and results not yet committed
	lone       lone
	results    []result
	resultSize int64
	oldest     time.Time // when the first of results came
	saving     *saving
	chunks     int // objects of this claim, for their keys

	done         Bitmap
	processed    int
	checkpointed bool // this claim made progress: its attempts are forgiven
	finished     bool // its last checkpoint made the part done

	stopped stop
	backAt  time.Time // not to be run again before
	because string    // why it is given back, where stopped does not say
	failure error     // why, when stopped is failing
	broken  bool      // results can't be written: don't try
}

// phase is where a hand is between its message's arrival and its end.
type phase int

const (
	taking  phase = iota // step 1 and 2
	working              // it holds the part
	closing              // its last write to the part is under way
	leaving              // only the message is still to be dealt with
	left
)

// stop is why a hand sends no more lines.
type stop int

const (
	goingOn  stop = iota
	yielding      // too little time for another line
	awaiting      // the upstream asked for patience
	unwanted      // the batch is not in progress (any more)
	failing       // the worker itself can't go on
)

// errLapsed: the lease ended, by the worker's own clock, before it was
// prolonged.
var errLapsed = errors.New("lease lapsed before it was prolonged")

// lost reports whether err says that the part is not the caller's (any more).
func lost(err error) bool { return errors.Is(err, lease.ErrLost) || errors.Is(err, ErrNotFound) }

// keep keeps the lease (step 5 and 6).
//
// Interleaving: a worker stalls beyond its lease; a thief claims the part; the
// worker wakes up and goes on. Its writes would be refused by their token, but
// its requests would reach the model a second time: so the clock stops it too.
func (h *hand) keep(now time.Time) {
	if h.phase != working || h.finished {
		return // a heartbeat after the part is done would be refused, and taken for a loss
	}
	if !now.Before(h.leaseUntil) {
		h.lose(errLapsed)
		return
	}
	h.s.at(now, h.leaseUntil)
	switch {
	case h.writing:
		// One write of a claim at a time: a heartbeat that overtook a checkpoint,
		// or was overtaken, could set lease_until back. The end of the write looks
		// here again.
	case now.Before(h.beatAt):
		h.s.at(now, h.beatAt)
	default:
		h.beat(now)
	}
}

// beat prolongs the lease in the table and then the message's visibility. In
// this order: a message that stays hidden while somebody else holds the part
// would be nobody's.
func (h *hand) beat(now time.Time) {
	h.writing = true
	begun, until := h.begun, now.Add(h.s.r.o.Lease)
	h.s.start(func() func() {
		err := h.s.call(h.ctx, func(ctx context.Context) error {
			return h.s.r.Claims.Heartbeat(ctx, h.claim, begun, until, now)
		})
		if err == nil {
			h.hide(h.s.r.o.Lease)
		}
		return func() {
			h.writing = false
			switch {
			case h.phase != working:
			case err == nil:
				h.leaseUntil, h.beatAt = until, now.Add(h.s.r.o.Heartbeat)
			case lost(err):
				h.lose(err)
			default:
				h.beatAt = time.Now().Add(h.s.r.o.Heartbeat / 8)
				h.log.Warn("heartbeat failed", "error", err)
			}
		}
	})
}

// hide sets the message's visibility. It is a hint: whoever receives the message
// too early asks the table.
func (h *hand) hide(wait time.Duration) {
	err := h.s.call(h.run, func(ctx context.Context) error { return h.s.r.Queue.Hide(ctx, h.d, wait) })
	if err != nil && h.s.ctx.Err() == nil {
		h.log.Warn("visibility of the message not set", "error", err)
	}
}

// watch looks for reasons to send no more.
func (h *hand) watch(now time.Time) {
	if h.phase != working {
		return
	}
	h.s.look(h.view, now)
	h.permit()
	switch {
	case !h.view.running():
		h.stop(unwanted)
	case now.Sub(h.view.at) > h.s.r.o.Lease && now.Sub(h.heldAt) > h.s.r.o.Lease:
		// Not as soon as the view is that old: a process that was stopped for a while
		// before it claimed has not looked in vain, and must not burn an attempt.
		h.fail(errors.New("batch can't be looked at"))
	case !now.Before(h.s.last):
		h.stop(yielding)
	default:
		h.s.at(now, h.s.last)
	}
}

// stop sends no more lines. What is flying may still come back and counts; what
// is queued or waits for another try is left to the next owner.
func (h *hand) stop(why stop) {
	if why <= h.stopped {
		return
	}
	if h.stopped == goingOn {
		h.stopRead()
		for _, ln := range h.waiting {
			h.drop(ln)
		}
		h.queue, h.waiting = backlog{}, nil
		h.resign()
	}
	h.stopped = why
	h.s.noMore = h.s.noMore || why != unwanted
}

// fail is stop for a trouble of the worker's own (C10f).
func (h *hand) fail(err error) {
	if h.stopped != failing {
		h.failure = err
		h.stop(failing)
	}
}

// drop forgets a line that was sent but has no result.
func (h *hand) drop(ln *line) {
	if ln.waits {
		h.s.lanes.resumed(ln)
	}
	h.begun--
	h.s.room.leave(ln.seat)
}

// forget gives back the room of everything that is not flying. What flies gives
// back its own when it lands.
func (h *hand) forget() {
	for _, ln := range h.waiting {
		h.drop(ln)
	}
	h.resign()
	h.s.room.leave(seatsOf(h.results)...)
	if h.saving != nil {
		h.s.room.leave(h.saving.seats...)
	}
	h.queue, h.waiting, h.results, h.saving = backlog{}, nil, nil, nil
}

// lose ends the hand at once: somebody else owns the part, or may. Its requests
// are cancelled and nothing more is written; the message goes back, so that
// somebody looks what became of the part. The other hand goes on.
func (h *hand) lose(err error) {
	h.log.Warn("claim lost", "error", err)
	h.depart(end{why: "lost", wait: h.s.r.o.Skew})
}

// end is what becomes of a hand's message.
//
//	what happened                            message            why
//	every line committed, reported           ack                done
//	done or sealed already, reported         ack                over
//	over, but the report failed              return, 10 s       unreported
//	no such part (aged out)                  ack                gone
//	held by another owner                    return, its lease  held
//	dead now, or found so                    ack                dead
//	… and the message has a task token that  return, its grace  dead
//	the part doesn't
//	out of attempts, but not to be declared  return             exhausted
//	dead (it has some again, or an error)
//	claim refused or lapsed on the way       return, skew       lost
//	handed over, sent again                  ack                yielded
//	handed over, but sending again failed    return, the delay  yielded
//	handed over, batch is ending or ended    ack                ended
//	handed over, batch not yet in progress   return, backoff    failed
//	the worker's own failure (C10f)          return, backoff    failed
//	the claim's fate unknown                 return, backoff    failed
//	message or part of a later format        return, backoff    refused
//	no time left, or the process is ending   as it is           abandoned
//
// Backoff is 5 s, doubled with each receive, 15 min at most. A message is never
// acked while somebody else holds the part: if that holder died, nobody would
// be told.
type end struct {
	ack  bool
	wait time.Duration // until a returned message is visible
	why  string
}

// depart deals with the message; nothing else is left to do for this hand.
func (h *hand) depart(e end) {
	if h.phase >= leaving {
		return
	}
	h.phase = leaving
	h.cancel()
	e.wait = min(max(e.wait, 0), maxHide)
	h.s.start(func() func() {
		if e.ack {
			// The poller deletes the first message too, but maybe not before the
			// other hand's part is done; until then it would be received again.
			err := h.s.call(h.run, func(ctx context.Context) error { return h.s.r.Queue.Delete(ctx, h.d) })
			if err != nil {
				h.log.Warn("message not deleted; it will find its part over", "error", err)
			}
		} else {
			h.hide(e.wait)
		}
		return func() { h.leave(e) }
	})
}

// leave takes the hand out of the shift.
func (h *hand) leave(e end) {
	if h.phase == left {
		return
	}
	h.phase = left
	h.cancel()
	h.forget()
	for i, other := range h.s.hands {
		if other == h {
			h.s.hands = append(h.s.hands[:i], h.s.hands[i+1:]...)
			break
		}
	}
	if len(h.s.hands) == 0 {
		h.s.untold.over = time.Now()
	}
	if h.first {
		h.s.outcome.Ack, h.s.outcome.Why = e.ack, e.why
	}
	h.log.Info("part left", "why", e.why, "ack", e.ack, "processed", h.processed, "wait", fmt.Sprint(e.wait))
}
