package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

func cancelCall(id string) call {
	return call{method: "POST", path: "/v1/batches/" + id + "/cancel", as: "acme submit"}
}

type cancelled struct {
	wireBatch
	CancellingAt *int64 `json:"cancelling_at"`
	CancelledAt  *int64 `json:"cancelled_at"`
}

// Whatever a batch is doing, a cancel is answered 200 with the batch: cancelling,
// or unchanged. Twice is the same answer.
func TestCancelInEachStatus(t *testing.T) {
	for status, c := range map[batch.Status]struct {
		ending batch.Status
		wire   string
		writes bool
	}{
		batch.Validating: {"", "cancelling", true},
		batch.InProgress: {"", "cancelling", true},
		batch.Finalizing: {batch.Completed, "finalizing", false},
		batch.Completed:  {batch.Completed, "completed", false},
		batch.Failed:     {"", "failed", false},
		batch.Expired:    {batch.Expired, "expired", false},
		batch.Cancelled:  {batch.Cancelled, "cancelled", false},
	} {
		t.Run(string(status), func(t *testing.T) {
			h := newHouse(t)
			stored, _ := h.mem.Table.Batch("acme", h.batch().ID)
			stored.Status, stored.Ending, stored.Lines = status, c.ending, 9
			if stored.Counts = (batch.Counts{}); status.Terminal() {
				stored.Counts = batch.Counts{Total: 9, Completed: 4, Failed: 5}
			}
			h.mem.Table.SeedBatch(stored)
			h.mem.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: "acme", Batch: stored.ID}, State: batch.Leased, Lines: 9,
				Chunks: []batch.Chunk{{N: 5, OK: 4, Err: 1}}})
			h.now = start.Add(time.Hour)
			var first, again cancelled
			h.do(cancelCall(stored.ID)).ok(&first)
			h.now = start.Add(2 * time.Hour)
			h.do(cancelCall(stored.ID)).ok(&again)
			for _, got := range []cancelled{first, again} {
				if got.ID != stored.ID || got.Status != c.wire {
					t.Errorf("answered %+v, want %s", got, c.wire)
				}
				if c.writes && (got.CancellingAt == nil || *got.CancellingAt != start.Add(time.Hour).Unix()) {
					t.Errorf("cancelling_at %v, want the time of the first cancel", got.CancellingAt)
				}
				wantCompleted := 4
				if status == batch.Validating {
					wantCompleted = 0
				}
				if got.RequestCounts.Completed != wantCompleted {
					t.Errorf("counts %+v", got.RequestCounts)
				}
			}
			after, _ := h.mem.Table.Batch("acme", stored.ID)
			if written := after.Ver != stored.Ver; written != c.writes || after.Status != status {
				t.Errorf("stored %+v, before %+v", after, stored)
			}
		})
	}
}

func TestCancelRefusals(t *testing.T) {
	h := newHouse(t)
	b := h.batch()
	for _, c := range []struct {
		name, id, as string
		method       string
		status       int
		code, param  string
	}{
		{"unknown", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", "acme submit", "POST", 404, "batch_not_found", "batch_id"},
		{"no batch id", "file-1", "acme submit", "POST", 404, "batch_not_found", "batch_id"},
		{"another tenant's", b.ID, "other both", "POST", 404, "batch_not_found", "batch_id"},
		{"no scope", b.ID, "acme read", "POST", 403, "insufficient_permissions", ""},
		{"no key", b.ID, "", "POST", 401, "invalid_api_key", ""},
		{"another method", b.ID, "acme submit", "GET", 405, "method_not_allowed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			req := cancelCall(c.id)
			req.as, req.method = c.as, c.method
			h.do(req).refused(c.status, c.code, c.param)
		})
	}
	if stored, _ := h.mem.Table.Batch("acme", b.ID); stored.Ending != "" {
		t.Errorf("a refused cancel took effect: %+v", stored)
	}
}

// A body, which no official client sends, is no reason to refuse.
func TestCancelIgnoresABody(t *testing.T) {
	for _, body := range []string{"{}", "not JSON", strings.Repeat("x", 1<<20)} {
		h := newHouse(t)
		c := cancelCall(h.batch().ID)
		c.body, c.header = body, map[string]string{"Content-Type": "application/json"}
		var got cancelled
		if h.do(c).ok(&got); got.Status != "cancelling" {
			t.Errorf("%.20s: %+v", body, got)
		}
	}
}

// The decision stands although nobody could be told: the client is asked to come
// again, the log says why, and the next cancel tells again.
func TestCancelWithTheWorkflowDown(t *testing.T) {
	h := newHouse(t)
	stored, _ := h.mem.Table.Batch("acme", h.batch().ID)
	stored.Status = batch.InProgress
	h.mem.Table.SeedBatch(stored)
	h.faults = memory.NewFaults()
	h.faults.Before("Workflow.Finish", 0, memory.Fail(nil))
	h.build()
	a := h.do(cancelCall(stored.ID))
	a.refused(http.StatusServiceUnavailable, "service_unavailable", "")
	if a.Header().Get("Retry-After") == "" {
		t.Error("no retry-after")
	}
	if now, _ := h.mem.Table.Batch("acme", stored.ID); now.Ending != batch.Cancelled {
		t.Errorf("stored %+v", now)
	}
	if !strings.Contains(h.log.String(), "workflow not told of a cancel") || !strings.Contains(h.log.String(), stored.ID) {
		t.Errorf("log %s", h.log.String())
	}
	if n := len(h.mem.Workflow.Executions()); n != 1 {
		t.Errorf("%d executions", n)
	}
	h.faults = memory.NewFaults()
	h.build()
	var got cancelled
	if h.do(cancelCall(stored.ID)).ok(&got); got.Status != "cancelling" {
		t.Errorf("%+v", got)
	}
	if all := h.mem.Workflow.Executions(); len(all) != 2 || !all[1].Finish || all[1].Name != stored.ID+"-finish-cancelled" {
		t.Errorf("executions %+v", all)
	}
}

// Trouble with the table leaves the fate of the decision open: come again.
func TestCancelWithTheTableDown(t *testing.T) {
	h := newHouse(t)
	b := h.batch()
	h.faults = memory.NewFaults()
	h.faults.Before("Endings.End", 0, memory.Fail(nil))
	h.build()
	a := h.do(cancelCall(b.ID))
	a.refused(http.StatusServiceUnavailable, "service_unavailable", "")
	if a.Header().Get("Retry-After") == "" {
		t.Error("no retry-after")
	}
}
