package batch

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"
)

// untold is the events of a run that are not recorded yet. They are told one after
// the other, beside the work, which never waits for them; a run waits at its end,
// but not for long. What can't be told is only logged.
type untold struct {
	events  []Event
	busy    bool
	over    time.Time // when the last hand left; zero before
	dropped int
}

const (
	maxUntold = 256             // more than that at once are dropped
	tellTime  = 2 * time.Second // of one event, and of all those left at the end of a run
)

// tell tells of something about the hand's part.
func (h *hand) tell(e Event) {
	e.Tenant, e.Batch, e.Part = h.claim.Tenant, h.claim.Batch, h.claim.N
	h.s.tell(e)
}

// tellOpened tells the batch that the circuit of a line's model opened. The event is
// the same whichever worker and part found out, in the ten minutes that it stands for.
func (h *hand) tellOpened(ln *line, why string, now time.Time) {
	at, anew := ln.pace.breaker.tells(viewKey{h.claim.Tenant, h.claim.Batch}, now)
	if !anew {
		return
	}
	sum := fnv.New64a()
	sum.Write([]byte(ln.model))
	h.s.tell(Event{
		Tenant: h.claim.Tenant, Batch: h.claim.Batch, Part: NoPart, At: at, Seen: now, Ver: int64(sum.Sum64() % maxEventModel), Kind: EventCircuitOpen,
		Reason: reason(fmt.Errorf("model %q: %s", ln.model, why)),
	})
}

// maxEventModel bounds the number that stands for a model in an event's id: what has
// twelve digits sorts there as it should.
const maxEventModel = 1_000_000_000_000

func (s *shift) tell(e Event) {
	if len(s.untold.events) >= maxUntold {
		s.untold.dropped++
		return
	}
	s.untold.events = append(s.untold.events, e)
	s.tellNext()
}

func (s *shift) tellNext() {
	u := &s.untold
	if u.busy || len(u.events) == 0 {
		return
	}
	if s.ctx.Err() != nil || !u.over.IsZero() && time.Since(u.over) >= tellTime {
		u.dropped += len(u.events)
		u.events = nil
		return
	}
	e := u.events[0]
	u.events, u.busy = u.events[1:], true
	s.start(func() func() {
		ctx, cancel := context.WithTimeout(WithSubject(s.ctx, e.Tenant, e.Batch), tellTime)
		defer cancel()
		if err := s.r.Events.Record(ctx, e); err != nil && s.ctx.Err() == nil {
			s.r.Log.Warn("event not recorded", "tenant", e.Tenant, "batch", e.Batch, "part", e.Part, "kind", string(e.Kind), "error", err)
		}
		return func() {
			u.busy = false
			s.tellNext()
		}
	})
}
