package batch

import (
	"time"
)

// nextLine takes the next line that may be sent now, or returns nil. Its
// conditions, and what each is against:
//   - the hand goes on, and the lease is held: see keep and watch;
//   - the view of the batch is fresh: a line sent for a cancelled batch;
//   - begun < C + K: a crash repeats at most that many lines (promise 2);
//   - there is room in the window in bytes: memory (promise 8).
//
// A line whose wait is over goes first: it is in the window already, and holds
// its place there, but no slot while it waits.
func (h *hand) nextLine(now time.Time) *line {
	s := h.s
	if h.phase != working || h.stopped != goingOn || !s.fresh(h.view, now) {
		return nil
	}
	for i, ln := range h.waiting {
		if !now.Before(ln.due) {
			h.waiting = append(h.waiting[:i], h.waiting[i+1:]...)
			return ln
		}
		s.at(now, ln.due)
	}
	if len(h.queue) == 0 || s.full || h.begun >= s.r.o.CheckpointLines+s.r.o.Concurrency {
		return nil
	}
	ln := h.queue[0]
	ln.share = int64(len(ln.raw)) + s.guess
	if ln.seat = s.room.admit(ln.share); ln.seat == nil {
		s.full = true
		return nil
	}
	h.queue[0] = nil
	h.queue = h.queue[1:]
	h.ahead.taken(int64(len(ln.raw)))
	h.begun++
	return ln
}

// tailing reports whether nothing new is left to read, so that the next message
// may be taken (step 4).
func (h *hand) tailing() bool { return h.phase == working && h.stopped == goingOn && h.allRead }

// send starts one try of ln.
func (h *hand) send(ln *line) {
	h.flying++
	h.s.inFlight++
	h.s.outcome.Tally.Tries++
	b := h.view.batch
	h.s.start(func() func() {
		a := h.replay(h.ctx, b, ln)
		return func() { h.landed(ln, a) }
	})
}

// landed takes in what a try brought. After the claim was lost nothing counts:
// the part is somebody else's.
func (h *hand) landed(ln *line, a answer) {
	h.flying--
	h.s.inFlight--
	now := time.Now()
	switch {
	case h.phase != working:
		h.s.room.leave(ln.seat)
	case a.err != nil:
		h.drop(ln)
		h.fail(a.err)
	case a.verdict == settled:
		size := int64(len(a.result.bytes))
		h.s.learn(size)
		h.s.room.set(ln.seat, size)
		a.result.seat = ln.seat
		if len(h.results) == 0 {
			h.oldest = now
		}
		h.results = append(h.results, a.result)
		h.resultSize += size
	case a.verdict == longWait:
		// Every message that this one's part may wait for is in backAt; the line
		// itself stays unsent.
		h.drop(ln)
		if at := now.Add(a.wait); at.After(h.backAt) {
			h.backAt = at
		}
		h.stop(awaiting)
	case h.stopped != goingOn:
		h.drop(ln)
	default:
		h.s.room.set(ln.seat, ln.share)
		ln.due = now.Add(a.wait)
		h.waiting = append(h.waiting, ln)
	}
}
