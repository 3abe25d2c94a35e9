package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

const ended = "batch_eeeeeeeeeeeeeeeeeeeeeeeeee"

// over is a batch of acme's with this status, and its receipts unless they are "".
func (h *house) over(status batch.Status, receipts string) {
	h.t.Helper()
	h.mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: ended, Status: status, Lines: 1, CreatedAt: start})
	if receipts == "" {
		return
	}
	if _, err := h.mem.Objects.Put(h.t.Context(), batch.Object{Bucket: results, Key: batch.ResultKey("acme", ended, batch.ReceiptsFile)}, []byte(receipts)); err != nil {
		h.t.Fatal(err)
	}
}

func receiptsOf(as string) call {
	return call{method: "GET", path: "/v1/batches/" + ended + "/receipts", as: as}
}

func TestReceipts(t *testing.T) {
	for _, status := range []batch.Status{batch.Completed, batch.Cancelled, batch.Expired} {
		h := newHouse(t)
		h.over(status, `{"line":0}`+"\n")
		for _, method := range []string{"GET", "HEAD"} {
			c := receiptsOf("acme read")
			c.method = method
			a := h.do(c)
			if a.Code != http.StatusFound || a.Header().Get("Cache-Control") != "no-store" || a.Body.Len() != 0 ||
				a.Header().Get("Location") != "https://objects.example/results/acme/out/"+ended+"_receipts.jsonl?for=10m0s" {
				t.Errorf("%s, %s: %d, %v", status, method, a.Code, a.Header())
			}
		}
		// The official Go client follows no redirect.
		c := receiptsOf("acme read")
		c.header = map[string]string{"X-Stainless-Lang": "go"}
		if a := h.do(c); a.Code != http.StatusOK || a.Body.String() != `{"line":0}`+"\n" || a.Header().Get("Content-Type") != "application/jsonl" {
			t.Errorf("%s, to Go: %d, %s, %v", status, a.Code, a.Body, a.Header())
		}
		h.over(status, strings.Repeat("x", 4<<20+1))
		if a := h.do(c); a.Code != http.StatusFound {
			t.Errorf("%s, to Go, too much for a reply: %d", status, a.Code)
		}
	}
}

func TestReceiptsAreRefused(t *testing.T) {
	for _, status := range []batch.Status{batch.Validating, batch.InProgress, batch.Finalizing} {
		h := newHouse(t)
		h.over(status, "leftovers")
		h.do(receiptsOf("acme read")).refused(404, "receipts_not_ready", "batch_id")
	}
	for _, status := range []batch.Status{batch.Completed, batch.Failed, batch.Cancelled, batch.Expired} {
		h := newHouse(t)
		h.over(status, "")
		h.do(receiptsOf("acme read")).refused(404, "receipts_not_found", "batch_id")
	}
	h := newHouse(t)
	h.over(batch.Completed, "x")
	h.do(receiptsOf("other read")).refused(404, "batch_not_found", "batch_id")
	h.do(receiptsOf("acme submit")).refused(403, "insufficient_permissions", "")
	h.do(receiptsOf("acme admin")).refused(403, "insufficient_permissions", "")
	h.do(receiptsOf("")).refused(401, "invalid_api_key", "")
	h.do(call{method: "GET", path: anyBatch + "/receipts", as: "acme read"}).refused(404, "batch_not_found", "batch_id")
	h.do(call{method: "GET", path: "/v1/batches/x/receipts", as: "acme read"}).refused(404, "batch_not_found", "batch_id")
	h.do(call{method: "DELETE", path: "/v1/batches/" + ended + "/receipts", as: "acme both"}).refused(405, "method_not_allowed", "")
}

func TestReceiptsTrouble(t *testing.T) {
	for _, op := range []string{"Uploads.Stat", "Objects.Open"} {
		h := newHouse(t)
		h.over(batch.Completed, "x")
		h.faults = memory.NewFaults()
		h.faults.Before(op, 0, memory.Fail(errors.New("store trouble")))
		h.build()
		c := receiptsOf("acme read")
		c.header = map[string]string{"X-Stainless-Lang": "go"}
		h.do(c).refused(503, "service_unavailable", "")
	}
	h := newHouse(t)
	h.over(batch.Completed, "x")
	h.links.err = errors.New("no link")
	h.build()
	h.do(receiptsOf("acme read")).refused(503, "service_unavailable", "")
}
