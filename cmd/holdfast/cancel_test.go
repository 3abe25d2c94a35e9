package main

import (
	"net/http"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

func TestCancel(t *testing.T) {
	h := newHouse(t)
	h.run("submit", h.file(line)).is(0)
	id := h.only().ID
	for range 2 {
		if r := h.run("cancel", id).is(0, "is cancelling", "holdfast status "+id); r.stdout != "cancelling\n" {
			t.Errorf("stdout %q", r.stdout)
		}
	}
	if b := h.only(); b.Ending != batch.Cancelled {
		t.Errorf("ending %q", b.Ending)
	}
	var b openai.Batch
	h.run("cancel", id, "--json").is(0).object(&b)
	if b.ID != id || b.Status != "cancelling" || b.CancellingAt == nil {
		t.Errorf("printed %+v", b)
	}
}

func TestCancelOfABatchThatIsOver(t *testing.T) {
	h := newHouse(t)
	b := h.ended(batch.Completed)
	if r := h.run("cancel", b.ID).is(0, "is over already: completed"); r.stdout != "completed\n" {
		t.Errorf("stdout %q", r.stdout)
	}
	b.Status, b.Ending = batch.Finalizing, batch.Completed
	h.mem.Table.SeedBatch(b)
	h.run("cancel", b.ID).is(0, "is ending already: finalizing")
}

func TestCancelRefusals(t *testing.T) {
	h := newHouse(t)
	h.run("cancel").is(2, "name a BATCH: holdfast cancel BATCH")
	h.run("cancel", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa").is(1, "batch_not_found", "own tenant")
	h.env[envKey] = "hf_wrong"
	h.run("cancel", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa").is(1, "invalid_api_key")
}

// Trouble that passes is waited for: cancelling twice harms nothing.
func TestCancelIsPatient(t *testing.T) {
	h := newHouse(t)
	b := h.ended(batch.Completed)
	calls := 0
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if calls++; calls < 3 {
			http.Error(w, "no", http.StatusBadGateway)
			return true
		}
		return false
	}
	h.run("cancel", b.ID).is(0)
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}
