package batch

import "time"

// nextLine takes the next line that may be sent now, or returns nil. Its
// conditions, and what each is against:
//   - the hand goes on, and the lease is held: see keep and watch;
//   - the view of the batch is fresh: a line sent for a cancelled batch;
//   - its model has a slot (lanes): a model that is asked for more than it takes;
//   - begun < C + what may be in flight, which is the ceiling at most: a crash
//     repeats at most that many lines (promise 2);
//   - there is room in the window in bytes: memory (promise 8).
//
// A line whose wait is over goes first: it is in the window already, and holds
// its place there, but no slot while it waits. Of new lines the first goes whose
// model has a slot.
func (h *hand) nextLine(now time.Time) *line {
	s := h.s
	if h.phase != working || h.stopped != goingOn || !s.fresh(h.view, now) {
		return nil
	}
	if h.lone.left > 0 {
		return h.nextAlone(now)
	}
	if ln := h.nextWaiting(now); ln != nil {
		return ln
	}
	if h.queue.empty() || s.full {
		return nil
	}
	ln := h.queue.first(func(model string) bool {
		return s.lanes.begins(model, now) && h.begun < s.r.o.CheckpointLines+s.lanes.width(model)
	})
	if ln == nil {
		return nil
	}
	ln.share = int64(len(ln.raw)) + s.guess
	if ln.seat = s.room.admit(ln.share); ln.seat == nil {
		s.full = true
		return nil
	}
	h.queue.remove(ln)
	h.ahead.taken(ln.size())
	h.begun++
	return ln
}

// nextWaiting takes a line whose wait for another try is over, or returns nil.
func (h *hand) nextWaiting(now time.Time) *line {
	for i, ln := range h.waiting {
		if now.Before(ln.due) {
			h.s.at(now, ln.due)
		} else if h.s.lanes.open(ln.model, now) {
			h.waiting = append(h.waiting[:i], h.waiting[i+1:]...)
			ln.waits = false
			h.s.lanes.resumed(ln)
			return ln
		}
	}
	return nil
}

// tailing reports whether nothing new is left to read, so that the next message
// may be taken (step 4).
func (h *hand) tailing() bool {
	return h.phase == working && h.stopped == goingOn && h.allRead && h.lone.left == 0
}

// send starts one try of ln.
func (h *hand) send(ln *line) {
	now := time.Now()
	h.s.slots.pass(now, h.s.inFlight)
	h.flying++
	h.s.inFlight++
	h.s.lanes.sent(ln, now)
	h.s.slots.width = h.s.lanes.limits()
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
	now := time.Now()
	h.s.slots.pass(now, h.s.inFlight)
	h.flying--
	h.s.inFlight--
	h.s.lanes.landed(ln, a.signal)
	if n := h.s.lanes.limits(); n > 0 {
		h.s.slots.width = n
	}
	if a.opened != "" {
		h.s.r.o.Observer.Add(MetricCircuitOpen, 1)
		h.log.Warn("circuit open", "model", ln.model, "reason", a.opened)
		h.tellOpened(ln, a.opened, now)
	}
	switch {
	case h.phase != working:
		h.s.room.leave(ln.seat)
	case a.err != nil:
		h.drop(ln)
		h.fail(a.err)
	case a.verdict == settled:
		h.s.learn(int64(len(a.result.bytes)))
		h.settle(ln, a.result, now)
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
		ln.due, ln.waits = now.Add(a.wait), true
		h.s.lanes.waits(ln)
		h.waiting = append(h.waiting, ln)
		h.lone.lift = h.lone.left > 0
	}
}

// settle takes a line's result in.
func (h *hand) settle(ln *line, r result, now time.Time) {
	size := int64(len(r.bytes))
	h.s.room.set(ln.seat, size)
	r.seat = ln.seat
	if len(h.results) == 0 {
		h.oldest = now
	}
	h.results = append(h.results, r)
	h.resultSize += size
}
