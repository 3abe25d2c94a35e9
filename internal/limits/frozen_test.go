package limits_test

import (
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/frozen"
)

// A refusal holds for a moment also where the function was frozen in between, and its
// monotonic clock with it.
func TestRefusalHoldsWhileFrozen(t *testing.T) {
	h := newHouse(t, access.Limits{RunningBatches: 1})
	b := h.has(batch.InProgress, "", 0)
	began := time.Now()
	b.CreatedAt = began
	h.mem.Table.SeedBatch(b)
	ask := func(now time.Time) string {
		return code(h.gate.Admit(t.Context(), batch.Request{Tenant: "acme", ID: "batch_new"}, batch.File{}, now))
	}
	if got := ask(began); got != tooMany {
		t.Fatal(got)
	}
	b.Status = batch.Completed
	h.mem.Table.SeedBatch(b)
	thawed := frozen.Thawed(t, began, time.Minute)
	if got := ask(thawed); got != "ok" {
		t.Errorf("a minute later: %s", got)
	}
}
