package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// errPanic is a bug that was caught.
type errPanic struct {
	value string // its type only: a panic's text may quote what a caller sent
	at    string // function and line
}

func (e *errPanic) Error() string { return "panic: " + e.value + " at " + e.at }

// panicked names the place of a panic, which is on the caller's stack.
func panicked(p any) error {
	e := &errPanic{value: fmt.Sprintf("%T", p)}
	if err, ok := p.(runtime.Error); ok {
		e.value = err.Error() // indices and types, never contents
	}
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			e.at = fmt.Sprintf("%s:%d", f.Function, f.Line)
			break
		}
		if !more {
			break
		}
	}
	return e
}

// answers is the one table of what a caller is told. The first row that matches
// counts; an *openai.Error made on the way is its own answer. Handlers have
// turned batch.ErrNotFound into the 404 (or 400) that names the id.
//
//	shown no key, or a wrong one   401 invalid_api_key, nothing else told
//	a source of many wrong keys    429 rate_limit_exceeded, retry-after
//	a tenant at a limit of its     an *openai.Error: 429 rate_limit_exceeded or
//	                               enqueued_limit_exceeded, retry-after; 413 file_too_large
//	a key with batch_replay        403 batch_replay_not_authorized, whatever it asks for
//	another tenant asserted        403 tenant_not_authorized
//	key without the scope          403 insufficient_permissions
//	a bug (panic)                  500 server_error
//	a port's trouble, time is up   503 service_unavailable, retry-after
var answers = []struct {
	match func(error) bool
	with  func(error) *openai.Error
}{
	{is[*openai.Error], func(err error) *openai.Error { e, _ := errors.AsType[*openai.Error](err); return e }},
	{equals(access.ErrNoKey, access.ErrInvalidKey), func(error) *openai.Error { return openai.InvalidAPIKey() }},
	{is[*access.LimitError], func(err error) *openai.Error {
		e, _ := errors.AsType[*access.LimitError](err)
		return openai.RateLimited(e.After)
	}},
	{equals(access.ErrReplay), func(error) *openai.Error { return openai.ReplayNotAuthorized() }},
	{equals(access.ErrForeign), func(error) *openai.Error { return openai.TenantNotAuthorized() }},
	{is[*access.ScopeError], func(err error) *openai.Error {
		e, _ := errors.AsType[*access.ScopeError](err)
		return openai.InsufficientScope(string(e.Scope))
	}},
	{is[*errPanic], func(err error) *openai.Error { return openai.Internal(err) }},
	{everything, func(err error) *openai.Error { return openai.Unavailable(time.Second, err) }},
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func everything(error) bool { return true }

func equals(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
}

// answer is what err becomes on the wire.
func answer(err error) *openai.Error {
	for _, row := range answers {
		if row.match(err) {
			return row.with(err)
		}
	}
	return openai.Internal(err) // the last row matches everything
}

// report logs a request: no path (it may hold anything), no header, no body.
func (s *Server) report(r *http.Request, x *exchange) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request_id", x.id),
		slog.String("method", knownMethod(r.Method)),
		slog.String("route", x.route),
		slog.Int("status", x.status),
		slog.Int64("ms", s.now().Sub(x.now).Milliseconds()),
	}
	if x.caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", x.caller.Tenant), slog.String("principal", x.caller.Principal), slog.String("key", x.caller.Key))
	}
	if e, ok := errors.AsType[*openai.Error](x.err); ok {
		attrs = append(attrs, slog.String("code", e.Code))
		// The message may quote the caller. The cause of a 4xx may do so too; that
		// of a 5xx is ours.
		if e.Status >= 500 {
			level = slog.LevelError
			if e.Err != nil {
				attrs = append(attrs, slog.String("error", e.Err.Error()))
			}
		}
		if errors.Is(e.Err, context.Canceled) {
			level = slog.LevelWarn // the client went away
		}
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// knownMethod keeps a made-up method out of the log.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
