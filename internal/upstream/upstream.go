// Package upstream is the batch.Model port over HTTP: any server that speaks
// OpenAI's endpoints under a base URL, or several, by the model that a line names.
//
//	upstream.go    Client: one service, one call
//	choose.go      Services: which service a model has
//	credential.go  the bearer token, and another when it is refused
//	post.go        one request, held back until its caller says that it may go
//	shield.go      answers that are kept back: refusals of the token, what quotes it
//
// A call is one POST of the line's body, byte for byte. The client never
// follows a redirect (it would carry the secret to a host nobody configured),
// never retries (that is the Runner's, which counts), and reads at most the
// configured number of bytes of a reply. There is one exception: after a 401 or 403 the
// secret is read again, and if it is another by now the request is sent once
// more with it, for it was not run. What may be sent is asked each time when the
// connection is there. The client adds four headers that let an
// inference service account for the work: X-Tenant-ID, X-On-Behalf-Of (the
// principal who submitted the batch), X-Batch-ID and X-Batch-Line (the line's
// index from 0). custom_id is data and goes into no header.
//
// Which addresses are connected to is outbound.Guard's, which looks when a
// connection is made. Errors say what kind of trouble there was, and hold no URL, header,
// body or token. Nor does an answer hold the token: one that does is a batch.Withheld,
// as are 401, 403, 407 and redirects, whatever they say.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
	"holdfast/internal/outbound"
)

// Options tune a Client; the zero value works.
type Options struct {
	// Key gives the bearer token for each call of a client of its own; nil or ""
	// sends no Authorization header. Services have their own tokens.
	Key func(context.Context) (string, error)
	// Guard says which addresses may be connected to; the zero value refuses this
	// machine and metadata services, and allows private networks.
	Guard outbound.Guard
	// ReplyBytes bounds a reply's body after decompression; default 16 MiB.
	ReplyBytes int64
	// Timeout bounds one call from its start to the reply's last byte; default
	// 120 s.
	Timeout time.Duration
	// Idle bounds how long the body of an answer that [Client.Open] gave may stand
	// still; default 120 s.
	Idle time.Duration
	// Connections is how many idle connections are kept for the next calls; set
	// it to the largest concurrency. Default 128.
	Connections int
}

// Client is a batch.Model. It is safe for concurrent use.
type Client struct {
	base       string
	key        func(context.Context) (string, error) // nil: credential's
	credential credential
	bound      int64
	timeout    time.Duration
	idle       time.Duration
	http       *http.Client
}

var _ batch.Model = (*Client)(nil)

// New returns a client of the server at base ("https://host[:port][/prefix]",
// without the endpoints' own /v1). It refuses a base that is not an absolute
// http or https URL, or that carries credentials, a query or a fragment, or whose
// host is an address that the guard refuses.
func New(base string, o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	prefix, err := outbound.Base("upstream URL", base)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(prefix)
	if err == nil {
		err = o.Guard.CheckHost(u.Hostname())
	}
	if err != nil {
		return nil, fmt.Errorf("upstream URL: %w", err)
	}
	c := &Client{base: prefix, key: o.Key, bound: o.ReplyBytes, timeout: o.Timeout, idle: o.Idle}
	if c.bound <= 0 {
		c.bound = 16 << 20
	}
	if c.timeout <= 0 {
		c.timeout = 120 * time.Second
	}
	if c.idle <= 0 {
		c.idle = 120 * time.Second
	}
	conns := o.Connections
	if conns <= 0 {
		conns = 128
	}
	c.http = outbound.NewGuardedClient(conns, o.Guard)
	return c, nil
}

