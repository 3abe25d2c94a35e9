package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The variables that say where the API is and who calls.
const (
	envURL = "HOLDFAST_URL"
	envKey = "HOLDFAST_API_KEY"
)

// client speaks to the API.
type client struct {
	http  *http.Client // follows no redirect
	base  string       // without /v1
	key   string
	pause time.Duration
}

// client makes one from the environment.
func (a *app) client() (*client, error) {
	base, key := a.getenv(envURL), a.getenv(envKey)
	const hint = "With a local stack: . .local/env"
	if base == "" {
		return nil, usage(hint+". On AWS it is the stack's output ApiUrl.", "%s is not set: it is the URL of the API, without /v1", envURL)
	}
	base = strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1")
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return nil, usage(hint, "%s is not an http(s) URL", envURL)
	}
	if key == "" {
		return nil, usage(hint+". Otherwise make a key: holdfast key create --help", "%s is not set: it is the API key", envKey)
	}
	if strings.ContainsAny(key, " \t\r\n") {
		return nil, usage("", "%s holds white space: it is not an API key", envKey)
	}
	direct := *a.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{http: &direct, base: base, key: key, pause: a.pause}, nil
}

// apiError is a refusal by the API, or an answer that isn't the API's.
type apiError struct {
	Status    int
	Message   string
	Code      string
	Param     string
	RequestID string
	After     time.Duration // when to come again; 0: not said
	Foreign   string        // where it came from, if it isn't in the API's shape
}

// Error is the API's own message with what finds it in a log.
func (e *apiError) Error() string {
	var more []string
	if e.Code != "" {
		more = append(more, "code "+e.Code)
	}
	if e.RequestID != "" {
		more = append(more, "request id "+e.RequestID)
	}
	s := fmt.Sprintf("%d: %s", e.Status, e.Message)
	if len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}
	if e.Foreign != "" {
		s += "; this doesn't look like Holdfast's API: " + e.Foreign
	}
	return s
}

// readTries is how often a read is tried before its failure counts.
const readTries = 6

// get reads one object of the API into v, patiently: reading twice harms
// nothing.
func (c *client) get(ctx context.Context, path string, v any) error {
	return c.patiently(ctx, func() error {
		req, err := c.request(ctx, http.MethodGet, path, nil)
		if err != nil {
			return backoff.Permanent(err)
		}
		return c.do(req, v)
	})
}

// post sends a body once: whether a lost answer means a second batch is not for
// a program to guess.
func (c *client) post(ctx context.Context, path, contentType string, body io.Reader, length int64, v any) error {
	req, err := c.request(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	req.ContentLength = length
	req.Header.Set("Content-Type", contentType)
	return c.do(req, v)
}

// content opens a file's bytes, patiently.
func (c *client) content(ctx context.Context, fileID string) (io.ReadCloser, error) {
	return c.open(ctx, contentPath(fileID), 0)
}

func contentPath(fileID string) string { return "/v1/files/" + url.PathEscape(fileID) + "/content" }

// open opens the bytes that a path hands out, from an offset on, patiently. The link
// is followed by hand: where API and objects share a host, an HTTP client would send
// the key along, and a signed URL with an Authorization header is refused.
func (c *client) open(ctx context.Context, path string, from int64) (io.ReadCloser, error) {
	var body io.ReadCloser
	err := c.patiently(ctx, func() error {
		req, err := c.request(ctx, http.MethodGet, path, nil)
		if err != nil {
			return backoff.Permanent(err)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return err
		}
		linked := resp.StatusCode == http.StatusFound
		if linked {
			link, err := resp.Location()
			resp.Body.Close()
			if err != nil {
				return backoff.Permanent(err)
			}
			follow, err := http.NewRequestWithContext(ctx, http.MethodGet, link.String(), nil)
			if err != nil {
				return backoff.Permanent(errors.New("the API answered with a link that is no URL"))
			}
			if from > 0 {
				follow.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
			}
			if resp, err = c.http.Do(follow); err != nil {
				return err
			}
		}
		if resp.StatusCode == http.StatusOK && from > 0 { // a range that was ignored
			if _, err := io.CopyN(io.Discard, resp.Body, from); err != nil {
				resp.Body.Close()
				return err
			}
		}
		if resp.StatusCode != http.StatusOK && (resp.StatusCode != http.StatusPartialContent || from == 0) {
			defer resp.Body.Close()
			if !linked {
				return refusal(resp)
			}
			err := &storeError{resp.StatusCode}
			if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
				return backoff.Permanent(err)
			}
			return err
		}
		body = resp.Body
		return nil
	})
	return body, err
}

