package batch

import (
	"testing"
	"time"
)

// TestReplayable is the whole table: every status with every ending, at the
// instants between which the answer changes. What isn't listed is no.
func TestReplayable(t *testing.T) {
	ended := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	type state struct{ status, ending Status }
	instants := map[string]time.Duration{
		"at once": 0, "before the drain is over": 2*time.Minute - 1, "when it is": 2 * time.Minute,
		"long after": time.Hour, "before it began, by another clock": -time.Second,
	}
	always := map[string]bool{"at once": true, "before the drain is over": true, "when it is": true, "long after": true, "before it began, by another clock": true}
	draining := map[string]bool{"at once": true, "before the drain is over": true, "before it began, by another clock": true}
	yes := map[state]map[string]bool{
		{InProgress, ""}:        always,
		{InProgress, Cancelled}: draining,
		{InProgress, Expired}:   draining,
	}
	for _, status := range []Status{"", Validating, InProgress, Finalizing, Completed, Failed, Expired, Cancelled, "paused"} {
		for _, ending := range []Status{"", Completed, Failed, Expired, Cancelled, "paused"} {
			b := Batch{Status: status, Ending: ending, EndingAt: ended}
			for when, d := range instants {
				want := yes[state{status, ending}][when]
				if got := b.Replayable(ended.Add(d), 2*time.Minute); got != want {
					t.Errorf("%q ending %q, %s: %v, want %v", status, ending, when, got, want)
				}
				// The other place of the rule: a worker never begins a line that the
				// gateway would refuse.
				v := view{batch: b}
				if v.running() && !b.Replayable(ended.Add(d), 0) {
					t.Errorf("%q ending %q, %s: a worker sends what the gateway refuses", status, ending, when)
				}
				if v.running() != (status == InProgress && ending == "") {
					t.Errorf("%q ending %q: a worker may send: %v", status, ending, v.running())
				}
			}
		}
	}
}

// Ten minutes are the most, whatever is configured; nothing configured is no time.
func TestReplayableIsBounded(t *testing.T) {
	ended := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	b := Batch{Status: InProgress, Ending: Cancelled, EndingAt: ended}
	if b.Replayable(ended.Add(10*time.Minute), 24*time.Hour) || !b.Replayable(ended.Add(10*time.Minute-1), 24*time.Hour) {
		t.Error("a drain is 10 minutes at most")
	}
	if b.Replayable(ended, 0) {
		t.Error("without a drain a batch that ends is over at once")
	}
	if (Batch{Status: InProgress, Ending: Cancelled}).Replayable(ended, time.Hour) {
		t.Error("an end whose time nobody knows drains for ever")
	}
}
