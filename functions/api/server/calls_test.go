package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// called puts a receipt of the gateway's into the table: of a call for the batch, or
// for none, that was complete unless outcome is "".
func (h *house) called(tenant, id string, at time.Time, request string, outcome access.Outcome) {
	h.t.Helper()
	r := access.Receipt{
		ReceiptName: access.ReceiptName{Tenant: tenant, Batch: id, StartedAt: at, RequestID: request},
		OnBehalfOf:  "ann@acme", Key: "key_fleet", Endpoint: "/v1/chat/completions", Model: "sim", RequestHash: "00ff",
	}
	if err := h.mem.Table.Receipts.Intend(h.t.Context(), r); err != nil {
		h.t.Fatal(err)
	}
	if outcome != "" {
		done := access.Completion{Time: at.Add(time.Second), Outcome: outcome, Status: 200, ReplyHash: "ff00", ReplyBytes: 2, Millis: 1000}
		if err := h.mem.Table.Receipts.Complete(h.t.Context(), r.ReceiptName, done); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *house) calls(path string) (page openai.List[access.ToldReceipt], body string) {
	h.t.Helper()
	a := h.do(call{method: "GET", path: path, as: "acme read"})
	body = a.Body.String()
	a.ok(&page)
	return page, body
}

const callsOfBatch = "/v1/batches/" + ended + "/receipts/gateway"

func TestCallsOfABatch(t *testing.T) {
	h := newHouse(t)
	h.over(batch.InProgress, "")
	if page, body := h.calls(callsOfBatch); len(page.Data) != 0 || page.HasMore || !strings.Contains(body, `"data":[]`) {
		t.Errorf("none: %s", body)
	}
	h.called("acme", ended, start.Add(-16*time.Minute), "req_a", access.Replied)
	h.called("acme", ended, start.Add(-15*time.Minute-time.Millisecond), "req_b", "")
	h.called("acme", ended, start.Add(-15*time.Minute), "req_c", "")
	h.called("acme", ended, start, "req_d", access.Torn)
	h.called("acme", "", start, "req_e", access.Replied)
	h.called("other", ended, start, "req_f", access.Replied) // whoever has a batch of that id
	page, body := h.calls(callsOfBatch)
	var got []string
	for _, r := range page.Data {
		got = append(got, r.RequestID+" "+string(r.Outcome))
		if r.ID != r.ReceiptName.ID() || r.Object != "gateway.receipt" || r.Tenant != "acme" || r.Batch != ended || r.Key != "key_fleet" {
			t.Errorf("%+v", r)
		}
	}
	if want := "[req_a replied req_b lost req_c pending req_d torn]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s: %s", got, want, body)
	}
	if strings.Count(body, `"outcome"`) != 4 || strings.Count(body, `"reply_sha256"`) != 2 {
		t.Errorf("body %s", body)
	}
	// Page by page, and a batch that is over or even gone, whose receipts are kept longer.
	h.over(batch.Completed, "")
	got = nil
	for after := ""; ; after = *page.LastID {
		page, _ = h.calls(callsOfBatch + "?limit=3&after=" + url.QueryEscape(after))
		for _, r := range page.Data {
			got = append(got, r.RequestID)
		}
		if !page.HasMore {
			break
		}
	}
	if fmt.Sprint(got) != "[req_a req_b req_c req_d]" {
		t.Errorf("page by page: %v", got)
	}
	h.called("acme", anyBatch[len("/v1/batches/"):], start, "req_g", access.Replied)
	if page, _ := h.calls(anyBatch + "/receipts/gateway"); len(page.Data) != 1 {
		t.Errorf("of a batch that is gone: %+v", page)
	}
}