func (c *client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "holdfast-cli")
	return req, nil
}

// maxAnswer bounds a JSON answer; a page of batches is far below.
const maxAnswer = 16 << 20

func (c *client) do(req *http.Request, v any) error {
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil || !ours(resp, body) {
		return &apiError{Status: resp.StatusCode, Message: "unexpected answer", Foreign: place(resp.Request.URL)}
	}
	return nil
}

// ours reports whether an answer with the status 200 may be the API's: another
// server's fits any struct if it is an object at all.
func ours(resp *http.Response, body []byte) bool {
	if resp.Header.Get("X-Request-Id") != "" {
		return true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return false
	}
	return members["id"] != nil || members["object"] != nil || members["data"] != nil
}

// place is a URL without what may be secret in it.
func place(u *url.URL) string { return u.Scheme + "://" + u.Host + u.Path }

// refusal reads an error body. One of another shape, or without a request id,
// came from another server or from something in between.
func refusal(resp *http.Response) error {
	e := &apiError{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	var body struct {
		Error *struct {
			Message string `json:"message"`
			Code    string `json:"code"`
			Param   string `json:"param"`
		} `json:"error"`
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(raw, &body) == nil && body.Error != nil {
		e.Message, e.Code, e.Param = body.Error.Message, body.Error.Code, body.Error.Param
	} else {
		e.Message = "unexpected answer: " + http.StatusText(resp.StatusCode)
		e.Foreign = place(resp.Request.URL)
	}
	if e.RequestID == "" {
		e.Foreign = place(resp.Request.URL)
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 && s <= int(longestAfter/time.Second) {
		e.After = time.Duration(s) * time.Second
	}
	return e
}

// The longest time to come again that is told, and the longest that is waited for.
const (
	longestAfter = 24 * time.Hour
	patience     = time.Minute
)

// patiently repeats what may be done twice while its failure may pass: no connection,
// 429, 5xx, a copy of it under way.
func (c *client) patiently(ctx context.Context, read func() error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = c.pause
	pause.MaxInterval = 20 * c.pause
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := read()
		e, ours := errors.AsType[*apiError](err)
		switch {
		case err == nil:
		case ours && e.Status != http.StatusTooManyRequests && e.Status < 500 && e.Code != "idempotency_in_progress", !ours && !passing(err):
			err = backoff.Permanent(err)
		case ours && e.After > 0 && e.After <= patience:
			err = errors.Join(err, backoff.RetryAfter(int(e.After/time.Second)))
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(readTries), backoff.WithMaxElapsedTime(2*time.Minute))
	if p, ok := errors.AsType[*backoff.PermanentError](err); ok {
		err = p.Unwrap()
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // and not its cause, of which only signal knows the type
	}
	return err
}

// passing reports whether a transport's error may be gone the next time. A
// certificate that isn't trusted won't be.
func passing(err error) bool {
	if _, ok := errors.AsType[*backoff.PermanentError](err); ok {
		return false
	}
	return !untrusted(err) && !errors.Is(err, context.Canceled)
}

func untrusted(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return authority || host || invalid
}

// mayBeDone reports whether what was sent may have been done, whatever came back of it.
func mayBeDone(err error) bool {
	said, answered := errors.AsType[*apiError](err)
	way, isNet := errors.AsType[*net.OpError](err)
	return !(answered && said.Status < 500 || isNet && way.Op == "dial" || untrusted(err))
}

// trouble words an error of the client for a person: what was tried, what was
// wrong, what to do.
func (c *client) trouble(doing string, err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	if e, ok := errors.AsType[*apiError](err); ok {
		return failed(c.adviceFor(e), e, "%s: the server answered %v", doing, e)
	}
	hint, toAPI := "", false
	_, dns := errors.AsType[*net.DNSError](err)
	_, dial := errors.AsType[*net.OpError](err)
	if u, ok := errors.AsType[*url.Error](err); ok {
		toAPI = strings.HasPrefix(u.URL, c.base+"/")
		err = u.Err // without the URL: a signed one is a credential
	}
	switch {
	case errors.Is(err, context.Canceled):
		return failed("", err, "%s: interrupted", doing)
	case untrusted(err):
		hint = "The certificate is not trusted. For a local stack set SSL_CERT_FILE (. .local/env does)."
	case toAPI && c.plain() && garbled(err):
		return failed("If that port speaks TLS, the URL begins with https://. With a local stack: . .local/env", err,
			"%s: no HTTP answer from %s=%s: %v", doing, envURL, c.where(), err)
	case toAPI && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		hint = "It doesn't speak TLS: " + envURL + "=" + c.where() + " has to begin with http://, or needs another port."
	case dns || dial:
		hint = "Is " + envURL + "=" + c.where() + " right, and is the stack up (make up)?"
	}
	return failed(hint, err, "%s: %v", doing, err)
}

// where is the URL of the API for a person to read.
func (c *client) where() string {
	u, err := url.Parse(c.base)
	if err != nil {
		return ""
	}
	return place(u)
}

// plain reports whether the API is spoken to without TLS.
func (c *client) plain() bool { return strings.HasPrefix(strings.ToLower(c.base), "http://") }

// garbled reports whether something was there that didn't answer in HTTP: what
// becomes of HTTP on a port for TLS.
func garbled(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		strings.Contains(err.Error(), "malformed HTTP")
}

// adviceFor is what a person can do about a refusal beyond its own message.
func (c *client) adviceFor(e *apiError) string {
	const right = envURL + ": it is the URL of the API, without /v1. With a local stack: . .local/env"
	passing := e.Status == http.StatusTooManyRequests || e.Status >= 500
	switch {
	case e.Foreign != "" && passing: // what stands before the API says so too
		return "Try again in a moment. If it stays so, check " + right
	case e.Foreign != "" && c.plain() && (e.Status == http.StatusBadRequest || e.Status/100 == 3):
		return "Check " + right + ". If that port speaks TLS, it begins with https://."
	case e.Foreign != "":
		return "Check " + right
	case e.Code == "unknown_url":
		return "Is " + envURL + " the API's (ApiUrl), not the gateway's?"
	case e.Status == http.StatusUnauthorized:
		return "Check " + envKey + ". A new key: holdfast key create --help"
	case e.Code == "scope_not_allowed":
		return "With the operator's AWS credentials the same command does it without --api."
	case e.Code == "key_not_found":
		return "holdfast key list --api shows the ids. One that was made within the last second may not be found yet."
	case e.Code == "insufficient_permissions" && strings.Contains(e.Message, "'admin'"):
		return "Make a key with that scope: holdfast key create --scopes submit,read,admin …"
	case e.Code == "insufficient_permissions":
		return "Make a key with that scope: holdfast key create --scopes submit,read …"
	case e.Code == "file_too_large_for_direct_upload":
		return "holdfast submit sends such a file in parts by itself; other clients use POST /v1/uploads."
	case e.Code == "batch_not_found":
		return "Batches are seen by keys of their own tenant only."
	case e.Code == "file_too_large":
		return "It is the limit of the tenant (holdfast tenant show TENANT) or that of the installation (HOLDFAST_FILE_BYTES): ask its operator."
	case passing && e.After > 0:
		return fmt.Sprintf("Try again in %d s.", e.After/time.Second)
	case passing:
		return "Try again in a moment."
	}
	return ""
}
