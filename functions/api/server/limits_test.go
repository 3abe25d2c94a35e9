package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// limit gives acme a record with these limits, in place of any.
func (h *house) limit(l access.Limits) {
	h.t.Helper()
	_, err := access.ChangeTenant(h.t.Context(), h.mem.Table.Tenants, "acme", true, h.now, func(t *access.Tenant) error {
		t.Limits = l
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.build() // a process that knows nothing yet
}

// later demands a 429 as the contract has it, and gives its message.
func (a answer) later(code, after string) string {
	a.t.Helper()
	var body struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil {
		a.t.Fatalf("%v: %s", err, a.Body)
	}
	head := a.Header()
	if a.Code != http.StatusTooManyRequests || body.Error.Type != "rate_limit_error" || body.Error.Code != code || body.Error.Param != nil {
		a.t.Errorf("%d %s, want 429 %s", a.Code, a.Body, code)
	}
	if head.Get("Retry-After") != after || head.Get("Retry-After-Ms") != after+"000" || head.Get("X-Should-Retry") != "" {
		a.t.Errorf("headers %v, want retry-after %s", head, after)
	}
	return body.Error.Message
}

func TestRequestsAMinute(t *testing.T) {
	h := newHouse(t)
	h.limit(access.Limits{RequestsPerMinute: 3})
	get := func(as string) answer { h.t.Helper(); return h.do(call{method: "GET", path: "/v1/files", as: as}) }
	get("acme read").ok(new(any)) // the first of a process isn't counted: its limit isn't known
	for range 3 {
		get("acme read").ok(new(any))
	}
	get("acme read").later("rate_limit_exceeded", "20")
	get("other both").ok(new(any)) // another tenant's are its own

	// Of all its keys, of whatever route, and whether they may or not.
	h.do(call{method: "POST", path: "/v1/batches", as: "acme both", body: "{}"}).later("rate_limit_exceeded", "20")
	h.do(call{method: "GET", path: "/v1/admin/dead", as: "acme admin"}).later("rate_limit_exceeded", "20")
	h.do(call{method: "GET", path: "/v1/files", as: ""}).refused(401, "invalid_api_key", "")

	h.now = start.Add(20 * time.Second)
	get("acme read").ok(new(any))
	get("acme read").later("rate_limit_exceeded", "20")
	h.now = start.Add(60 * time.Second) // the key is stale by now, and so is the tenant
	for range 2 {
		get("acme read").ok(new(any))
	}
	get("acme read").later("rate_limit_exceeded", "20")
	if log := h.log.String(); !strings.Contains(log, `"status":429,`) || !strings.Contains(log, `"code":"rate_limit_exceeded"`) {
		t.Errorf("log: %s", log)
	}
}

// Access costs a request one read at most, and none when it is warm; that of who is
// held to limits, too.
func TestReadsOfAccess(t *testing.T) {
	for name, l := range map[string]access.Limits{"no limits": {}, "all of them": {QueuedLines: 9, RunningBatches: 9, FileBytes: 1 << 30, RequestsPerMinute: 900}} {
		h := newHouse(t)
		h.limit(l)
		for _, step := range []struct {
			after time.Duration
			reads string
		}{
			{0, "[Keys.Get]"}, {0, "[Tenants.Get]"}, {0, "[]"}, {29 * time.Second, "[]"},
			{30 * time.Second, "[Keys.Pair]"}, {31 * time.Second, "[]"}, {time.Hour, "[Keys.Pair]"}, {time.Hour, "[]"},
		} {
			h.now = start.Add(step.after)
			before := len(h.faults.Calls())
			h.do(call{method: "GET", path: "/v1/models", as: "acme read"}).ok(new(any))
			var reads []string
			for _, p := range h.faults.Calls()[before:] {
				if p.Op != "Keys.Touch" {
					reads = append(reads, p.Op)
				}
			}
			if got := fmt.Sprint(reads); got != step.reads {
				t.Errorf("%s, after %v: %s, want %s", name, step.after, got, step.reads)
			}
		}
	}
}

func TestFileBytes(t *testing.T) {
	h := newHouse(t)
	const limit = 100
	h.limit(access.Limits{FileBytes: limit})
	file := func(as string, size int) answer {
		c := upload(field{"file", "in.jsonl", strings.Repeat("x", size)}, field{"purpose", "", "batch"})
		c.as = as
		return h.do(c)
	}
	parts := func(as string, size int64) answer {
		return h.do(call{method: "POST", path: "/v1/uploads", as: as,
			body: fmt.Sprintf(`{"filename":"in.jsonl","purpose":"batch","bytes":%d,"mime_type":"application/jsonl"}`, size)})
	}
	file("acme submit", limit).ok(new(any))
	parts("acme submit", limit).ok(new(any))
	for name, a := range map[string]answer{"a byte more": file("acme submit", limit+1), "above what any form takes": file("acme submit", int(h.settings.DirectBytes)+1)} {
		a.refused(413, "file_too_large", "file")
		if !strings.Contains(a.Body.String(), "limit of 100 bytes") {
			t.Errorf("%s: %s: it doesn't name the tenant's limit", name, a.Body)
		}
	}
	if a := parts("acme submit", limit+1); a.Code != 413 || !strings.Contains(a.Body.String(), "limit of 100 bytes") || !strings.Contains(a.Body.String(), `"file_too_large"`) {
		t.Errorf("an upload: %d %s", a.Code, a.Body)
	}
	if n := len(h.mem.Objects.Keys(inputs)); n != 1 {
		t.Errorf("%d objects: a refused upload left its bytes", n)
	}
	file("other both", limit+1).ok(new(any))
	parts("other both", limit+1).ok(new(any))

	// The installation's limits hold whatever the tenant's are.
	h.limit(access.Limits{FileBytes: h.settings.FileBytes * 2})
	file("acme submit", int(h.settings.DirectBytes)+1).refused(413, "file_too_large_for_direct_upload", "file")
	if a := parts("acme submit", h.settings.FileBytes+1); a.Code != 413 || !strings.Contains(a.Body.String(), fmt.Sprint(h.settings.FileBytes)) {
		t.Errorf("an upload above the installation's limit: %d %s", a.Code, a.Body)
	}
	h.limit(access.Limits{FileBytes: h.settings.DirectBytes + 1})
	file("acme submit", int(h.settings.DirectBytes)+1).refused(413, "file_too_large_for_direct_upload", "file")

	// What was uploaded before the limit was set starts nothing any more.
	id := h.file()
	h.limit(access.Limits{FileBytes: int64(len(lines)) - 1})
	h.do(createCall(id)).refused(413, "file_too_large", "input_file_id")
}

func TestRunningBatches(t *testing.T) {
	h := newHouse(t)
	h.limit(access.Limits{RunningBatches: 2})
	id := h.file()
	keyed := func(key string) call {
		c := createCall(id)
		c.header = map[string]string{"Idempotency-Key": key}
		return c
	}
	var first, again wireBatch
	h.do(keyed("one")).ok(&first)
	h.do(createCall(id)).ok(new(any))
	if said := h.do(createCall(id)).later("enqueued_limit_exceeded", "30"); !strings.Contains(said, "2 running batches") {
		t.Errorf("%s: it doesn't name the limit", said)
	}
	h.do(keyed("two")).later("enqueued_limit_exceeded", "30")
	resent := createCall(id)
	resent.header = map[string]string{"X-Stainless-Retry-Count": "1"}
	h.do(resent).later("enqueued_limit_exceeded", "30")
	h.do(keyed("one")).ok(&again)
	if again.ID != first.ID || len(h.mem.Workflow.Executions()) != 2 {
		t.Errorf("%s, was %s; %d executions: what is there is no new one", again.ID, first.ID, len(h.mem.Workflow.Executions()))
	}
	if page, _, _ := h.mem.Table.Batches.List(t.Context(), "acme", "", 100); len(page) != 2 {
		t.Errorf("%d batches: a refusal left something behind", len(page))
	}

	// When one ends there is room, and the key that was refused is free.
	b, _ := h.mem.Table.Batch("acme", first.ID)
	b.Status = batch.Failed
	h.mem.Table.SeedBatch(b)
	h.now = start.Add(30 * time.Second)
	h.do(keyed("two")).ok(new(any))
	h.do(createCall(id)).later("enqueued_limit_exceeded", "30")
}

func TestQueuedLines(t *testing.T) {
	h := newHouse(t)
	h.limit(access.Limits{QueuedLines: 7})
	id := h.file()
	var b wireBatch
	h.do(createCall(id)).ok(&b)
	stored, _ := h.mem.Table.Batch("acme", b.ID)
	stored.Status, stored.Parts, stored.Lines = batch.InProgress, 1, 10
	h.mem.Table.SeedBatch(stored)
	part := batch.Part{PartKey: batch.PartKey{Tenant: "acme", Batch: b.ID}, State: batch.Leased, Lines: 10, Processed: 3}
	h.mem.Table.SeedPart(part)
	if said := h.do(createCall(id)).later("enqueued_limit_exceeded", "30"); !strings.Contains(said, "7 enqueued requests") {
		t.Errorf("%s: it doesn't name the limit", said)
	}
	part.Processed = 4
	h.mem.Table.SeedPart(part)
	h.now = start.Add(30 * time.Second)
	h.do(createCall(id)).ok(new(any))
}

// A table that can't say what the limits are refuses nobody for good.
func TestLimitsInTrouble(t *testing.T) {
	h := newHouse(t)
	h.limit(access.Limits{RunningBatches: 1})
	id := h.file()
	for _, op := range []string{"Tenants.Get", "Batches.Open"} {
		h.faults = memory.NewFaults()
		h.faults.Before(op, 1, memory.Fail(nil))
		h.build()
		h.do(createCall(id)).refused(503, "service_unavailable", "")
	}
	h.do(createCall(id)).ok(new(any))
}
