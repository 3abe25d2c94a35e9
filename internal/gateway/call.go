package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode/utf8"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

const (
	// intendTime is how long a call waits for its receipt, and completeTime how long a
	// receipt is tried to be completed when nobody waits for it any more.
	intendTime   = 3 * time.Second
	completeTime = 5 * time.Second
	// maxModel is the longest name of a model that a receipt has room for, in bytes.
	maxModel = 512
)

// call is a request to a model, from its body on.
func (g *Gateway) call(x *exchange, q *request) error {
	body, err := g.body(q)
	if err != nil {
		return err
	}
	about, err := openai.ParseBody(body, g.settings.Nesting)
	if err != nil {
		return err
	}
	if len(about.Model) > maxModel {
		return openai.Invalid("invalid_model", "model", "Invalid 'model': a name has at most %d bytes.", maxModel)
	}
	if !utf8.ValidString(about.Model) { // a lone surrogate, which no receipt could hold
		return openai.Invalid("invalid_model", "model", "Invalid 'model': it holds what is no character.")
	}
	began := g.now().UTC().Truncate(time.Millisecond)
	sum := sha256.Sum256(body)
	receipt := access.Receipt{
		ReceiptName: access.ReceiptName{Tenant: q.who.Tenant, Batch: q.who.Batch, StartedAt: began, RequestID: x.id},
		OnBehalfOf:  q.who.OnBehalfOf, Key: q.who.Key, Endpoint: q.URL.Path, Model: about.Model, RequestHash: hex.EncodeToString(sum[:]),
	}
	if q.who.Line != access.NoLine {
		receipt.Line = &q.who.Line
	}
	if err := g.intend(q.Context(), receipt); err != nil {
		return err
	}
	done := access.Completion{Outcome: access.Torn} // what a panic leaves
	defer func() {
		if done.Outcome == access.Torn && done.Status == 0 {
			done.Status = x.status
		}
		done.Time = g.now().UTC().Truncate(time.Millisecond)
		done.Millis = max(done.Time.Sub(began).Milliseconds(), 0)
		x.outcome = done.Outcome
		g.complete(q.Context(), receipt.ReceiptName, done)
	}()
	done, err = g.made(x, q, about, body)
	return err
}

// body reads the request's body, which is bounded as a line's is.
func (g *Gateway) body(q *request) ([]byte, error) {
	limit := g.settings.LineBytes
	if q.ContentLength > limit {
		return nil, openai.RequestTooLarge(limit)
	}
	body, err := io.ReadAll(io.LimitReader(q.Body, limit+1))
	if err != nil {
		e := openai.InvalidJSON("the request ended early")
		e.Err = err
		return nil, e
	}
	if int64(len(body)) > limit {
		return nil, openai.RequestTooLarge(limit)
	}
	return body, nil
}

// intend stores the receipt of what is about to be done. No receipt, no call.
func (g *Gateway) intend(ctx context.Context, r access.Receipt) error {
	ctx, cancel := context.WithTimeout(ctx, intendTime)
	defer cancel()
	if err := g.ports.Receipts.Intend(ctx, r); err != nil {
		return fmt.Errorf("no receipt, no call: %w", err)
	}
	return nil
}

// complete says in the receipt how the call ended, also when the client is gone and
// the request's time over. What fails here leaves a receipt that says: perhaps.
func (g *Gateway) complete(ctx context.Context, n access.ReceiptName, c access.Completion) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completeTime)
	defer cancel()
	if err := g.ports.Receipts.Complete(ctx, n, c); err != nil {
		g.log.LogAttrs(ctx, slog.LevelError, "receipt not completed",
			slog.String("request_id", n.RequestID), slog.String("tenant", n.Tenant), slog.String("batch", n.Batch), slog.Any("error", err))
	}
}

// withdrawn is why a call that was allowed is not made any more.
type withdrawn struct{ error }

// still tells, when the request is about to go on the wire, whether it may: a replay on
// a view of its batch that is not too old, or on a new one.
// Interleaving it stops: look; cancel; the receipt takes its time, or the upstream's
// secret does, or its refusal of an old one; a line is sent for somebody who has
// withdrawn it long ago.
func (g *Gateway) still(q *request) func(context.Context) error {
	return func(ctx context.Context) error {
		if !q.who.Replay || within(maxAge, q.seen, g.now()) {
			return nil
		}
		who, err := access.Decide(ctx, q.caller, q.asserted, g.views.runs(nil, &q.seen))
		if err == nil && who != q.who {
			err = access.ErrReplay
		}
		if err != nil {
			return withdrawn{err}
		}
		return nil
	}
}

// made makes the call and passes the answer on. The error is for the client, if it
// has no answer yet.
func (g *Gateway) made(x *exchange, q *request, about openai.Body, body []byte) (access.Completion, error) {
	ctx, cancel := context.WithTimeout(q.Context(), g.settings.FunctionTimeout-g.settings.Margin)
	defer cancel()
	resp, err := g.ports.Upstream.Open(ctx, about.Model, q.URL.Path, outgoing(q.who, x.id, about.Stream), body, g.still(q))
	if err != nil {
		return unanswered(ctx, q.Context(), about.Model, err)
	}
	defer resp.Body.Close()
	if resp.ContentLength > g.settings.ReplyBytes {
		return access.Completion{Outcome: access.TooLarge, Status: resp.StatusCode}, openai.UpstreamTooLarge(g.settings.ReplyBytes)
	}
	return g.relay(ctx, x, q, resp)
}

// unanswered tells why there is no answer; ctx is the call's, client the request's.
func unanswered(ctx, client context.Context, model string, err error) (access.Completion, error) {
	if w, ok := errors.AsType[withdrawn](err); ok {
		return access.Completion{Outcome: access.Withdrawn}, w.error
	}
	if w, ok := errors.AsType[*batch.Withheld](err); ok {
		return access.Completion{Outcome: access.Denied, Status: w.Status, ReplyHash: w.Sum, ReplyBytes: w.Bytes}, openai.UpstreamWithheld(w.Code, w)
	}
	switch {
	case errors.Is(err, batch.ErrModelNotFound):
		return access.Completion{Outcome: access.Unserved}, openai.ModelNotFound(model)
	case errors.Is(err, batch.ErrNoCredential):
		return access.Completion{Outcome: access.NoSecret}, openai.Unavailable(time.Second, err)
	case errors.Is(client.Err(), context.Canceled):
		return access.Completion{Outcome: access.ClientGone}, openai.UpstreamUnreachable(context.Canceled)
	case ctx.Err() != nil:
		return access.Completion{Outcome: access.TimedOut}, openai.UpstreamTimeout(err)
	}
	return access.Completion{Outcome: access.Unreachable}, openai.UpstreamUnreachable(err)
}
