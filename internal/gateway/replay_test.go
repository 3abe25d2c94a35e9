package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// A leaked replay key, through the life of the batch whose id was in the same log. It
// gets what its worker would get, while it would; every use is on record, and no
// refusal says more than another.
func TestLeakedReplayKey(t *testing.T) {
	h := newHouse(t)
	var said string
	allowed := 0
	try := func(what string, c call, want bool) {
		t.Helper()
		a := h.do(c)
		if want {
			if a.StatusCode != 200 {
				t.Errorf("%s: %d %s", what, a.StatusCode, a.body)
			}
			allowed++
			return
		}
		a.is(t, what, 403, "batch_replay_not_authorized")
		if a.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: a client would try again", what)
		}
		a.Header.Del("X-Request-Id")
		a.Header.Del("Date")
		if answer := fmt.Sprint(a.Header, a.body); said == "" {
			said = answer
		} else if answer != said {
			t.Errorf("%s: can be told from another refusal: %s\n%s", what, answer, said)
		}
	}
	to := func(status, ending batch.Status) {
		h.pass(10 * time.Second) // past every view
		h.batch(func(b *batch.Batch) {
			b.Status, b.Ending = status, ending
			if ending != "" {
				b.EndingAt = h.clock()
			}
		})
	}
	stolen := func(tenant, id string) call {
		return call{as: "fleet", header: http.Header{"X-Tenant-ID": {tenant}, "X-Batch-ID": {id}}}
	}

	to(batch.Validating, "")
	try("before it starts", replay("fleet"), false)
	to(batch.InProgress, "")
	try("while it runs", replay("fleet"), true)
	try("without a line", stolen("acme", acmes), true)
	try("a line that it hasn't", call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {acmes}, "X-Batch-Line": {"12"}}}, false)
	try("for another tenant", stolen("other", acmes), false)
	try("another's batch for the tenant", stolen("acme", others), false)
	try("a batch of nobody", stolen("acme", "batch_nobody00000000000000"), false)
	try("the key's own tenant", stolen("fleet", acmes), false)
	try("the tenant alone", call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme"}}}, false)
	try("the batch alone", call{as: "fleet", header: http.Header{"X-Batch-ID": {acmes}}}, false)
	try("nothing", call{as: "fleet"}, false)
	try("an odd body", call{as: "fleet", body: "hello"}, false)
	try("to an endpoint that has no POST", call{as: "fleet", method: "GET", path: "/v1/models"}, false)
	try("the tenant twice", call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme", "acme"}, "X-Batch-ID": {acmes}}}, false)
	try("two batches", call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {acmes, others}}}, false)
	to(batch.InProgress, batch.Cancelled)
	try("while it is cancelling", replay("fleet"), true)
	h.pass(2*time.Minute - time.Second)
	try("at the end of its drain", replay("fleet"), true)
	h.pass(time.Second)
	try("when it is drained", replay("fleet"), false)
	to(batch.InProgress, batch.Expired)
	try("while it is expiring", replay("fleet"), true)
	to(batch.InProgress, batch.Completed)
	try("when every line has its result", replay("fleet"), false)
	to(batch.Finalizing, batch.Cancelled)
	try("while it is finalizing", replay("fleet"), false)
	for _, over := range []batch.Status{batch.Completed, batch.Failed, batch.Expired, batch.Cancelled} {
		to(over, over)
		try("after "+string(over), replay("fleet"), false)
	}

	receipts := h.complete("acme", acmes, allowed)
	if len(h.sent()) != allowed {
		t.Errorf("%d calls of %d that were allowed", len(h.sent()), allowed)
	}
	for i, r := range receipts {
		if r.OnBehalfOf != "ann@acme" || r.Batch != acmes || r.Key != access.KeyID(access.HashSecret(h.key["fleet"])) || r.Completion == nil {
			t.Errorf("receipt %d: %+v", i, r)
		}
	}
	for _, shelf := range []string{today, access.DayShelf(h.clock())} {
		for _, tenant := range []string{"acme", "other", "fleet"} {
			if n := len(h.receipts(tenant, shelf)); n != 0 {
				t.Errorf("%d receipts of calls for no batch", n)
			}
		}
	}
	if n := len(h.receipts("other", others)); n != 0 {
		t.Errorf("%d receipts of another's batch", n)
	}
	for i, r := range h.sent() {
		if r.Header.Get("X-Tenant-ID") != "acme" || r.Header.Get("X-On-Behalf-Of") != "ann@acme" || r.Header.Get("X-Batch-ID") != acmes {
			t.Errorf("call %d: %v", i, r.Header)
		}
	}
}

