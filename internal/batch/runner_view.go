package batch

import (
	"context"
	"errors"
	"time"
)

type viewKey struct{ tenant, batch string }

// view is a batch as last looked at, shared by the hands that work on it.
type view struct {
	batch  Batch
	gone   bool      // there is no such batch (any more)
	at     time.Time // when the look began: what it saw is at least as new
	askAt  time.Time
	asking bool
}

// running reports whether lines of the batch may be sent.
func (v *view) running() bool {
	return !v.gone && v.batch.Running()
}

// over reports whether nobody shall run the batch any more.
func (v *view) over() bool {
	return v.gone || v.batch.Ending != "" || v.batch.Status == Finalizing || v.batch.Status.Terminal()
}

// fresh reports whether the view is new enough to send a line on (promise 7).
// Interleaving it stops: look; cancel; the next look hangs; a line is sent for
// somebody who has withdrawn it long ago.
func (s *shift) fresh(v *view, now time.Time) bool { return now.Sub(v.at) <= s.r.o.LookEvery }

// look asks again before the view is too old to send on.
func (s *shift) look(v *view, now time.Time) {
	if v.asking {
		return
	}
	if now.Before(v.askAt) {
		s.at(now, v.askAt)
		return
	}
	v.asking = true
	tenant, id := v.batch.Tenant, v.batch.ID
	s.start(func() func() {
		at := time.Now()
		b, err := s.get(WithSubject(s.ctx, tenant, id), tenant, id)
		return func() {
			v.asking = false
			s.seen(v, b, err, at)
		}
	})
}

func (s *shift) get(ctx context.Context, tenant, id string) (b Batch, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		b, err = s.r.Batches.Get(ctx, tenant, id)
		return err
	})
	return b, err
}

// seen records one look.
func (s *shift) seen(v *view, b Batch, err error, at time.Time) {
	switch {
	case at.Before(v.at):
		// Two hands looked at once and the older look came in last: it must not
		// make a cancelled batch run again, nor a fresh view old.
		return
	case err == nil:
		v.batch, v.gone = b, false
	case errors.Is(err, ErrNotFound):
		v.gone = true
	default:
		v.askAt = time.Now().Add(s.r.o.LookEvery / 5)
		s.r.Log.Warn("look at batch failed", "tenant", v.batch.Tenant, "batch", v.batch.ID, "error", err)
		return
	}
	v.at = at
	v.askAt = at.Add(s.r.o.LookEvery * 4 / 5)
}

// errNotReady: a line must not be sent any more, or not on what is known.
var errNotReady = errors.New("the batch was not seen to run lately, or the claim is over")

// permit notes until when lines may go on the wire that were begun: as long as the
// view is fresh and the lease runs.
func (h *hand) permit() {
	var until time.Time
	if h.view.running() {
		until = h.view.at.Add(h.s.r.o.LookEvery)
		if h.leaseUntil.Before(until) {
			until = h.leaseUntil
		}
	}
	if old := h.mayUntil.Load(); old == nil || !old.Equal(until) {
		h.mayUntil.Store(&until)
	}
}

// ready is what a request asks before it goes on the wire (Call.Ready), beside the loop.
// Interleaving it stops: a line is begun; its upstream's secret and connection take
// half a minute, or a 401 comes late and the line is to go again with another secret;
// meanwhile the batch is cancelled, and its submitter told so; the line is sent.
func (h *hand) ready(ctx context.Context) error {
	if until := h.mayUntil.Load(); until == nil || time.Now().After(*until) {
		return errNotReady
	}
	return ctx.Err() // a claim that is lost ends it
}
