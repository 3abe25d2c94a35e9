package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/aws/httpevent"
	"holdfast/internal/aws/meter"
	"holdfast/internal/batch"
	"holdfast/internal/gateway"
)

// handler puts an http.Handler behind a function URL whose invoke mode is
// RESPONSE_STREAM: what the http.Handler writes is on its way at once.
//
// It is ours rather than aws-lambda-go's lambdaurl, which has no answer to a path that
// is no URL (it ends as an error of the function), lets a panic end the process with
// every request's cache, and can't tell a reply that broke off from a whole one: here
// the runtime is told, and cuts the client's connection.
type handler struct {
	http  http.Handler
	usage meter.Invocations
}

// toEnd is kept of the function's time for an answer, and for the receipt of what was
// cut short.
const toEnd = 8 * time.Second

// errBroke is all that the runtime is told.
var errBroke = errors.New("the reply broke off")

// handle never returns an error: whatever a client sent has an HTTP answer. It
// returns with that answer's first byte; the rest is read from it.
func (h handler) handle(ctx context.Context, ev events.LambdaFunctionURLRequest) (*events.LambdaFunctionURLStreamingResponse, error) {
	ctx, cancel := sooner(ctx, toEnd)
	ctx, counted := h.usage.Start(ctx)
	r := request(ctx, ev)
	out, in := io.Pipe()
	s := &stream{header: http.Header{}, body: in, bodiless: r.Method == http.MethodHead, ready: make(chan struct{})}
	go func() {
		defer cancel()
		// Last: as soon as it is read, the process may stand still until the next
		// request.
		defer func() {
			if recover() != nil { // http.ErrAbortHandler, or a bug that the handler didn't see
				s.WriteHeader(http.StatusInternalServerError)
				_ = in.CloseWithError(errBroke)
				return
			}
			s.WriteHeader(http.StatusOK)
			in.Close()
		}()
		defer counted(nil, batch.Subject{})
		h.http.ServeHTTP(s, r)
	}()
	<-s.ready
	return &events.LambdaFunctionURLStreamingResponse{StatusCode: s.status, Headers: s.sent, Body: &reading{out, cancel}}, nil
}

// sooner is ctx with an end that comes so much before its own, if that has one.
func sooner(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, end.Add(-d))
	}
	return context.WithCancel(ctx)
}

// reading is the answer's body as the runtime reads it. Closed before its end, which
// is how it says that nobody is there any more, it ends the request.
type reading struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the request, if it is not over.
func (b *reading) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// request is the event as net/http would have read it, without cookies, which nothing
// here reads.
func request(ctx context.Context, ev events.LambdaFunctionURLRequest) *http.Request {
	if id := ev.RequestContext.RequestID; id != "" {
		ctx = gateway.WithRequestID(ctx, id)
	}
	return httpevent.Request(ctx, httpevent.Event{
		Method: ev.RequestContext.HTTP.Method, Host: ev.RequestContext.DomainName, Path: ev.RawPath, Query: ev.RawQueryString,
		Header: ev.Headers, Body: ev.Body, Base64: ev.IsBase64Encoded, SourceAddress: ev.RequestContext.HTTP.SourceIP,
	})
}

// stream is an http.ResponseWriter whose body is read as it is written.
type stream struct {
	header   http.Header
	body     *io.PipeWriter
	bodiless bool // the answer to a HEAD
	once     sync.Once
	ready    chan struct{} // closed when the next two are fixed
	status   int
	sent     map[string]string
}

// Header is what WriteHeader will send.
func (s *stream) Header() http.Header { return s.header }

// WriteHeader fixes status and headers, once. One that is none, or no answer's, becomes
// a 502: left out, what follows would look like a success.
func (s *stream) WriteHeader(status int) {
	switch {
	case status < 100, status == http.StatusSwitchingProtocols, status > 599:
		status = http.StatusBadGateway
	case status < 200: // there is another to come
		return
	}
	s.once.Do(func() {
		s.status, s.sent = status, map[string]string{}
		for name, values := range s.header {
			if name != "Content-Length" { // the function URL cuts the body into chunks of its own
				s.sent[name] = strings.Join(values, ", ")
			}
		}
		close(s.ready)
	})
}

// Write waits until b was read; a 200 where no status was written. It fails when the
// reader has gone.
func (s *stream) Write(b []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	if s.bodiless || len(b) == 0 {
		return len(b), nil
	}
	return s.body.Write(b)
}

// Flush does nothing: there is no buffer.
func (s *stream) Flush() { s.WriteHeader(http.StatusOK) }
