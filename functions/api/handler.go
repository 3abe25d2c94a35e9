package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/functions/api/server"
	"holdfast/internal/aws/httpevent"
)

// handler puts an http.Handler behind API Gateway's HTTP API (payload 2.0).
type handler struct{ http http.Handler }

// toAnswer is kept of the function's time for telling what went wrong.
const toAnswer = time.Second

// handle never returns an error: whatever a client sent has an HTTP answer.
func (h handler) handle(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	if end, ok := ctx.Deadline(); ok {
		// A port that hangs ends as an answer of ours, not as the gateway's.
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-toAnswer))
		defer cancel()
	}
	w := &answer{header: http.Header{}}
	r := request(ctx, ev)
	h.http.ServeHTTP(w, r)
	return w.response(r.Method == http.MethodHead), nil
}

// request is the event as net/http would have read it.
func request(ctx context.Context, ev events.APIGatewayV2HTTPRequest) *http.Request {
	if id := ev.RequestContext.RequestID; id != "" {
		ctx = server.WithRequestID(ctx, id)
	}
	path := ev.RawPath
	if stage := ev.RequestContext.Stage; stage != "" && stage != "$default" {
		if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
			path = rest
		}
	}
	return httpevent.Request(ctx, httpevent.Event{
		Method: ev.RequestContext.HTTP.Method, Host: ev.RequestContext.DomainName, Path: path, Query: ev.RawQueryString,
		Header: ev.Headers, Cookies: ev.Cookies, Body: ev.Body, Base64: ev.IsBase64Encoded, SourceAddress: ev.RequestContext.HTTP.SourceIP,
	})
}

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

// Header is what WriteHeader will send.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader fixes status and headers, once.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status, a.sent = status, a.header.Clone()
	}
}

// Write appends to the body; a 200 where no status was written.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// maxText is the largest body sent as text. In the answer's JSON a character may
// take six bytes, where base64 takes four for three.
const maxText = 512 << 10

// response is the answer as API Gateway takes it. To HEAD it has no body.
func (a *answer) response(head bool) events.APIGatewayV2HTTPResponse {
	a.WriteHeader(http.StatusOK)
	r := events.APIGatewayV2HTTPResponse{StatusCode: a.status, Headers: map[string]string{}}
	for name, values := range a.sent {
		switch name {
		case "Set-Cookie":
			r.Cookies = values
		case "Content-Length": // the gateway counts for itself
		default:
			r.Headers[name] = strings.Join(values, ", ")
		}
	}
	switch body := a.body.Bytes(); {
	case head:
	case len(body) <= maxText && utf8.Valid(body):
		r.Body = string(body)
	default:
		r.Body, r.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return r
}
