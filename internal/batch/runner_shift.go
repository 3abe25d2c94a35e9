package batch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shift is one run: the hands and what they share. Everything in it and in its
// hands belongs to the goroutine in [shift.run]; others reach it only by the
// functions they send to events.
type shift struct {
	r      *Runner
	ctx    context.Context
	cancel context.CancelFunc
	until  time.Time // everything must be over by then
	last   time.Time // lines are sent before it (step 7)

	events chan func()
	owed   int       // goroutines that will still send
	wake   time.Time // when to look again although nothing was sent

	hands    []*hand // oldest first; MaxHands at most
	inFlight int     // requests of all hands, those of a hand that is gone included
	lanes    lanes   // the same by model
	room     room
	guess    int64 // bytes that a reply may have: the largest lately
	full     bool  // a line or a reply waits for room
	views    map[viewKey]*view

	recording sync.Mutex // one record is made at a time: see replay
	receiving bool
	receiveAt time.Time
	noMore    bool // take no further message

	untold  untold
	slots   slotUse
	outcome Outcome
}

// emptyWait is how long an empty queue is left alone while a tail drains.
const emptyWait = time.Second

// start runs work beside the loop and what it returns inside it. The loop never
// waits for a goroutine otherwise, and a goroutine never for the loop while it
// holds something the loop needs: so neither can hang on the other.
func (s *shift) start(work func() (inside func())) {
	s.owed++
	go func() {
		inside := work()
		s.events <- func() {
			s.owed--
			inside()
		}
	}()
}

// call bounds one call of a port.
func (s *shift) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.r.o.callTimeout())
	defer cancel()
	return f(ctx)
}

// run is the loop. It ends when no hand is left and no goroutine is owed.
func (s *shift) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	ended := s.ctx.Done()
	for len(s.hands) > 0 || s.owed > 0 {
		s.advance(time.Now())
		if len(s.hands) == 0 && s.owed == 0 {
			return
		}
		var wake <-chan time.Time
		if !s.wake.IsZero() {
			timer.Reset(time.Until(s.wake))
			wake = timer.C
		}
		select {
		case inside := <-s.events:
			inside()
		case <-wake:
		case <-ended:
			ended = nil
			s.abandon()
		}
	}
}

// advance does whatever is due at now. What isn't due yet says when it will be
// (at); so the loop has one timer, and a state that was forgotten there shows as
// a run that stands still in a test with virtual time.
func (s *shift) advance(now time.Time) {
	s.wake, s.lanes.wake = time.Time{}, time.Time{}
	if !now.Before(s.until) {
		s.abandon()
		return
	}
	s.at(now, s.until)
	for _, h := range s.snapshot() {
		h.keep(now)
		h.watch(now)
	}
	for _, h := range s.snapshot() {
		h.isolate(now)
	}
	s.send(now)
	s.at(now, s.lanes.wake)
	for _, h := range s.snapshot() {
		h.becalm(now)
		h.save(now)
		h.close(now)
	}
	s.next(now)
}

// snapshot lets a hand leave while the others are gone through.
func (s *shift) snapshot() []*hand { return append(make([]*hand, 0, MaxHands), s.hands...) }

// at asks to be woken at t, if that is still to come.
func (s *shift) at(now, t time.Time) {
	if t.After(now) && (s.wake.IsZero() || t.Before(s.wake)) {
		s.wake = t
	}
}

// abandon drops everything where it stands: the process has no time left.
func (s *shift) abandon() {
	s.cancel()
	for _, h := range s.snapshot() {
		h.leave(end{why: "abandoned"})
	}
}

// MaxHands is how many parts a run may hold: one whose lines are being sent, and
// the tails of others. A tail is as long as the slowest of a part's last lines, which
// at 128 slots and parts of 500 lines outlasts several parts (ADR 11 has the figures).
const MaxHands = 8

// next takes another message once the hands have hardly a line left to send
// (step 4), if there is time enough to be worth it.
func (s *shift) next(now time.Time) {
	if s.receiving || s.noMore || !s.dry() || !now.Add(s.r.o.Heartbeat).Before(s.last) {
		return
	}
	if now.Before(s.receiveAt) {
		s.at(now, s.receiveAt)
		return
	}
	s.receiving = true
	s.start(func() func() {
		var d Delivery
		err := s.call(s.ctx, func(ctx context.Context) (err error) {
			d, err = s.r.Queue.Receive(ctx)
			return err
		})
		return func() { s.received(d, err) }
	})
}

// dry reports whether the slots will soon have nothing to send: of every part in
// hand all lines are read, and those not yet sent are a quarter of what is in flight
// at most, which is what is sent while a message is received and its part claimed.
// Sooner would be a part taken from a worker that has nothing to do.
func (s *shift) dry() bool {
	if len(s.hands) == 0 || len(s.hands) >= MaxHands {
		return false
	}
	queued := 0
	for _, h := range s.hands {
		if h.phase == taking || h.phase == working && !h.tailing() {
			return false
		}
		queued += h.queue.n
	}
	return 4*queued <= s.inFlight
}

func (s *shift) received(d Delivery, err error) {
	s.receiving = false
	switch {
	case errors.Is(err, ErrEmpty):
		s.receiveAt = time.Now().Add(emptyWait)
	case err != nil:
		s.receiveAt = time.Now().Add(5 * emptyWait)
		s.r.Log.Warn("receive failed", "error", err)
	case s.noMore || len(s.hands) >= MaxHands || s.ctx.Err() != nil:
		// Trouble came while the call was under way: somebody else shall have it.
		// A hand that ended meanwhile is no trouble, it leaves more room.
		s.start(func() func() {
			s.call(WithSubject(s.ctx, d.Tenant, d.Batch), func(ctx context.Context) error { return s.r.Queue.Hide(ctx, d, 0) })
			return func() {}
		})
	default:
		s.take(d, false)
	}
}

// send fills the slots: the older hand first, so that parts end in the order
// they were taken, and in each hand a line whose wait is over before a new one.
func (s *shift) send(now time.Time) {
	s.full = s.room.waits()
	for s.inFlight < s.r.o.Ceiling {
		sent := false
		for _, h := range s.hands {
			if ln := h.nextLine(now); ln != nil {
				h.send(ln)
				sent = true
				break
			}
		}
		if !sent {
			return
		}
	}
}

// stuck reports whether the window is full and only a commit can make room.
func (s *shift) stuck() bool { return s.full && (s.inFlight == 0 || s.room.waits()) }

// learn adapts the room that a line gets for its reply when it is sent: at once
// when one is larger, slowly when they are smaller. It begins with a share of half
// the window. A guess that is too low makes replies wait for room while their
// upstream holds a connection; one that is too high leaves slots empty: after a
// huge reply few lines are under way, until small ones have shown that it was an
// exception. The bound itself is kept by room.
func (s *shift) learn(size int64) {
	s.guess = s.r.o.likelyReply(max(size, s.guess-s.guess/10))
}
