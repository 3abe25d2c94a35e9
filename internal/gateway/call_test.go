package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/memory"
)

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// What passes, in full: a body byte for byte, and no header of the client's.
func TestCall(t *testing.T) {
	h := newHouse(t)
	h.plays(func(w http.ResponseWriter, r *http.Request) {
		for name, v := range map[string]string{
			"Content-Type": "application/json", "Retry-After": "3", "X-Request-Id": "up-1", "Set-Cookie": "a=b", "Server": "vllm",
			"X-Ratelimit-Remaining-Requests": "7", "Location": "http://10.0.0.7/", "X-Request-Id2": "x", "Openai-Organization": "org",
		} {
			w.Header().Set(name, v)
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, reply)
	})
	body := "{ \"model\":\"sim\",\r\n \"n\": 1.000000000000000001, \"z\":1, \"a\":\"\\u00e9é\" }"
	hostile := http.Header{}
	for _, name := range []string{
		"X-Batch-ID", "X-Batch-Line", "X-On-Behalf-Of", "X-Priority", "X-Holdfast-Tenant", "X-Forwarded-For", "Forwarded", "X-Real-Ip", "Openai-Organization",
		"Openai-Project", "X-Stainless-Lang", "Cookie", "X-Api-Key", "Api-Key", "Proxy-Authorization", "Traceparent", "X-Request-Id", "Accept-Language",
		"X-Amzn-Trace-Id", "Idempotency-Key", "User-Agent", "X-Internal", "Baggage", "Via",
	} {
		hostile.Set(name, "planted")
	}
	hostile.Set("X-Tenant-ID", "acme")
	a := h.do(call{as: "ann", path: chat + "?tenant=other&api-version=1", body: body, header: hostile})
	if a.StatusCode != 429 || a.body != reply || a.torn != nil {
		t.Errorf("%d %s, %v", a.StatusCode, a.body, a.torn)
	}
	id := a.Header.Get("X-Request-Id")
	a.Header.Del("Date")
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {fmt.Sprint(len(reply))}, "Retry-After": {"3"}, "X-Request-Id": {id},
		"X-Upstream-Request-Id": {"up-1"}, "Cache-Control": {"no-store"},
	}
	if fmt.Sprint(a.Header) != fmt.Sprint(want) || id == "up-1" || id == "planted" {
		t.Errorf("answered with %v\nwant %v", a.Header, want)
	}

	sent := h.sent()
	if len(sent) != 1 {
		t.Fatalf("%d calls", len(sent))
	}
	got, _ := io.ReadAll(sent[0].Body)
	if string(got) != body || sent[0].URL.String() != chat || sent[0].Method != http.MethodPost {
		t.Errorf("%s %s %q", sent[0].Method, sent[0].URL, got)
	}
	want = http.Header{
		"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "Authorization": {"Bearer " + secret}, "Content-Length": {fmt.Sprint(len(body))},
		"Content-Type": {"application/json"}, "User-Agent": {"holdfast"}, "X-On-Behalf-Of": {"ann@acme"}, "X-Request-Id": {id}, "X-Tenant-Id": {"acme"},
	}
	if fmt.Sprint(sent[0].Header) != fmt.Sprint(want) {
		t.Errorf("upstream got %v\nwant %v", sent[0].Header, want)
	}

	r := h.receipt("acme", today)
	c := r.Completion
	r.Completion = nil
	if want := (access.Receipt{
		ReceiptName: access.ReceiptName{Tenant: "acme", StartedAt: start, RequestID: id},
		OnBehalfOf:  "ann@acme", Key: access.KeyID(access.HashSecret(h.key["ann"])), Endpoint: chat, Model: "sim", RequestHash: sumOf(body),
	}); r != want {
		t.Errorf("intent %+v\nwant %+v", r, want)
	}
	if c.Outcome != access.Replied || c.Status != 429 || c.ReplyHash != sumOf(reply) || c.ReplyBytes != int64(len(reply)) || c.Usage == nil || c.Usage.TotalTokens != 7 || !c.Time.Equal(start) {
		t.Errorf("completion %+v", c)
	}
}

