package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/functions/api/server"
)

// handler puts an http.Handler behind API Gateway's HTTP API (payload 2.0).
//
// It is ours rather than aws-lambda-go-api-proxy's, which gives up on requests
// a client may well send: a path with a stray % or a body that isn't base64 ends
// there as an error of the function (500 without body or request id), and it
// splits every header at its commas. It also prints what it couldn't read.
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
	header := make(http.Header, len(ev.Headers))
	for name, value := range ev.Headers {
		// Repeated headers come joined by commas. Apart again they would be
		// guesses: a comma may be part of a value.
		header.Set(name, value)
	}
	if len(ev.Cookies) > 0 {
		header.Set("Cookie", strings.Join(ev.Cookies, "; "))
	}
	// Decoded as it is read: an upload is held once as what came and once as what is
	// stored, and not a third time.
	var body io.Reader = strings.NewReader(ev.Body)
	length := int64(len(ev.Body))
	if ev.IsBase64Encoded {
		body = base64.NewDecoder(base64.StdEncoding, body)
		padding := len(ev.Body) - len(strings.TrimRight(ev.Body, "="))
		length = int64(base64.StdEncoding.DecodedLen(len(ev.Body)) - padding)
	}
	// The path arrives decoded, without its stage where that is $default. It is
	// never parsed as a URL: ids are URL-safe, and what isn't names nothing.
	path := ev.RawPath
	if stage := ev.RequestContext.Stage; stage != "" && stage != "$default" {
		if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
			path = rest
		}
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	r := &http.Request{
		Method: ev.RequestContext.HTTP.Method,
		URL:    &url.URL{Scheme: "https", Host: ev.RequestContext.DomainName, Path: path, RawQuery: ev.RawQueryString},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Host: ev.RequestContext.DomainName, RemoteAddr: ev.RequestContext.HTTP.SourceIP,
		Body: io.NopCloser(body), ContentLength: length,
	}
	return r.WithContext(ctx)
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
