package batch

import (
	"context"
	"errors"
	"time"
)

// close ends the hand's hold of its part once nothing of it is under way: it
// finishes the part, hands it over or fails it, and deals with the message
// after that. The heartbeat has ended then; each of these writes is repeated
// only while the lease is held.
func (h *hand) close(now time.Time) {
	if h.phase != working || h.writing {
		return
	}
	idle := h.flying == 0 && len(h.waiting) == 0 && h.saving == nil && len(h.results) == 0 && h.lone.next == nil
	if h.broken {
		h.cancel() // what is flying has nowhere to go
		idle = true
	}
	if !idle || h.stopped == goingOn && (!h.allRead || !h.queue.empty() || h.lone.accused != nil) {
		return
	}
	h.phase = closing
	switch {
	case h.finished:
		h.reportDone()
	case h.processed == h.part.Lines:
		h.finish()
	case h.view.over():
		h.handOver(false)
	case errors.Is(h.failure, ErrNewer):
		// Its batch is a newer program's by now, and so is the part: it has lost no
		// attempt when a newer worker comes.
		h.backAt = now.Add(deadWait)
		h.handOver(true)
	case h.stopped == failing || h.stopped == unwanted:
		h.giveBack()
	default:
		h.handOver(true)
	}
}

// write is the hand's last write to its part. It runs beside the loop.
func (h *hand) write(f func(context.Context, time.Time) error) error {
	return h.s.insist(h.run, h.leaseUntil, func(ctx context.Context) error { return f(ctx, time.Now()) })
}

// finish marks a part done (step 8) that no checkpoint of this claim did: there
// was nothing left to do.
func (h *hand) finish() {
	h.s.start(func() func() {
		err := h.write(func(ctx context.Context, now time.Time) error {
			return h.s.r.Claims.Finish(ctx, h.claim, h.part.Lines, now)
		})
		return func() {
			if err != nil {
				h.lose(err)
				return
			}
			h.reportDone()
		}
	})
}

// reportDone tells the workflow, now that the part is done. In this order: a report
// before the write could be of a part that is not.
func (h *hand) reportDone() {
	h.s.outcome.Tally.Done++
	h.reportOver("done")
}

// reportOver tells the workflow that the part is over. If that fails the message
// comes back, finds the part over and reports again.
func (h *hand) reportOver(why string) {
	h.phase = closing
	h.s.start(func() func() {
		var err error
		if h.d.TaskToken != "" {
			err = h.s.try(h.run, func(ctx context.Context) error { return h.s.r.Workflow.Report(ctx, h.d.TaskToken) })
		}
		return func() {
			if err != nil {
				h.log.Warn("part is over, but the report failed", "error", err)
				h.depart(end{why: "unreported", wait: reportWait})
				return
			}
			h.depart(end{ack: true, why: why})
		}
	})
}

// handOver gives the part back (C10) without burning an attempt, and sends its
// message again if somebody shall go on. The new message is sent before the old
// one is deleted: two of them do no harm, none of them would.
func (h *hand) handOver(goOn bool) {
	attempts := h.part.Attempts - 1
	if h.checkpointed {
		attempts = 0
	}
	h.s.start(func() func() {
		err := h.write(func(ctx context.Context, now time.Time) error {
			return h.s.r.Claims.HandOver(ctx, h.claim, attempts, now.Add(h.delay(now)+h.s.r.o.Overdue), now)
		})
		e := end{ack: true, why: "ended"}
		if err == nil && goOn {
			e = h.sendAgain()
		}
		return func() {
			if err != nil {
				h.lose(err)
				return
			}
			h.tell(Event{At: time.Now(), Ver: h.part.Ver, Kind: EventHandedOver, Owner: h.claim.Token, Attempt: h.part.Attempts, Reason: h.whyBack()})
			h.depart(e)
		}
	})
}

func (h *hand) sendAgain() end {
	err := h.s.try(h.run, func(ctx context.Context) error {
		return h.s.r.Queue.Send(ctx, h.d.Message, h.delay(time.Now()))
	})
	if err != nil {
		h.log.Warn("message not sent again; the old one comes back", "error", err)
		return end{why: "yielded", wait: h.delay(time.Now())}
	}
	return end{ack: true, why: "yielded"}
}

// delay is how long nobody shall run the part; the queue delays 15 minutes at
// most, and whoever comes too early asks the upstream again.
func (h *hand) delay(now time.Time) time.Duration {
	return min(max(h.backAt.Sub(now), 0), maxDelay)
}

// spareAttempts is how many claims beyond MaxAttempts a suspect is worth: one that
// is dealt with takes two, one to die with it and one to give it its error.
const spareAttempts = 2

// giveBack gives the part back after a failure of the worker's own (C10f):
// attempts stay, so that a part that always fails ends up dead. A suspect keeps it
// from that (C12), for the sake of the line, but not for ever: after so many claims
// that made nothing of it, who fails and is alive to say so forgets it (ADR 17).
func (h *hand) giveBack() {
	forget := !h.part.Suspect.None() && !h.checkpointed && h.part.Attempts >= h.s.r.o.MaxAttempts+spareAttempts
	wait := returnWait(h.d.Receives)
	text := "batch is not in progress"
	if h.failure != nil {
		text = reason(h.failure)
	}
	h.log.Error("part failed", "error", text)
	h.s.start(func() func() {
		var err error
		if forget {
			err = h.write(func(ctx context.Context, now time.Time) error {
				return h.s.r.Claims.Suspect(ctx, h.claim, Suspect{}, h.processed, h.leaseUntil, now)
			})
		}
		if err == nil {
			err = h.write(func(ctx context.Context, now time.Time) error {
				return h.s.r.Claims.Fail(ctx, h.claim, text, now.Add(wait+h.s.r.o.Overdue), now)
			})
		}
		return func() {
			if err != nil {
				h.lose(err)
				return
			}
			h.tell(Event{At: time.Now(), Ver: h.part.Ver, Kind: EventFailed, Owner: h.claim.Token, Attempt: h.part.Attempts, Reason: text})
			h.depart(end{why: "failed", wait: wait})
		}
	})
}
