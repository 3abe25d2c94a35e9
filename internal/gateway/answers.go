package gateway

import (
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

// answer is what an error becomes on the wire; what was refused by constructors of
// package openai is its own answer.
//
//	shown no key, or a wrong one        401 invalid_api_key, nothing else told
//	a source of many wrong keys         429 rate_limit_exceeded, retry-after
//	key without the scope               403 insufficient_permissions
//	batch_replay for anything else      403 batch_replay_not_authorized
//	another tenant asserted             403 tenant_not_authorized
//	more requests than the tenant may   429 rate_limit_exceeded, retry-after
//	a key of many refused replays       429 rate_limit_exceeded, retry-after
//	no receipt, a port's trouble        503 service_unavailable, retry-after
//	upstream: none for the model        404 model_not_found
//	upstream: no reply                  502 upstream_unreachable, 504 request_timeout
//	upstream: our credential is no good,
//	  or quoted                         502 upstream_denied
//	upstream: a redirect                502 upstream_redirected
//	upstream: too much                  502 response_too_large
//	a bug (panic)                       500 server_error
func answer(err error) *openai.Error {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*access.LimitError](err); ok {
		return openai.RateLimited(e.After)
	}
	if e, ok := errors.AsType[*access.ScopeError](err); ok {
		return openai.InsufficientScope(string(e.Scope))
	}
	switch {
	case errors.Is(err, access.ErrNoKey), errors.Is(err, access.ErrInvalidKey):
		return openai.InvalidAPIKey()
	case errors.Is(err, access.ErrReplay):
		return openai.ReplayNotAuthorized()
	case errors.Is(err, access.ErrForeign):
		return openai.TenantNotAuthorized()
	}
	return openai.Unavailable(time.Second, err)
}

// panicked is a bug that was caught: its type and place, for its text may quote what
// a caller sent.
func panicked(p any) error {
	at := "somewhere"
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			at = fmt.Sprintf("%s:%d", f.Function, f.Line)
			break
		}
		if !more {
			break
		}
	}
	return openai.Internal(fmt.Errorf("panic: %T at %s", p, at))
}

// exchange is one request's way through the gateway: the writer of its answer, and
// what the log will say of it.
type exchange struct {
	http.ResponseWriter
	id      string
	began   time.Time
	route   string // "" if there is none
	who     access.Identity
	outcome access.Outcome // "" where no call was to be made
	status  int            // 0 until something is written
	err     error
}

// Unwrap is how http.ResponseController finds the writer's Flush.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader notes the first status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implies a 200 as net/http does.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(b)
}

// report logs a request: no header, no body, no model, and of the path what is
// configured. Who was refused by the replay rule is there as whose key it was; whom
// it asserted was a header.
func (g *Gateway) report(r *http.Request, x *exchange) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request_id", x.id),
		slog.String("route", x.route),
		slog.Int("status", x.status),
		slog.Int64("ms", max(g.now().Sub(x.began).Milliseconds(), 0)),
	}
	if x.who.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", x.who.Tenant), slog.String("principal", x.who.OnBehalfOf), slog.String("key", x.who.Key))
	}
	if x.who.Batch != "" {
		attrs = append(attrs, slog.String("batch", x.who.Batch), slog.Int64("line", x.who.Line))
	}
	if x.outcome != "" {
		attrs = append(attrs, slog.String("outcome", string(x.outcome)))
	}
	if e, ok := errors.AsType[*openai.Error](x.err); ok {
		attrs = append(attrs, slog.String("code", e.Code))
		// The message may quote the caller, and so may the cause of a 4xx; that of a
		// 5xx is ours.
		if e.Status >= 500 {
			level = slog.LevelError
			if e.Err != nil {
				attrs = append(attrs, slog.String("error", e.Err.Error()))
			}
		}
		if x.outcome == access.ClientGone {
			level = slog.LevelWarn
		}
	}
	g.log.LogAttrs(r.Context(), level, "request", attrs...)
}
