package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

// vault is a store of one secret.
type vault struct {
	get, renew func() string
}

func (v vault) Get(context.Context, string) (string, error)                { return v.get(), nil }
func (v vault) Renew(context.Context, string, string, int) (string, error) { return v.renew(), nil }

// keeps lets the upstream's token come from v.
func (h *house) keeps(v vault) {
	h.t.Helper()
	h.do(call{as: "ann"})
	services, err := upstream.Open([]upstream.Service{{URL: "http://" + h.sent()[0].Host, Secret: "s"}}, func() upstream.Secrets { return v },
		&upstream.Options{Guard: outbound.Guard{Allow: outbound.Loopback}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.upstream = services
	h.open()
	h.mu.Lock()
	h.calls = nil
	h.mu.Unlock()
}

func (h *house) cancelled() {
	h.batch(func(b *batch.Batch) { b.Status, b.Ending = batch.Cancelled, batch.Cancelled })
}

// A refusal takes its time, and the secret was rotated: the line is not sent again for a
// batch that is long over, and the refusal stands.
func TestSecondSendOfABatchThatIsOver(t *testing.T) {
	for _, over := range []bool{false, true} {
		h := newHouse(t)
		h.keeps(vault{get: func() string { return "old-token" }, renew: func() string { return "new-token" }})
		h.plays(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer old-token" {
				h.pass(13 * time.Minute)
				if over {
					h.cancelled()
				}
				w.WriteHeader(401)
				return
			}
			_, _ = io.WriteString(w, reply)
		})
		a := h.do(replay("fleet"))
		r := h.receipt("acme", acmes)
		if !over {
			if a.StatusCode != 200 || len(h.sent()) != 2 || r.Outcome != access.Replied {
				t.Errorf("%d %s, sent %d times, %+v", a.StatusCode, a.body, len(h.sent()), r.Completion)
			}
			continue
		}
		a.is(t, "over", 502, "upstream_denied")
		if len(h.sent()) != 1 || r.Outcome != access.Denied || r.Status != 401 {
			t.Errorf("sent %d times, %+v", len(h.sent()), r.Completion)
		}
	}
}

// Reading the secret may take longer than a view is good for.
func TestViewThatAgesBehindTheSecret(t *testing.T) {
	for _, over := range []bool{false, true} {
		h := newHouse(t)
		h.keeps(vault{get: func() string {
			h.pass(9 * time.Second)
			if over {
				h.cancelled()
			}
			return "old-token"
		}})
		a := h.do(replay("fleet"))
		r := h.receipt("acme", acmes)
		if !over {
			if a.StatusCode != 200 || len(h.sent()) != 1 {
				t.Errorf("%d %s, sent %d times", a.StatusCode, a.body, len(h.sent()))
			}
			continue
		}
		a.is(t, "over", 403, "batch_replay_not_authorized")
		if len(h.sent()) != 0 || r.Outcome != access.Withdrawn || r.Status != 0 {
			t.Errorf("sent %d times, %+v", len(h.sent()), r.Completion)
		}
	}
}

// What quotes our credential, or leads elsewhere, is kept from the client.
func TestWithheld(t *testing.T) {
	for status, code := range map[int]string{
		200: "upstream_denied", 400: "upstream_denied", 404: "upstream_denied", 407: "upstream_denied", 429: "upstream_denied",
		500: "upstream_denied", 502: "upstream_denied", 302: "upstream_redirected",
	} {
		h := newHouse(t)
		quoted := `{"error":{"message":"bad request with headers ` + secret + `"},"usage":{"total_tokens":7}}`
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, quoted)
		})
		a := h.do(call{as: "ann"})
		a.is(t, fmt.Sprint(status), 502, code)
		if strings.Contains(a.body+h.says(code, 1), secret) {
			t.Errorf("%d: the secret is in %s or %s", status, a.body, h.logged())
		}
		if r := h.receipt("acme", today); r.Outcome != access.Denied || r.Status != status || r.ReplyHash != sumOf(quoted) || r.ReplyBytes != int64(len(quoted)) || r.Usage != nil {
			t.Errorf("%d: %+v", status, r.Completion)
		}
	}
}

