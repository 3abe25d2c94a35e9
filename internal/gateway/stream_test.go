package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/gateway"
)

const streamed = `{"model":"sim","stream":true}`

func event(data string) string { return "data: " + data + "\n\n" }

// Every event reaches the client before the next one exists.
func TestStream(t *testing.T) {
	h := newHouse(t)
	events := []string{
		event(`{"choices":[{"delta":{"content":"h"}}],"usage":null}`), event(`{"choices":[{"delta":{"content":"\"usage\":{\"total_tokens\":99}"}}]}`),
		event(`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`), event("[DONE]"),
	}
	next := make(chan struct{})
	h.plays(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("accept %q", r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		for _, e := range events {
			http.NewResponseController(w).Flush()
			<-next
			_, _ = io.WriteString(w, e)
		}
	})
	resp, err := http.DefaultClient.Do(h.request(t.Context(), call{as: "fleet", header: replay("fleet").header, body: streamed}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream; charset=utf-8" {
		t.Errorf("%d %s", resp.StatusCode, ct)
	}
	// The status is here while the server still waits to be told to write the first.
	got := bufio.NewReader(resp.Body)
	for i, want := range events {
		next <- struct{}{}
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(got, buf); err != nil || string(buf) != want {
			t.Fatalf("event %d: %q, %v", i, buf, err)
		}
	}
	if _, err := got.ReadByte(); err != io.EOF {
		t.Errorf("behind the last: %v", err)
	}
	r := h.receipt("acme", acmes)
	whole := strings.Join(events, "")
	if r.Outcome != access.Replied || r.ReplyHash != sumOf(whole) || r.ReplyBytes != int64(len(whole)) || r.Usage == nil || r.Usage.TotalTokens != 7 || r.Status != 200 {
		t.Errorf("%+v %+v", r.Completion, r.Usage)
	}
}

// Where a stream says what it used, and where it doesn't.
func TestStreamUsage(t *testing.T) {
	huge := `{"x":"` + strings.Repeat("x", 1<<20) + `","usage":{"total_tokens":9}}`
	for name, c := range map[string]struct {
		body string
		want int64 // total; -1: none
	}{
		"chat":                    {event(`{"usage":{"prompt_tokens":1,"completion_tokens":2}}`), 3},
		"responses":               {"event: response.completed\n" + event(`{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":5,"output_tokens":6,"total_tokens":11}}}`), 11},
		"the last one counts":     {event(`{"usage":{"total_tokens":1}}`) + event(`{"usage":{"total_tokens":2}}`) + event(`{"usage":null}`), 2},
		"no end of the last line": {`data: {"usage":{"total_tokens":4}}`, 4},
		"carriage returns":        {"data:{\"usage\":{\"total_tokens\":4}}\r\n\r\n", 4},
		"none":                    {event(`{"choices":[]}`) + event("[DONE]"), -1},
		"in a text":               {event(`{"choices":[{"text":"\"usage\":{\"total_tokens\":1}"}]}`), -1},
		"not an event":            {`: {"usage":{"total_tokens":4}}` + "\n\n", -1},
		"no JSON":                 {event(`{"usage":{"total_tokens":4}`), 4}, // what there is of it is a usage
		"too long":                {event(huge), -1},
		"behind one too long":     {event(huge) + event(`{"usage":{"total_tokens":2}}`), 2},
	} {
		h := newHouse(t)
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, c.body)
		})
		if a := h.do(call{as: "ann", body: streamed}); a.body != c.body || a.torn != nil {
			t.Errorf("%s: %q, %v", name, a.body, a.torn)
		}
		r := h.receipt("acme", today)
		total := int64(-1)
		if r.Usage != nil {
			total = r.Usage.TotalTokens
		}
		if total != c.want || r.ReplyHash != sumOf(c.body) {
			t.Errorf("%s: usage %+v, want %d in all", name, r.Usage, c.want)
		}
	}
}