// A header that passes has a value that a header may have, and no long story.
func TestOddHeadersOfAnAnswer(t *testing.T) {
	h := newHouse(t)
	for _, odd := range []string{strings.Repeat("x", 257), "caf\xe9", "ü"} {
		h.plays(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", odd)
			w.Header().Set("X-Request-Id", odd)
		})
		if a := h.do(call{as: "ann"}); a.StatusCode != 200 || a.Header.Get("Retry-After") != "" || a.Header.Get("X-Upstream-Request-Id") != "" {
			t.Errorf("%q: %v", odd, a.Header)
		}
	}
}

// The receipt is there before the call is.
func TestIntentBeforeCall(t *testing.T) {
	h := newHouse(t)
	h.plays(func(w http.ResponseWriter, r *http.Request) {
		page, _, err := h.mem.Table.Receipts.List(t.Context(), "acme", acmes, "", 10)
		if err != nil || len(page) != 1 || page[0].Completion != nil || *page[0].Line != 7 {
			t.Errorf("when the call comes: %+v, %v", page, err)
		}
		h.pass(1500 * time.Millisecond)
	})
	if a := h.do(replay("fleet")); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if r := h.receipt("acme", acmes); r.Millis != 1500 || r.OnBehalfOf != "ann@acme" || r.Batch != acmes || !r.Time.Equal(start.Add(1500*time.Millisecond)) {
		t.Errorf("%+v", r)
	}
}