// Call posts c.Body to c.Endpoint. See batch.Model for its errors; their texts
// name the kind of trouble and never the URL's host, a header or a body.
func (cl *Client) Call(ctx context.Context, c batch.Call) (batch.Reply, error) {
	callCtx, cancel := context.WithTimeout(ctx, cl.timeout)
	defer cancel()
	header := http.Header{}
	header.Set("X-Tenant-ID", c.Tenant)
	header.Set("X-On-Behalf-Of", c.Submitter)
	header.Set("X-Batch-ID", c.Batch)
	header.Set("X-Batch-Line", strconv.FormatInt(c.Line, 10))
	resp, token, err := cl.ask(callCtx, cancel, request{c.Endpoint, header, c.Body, c.Ready})
	reply := batch.Reply{}
	if resp != nil {
		reply = batch.Reply{Status: resp.StatusCode, RequestID: requestID(resp.Header), RetryAfter: outbound.RetryAfter(resp.Header, time.Now())}
	}
	if w, ok := errors.AsType[*batch.Withheld](err); ok {
		reply.Withheld = w
		return reply, nil
	}
	if held, ok := errors.AsType[errHeld](err); ok {
		return batch.Reply{}, held.error
	}
	switch {
	case err == nil:
	case ctx.Err() != nil && !errors.Is(err, batch.ErrNoCredential), errors.Is(ctx.Err(), context.Canceled):
		return batch.Reply{}, ctx.Err()
	case callCtx.Err() != nil && !errors.Is(err, batch.ErrNoCredential):
		return batch.Reply{}, cl.classify(ctx, callCtx, "no reply")
	default:
		return batch.Reply{}, err
	}
	defer resp.Body.Close()
	body, err := cl.read(callCtx, resp, c.Room)
	if errors.Is(err, batch.ErrReplyTooLarge) {
		return batch.Reply{}, err
	}
	if err != nil {
		return batch.Reply{}, cl.classify(ctx, callCtx, "reply broke off")
	}
	if quotes(body, token) {
		reply.Withheld = batch.Withhold(resp.StatusCode, openai.CodeUpstreamDenied, body)
		return reply, nil
	}
	reply.Body = body
	return reply, nil
}

// Open posts body to endpoint ("/v1/…") with header, to which content type, user
// agent and the service's token are added, and returns the answer as soon as its
// status is there; the caller reads and closes its body. Neither the client's timeout
// nor its bound on replies holds here: the first is ctx's, the second the caller's; but
// the body stands still no longer than Options.Idle, then it fails with
// batch.ErrTimeout. ready is batch.Call's.
//
// The error is batch.ErrUnreachable (batch.ErrRefusedAddress, where a guard refused),
// batch.ErrNoCredential where the token can't be read, ready's own, or a *batch.Withheld;
// what ended with ctx is one of the first two. A body that turns out to quote the token
// when part of it is gone fails with a *batch.Withheld, too.
func (cl *Client) Open(ctx context.Context, endpoint string, header http.Header, body []byte, ready func(context.Context) error) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, token, err := cl.ask(ctx, cancel, request{endpoint, header, body, ready})
	if err == nil {
		resp, err = guarded(resp, token, cl.idle, cancel)
	}
	if held, ok := errors.AsType[errHeld](err); ok {
		err = held.error
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return resp, nil // closing its body cancels
}

func (cl *Client) token(ctx context.Context) (string, error) {
	if cl.key != nil {
		return cl.key(ctx)
	}
	return cl.credential.get(ctx)
}

// read reads a reply's body into memory that room was asked for: at once for all
// of it where its length is known, else in steps that double.
func (cl *Client) read(ctx context.Context, resp *http.Response, room func(context.Context, int64) error) ([]byte, error) {
	tooLarge := fmt.Errorf("%w: status %d, more than %d bytes", batch.ErrReplyTooLarge, resp.StatusCode, cl.bound)
	if resp.ContentLength > cl.bound {
		return nil, tooLarge
	}
	var body []byte
	// One byte beyond the length finds the end without another step.
	next := min(max(resp.ContentLength+1, 4<<10), cl.bound+1)
	for {
		if room != nil {
			if err := room(ctx, next); err != nil {
				return nil, err
			}
		}
		body = append(make([]byte, 0, next), body...)
		for len(body) < cap(body) {
			n, err := resp.Body.Read(body[len(body):cap(body)])
			body = body[:len(body)+n]
			switch {
			case int64(len(body)) > cl.bound:
				return nil, tooLarge
			case err == io.EOF:
				return body, nil
			case err != nil:
				return nil, err
			}
		}
		next = min(2*next, cl.bound+1)
	}
}

// classify tells the caller's own end from the call's timeout from everything
// else. The transport's error is not passed on: its text holds the URL.
func (cl *Client) classify(ctx, callCtx context.Context, what string) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case callCtx.Err() != nil:
		return fmt.Errorf("%w: %s within %s", batch.ErrTimeout, what, cl.timeout)
	default:
		return fmt.Errorf("%w: %s", batch.ErrUnreachable, what)
	}
}

// requestID is the upstream's id for the call, cut to what a result line may
// reasonably echo.
func requestID(h http.Header) string {
	id := h.Get("X-Request-Id")
	if len(id) > 256 {
		id = id[:256]
	}
	return strings.ToValidUTF8(id, "")
}