// A view of a batch is used for 4 s at most, and of one that can't be acted for 1 s.
func TestViewsAge(t *testing.T) {
	h := newHouse(t)
	run := func(status int, reads int) {
		t.Helper()
		if a := h.do(replay("fleet")); a.StatusCode != status || h.looks() != reads {
			t.Errorf("status %d, want %d; %d reads, want %d", a.StatusCode, status, h.looks(), reads)
		}
	}
	run(200, 1)
	h.batch(func(b *batch.Batch) { b.Status = batch.Cancelled })
	h.pass(4*time.Second - time.Millisecond)
	run(200, 1)
	h.pass(time.Millisecond)
	run(403, 2)
	h.batch(func(*batch.Batch) {})
	h.pass(time.Second - time.Millisecond)
	run(403, 2)
	h.pass(time.Millisecond)
	run(200, 3)
	h.pass(-time.Hour) // a clock that was set back: what was seen later than now gives way
	for range 2 {
		if a := h.do(replay("all")); a.StatusCode != 200 || h.looks() != 4 {
			t.Errorf("status %d; %d reads", a.StatusCode, h.looks())
		}
	}
}

// The receipt may take so long that the view is too old by then. It is looked at
// again, and who has withdrawn has nothing sent in their name.
func TestViewThatAgesBehindTheReceipt(t *testing.T) {
	for name, change := range map[string]func(*batch.Batch){
		"cancelled": func(b *batch.Batch) { b.Status, b.Ending = batch.Cancelled, batch.Cancelled },
		"finalizing": func(b *batch.Batch) {
			b.Status, b.Ending, b.EndingAt = batch.Finalizing, batch.Cancelled, start
		},
		"another's by now": func(b *batch.Batch) { b.Submitter = "mallory@acme" },
	} {
		h := newHouse(t)
		h.do(replay("fleet"))
		h.pass(3 * time.Second)
		h.faults.After("Receipts.Intend", 2, func(context.Context, memory.Point) error {
			h.pass(2*time.Second + time.Millisecond)
			h.batch(change)
			return nil
		})
		h.do(replay("fleet")).is(t, name, 403, "batch_replay_not_authorized")
		receipts := h.receipts("acme", acmes)
		if len(h.sent()) != 1 || len(receipts) != 2 || receipts[1].Completion == nil || receipts[1].Outcome != access.Withdrawn || receipts[1].Status != 0 {
			t.Errorf("%s: %d calls, receipts %+v", name, len(h.sent()), receipts)
		}
	}
	// One that runs still is called, on the new view.
	h := newHouse(t)
	h.faults.After("Receipts.Intend", 1, func(context.Context, memory.Point) error { h.pass(6 * time.Second); return nil })
	if a := h.do(replay("fleet")); a.StatusCode != 200 || h.looks() != 2 {
		t.Errorf("%d %s after %d looks", a.StatusCode, a.body, h.looks())
	}
	// Five seconds are not too old.
	h = newHouse(t)
	h.faults.After("Receipts.Intend", 1, func(context.Context, memory.Point) error { h.pass(5 * time.Second); return nil })
	if a := h.do(replay("fleet")); a.StatusCode != 200 || h.looks() != 1 {
		t.Errorf("%d %s after %d looks", a.StatusCode, a.body, h.looks())
	}
	// Where the clock was set back nobody knows how old it is.
	h = newHouse(t)
	h.faults.After("Receipts.Intend", 1, func(context.Context, memory.Point) error {
		h.pass(-time.Hour)
		h.batch(func(b *batch.Batch) { b.Status = batch.Cancelled })
		return nil
	})
	h.do(replay("fleet")).is(t, "a clock that was set back", 403, "batch_replay_not_authorized")
	if len(h.sent()) != 0 || h.looks() != 2 {
		t.Errorf("%d calls after %d looks", len(h.sent()), h.looks())
	}
	// Nobody knows: nothing is sent either.
	h = newHouse(t)
	h.faults.After("Receipts.Intend", 1, func(context.Context, memory.Point) error { h.pass(6 * time.Second); return nil })
	h.faults.Before("Batches.Get", 1, memory.Fail(nil))
	h.do(replay("fleet")).is(t, "without an answer", 503, "service_unavailable")
	if r := h.receipt("acme", acmes); r.Outcome != access.Withdrawn || len(h.sent()) != 0 {
		t.Errorf("%d calls, %+v", len(h.sent()), r.Completion)
	}
}

