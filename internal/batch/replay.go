package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/openai"
)

// answer is what one try of a line brought.
type answer struct {
	verdict verdict
	signal  signal
	opened  string // why the model's circuit opened by it; "": it didn't
	wait    time.Duration
	result  result // when settled
	err     error  // the line is not to blame: the worker can't go on with its part
}

// result is a line's record in its stored form.
type result struct {
	index int
	ok    bool
	bytes []byte
	seat  *seat // in the window
}

// replay sends a line once, on behalf of the batch's submitter, and turns what
// comes back into a verdict and, if that is final, a record. It runs beside the
// loop and owns ln while it does; it uses only what of the hand is fixed by the
// claim.
func (h *hand) replay(ctx context.Context, b Batch, ln *line) answer {
	o := &h.s.r.o
	ln.tries++
	call := h.callOf(b, ln)
	callCtx, cancel := context.WithTimeout(ctx, o.LineTimeout)
	reply, err := h.s.r.Model.Call(callCtx, call)
	if err != nil && callCtx.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrNoCredential) {
		err = fmt.Errorf("%w: after %s", ErrTimeout, o.LineTimeout)
	}
	cancel()
	if ctx.Err() != nil {
		return answer{verdict: again} // nobody looks at it: the claim is over
	}
	switch {
	case errors.Is(err, ErrNoCredential):
		return answer{err: err}
	case errors.Is(err, errNotReady):
		ln.tries-- // nothing was sent
		return answer{verdict: again}
	}
	said := signalOf(reply, err)
	f, what := faultOf(reply, err)
	w := ln.pace.breaker.heard(f, what, time.Now())
	pardoned := f == refusal && w.stormy
	if pardoned {
		ln.forgiven++
	}
	v, wait := o.judge(ln, reply, err, pardoned)
	if v != settled {
		return answer{verdict: v, signal: said, opened: w.opened, wait: wait}
	}
	size := keptSize(reply.Body)
	if err == nil && size > o.ReplyBytes {
		reply, size, err = Reply{}, 0, fmt.Errorf("%w: as a string", ErrReplyTooLarge)
	}
	// A model that didn't ask for room, and a reply that grows when it is kept, do
	// so here. The copy that a record is comes on top of that: one at a time.
	if h.roomFor(ctx, ln, size) != nil {
		return answer{verdict: again, signal: said, opened: w.opened}
	}
	h.s.recording.Lock()
	defer h.s.recording.Unlock()
	return answer{signal: said, opened: w.opened, result: h.record(call, ln, reply, err)}
}

// callOf is the request that a try of ln is.
func (h *hand) callOf(b Batch, ln *line) Call {
	return Call{
		Tenant: h.claim.Tenant, Batch: h.claim.Batch, Submitter: b.Submitter,
		Line: h.part.FirstLine + int64(ln.index), Endpoint: b.Endpoint, Model: ln.req.Model, Body: ln.req.Body, Try: ln.tries,
		Room:  func(ctx context.Context, n int64) error { return h.roomFor(ctx, ln, n) },
		Ready: h.ready,
	}
}

// roomFor waits until the window has room for ln and n bytes of a reply to it.
func (h *hand) roomFor(ctx context.Context, ln *line, n int64) error {
	return h.s.room.grow(ctx, ln.seat, int64(len(ln.raw))+n, func() {
		h.s.events <- func() {} // the loop shall cut a checkpoint
	})
}

// keptSize is how many bytes body takes in a result, at most: one that isn't JSON
// is kept as a string, up to six times as long.
func keptSize(body []byte) int64 {
	if openai.ValidJSON(body) {
		return int64(len(body))
	}
	n := int64(len(body)) + 2
	for _, c := range body {
		switch {
		case c < 0x20:
			n += 5 // \u001f
		case c == '"' || c == '\\':
			n++
		case c >= 0x80:
			n += 2 // where it isn't UTF-8: U+FFFD
		}
	}
	return n
}

// record makes the record of a line's last try: the result for the person, and
// the receipt that says on whose behalf and how the line was replayed.
func (h *hand) record(c Call, ln *line, reply Reply, err error) result {
	id := openai.RequestResultID(c.Batch, ln.number)
	receipt := Receipt{
		Time:        time.Now().UTC(),
		Tenant:      c.Tenant,
		Batch:       c.Batch,
		Line:        c.Line,
		ID:          id,
		CustomID:    ln.req.RawCustomID,
		OnBehalfOf:  c.Submitter,
		Worker:      h.claim.Token,
		Attempt:     ln.tries,
		Model:       ln.req.Model,
		RequestHash: sumOf(c.Body),
	}
	var res openai.ResultLine
	switch w := reply.Withheld; {
	case err != nil:
		res = openai.NoReply(id, ln.req.RawCustomID, failureCode(err))
	case w != nil:
		receipt.Status, receipt.ReplyHash = w.Status, w.Sum
		res = openai.Withheld(id, ln.req.RawCustomID, w.Status, reply.RequestID, w.Code)
	default:
		receipt.Status, receipt.ReplyHash = reply.Status, sumOf(reply.Body)
		if usage, ok := openai.ParseUsage(reply.Body); ok {
			receipt.Usage = &usage
		}
		res = openai.Reply(id, ln.req.RawCustomID, openai.Response{
			StatusCode: reply.Status, RequestID: reply.RequestID, Body: reply.Body,
		})
	}
	if errors.Is(err, ErrModelNotFound) {
		receipt.Attempt = 0 // nothing was sent
	}
	text, from, to := res.AppendKept(make([]byte, 0, len(reply.Body)+512))
	if err == nil {
		receipt.keeps(text[from:to])
	}
	rec := Record{
		Line:    c.Line,
		OK:      res.OK(),
		Receipt: receipt.encode(),
		Result:  bytes.TrimSuffix(text, []byte("\n")),
	}
	stored := rec.Append(make([]byte, 0, len(rec.Receipt)+len(rec.Result)+32))
	return result{index: ln.index, ok: rec.OK, bytes: stored}
}

// failureCode names what happened to a line that has no reply.
func failureCode(err error) string {
	switch {
	case errors.Is(err, errCrashed):
		return openai.CodeLineCrashedWorker
	case errors.Is(err, ErrReplyTooLarge):
		return openai.CodeResponseTooLarge
	case errors.Is(err, ErrModelNotFound):
		return openai.CodeModelNotFound
	case errors.Is(err, ErrTimeout):
		return openai.CodeRequestTimeout
	default:
		return openai.CodeUpstreamUnreachable
	}
}
