package jobs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"holdfast/internal/outbound"
)

// maxAnswer is the largest answer that is read, in bytes, after decompression.
const maxAnswer = 1 << 20

// kind is what one answer says of a job.
type kind int

const (
	broken  kind = iota // nothing, and asking again at once won't help: err
	later               // nothing, and asking again may help: err
	started             // there is one: job
	pending             // it isn't decided: job
	refused             // there is none and there will be none: err
	exists              // there is one, it says: err
	missing             // there is none
)

// verdict is an answer, judged.
type verdict struct {
	kind  kind
	job   Job
	err   error         // without bridge.ErrRefused; nil with started and missing
	after time.Duration // to wait before the next try, at least
}

func fault(format string, args ...any) verdict {
	return verdict{kind: broken, err: fmt.Errorf(format, args...)}
}

// post asks for the job of id.
func (s *Submitter) post(ctx context.Context, id string, body []byte) verdict {
	return s.call(ctx, http.MethodPost, "/v1/jobs", id, body)
}

// get asks how the job of this name is: the service's own, or our id.
func (s *Submitter) get(ctx context.Context, name string) verdict {
	return s.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(name), "", nil)
}

// call makes one call. No error holds a URL, a header or a body.
func (s *Submitter) call(ctx context.Context, method, path, key string, body []byte) verdict {
	limited, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return fault("%w: its name is no part of a URL", ErrAnswer)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "holdfast")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	var token string
	if s.o.Token != nil {
		token, err = s.o.Token(limited)
		switch {
		case ctx.Err() != nil:
			return fault("%w: %w", ErrUnavailable, context.Cause(ctx))
		case err != nil:
			return fault("%w: its token can't be read: %w", ErrInstallation, err)
		case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
			return fault("%w: its token holds white space or what is not ASCII", ErrInstallation)
		case token != "":
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := s.http.Do(req)
	var answer []byte
	if err == nil {
		defer resp.Body.Close()
		// What follows a 101 is the bare connection, which nothing ends: limited neither.
		if resp.StatusCode != http.StatusSwitchingProtocols {
			answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		}
	}
	switch {
	case err == nil && len(answer) > maxAnswer:
		return fault("%w: its answer %d has more than %d bytes", ErrAnswer, resp.StatusCode, maxAnswer)
	case err == nil:
		return judge(method, resp, answer, token)
	case ctx.Err() != nil:
		return fault("%w: %w", ErrUnavailable, context.Cause(ctx))
	case limited.Err() != nil:
		return verdict{kind: later, err: fmt.Errorf("%w: no whole answer within %s", ErrUnavailable, s.o.Timeout)}
	default: // the transport's text holds the URL
		return verdict{kind: later, err: fmt.Errorf("%w: no whole answer", ErrUnavailable)}
	}
}

// judge says what an answer means: the table of the package's documentation.
func judge(method string, resp *http.Response, body []byte, secret string) verdict {
	status, asked := resp.StatusCode, method == http.MethodPost
	after := outbound.RetryAfter(resp.Header, time.Now())
	if status == http.StatusOK || status == http.StatusCreated || status == http.StatusAccepted {
		job, err := parse(body, status, secret)
		switch {
		case err != nil:
			return verdict{kind: broken, err: err}
		case job.Status == statusRefused:
			return verdict{kind: refused, job: job, err: job.Refusal}
		case status == http.StatusAccepted, job.Status == statusPending:
			return verdict{kind: pending, job: job, err: ErrPending, after: after}
		case job.ID == "":
			return fault("%w: the job has no id", ErrAnswer)
		}
		return verdict{kind: started, job: job}
	}
	said := refusal(body, status, secret)
	said.RetryAfter = after
	// Whatever stands before a service answers 4xx as well, in words of its own.
	word := said.Code != "" || said.Message != ""
	switch {
	case status == http.StatusConflict && asked:
		return verdict{kind: exists, err: said}
	case patient(status), status == http.StatusConflict:
		return verdict{kind: later, err: fmt.Errorf("%w: %w", ErrUnavailable, said), after: after}
	case installations(status), status == http.StatusNotFound && (!word || asked && said.Code == ""):
		return verdict{kind: broken, err: fmt.Errorf("%w: %w", ErrInstallation, said)}
	case word && !asked && (status == http.StatusNotFound || status == http.StatusGone):
		return verdict{kind: missing}
	case word && asked && status >= 400:
		return verdict{kind: refused, err: said}
	}
	return verdict{kind: broken, err: fmt.Errorf("%w: %w", ErrAnswer, said)}
}

// patient reports whether a status asks for patience. 423 is a lock, 499 is what
// proxies note when a call was given up.
func patient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, 499:
		return true
	}
	return status >= 500
}

// installations reports whether a status speaks of who asks, and where, and not of
// what for.
func installations(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusProxyAuthRequired, http.StatusMisdirectedRequest, http.StatusUpgradeRequired:
		return true
	}
	return status >= 300 && status < 400
}
