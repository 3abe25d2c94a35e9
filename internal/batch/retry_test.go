package batch_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// script answers the tries of every line in turn; the last answer repeats.
func script(steps ...any) answerer {
	return func(_ context.Context, c batch.Call) (batch.Reply, error) {
		switch s := steps[min(c.Try, len(steps))-1].(type) {
		case batch.Reply:
			return s, nil
		case error:
			return batch.Reply{}, fmt.Errorf("call: %w", s)
		}
		panic("script")
	}
}

func reply(status int, body string) batch.Reply {
	return batch.Reply{Status: status, Body: []byte(body), RequestID: "req-1"}
}

// quoting is the reply of a Model that saw its token in the body.
func quoting(status int) batch.Reply {
	return batch.Reply{Status: status, RequestID: "req-1", Withheld: batch.Withhold(status, openai.CodeUpstreamDenied, []byte("sk-1"))}
}

// withheld is the response of a line whose answer is kept from the person.
func withheld(status int, code string) string {
	message := map[string]string{
		"upstream_denied":     "The model's service refused the credential that this installation has for it, or quoted it; its operator has to look.",
		"upstream_redirected": "The model's service answered with a redirect, which is not followed; the operator of this installation has to look.",
	}[code]
	return fmt.Sprintf(`{"status_code":%d,"request_id":"req-1","body":{"error":{"message":%q,"type":"server_error","param":null,"code":%q}}}`, status, message, code)
}

