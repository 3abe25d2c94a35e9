// Package httpevent makes an *http.Request of an event in payload format 2.0, the form
// in which Lambda gets HTTP from API Gateway's HTTP APIs and from function URLs.
//
// It is ours rather than aws-lambda-go-api-proxy's, which gives up on requests that a
// client may well send: a path with a stray % or a body that isn't base64 ends there as
// an error of the function (500 without body or request id), and it splits every header
// at its commas. It also prints what it couldn't read.
package httpevent

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Event is what both kinds of events say of a request.
type Event struct {
	Method, Host  string
	Path          string // decoded, as rawPath is; without the stage
	Query         string // as it was sent
	Header        map[string]string
	Cookies       []string // those of the Cookie header
	Body          string
	Base64        bool   // whether Body is encoded so
	SourceAddress string // as AWS saw it: no header is to be believed about it
}

// Request is the event as net/http would have read it; it never fails. A body that is
// to be base64 and isn't fails when it is read. A header that came repeatedly is one
// value, joined by commas: apart again they would be guesses, for a comma may be part
// of a value. The path is never parsed as a URL: what isn't a route to the letter is
// none.
func Request(ctx context.Context, e Event) *http.Request {
	header := make(http.Header, len(e.Header))
	for name, value := range e.Header {
		header.Set(name, value)
	}
	if len(e.Cookies) > 0 {
		header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	// Decoded as it is read: a large body is held once as what came and once as what
	// becomes of it, and not a third time.
	var body io.Reader = strings.NewReader(e.Body)
	length := int64(len(e.Body))
	if e.Base64 {
		body = base64.NewDecoder(base64.StdEncoding, body)
		padding := len(e.Body) - len(strings.TrimRight(e.Body, "="))
		length = int64(base64.StdEncoding.DecodedLen(len(e.Body)) - padding)
	}
	path := e.Path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	r := &http.Request{
		Method: e.Method,
		URL:    &url.URL{Scheme: "https", Host: e.Host, Path: path, RawQuery: e.Query},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Host: e.Host, RemoteAddr: e.SourceAddress,
		Body: io.NopCloser(body), ContentLength: length,
	}
	return r.WithContext(ctx)
}