// A reply that breaks off must not look whole, neither to the client nor in the
// receipt.
func TestTornReply(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		h := newHouse(t)
		part := event(`{"usage":{"total_tokens":5}}`)
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, part)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		a := h.do(call{as: "ann", body: streamed})
		if a.StatusCode != 200 || a.body != part || !errors.Is(a.torn, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d %q, %v", kind, a.StatusCode, a.body, a.torn)
		}
		if r := h.receipt("acme", today); r.Outcome != access.Torn || r.Status != 200 || r.ReplyHash != sumOf(part) || r.ReplyBytes != int64(len(part)) {
			t.Errorf("%s: %+v", kind, r.Completion)
		}
	}
}

// A client that leaves takes the call with it, and the receipt says so.
func TestClientGone(t *testing.T) {
	for _, begun := range []bool{false, true} {
		h := newHouse(t)
		called, left := make(chan struct{}), make(chan struct{})
		h.plays(func(w http.ResponseWriter, r *http.Request) {
			if begun {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, event("{}"))
				http.NewResponseController(w).Flush()
			}
			close(called)
			<-r.Context().Done() // as the gateway lets go of it
			close(left)
		})
		ctx, leave := context.WithCancel(t.Context())
		r, done, first := h.request(ctx, call{as: "ann", body: streamed}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			resp, err := http.DefaultClient.Do(r)
			if err == nil {
				close(first)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-called
		if begun {
			<-first
		}
		leave()
		<-done
		<-left
		receipt := h.receipt("acme", today)
		if want := map[bool]int{false: 0, true: 200}[begun]; receipt.Outcome != access.ClientGone || receipt.Status != want {
			t.Errorf("begun %v: %+v", begun, receipt.Completion)
		}
	}
}

// Upstream trouble before an answer: its kind, in the contract's shape.
func TestUpstreamTrouble(t *testing.T) {
	h := newHouse(t)
	for _, c := range []struct {
		what    string
		err     error
		status  int
		code    string
		outcome access.Outcome
	}{
		{"unreachable", fmt.Errorf("%w: dial tcp 10.0.0.7: %s", batch.ErrUnreachable, secret), 502, "upstream_unreachable", access.Unreachable},
		{"a refused address", batch.ErrRefusedAddress, 502, "upstream_unreachable", access.Unreachable},
		{"no secret", batch.ErrNoCredential, 503, "service_unavailable", access.NoSecret},
		{"no such model", batch.ErrModelNotFound, 404, "model_not_found", access.Unserved},
	} {
		h.upstream = upstreamFunc(func(context.Context, string, string, http.Header, []byte, func(context.Context) error) (*http.Response, error) {
			return nil, c.err
		})
		h.open()
		h.pass(24 * time.Hour) // a shelf of its own
		a := h.do(call{as: "ann"})
		a.is(t, c.what, c.status, c.code)
		if strings.Contains(a.body, secret) || strings.Contains(a.body, "10.0.0.7") {
			t.Errorf("%s: %s", c.what, a.body)
		}
		if r := h.receipt("acme", access.DayShelf(h.clock())); r.Outcome != c.outcome || r.Status != 0 || r.ReplyHash != "" || r.Usage != nil {
			t.Errorf("%s: %+v", c.what, r.Completion)
		}
	}
}

type upstreamFunc func(context.Context, string, string, http.Header, []byte, func(context.Context) error) (*http.Response, error)

func (f upstreamFunc) Open(ctx context.Context, model, endpoint string, h http.Header, body []byte, ready func(context.Context) error) (*http.Response, error) {
	return f(ctx, model, endpoint, h, body, ready)
}

// The time for a call is bounded, before its answer and in the middle of it.
func TestTimeout(t *testing.T) {
	for _, begun := range []bool{false, true} {
		h := newHouse(t)
		h.settings.FunctionTimeout, h.settings.Margin = 150*time.Millisecond, 50*time.Millisecond
		h.open()
		h.plays(func(w http.ResponseWriter, r *http.Request) {
			if begun {
				_, _ = io.WriteString(w, "{")
				http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
		a := h.do(call{as: "ann"})
		if !begun {
			a.is(t, "no answer", 504, "request_timeout")
		} else if a.torn == nil || a.body != "{" {
			t.Errorf("half an answer: %q, %v", a.body, a.torn)
		}
		if r := h.receipt("acme", today); r.Outcome != access.TimedOut {
			t.Errorf("begun %v: %+v", begun, r.Completion)
		}
	}
}

// A reply above the bound is cut, as early as that is known.
func TestTooLarge(t *testing.T) {
	for _, known := range []bool{false, true} {
		h := newHouse(t)
		h.settings.ReplyBytes = 1000
		h.open()
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			if known {
				w.Header().Set("Content-Length", "1001")
			}
			for range 7 {
				_, _ = io.WriteString(w, strings.Repeat("x", 143))
				http.NewResponseController(w).Flush()
			}
		})
		a := h.do(call{as: "ann"})
		if known {
			a.is(t, "a length above the bound", 502, "response_too_large")
		} else if a.torn == nil || len(a.body) > 1000 {
			t.Errorf("%d bytes, %v", len(a.body), a.torn)
		}
		if r := h.receipt("acme", today); r.Outcome != access.TooLarge || r.Status != 200 || r.ReplyBytes > 1000 {
			t.Errorf("known %v: %+v", known, r.Completion)
		}
	}
	h := newHouse(t)
	h.settings.ReplyBytes = int64(len(reply))
	h.open()
	if a := h.do(call{as: "ann"}); a.StatusCode != 200 || a.body != reply {
		t.Errorf("just the bound: %d %s", a.StatusCode, a.body)
	}
}

// An upstream that takes our credential for no good may quote it. The client is told
// nothing of it, and must not take its own key for the culprit.
func TestDenied(t *testing.T) {
	for _, status := range []int{401, 403} {
		h := newHouse(t)
		quoted := `{"error":{"message":"Incorrect API key provided: ` + secret + `"}}`
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, quoted)
		})
		a := h.do(call{as: "ann"})
		a.is(t, fmt.Sprint(status), 502, "upstream_denied")
		if strings.Contains(a.body+h.says("upstream_denied", 1), secret) {
			t.Errorf("%d: the secret is in %s or %s", status, a.body, h.logged())
		}
		if r := h.receipt("acme", today); r.Outcome != access.Denied || r.Status != status || r.ReplyHash != sumOf(quoted) {
			t.Errorf("%d: %+v", status, r.Completion)
		}
	}
}