// The contract's section 5: which tries there are, and what is kept.
func TestResultKinds(t *testing.T) {
	refused := reply(429, `{"error":{"message":"slow down"}}`)
	refused.RetryAfter = 2 * time.Second
	for _, c := range []struct {
		name     string
		answer   answerer
		tries    int
		ok       bool
		code     string // of error
		response string // JSON; "" for null
		atLeast  time.Duration
	}{
		{"ok", script(reply(200, `{"a":1}`)), 1, true, "", `{"status_code":200,"request_id":"req-1","body":{"a":1}}`, 0},
		{"201", script(reply(201, `{}`)), 1, true, "", `{"status_code":201,"request_id":"req-1","body":{}}`, 0},
		{"400", script(reply(400, `{"e":1}`)), 1, false, "", `{"status_code":400,"request_id":"req-1","body":{"e":1}}`, 0},
		{"404, no JSON", script(reply(404, `nope`)), 1, false, "", `{"status_code":404,"request_id":"req-1","body":"nope"}`, 0},
		{"307", script(reply(307, `{}`)), 1, false, "", withheld(307, "upstream_redirected"), 0},
		{"401, then ok", script(reply(401, `sk-1`), reply(200, `{}`)), 2, true, "", `{"status_code":200,"request_id":"req-1","body":{}}`, 0},
		{"401 always", script(reply(401, `{"k":"sk-1"}`)), 5, false, "", withheld(401, "upstream_denied"), 0},
		{"407 always", script(reply(407, `sk-1`)), 5, false, "", withheld(407, "upstream_denied"), 0},
		{"403", script(reply(403, `sk-1`)), 1, false, "", withheld(403, "upstream_denied"), 0},
		{"400 that quotes the token", script(quoting(400)), 1, false, "", withheld(400, "upstream_denied"), 0},
		{"200 that quotes the token", script(quoting(200)), 1, false, openai.CodeUpstreamDenied, withheld(200, "upstream_denied"), 0},
		{"500 that quotes the token, then ok", script(quoting(500), reply(200, `{}`)), 2, true, "", `{"status_code":200,"request_id":"req-1","body":{}}`, 0},
		{"429, then ok", script(refused, refused, reply(200, `{}`)), 3, true, "", `{"status_code":200,"request_id":"req-1","body":{}}`, 4 * time.Second},
		{"408, 409, 500, 503, ok", script(reply(408, ``), reply(409, ``), reply(500, ``), reply(503, ``), reply(200, `{}`)), 5, true, "", `{"status_code":200,"request_id":"req-1","body":{}}`, 0},
		{"500 always", script(reply(500, `{"e":5}`)), 5, false, "", `{"status_code":500,"request_id":"req-1","body":{"e":5}}`, 0},
		{"429 always", script(refused), 5, false, "", `{"status_code":429,"request_id":"req-1","body":{"error":{"message":"slow down"}}}`, 8 * time.Second},
		{"timeout always", script(batch.ErrTimeout), 5, false, openai.CodeRequestTimeout, "", 0},
		{"unreachable, then ok", script(batch.ErrUnreachable, reply(200, `{}`)), 2, true, "", `{"status_code":200,"request_id":"req-1","body":{}}`, 0},
		{"unreachable always", script(batch.ErrUnreachable), 5, false, openai.CodeUpstreamUnreachable, "", 0},
		{"an error nobody knows", script(context.Canceled), 5, false, openai.CodeUpstreamUnreachable, "", 0},
		{"too large", script(batch.ErrReplyTooLarge), 1, false, openai.CodeResponseTooLarge, "", 0},
		{"2xx, no JSON", script(reply(200, "<html>\n")), 1, false, openai.CodeInvalidResponse, `{"status_code":200,"request_id":"req-1","body":"<html>\n"}`, 0},
		{"pretty", script(reply(200, "{\n\t\"n\": 1.50,\r\n \"b\":\"\\u00e9\"}\n")), 1, true, "", `{"status_code":200,"request_id":"req-1","body":{"n":1.50,"b":"\u00e9"}}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 1, 1, c.answer)
				start := time.Now()
				expect(t, r.run(nil, life), true, "done")
				if took := time.Since(start); took < c.atLeast || took > 40*time.Second {
					t.Errorf("took %s, want %s at least", took, c.atLeast)
				}
				x := r.conserved()[0]
				if n := r.model.Count(tenant, batchID, 0); n != c.tries {
					t.Errorf("%d tries, want %d", n, c.tries)
				}
				if x.OK != c.ok {
					t.Errorf("output file: %v, want %v", x.OK, c.ok)
				}
				if code := codeOf(x); code != c.code {
					t.Errorf("error code %q, want %q", code, c.code)
				}
				want := c.response
				if want == "" {
					want = "null"
				}
				if got := string(x.result.Response); got != want {
					t.Errorf("response %s, want %s", got, want)
				}
				if x.receipt.Attempt != c.tries {
					t.Errorf("receipt says %d tries", x.receipt.Attempt)
				}
				if id := openai.RequestResultID(batchID, 1); x.result.ID != id {
					t.Errorf("id %q, want %q", x.result.ID, id)
				}
			})
		})
	}
}

func codeOf(x record) string {
	if x.result.Error == nil {
		return ""
	}
	return x.result.Error.Code
}

// A model that never answers costs the line its timeout, each try.
func TestLineTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, after(time.Hour))
		r.opts.LineTimeout = 10 * time.Second
		r.opts.Tries = 2
		start := time.Now()
		expect(t, r.run(nil, life), true, "done")
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("took %s, want two timeouts of 10 s", took)
		}
		if code := codeOf(r.conserved()[0]); code != openai.CodeRequestTimeout {
			t.Errorf("code %q", code)
		}
	})
}

// The budget bounds the waiting, whatever the tries.
func TestRetryBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refused := reply(429, `{}`)
		refused.RetryAfter = 9 * time.Second
		r := newRig(t, 1, 1, script(refused))
		r.opts.Tries = 100
		r.opts.RetryBudget = 30 * time.Second
		start := time.Now()
		expect(t, r.run(nil, life), true, "done")
		if took := time.Since(start); took > 30*time.Second || took < 18*time.Second {
			t.Errorf("waited %s, want at most the budget of 30 s", took)
		}
		if x := r.conserved()[0]; x.OK || x.receipt.Status != 429 {
			t.Errorf("kept %s", x.Result)
		}
	})
}

// A line that waits for its next try holds no slot.
func TestWaitingLineHoldsNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refused := reply(429, `{}`)
		refused.RetryAfter = 9 * time.Second
		var mu sync.Mutex
		var order []int64
		r := newRig(t, 3, 3, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			mu.Lock()
			order = append(order, c.Line)
			mu.Unlock()
			if c.Line == 0 && c.Try == 1 {
				return refused, nil
			}
			return after(time.Second)(ctx, c)
		})
		r.opts.Concurrency = 1
		expect(t, r.run(nil, life), true, "done")
		if got := fmt.Sprint(order); got != "[0 1 2 0]" {
			t.Errorf("sent in the order %s, want [0 1 2 0]", got)
		}
		r.conserved()
	})
}

// Full jitter: lines refused together don't come back together.
func TestRetriesAreSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		at := map[time.Time]int{}
		start := time.Now()
		r := newRig(t, 32, 32, func(_ context.Context, c batch.Call) (batch.Reply, error) {
			if c.Try == 1 {
				return reply(503, ``), nil
			}
			mu.Lock()
			defer mu.Unlock()
			at[time.Now()]++
			if wait := time.Since(start); wait > 500*time.Millisecond {
				t.Errorf("second try after %s", wait)
			}
			return reply(200, `{}`), nil
		})
		expect(t, r.run(nil, life), true, "done")
		if len(at) < 16 {
			t.Errorf("32 lines came back at %d instants", len(at))
		}
	})
}

func TestReceipt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		body := `{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`
		r := newRig(t, 2, 2, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			if c.Tenant != tenant || c.Batch != batchID || c.Submitter != "alice" || c.Endpoint != endpoint {
				t.Errorf("call on behalf of %+v", c)
			}
			return reply(200, body), memory.Wait(ctx, time.Second)
		})
		start := time.Now()
		r.run(nil, life)
		x := r.conserved()[1]
		got := x.receipt
		sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
		usage := got.Usage
		got.Usage = nil
		custom := string(got.CustomID)
		got.CustomID = nil
		want := batch.Receipt{
			Time: start.Add(time.Second).UTC(), Tenant: tenant, Batch: batchID, Line: 1, ID: x.result.ID, OnBehalfOf: "alice",
			Worker: r.part(0).Owner, Attempt: 1, Model: "m", Status: 200,
			RequestHash: sum(r.bodies[1]), ReplyHash: sum(body),
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("receipt %+v\nwant    %+v", got, want)
		}
		if usage == nil || usage.InputTokens != 3 || usage.OutputTokens != 4 {
			t.Errorf("usage %+v", usage)
		}
		if custom != `"<id-1>"` || !strings.Contains(string(x.Receipt), `"custom_id":"<id-1>"`) {
			t.Errorf("custom_id %s in %s", custom, x.Receipt)
		}
		if !json.Valid(x.Receipt) {
			t.Error("receipt is no JSON")
		}
	})
}
