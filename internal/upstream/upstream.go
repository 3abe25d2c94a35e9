// Package upstream is the batch.Model port over HTTP: any server that speaks
// OpenAI's endpoints under a base URL.
//
// A call is one POST of the line's body, byte for byte. The client never
// follows a redirect (it would carry the secret to a host nobody configured),
// never retries (that is the Runner's, which counts), and reads at most the
// configured number of bytes of a reply. It adds four headers that let an
// inference service account for the work: X-Tenant-ID, X-On-Behalf-Of (the
// principal who submitted the batch), X-Batch-ID and X-Batch-Line (the line's
// index from 0). custom_id is data and goes into no header.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/batch"
)

// Options tune a Client; the zero value works.
type Options struct {
	// Key gives the bearer token for each call, so that a rotated secret is
	// picked up; nil or "" sends no Authorization header.
	Key func(context.Context) (string, error)
	// ReplyBytes bounds a reply's body after decompression; default 16 MiB.
	ReplyBytes int64
	// Timeout bounds one call from its start to the reply's last byte; default
	// 120 s.
	Timeout time.Duration
	// Connections is how many idle connections are kept for the next calls; set
	// it to the largest concurrency. Default 128.
	Connections int
}

// Client is a batch.Model. It is safe for concurrent use.
type Client struct {
	base    string
	key     func(context.Context) (string, error)
	bound   int64
	timeout time.Duration
	http    *http.Client
}

var _ batch.Model = (*Client)(nil)

// New returns a client of the server at base ("https://host[:port][/prefix]",
// without the endpoints' own /v1). It refuses a base that is not an absolute
// http or https URL, or that carries credentials, a query or a fragment.
func New(base string, o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("upstream URL: not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("upstream URL %q: want http(s)://host[:port]", u.Redacted())
	case u.User != nil:
		return nil, errors.New("upstream URL: credentials belong into the secret, not into the URL")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("upstream URL %q: no query or fragment", base)
	}
	prefix := strings.TrimRight(base, "/")
	if strings.HasSuffix(prefix, "/v1") {
		return nil, fmt.Errorf("upstream URL %q: leave out the /v1, the endpoints bring it", base)
	}
	c := &Client{base: prefix, key: o.Key, bound: o.ReplyBytes, timeout: o.Timeout}
	if c.bound <= 0 {
		c.bound = 16 << 20
	}
	if c.timeout <= 0 {
		c.timeout = 120 * time.Second
	}
	conns := o.Connections
	if conns <= 0 {
		conns = 128
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConns:        conns,
			MaxIdleConnsPerHost: conns,
			IdleConnTimeout:     60 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Call posts c.Body to c.Endpoint. See batch.Model for its errors; their texts
// name the kind of trouble and never the URL's host, a header or a body.
func (cl *Client) Call(ctx context.Context, c batch.Call) (batch.Reply, error) {
	callCtx, cancel := context.WithTimeout(ctx, cl.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(callCtx, http.MethodPost, cl.base+c.Endpoint, bytes.NewReader(c.Body))
	if err != nil {
		return batch.Reply{}, fmt.Errorf("%w: endpoint is not part of a URL", batch.ErrUnreachable)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "holdfast")
	req.Header.Set("X-Tenant-ID", c.Tenant)
	req.Header.Set("X-On-Behalf-Of", c.Submitter)
	req.Header.Set("X-Batch-ID", c.Batch)
	req.Header.Set("X-Batch-Line", strconv.FormatInt(c.Line, 10))
	if cl.key != nil {
		key, err := cl.key(callCtx)
		if err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return batch.Reply{}, ctx.Err()
			}
			// No line of a batch is to blame, whatever the time it took.
			return batch.Reply{}, fmt.Errorf("%w: %w", batch.ErrNoCredential, err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
	}
	resp, err := cl.http.Do(req)
	if err != nil {
		return batch.Reply{}, cl.classify(ctx, callCtx, "no reply")
	}
	defer resp.Body.Close()
	body, err := cl.read(callCtx, resp, c.Room)
	if errors.Is(err, batch.ErrReplyTooLarge) {
		return batch.Reply{}, err
	}
	if err != nil {
		return batch.Reply{}, cl.classify(ctx, callCtx, "reply broke off")
	}
	return batch.Reply{
		Status:     resp.StatusCode,
		RequestID:  requestID(resp.Header),
		Body:       body,
		RetryAfter: retryAfter(resp.Header, time.Now()),
	}, nil
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

// retryAfter reads retry-after-ms, then retry-after (seconds, fractions too, or
// an HTTP date). What it can't read, or a time in the past, is 0; more than a
// day counts as a day.
func retryAfter(h http.Header, now time.Time) time.Duration {
	var d time.Duration
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		d = scale(ms, time.Millisecond)
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		d = scale(s, time.Second)
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), 24*time.Hour)
}

// scale is n units without the overflow of a hostile header (NaN is 0).
func scale(n float64, unit time.Duration) time.Duration {
	if !(n > 0) {
		return 0
	}
	return time.Duration(min(n, float64(24*time.Hour/unit)) * float64(unit))
}