// Whoever has a replay key and guesses is held up: by the limit of the key's own tenant,
// if that has one, and anyway after so many refusals, before anything is read. Each try
// is counted, and in the log by the key's ID.
func TestReplayKeyThatGuesses(t *testing.T) {
	guess := func(i int) call {
		return call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {fmt.Sprintf("batch_guess%018d", i)}}}
	}
	h := newHouse(t)
	for i := range 60 {
		h.do(guess(i)).is(t, "a guess", 403, "batch_replay_not_authorized")
	}
	for i := range 40 {
		a := h.do(guess(60 + i))
		a.is(t, "a guess too many", 429, "rate_limit_exceeded")
		if a.Header.Get("Retry-After") != "1" {
			t.Errorf("retry-after %q", a.Header.Get("Retry-After"))
		}
	}
	if n := h.looks(); n != 60 || h.refused() != 100 || len(h.sent()) != 0 {
		t.Errorf("100 guesses: %d reads, %v counted, %d sent", n, h.refused(), len(h.sent()))
	}
	id := access.KeyID(access.HashSecret(h.key["fleet"]))
	if log := h.says(`"msg":"request"`, 100); strings.Count(log, `"key":"`+id+`"`) != 100 {
		t.Errorf("of 100 guesses %d are in the log with the key's id", strings.Count(log, id))
	}
	// Another key goes on, and so does this one with what it may, a second later.
	if a := h.do(replay("all")); a.StatusCode != 200 {
		t.Errorf("another key: %d %s", a.StatusCode, a.body)
	}
	h.do(replay("fleet")).is(t, "held up", 429, "rate_limit_exceeded")
	h.pass(time.Second)
	for range 10 {
		if a := h.do(replay("fleet")); a.StatusCode != 200 {
			t.Errorf("a second later: %d %s", a.StatusCode, a.body)
		}
	}
	if h.refused() != 101 {
		t.Errorf("%v counted: what is let do isn't refused", h.refused())
	}
	// A key without the scope is nobody who guesses.
	for range 70 {
		h.do(call{as: "bob", header: http.Header{"X-Tenant-ID": {"acme"}}}).is(t, "bob", 403, "tenant_not_authorized")
	}

	h = newHouse(t)
	if err := h.mem.Table.Tenants.Put(t.Context(), access.Tenant{Name: "fleet", Limits: access.Limits{RequestsPerMinute: 5}}); err != nil {
		t.Fatal(err)
	}
	h.open()
	for i := range 50 {
		h.do(guess(i))
	}
	if n := h.looks(); n != 1+5 {
		t.Errorf("50 guesses with 5 a minute: %d reads, want the first and 5", n)
	}
}

// A replay calls what its batch calls; the gateway's other routes are for others, and
// leave no receipt either.
func TestReplayOfAnotherEndpoint(t *testing.T) {
	h := newHouse(t)
	images := "/v1/images/generations"
	h.settings.Endpoints = []string{chat, images}
	h.open()
	for _, c := range []call{{path: images}, {path: "/v1/models", method: "GET"}, {path: "/v1/models", method: "HEAD"}} {
		c.as, c.header = "fleet", replay("fleet").header
		if a := h.do(c); a.StatusCode != 403 || c.method != "HEAD" && !strings.Contains(a.body, "batch_replay_not_authorized") {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.StatusCode, a.body)
		}
	}
	if n := len(h.receipts("acme", acmes)); n != 0 || len(h.sent()) != 0 {
		t.Errorf("%d receipts, %d calls", n, len(h.sent()))
	}
	h.batch(func(b *batch.Batch) { b.Endpoint = images })
	h.pass(10 * time.Second)
	c := replay("fleet")
	c.path = images
	if a := h.do(c); a.StatusCode != 200 {
		t.Errorf("its own: %d %s", a.StatusCode, a.body)
	}
	h.do(replay("fleet")).is(t, "what it doesn't call any more", 403, "batch_replay_not_authorized")
}
