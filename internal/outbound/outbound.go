// Package outbound is what the clients of services that somebody else runs have in
// common: which base URLs they take, how they connect, and how long an answer asks
// them to wait. What an answer means is each client's own.
package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Base is raw ("https://host[:port][/prefix]", without the /v1 that every path
// brings), fit to have a path put behind it. It refuses what is not an absolute
// http or https URL, and what carries credentials, a query or a fragment; what
// names the URL in the error, which holds no password.
func Base(what, raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: not a URL", what)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("%s %q: want http(s)://host[:port]", what, u.Redacted())
	case u.User != nil:
		return "", errors.New(what + ": credentials belong into the secret, not into the URL")
	case strings.ContainsAny(raw, "?#"): // an empty one would swallow what is put behind, too
		return "", fmt.Errorf("%s %q: no query or fragment", what, raw)
	}
	base := strings.TrimRight(raw, "/")
	if strings.HasSuffix(base, "/v1") {
		return "", fmt.Errorf("%s %q: leave out the /v1, the endpoints bring it", what, raw)
	}
	return base, nil
}

// NewClient returns a client that keeps so many idle connections, gives up on one
// that isn't there within 10 s, and follows no redirect: that would carry the
// secret to a host nobody configured. It has no time limit: that is each call's.
func NewClient(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConns:        connections,
			MaxIdleConnsPerHost: connections,
			IdleConnTimeout:     60 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RetryAfter reads retry-after-ms, then retry-after (seconds, fractions too, or
// an HTTP date). What it can't read, or a time in the past, is 0; more than a
// day counts as a day.
func RetryAfter(h http.Header, now time.Time) time.Duration {
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
