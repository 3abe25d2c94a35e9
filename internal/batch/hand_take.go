package batch

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/lease"
)

// taken is what steps 1 and 2 found.
type taken struct {
	part    Part
	robbed  *HeldError // from whom it was stolen
	now     time.Time  // when the claim was made
	look    time.Time  // when the batch was looked at; zero: it wasn't
	batch   Batch
	lookErr error
	err     error
}

// claimTries is how often a claim of unknown fate is repeated.
const claimTries = 5

// take begins with a message (step 1 and 2).
func (s *shift) take(d Delivery, first bool) {
	h := &hand{
		s: s, d: d, first: first,
		// The token is picked before the write, so that the claim's own lost answer
		// can be told from somebody else's claim.
		claim: Claim{PartKey: d.Key(), Token: lease.NewToken()},
	}
	h.run = WithSubject(s.ctx, d.Tenant, d.Batch)
	h.ctx, h.cancel = context.WithCancel(h.run)
	h.log = s.r.Log.With("tenant", d.Tenant, "batch", d.Batch, "part", d.Part, "owner", h.claim.Token)
	s.hands = append(s.hands, h)
	s.untold.over = time.Time{}
	s.outcome.Tally.Parts++
	v := s.views[viewKey{d.Tenant, d.Batch}]
	seen := v != nil && s.fresh(v, time.Now())
	s.start(func() func() {
		t := h.takeSteps(seen)
		return func() { h.taken(t) }
	})
}

// takeSteps hides the message for the lease, claims the part and looks at its
// batch.
func (h *hand) takeSteps(seen bool) (t taken) {
	o := &h.s.r.o
	if h.d.V > FormatVersion {
		return taken{err: ErrNewer}
	}
	// Step 1. The queue's own visibility is the function's timeout: after it, a
	// process that dies before this line is found.
	h.hide(o.Lease)
	pause := newPause(200*time.Millisecond, 5*time.Second)
	for n := 1; ; n++ {
		t.now = time.Now()
		t.err = h.seize(&t)
		if t.err == nil || refused(t.err) || n == claimTries || sleep(h.ctx, pause.NextBackOff()) != nil {
			break
		}
	}
	if t.err != nil || seen {
		return t
	}
	t.lookErr = h.s.try(h.ctx, func(ctx context.Context) (err error) {
		t.look = time.Now()
		t.batch, err = h.s.get(ctx, h.claim.Tenant, h.claim.Batch)
		return err
	})
	return t
}

// refused reports whether a claim has a definite answer other than success.
func refused(err error) bool {
	for _, definite := range []error{lease.ErrHeld, ErrOver, ErrDead, ErrExhausted, ErrNotFound, ErrNewer} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return false
}

// taken goes on with what the steps found: it works, or the message has an end.
func (h *hand) taken(t taken) {
	if h.phase != taking {
		return
	}
	held, isHeld := errors.AsType[*HeldError](t.err)
	switch {
	case t.err == nil:
		h.work(t)
	case errors.Is(t.err, ErrOver):
		h.reportOver("over")
	case errors.Is(t.err, ErrNotFound):
		h.depart(end{ack: true, why: "gone"})
	case isHeld:
		h.depart(end{why: "held", wait: h.heldFor(held)})
	case errors.Is(t.err, lease.ErrHeld):
		h.depart(end{why: "held", wait: h.s.r.o.Lease + h.s.r.o.Skew})
	case errors.Is(t.err, ErrDead), errors.Is(t.err, ErrExhausted):
		h.bury()
	case errors.Is(t.err, ErrNewer):
		h.log.Error("message refused", "error", t.err, "v", h.d.V)
		h.depart(end{why: "refused", wait: returnWait(h.d.Receives)})
	default:
		h.log.Warn("claim failed", "error", t.err)
		h.depart(end{why: "failed", wait: returnWait(h.d.Receives)})
	}
}

// work begins to replay the lines of a part that is now held.
func (h *hand) work(t taken) {
	o := &h.s.r.o
	h.phase = working
	h.part = t.part
	h.done, h.processed = t.part.DoneLines.Clone(), t.part.Processed
	if missing := (t.part.Lines+7)/8 - len(h.done); missing > 0 {
		h.done = append(h.done, make(Bitmap, missing)...)
	}
	h.leaseUntil, h.beatAt, h.heldAt = t.part.LeaseUntil, t.now.Add(o.Heartbeat), t.now
	h.log = h.log.With("attempt", t.part.Attempts)
	h.tellClaim(t)
	h.suspects()

	key := viewKey{h.claim.Tenant, h.claim.Batch}
	if h.view = h.s.views[key]; h.view == nil {
		h.view = &view{batch: Batch{Tenant: key.tenant, ID: key.batch}}
		h.s.views[key] = h.view
	}
	var readCtx context.Context
	readCtx, h.stopRead = context.WithCancel(h.ctx)
	if !t.look.IsZero() {
		if t.lookErr != nil && !errors.Is(t.lookErr, ErrNotFound) {
			h.fail(t.lookErr)
			return
		}
		h.s.seen(h.view, t.batch, t.lookErr, t.look)
	}
	if h.watch(time.Now()); h.lone.left > 0 && len(h.s.hands) > 1 {
		h.standBack(time.Now())
	}
	if h.stopped == goingOn {
		h.read(readCtx)
	}
}

// aheadRounds is how many lines the reader may be ahead for each request that
// the ceiling allows. One would do for a slot never to wait for a store; with more,
// lines of a model that is refused leave others in sight: at the defaults a whole
// part is.
const aheadRounds = 4

// read starts the reader. It is ahead of the requests by so many lines at most,
// and by a sixteenth of the window in bytes.
func (h *hand) read(ctx context.Context) {
	o := &h.s.r.o
	h.ahead = newAhead(aheadRounds*o.Ceiling, max(o.CheckpointBytes/8, 1))
	b := h.view.batch
	src := source{
		objects: h.s.r.Objects, input: b.Input.Object, endpoint: b.Endpoint, model: b.Model,
		part: h.part, stall: o.callTimeout(),
	}
	found := h.lone.found
	h.s.start(func() func() {
		err := src.apart(ctx, found, func(ln *line) error {
			if err := h.ahead.add(ctx, ln.size()); err != nil {
				return err
			}
			h.s.events <- func() {
				switch {
				case h.phase != working || h.stopped != goingOn:
				case !found.None() && ln.index == found.Line:
					h.lone.accused = ln
				default:
					h.queue.add(ln)
				}
			}
			return nil
		})
		return func() {
			switch {
			case h.phase != working || h.stopped != goingOn:
			case err != nil:
				h.fail(err)
			default:
				h.allRead = true
			}
		}
	})
}