// A bug in a port ends one request, with nothing of it in the answer or the log.
func TestPanic(t *testing.T) {
	h := newHouse(t)
	h.upstream = upstreamFunc(func(context.Context, string, string, http.Header, []byte, func(context.Context) error) (*http.Response, error) {
		panic(secret)
	})
	h.open()
	h.do(call{as: "ann"}).is(t, "a panic", 500, "server_error")
	if log := h.says(`"msg":"request"`, 1); strings.Contains(log, secret) || !strings.Contains(log, "panic: string at holdfast/internal/gateway_test.") {
		t.Errorf("log %s", log)
	}
}

// A door's own id is the request's; a client's isn't.
func TestRequestID(t *testing.T) {
	h := newHouse(t)
	g := gateway.New(gateway.Ports{
		Keys: access.NewCache(h.mem.Table.Keys, nil), Tenants: access.NewTenantCache(h.mem.Table.Tenants, nil),
		Batches: h.mem.Table.Batches, Replays: h.mem.Table.Keys, Receipts: h.mem.Table.Receipts, Upstream: h.upstream,
	}, h.settings, nil)
	r := h.request(gateway.WithRequestID(t.Context(), "door-1"), call{as: "ann", header: http.Header{"X-Request-Id": {"client-1"}}})
	r.URL.Path = chat
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("X-Request-Id") != "door-1" || h.sent()[0].Header.Get("X-Request-Id") != "door-1" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}