// No receipt, no call; but a call whose receipt can't be completed is answered.
func TestReceiptsThatFail(t *testing.T) {
	h := newHouse(t)
	h.faults.Before("Receipts.Intend", 1, memory.Fail(nil))
	h.do(call{as: "ann"}).is(t, "without a receipt", 503, "service_unavailable")
	if n := len(h.sent()); n != 0 {
		t.Errorf("%d calls without a receipt", n)
	}
	// A lost answer is no receipt either.
	h.faults.After("Receipts.Intend", 2, memory.Fail(nil))
	h.do(call{as: "ann"}).is(t, "with a receipt whose answer was lost", 503, "service_unavailable")
	if n, page := len(h.sent()), h.receipts("acme", today); n != 0 || len(page) != 1 || page[0].Completion != nil {
		t.Errorf("%d calls, receipts %+v", n, page)
	}
	h.faults.Before("Receipts.Complete", 1, memory.Fail(nil))
	if a := h.do(call{as: "ann"}); a.StatusCode != 200 || a.body != reply {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	h.says("receipt not completed", 1)
	if page := h.receipts("acme", today); len(page) != 2 || page[1].Completion != nil {
		t.Errorf("receipts %+v", page)
	}
}

// Who may use what, and that nothing else is called.
func TestScopes(t *testing.T) {
	h := newHouse(t)
	for _, c := range []struct {
		what   string
		call   call
		status int
		code   string
	}{
		{"no key", call{}, 401, "invalid_api_key"},
		{"a wrong key", call{header: http.Header{"Authorization": {"Bearer hf_" + strings.Repeat("a", 32)}}}, 401, "invalid_api_key"},
		{"submit", call{as: "ann"}, 200, ""},
		{"read, admin and work", call{as: "reader"}, 403, "insufficient_permissions"},
		{"another tenant asserted", call{as: "ann", header: http.Header{"X-Tenant-ID": {"other"}}}, 403, "tenant_not_authorized"},
		{"another's batch asserted", call{as: "ann", header: http.Header{"X-Batch-ID": {others}}}, 200, ""}, // dropped
		{"replay without headers", call{as: "fleet"}, 403, "batch_replay_not_authorized"},
		{"every scope, without headers", call{as: "all"}, 403, "batch_replay_not_authorized"},
		{"replay", replay("fleet"), 200, ""},
		{"every scope, replaying", replay("all"), 200, ""},
		{"replay headers without the scope", replay("bob"), 403, "tenant_not_authorized"},
		{"models: read", call{as: "reader", method: "GET", path: "/v1/models"}, 200, ""},
		{"models: submit", call{as: "bob", method: "GET", path: "/v1/models"}, 403, "insufficient_permissions"},
		{"models: replay without headers", call{as: "fleet", method: "GET", path: "/v1/models"}, 403, "batch_replay_not_authorized"},
		{"another endpoint", call{as: "ann", path: "/v1/images/generations"}, 404, "unknown_url"},
		{"a path around it", call{as: "ann", path: "/v1/x/../chat/completions"}, 404, "unknown_url"},
		{"a slash more", call{as: "ann", path: chat + "/"}, 404, "unknown_url"},
		{"files", call{as: "ann", path: "/v1/files"}, 404, "unknown_url"},
		{"GET", call{as: "ann", method: "GET"}, 405, "method_not_allowed"},
		{"PUT", call{as: "ann", method: "PUT"}, 405, "method_not_allowed"},
		{"POST of models", call{as: "ann", path: "/v1/models"}, 405, "method_not_allowed"},
		{"no JSON", call{as: "ann", body: "hello"}, 400, "invalid_json"},
		{"10,000 deep", call{as: "ann", body: `{"model":"sim","x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}"}, 400, "invalid_json"},
		{"a long name of a model", call{as: "ann", body: `{"model":"` + strings.Repeat("m", 513) + `"}`}, 400, "invalid_model"},
		{"too large", call{as: "ann", body: `{"model":"` + strings.Repeat("m", int(h.settings.LineBytes)) + `"}`}, 413, "request_too_large"},
	} {
		before := len(h.sent())
		a := h.do(c.call)
		if c.status == 200 {
			if a.StatusCode != 200 {
				t.Errorf("%s: %d %s", c.what, a.StatusCode, a.body)
			}
			continue
		}
		a.is(t, c.what, c.status, c.code)
		if len(h.sent()) != before {
			t.Errorf("%s: refused, and called", c.what)
		}
	}
	if a := h.do(call{as: "ann", method: "GET", path: "/v1/models"}); a.body != `{"object":"list","data":[{"id":"sim","object":"model","created":0,"owned_by":"upstream"}]}`+"\n" {
		t.Errorf("models: %s", a.body)
	}
	if a := h.do(call{method: "OPTIONS"}); a.StatusCode != 204 || a.Header.Get("Allow") != "OPTIONS, POST" {
		t.Errorf("OPTIONS: %d %v", a.StatusCode, a.Header)
	}
}

// Two Authorization headers are none.
func TestTwoKeys(t *testing.T) {
	h := newHouse(t)
	r := h.request(t.Context(), call{as: "ann"})
	r.Header.Add("Authorization", "Bearer "+h.key["bob"])
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// The tenant that a request counts as has its requests a minute, whoever makes them.
func TestRequestsPerMinute(t *testing.T) {
	h := newHouse(t)
	if err := h.mem.Table.Tenants.Put(t.Context(), access.Tenant{Name: "acme", Limits: access.Limits{RequestsPerMinute: 2}, CreatedAt: start, UpdatedAt: start}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []call{replay("fleet"), {as: "ann"}} {
		if a := h.do(c); a.StatusCode != 200 {
			t.Fatalf("%d %s", a.StatusCode, a.body)
		}
		h.pass(time.Nanosecond)
	}
	for _, c := range []call{replay("fleet"), {as: "ann"}} {
		a := h.do(c)
		a.is(t, "the third", 429, "rate_limit_exceeded")
		if a.Header.Get("Retry-After") != "30" {
			t.Errorf("retry-after %q", a.Header.Get("Retry-After"))
		}
	}
	if a := h.do(call{as: "bob"}); a.StatusCode != 200 {
		t.Errorf("another tenant: %d %s", a.StatusCode, a.body)
	}
	h.pass(30 * time.Second)
	if a := h.do(call{as: "ann"}); a.StatusCode != 200 {
		t.Errorf("after the time that it was told: %d %s", a.StatusCode, a.body)
	}
	if n := len(h.receipts("acme", today)) + len(h.receipts("acme", acmes)); n != 3 {
		t.Errorf("%d receipts of 3 calls", n)
	}
}

// Nobody gets past the limit with keys that no process has seen, nor with requests
// that are refused for their scope or their tenant.
func TestRequestsOfAnyKindArePaced(t *testing.T) {
	limited := func(h *house) {
		if err := h.mem.Table.Tenants.Put(t.Context(), access.Tenant{Name: "acme", Limits: access.Limits{RequestsPerMinute: 3}}); err != nil {
			t.Fatal(err)
		}
		h.open()
	}
	h := newHouse(t)
	limited(h)
	through := 0
	for range 30 {
		made, secret, err := access.New(access.Key{Tenant: "acme", Principal: "x", Name: "n", Scopes: []access.Scope{access.Submit}}, start)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.mem.Table.Keys.Put(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		h.key["new"] = secret
		if h.do(call{as: "new"}).StatusCode == 200 {
			through++
		}
	}
	if through != 1+3 {
		t.Errorf("%d of 30 requests with a new key each are let through by 3 a minute, want the first and 3", through)
	}
	for what, c := range map[string]call{"scope": {as: "reader"}, "tenant": {as: "ann", header: http.Header{"X-Tenant-ID": {"other"}}}} {
		h := newHouse(t)
		limited(h)
		refused := 0
		for range 30 {
			switch a := h.do(c); a.StatusCode {
			case 403:
				refused++
			case 429:
			default:
				t.Errorf("%s: %d", what, a.StatusCode)
			}
		}
		if refused != 1+3 {
			t.Errorf("%d of 30 refusals by %s are looked at, want the first and 3", refused, what)
		}
	}
}

// A request counts once, whoever's key acts for whom, and the first one, too: the record
// of the batch's tenant is that of the key's.
func TestReplayForItsOwnTenantCountsOnce(t *testing.T) {
	h := newHouse(t)
	if err := h.mem.Table.Tenants.Put(t.Context(), access.Tenant{Name: "acme", Limits: access.Limits{RequestsPerMinute: 4}}); err != nil {
		t.Fatal(err)
	}
	made, secret, err := access.New(access.Key{Tenant: "acme", Principal: "x", Name: "n", Scopes: []access.Scope{access.BatchReplay}}, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.mem.Table.Keys.Put(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	h.key["own"] = secret
	h.reads("the first of 4", replay("own"), 200, "Keys.Replay")
	for range 3 {
		h.reads("another of 4", replay("own"), 200)
	}
	h.do(replay("own")).is(t, "one more", 429, "rate_limit_exceeded")
}

// Trouble with the table refuses nobody for good.
func TestTroubleIsNoRefusal(t *testing.T) {
	for op, later := range map[string]time.Duration{"Keys.Replay": 0, "Tenants.Get": time.Nanosecond, "Batches.Get": 4 * time.Second} {
		h := newHouse(t)
		if later > 0 { // what is read for those whose key is known
			h.do(replay("fleet"))
			if op == "Batches.Get" { // alone where all else is known
				h.do(replay("fleet"))
			}
			h.pass(later)
		}
		h.faults.Before(op, 1, memory.Fail(errors.New("throttled: "+secret)))
		a := h.do(replay("fleet"))
		a.is(t, op, 503, "service_unavailable")
		if a.Header.Get("Retry-After") == "" || strings.Contains(a.body, "throttled") {
			t.Errorf("%s: %v %s", op, a.Header, a.body)
		}
		if a := h.do(replay("fleet")); a.StatusCode != 200 {
			t.Errorf("%s: again: %d %s", op, a.StatusCode, a.body)
		}
	}
}

// A request reads the table once at most, the first replay with a key too, and not at
// all when what it needs is known.
func TestReads(t *testing.T) {
	h := newHouse(t)
	reads := func() (n int) {
		for _, op := range []string{"Keys.Get", "Keys.Pair", "Keys.Replay", "Tenants.Get", "Batches.Get"} {
			n += h.faults.Count(op)
		}
		return n
	}
	read := func(what string, c call, most int) {
		t.Helper()
		before := reads()
		if a := h.do(c); a.StatusCode != 200 {
			t.Errorf("%s: %d %s", what, a.StatusCode, a.body)
		}
		if n := reads() - before; n > most {
			t.Errorf("%s: %d reads", what, n)
		}
	}
	read("the first replay", replay("fleet"), 1)
	read("the first call", call{as: "ann"}, 1)
	read("the second, which asks for the tenant", call{as: "ann"}, 1)
	total := 0
	for second := range 120 {
		before := reads()
		read(fmt.Sprintf("replay after %d s", second), replay("fleet"), 1)
		read(fmt.Sprintf("call after %d s", second), call{as: "ann"}, 1)
		read(fmt.Sprintf("warm replay after %d s", second), replay("fleet"), 0)
		read(fmt.Sprintf("warm call after %d s", second), call{as: "ann"}, 0)
		total += reads() - before
		h.pass(time.Second)
	}
	// Each 30 s two keys and two tenants without a record, each 4 s the batch.
	if total > 2*5+2*5+30 {
		t.Errorf("%d reads in two minutes", total)
	}
	t.Logf("%d reads for 480 requests in two minutes", total)
}
