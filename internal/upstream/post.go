package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"holdfast/internal/batch"
	"holdfast/internal/outbound"
)

// request is what is to be posted.
type request struct {
	endpoint string
	header   http.Header
	body     []byte
	ready    func(context.Context) error // see batch.Call
}

// errHeld: ready refused; nothing of the request was sent.
type errHeld struct{ error }

func (e errHeld) Unwrap() error { return e.error }

// ask posts q with the service's token, and once more if that is refused and is another
// by now, and returns the answer, without headers that hold the token, and the token that
// it was asked with. Where nobody may see the body it is read and closed, and the error is
// a *batch.Withheld. errHeld where ready refused before anything was sent; a first answer
// stands where it did before the second. cancel ends ctx.
func (cl *Client) ask(ctx context.Context, cancel context.CancelFunc, q request) (*http.Response, string, error) {
	token, err := cl.token(ctx)
	if err != nil {
		// No line of a batch is to blame, whatever the time it took.
		return nil, "", fmt.Errorf("%w: %w", batch.ErrNoCredential, err)
	}
	resp, err := cl.once(ctx, cancel, q, token)
	if resp == nil || !refused(resp.StatusCode) || token == "" || cl.key != nil {
		return resp, token, err
	}
	fresh := cl.credential.renew(ctx, token, resp.StatusCode)
	if fresh == token {
		return resp, token, err
	}
	again, errAgain := cl.once(ctx, cancel, q, fresh)
	if _, held := errors.AsType[errHeld](errAgain); held {
		return resp, token, err
	}
	return again, fresh, errAgain
}

// once is post, and judges what came.
func (cl *Client) once(ctx context.Context, cancel context.CancelFunc, q request, token string) (*http.Response, error) {
	ctx, end := context.WithCancel(ctx) // of this request: there may be a second
	resp, err := cl.post(ctx, cancel, q, token)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = ending{resp.Body, end}
	clean(resp.Header, token)
	if code := batch.WithheldCode(resp.StatusCode); code != "" {
		return resp, withhold(resp, code, min(cl.idle, lookedFor), end)
	}
	return resp, nil
}

// ending is a body whose request ends with it.
type ending struct {
	io.ReadCloser
	end context.CancelFunc
}

// Close implements io.Closer.
func (e ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// post sends the request once.
func (cl *Client) post(ctx context.Context, cancel context.CancelFunc, q request, token string) (*http.Response, error) {
	g := &gate{ready: q.ready, shut: cancel}
	req, err := http.NewRequestWithContext(g.watch(ctx), http.MethodPost, cl.base+q.endpoint, bytes.NewReader(q.body))
	if err != nil {
		return nil, fmt.Errorf("%w: endpoint is not part of a URL", batch.ErrUnreachable)
	}
	maps.Copy(req.Header, q.header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "holdfast")
	req.Header.Del("Authorization")
	authorization, err := bearer(token)
	if err != nil {
		return nil, err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	// The transport, for a client looks where a redirect leads before it doesn't follow, and
	// fails of what it can't read there.
	resp, err := cl.http.Transport.RoundTrip(req)
	if err := g.refused(); err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return nil, err
	}
	if errors.Is(err, outbound.ErrAddress) {
		return nil, batch.ErrRefusedAddress
	}
	if err != nil {
		// The transport's own error is not passed on: its text holds the URL.
		return nil, fmt.Errorf("%w: no reply", batch.ErrUnreachable)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 599 {
		// 101 would make a tunnel of it, and what HTTP doesn't know no client does.
		resp.Body.Close()
		return nil, fmt.Errorf("%w: a status that is none", batch.ErrUnreachable)
	}
	return resp, nil
}

// gate holds a request back, on a connection that is there, until its caller says that
// it may still go.
type gate struct {
	ready func(context.Context) error
	shut  context.CancelFunc

	mu  sync.Mutex
	err error
}

// watch is ctx for a request that is asked about each time it gets a connection: once,
// or again where one that was kept turned out to be dead.
func (g *gate) watch(ctx context.Context) context.Context {
	if g.ready == nil {
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { g.ask(ctx, c.Conn) }})
}

// ask lets the request go, or makes sure that nothing of it is written. HTTP/2 looks at
// the context before it writes a header, and its connection is others', too. HTTP/1 may
// have written by then: its connection, which is the request's alone, is closed. The
// transport owns it, and asks not to do that; it takes it for a peer that left, and the
// end of the context keeps it from trying another.
func (g *gate) ask(ctx context.Context, conn net.Conn) {
	err := g.ready(ctx)
	if err == nil {
		return
	}
	held := error(errHeld{err})
	if ctx.Err() != nil { // no answer to the question, but the end of who asks
		held = fmt.Errorf("%w: no reply", batch.ErrUnreachable)
	}
	g.mu.Lock()
	g.err = held
	g.mu.Unlock()
	g.shut()
	if secure, ok := conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
	}
}

func (g *gate) refused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