// A stream that comes to quote it is cut before.
func TestStreamThatQuotesTheSecret(t *testing.T) {
	h := newHouse(t)
	h.plays(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, s := range []string{event("1"), "data: " + secret[:5], secret[5:] + "\n\n"} {
			_, _ = io.WriteString(w, s)
			http.NewResponseController(w).Flush()
		}
	})
	a := h.do(call{as: "ann", body: streamed})
	if want := event("1") + "data: "; a.StatusCode != 200 || !strings.HasPrefix(want, a.body) || a.torn == nil {
		t.Errorf("%d %q, %v", a.StatusCode, a.body, a.torn)
	}
	if r := h.receipt("acme", today); r.Outcome != access.Denied || r.Status != 200 || r.ReplyHash != sumOf(a.body) {
		t.Errorf("%+v", r.Completion)
	}
}

// A status that is none is no answer, and leaves no receipt open.
func TestOddStatus(t *testing.T) {
	for _, status := range []string{"101 Switching", "000 x", "099 x", "600 x", "999 x"} {
		h := newHouse(t)
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n{}", status)
		})
		h.do(call{as: "ann"}).is(t, status, 502, "upstream_unreachable")
		if r := h.receipt("acme", today); r.Outcome != access.Unreachable || r.Status != 0 {
			t.Errorf("%s: %+v", status, r.Completion)
		}
	}
}

// A bug in the middle of a call leaves no receipt that says: perhaps.
func TestPanicInACall(t *testing.T) {
	h := newHouse(t)
	for begun, up := range map[bool]upstreamFunc{
		false: func(context.Context, string, string, http.Header, []byte, func(context.Context) error) (*http.Response, error) {
			panic(secret)
		},
		true: func(context.Context, string, string, http.Header, []byte, func(context.Context) error) (*http.Response, error) {
			return &http.Response{StatusCode: 203, ContentLength: -1, Body: bug{}}, nil
		},
	} {
		h.upstream = up
		h.open()
		h.pass(24 * time.Hour) // a shelf of its own
		resp, err := http.DefaultClient.Do(h.request(t.Context(), call{as: "ann"}))
		if err == nil {
			resp.Body.Close()
		}
		want := map[bool]int{true: 203}[begun]
		if r := h.receipt("acme", access.DayShelf(h.clock())); r.Outcome != access.Torn || r.Status != want {
			t.Errorf("begun %v: %+v", begun, r.Completion)
		}
	}
}

// bug is a body that panics.
type bug struct{}

func (bug) Read([]byte) (int, error) { panic(secret) }
func (bug) Close() error             { return nil }

// A model's name that no receipt could hold is the client's fault.
func TestModelThatIsNoText(t *testing.T) {
	h := newHouse(t)
	for _, model := range []string{`"\ud800"`, `"a\udfffb"`, `"\udc00\ud800"`} {
		h.do(call{as: "ann", body: `{"model":` + model + `}`}).is(t, model, 400, "invalid_model")
	}
	if n := len(h.receipts("acme", today)); n != 0 || len(h.sent()) != 0 {
		t.Errorf("%d receipts, %d calls", n, len(h.sent()))
	}
	if a := h.do(call{as: "ann", body: `{"model":"\ud83d\ude00"}`}); a.StatusCode != 200 {
		t.Errorf("a pair: %d %s", a.StatusCode, a.body)
	}
}

// A reply that stands still is cut, long before the time for a call is over.
func TestIdleReply(t *testing.T) {
	h := newHouse(t)
	h.do(call{as: "ann"})
	h.pass(24 * time.Hour)
	services, err := upstream.Open([]upstream.Service{{URL: "http://" + h.sent()[0].Host, Key: secret}}, nil,
		&upstream.Options{Guard: outbound.Guard{Allow: outbound.Loopback}, Idle: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h.upstream = services
	h.open()
	h.plays(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	if a := h.do(call{as: "ann"}); a.torn == nil || a.body != "{" {
		t.Errorf("%q, %v", a.body, a.torn)
	}
	if r := h.receipt("acme", access.DayShelf(h.clock())); r.Outcome != access.TimedOut || r.Status != 200 {
		t.Errorf("%+v", r.Completion)
	}
}
