package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/frozen"
)

// What a frozen function saw of a batch is as old, when it goes on, as the time that
// has passed, though its monotonic clock stood still: a batch that was cancelled
// meanwhile lets nobody act.
func TestReplayAfterFrozen(t *testing.T) {
	h := newHouse(t)
	began := time.Now()
	h.now = began
	if a := h.do(replay("fleet")); a.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	h.batch(func(b *batch.Batch) { b.Status = batch.Cancelled })
	thawed := frozen.Thawed(t, began, 10*time.Second)
	h.mu.Lock()
	h.now = thawed
	h.mu.Unlock()
	h.do(replay("fleet")).is(t, "ten seconds after the cancel", http.StatusForbidden, "batch_replay_not_authorized")
}