func TestCallsOfADay(t *testing.T) {
	h := newHouse(t)
	h.called("acme", "", start, "req_a", access.Replied)
	h.called("acme", "", start.Add(-10*time.Hour), "req_b", "")
	h.called("acme", ended, start, "req_c", access.Replied)
	h.called("other", "", start, "req_d", access.Replied)
	for path, want := range map[string]string{
		"/v1/receipts": "req_a", "/v1/receipts?day=2026-10-12": "req_a", "/v1/receipts?day=2026-10-11": "req_b", "/v1/receipts?day=2026-10-10": "",
	} {
		page, body := h.calls(path)
		got := ""
		for _, r := range page.Data {
			got += r.RequestID
		}
		if got != want {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestCallsAreRefused(t *testing.T) {
	h := newHouse(t)
	h.over(batch.Completed, "")
	h.called("acme", ended, start, "req_a", access.Replied)
	get := func(path, as string) answer { return h.do(call{method: "GET", path: path, as: as}) }
	get(callsOfBatch, "other read").refused(404, "batch_not_found", "batch_id")
	get(anyBatch+"/receipts/gateway", "acme read").refused(404, "batch_not_found", "batch_id")
	get("/v1/batches/-2026-10-12/receipts/gateway", "acme read").refused(404, "batch_not_found", "batch_id")
	for _, path := range []string{callsOfBatch, "/v1/receipts"} {
		get(path, "").refused(401, "invalid_api_key", "")
		get(path, "acme submit").refused(403, "insufficient_permissions", "")
		get(path, "acme admin").refused(403, "insufficient_permissions", "")
		get(path+"?limit=0", "acme read").refused(400, "invalid_limit", "limit")
		get(path+"?limit=1001", "acme read").refused(400, "invalid_limit", "limit")
		get(path+"?order=desc", "acme read").refused(400, "invalid_order", "order")
		get(path+"?after=x", "acme read").refused(400, "invalid_cursor", "after")
		get(path+"?after=1792000000000%23a%00", "acme read").refused(400, "invalid_cursor", "after")
		h.do(call{method: "POST", path: path, as: "acme both"}).refused(405, "method_not_allowed", "")
	}
	for _, day := range []string{"today", "2026-13-01", "2026-1-1", "2026-10-12T00:00:00Z", "../x", "2026-10-12%23x"} {
		get("/v1/receipts?day="+day, "acme read").refused(400, "invalid_day", "day")
	}
	h.faults.Before("Receipts.List", 0, memory.Fail(nil))
	get("/v1/receipts", "acme read").refused(503, "service_unavailable", "")
}

// A key that acts for others has nothing to do here, whatever it asks for and asserts,
// and whatever else an older release gave it; nor does anybody act for another tenant.
func TestNobodyActsForOthers(t *testing.T) {
	h := newHouse(t)
	h.over(batch.InProgress, "")
	h.addKey("fleet", "acme", access.BatchReplay)
	h.addKey("every scope", "acme", access.Scopes...)
	asserted := map[string]string{"X-Tenant-ID": "acme", "X-Batch-ID": ended, "X-Batch-Line": "0"}
	tries := 0
	for _, as := range []string{"fleet", "every scope"} {
		for _, headers := range []map[string]string{nil, asserted, {"X-Tenant-ID": "acme"}} {
			for _, c := range []call{
				{method: "GET", path: "/v1/batches"}, {method: "GET", path: "/v1/batches/" + ended}, {method: "POST", path: "/v1/batches"},
				{method: "GET", path: "/v1/models"}, {method: "GET", path: callsOfBatch}, {method: "GET", path: "/v1/admin/keys"}, {method: "POST", path: "/v1/files"},
			} {
				c.as, c.header = as, headers
				h.do(c).refused(http.StatusForbidden, "batch_replay_not_authorized", "")
				tries++
			}
		}
	}
	if h.refused != float64(tries) {
		t.Errorf("%v counted of %d", h.refused, tries)
	}
	for tenant, ok := range map[string]bool{"acme": true, "other": false, "": false, "acme,acme": false, "ACME": false, "nobody": false} {
		c := call{method: "GET", path: "/v1/batches", as: "acme read", header: map[string]string{"X-Tenant-ID": tenant, "X-Batch-ID": anyBatch}}
		if a := h.do(c); ok {
			a.ok(&struct{}{})
		} else {
			a.refused(http.StatusForbidden, "tenant_not_authorized", "")
		}
	}
	r, err := http.NewRequest("GET", "http://api.example/v1/batches", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + h.key["acme read"]}, "X-Tenant-Id": {"acme", "acme"}}
	h.send(r).refused(http.StatusForbidden, "tenant_not_authorized", "")
	if h.refused != float64(tries) {
		t.Error("somebody without the scope was counted")
	}
	if !strings.Contains(h.log.String(), `"key":"`+h.keyID("fleet")+`"`) {
		t.Error("the log doesn't name the key")
	}
}
