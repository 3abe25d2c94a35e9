package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// still runs a batch through seventy looks at it that are five seconds apart, and
// nothing changes.
func (h *house) still() (stderr, id string) {
	h.t.Helper()
	clock := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	h.now = func() time.Time { return clock }
	h.look = func(n int) {
		clock = clock.Add(5 * time.Second)
		b := h.only()
		switch {
		case n == 20:
			b.Status, b.Lines, b.Parts = batch.InProgress, 3, 1
			h.mem.Table.SeedBatch(b)
		case n == 90:
			h.end(b, batch.Completed)
		}
	}
	r := h.run("submit", h.file(line), "--wait").is(0)
	return r.stderr, h.only().ID
}

func TestWaitSaysThatNothingChanges(t *testing.T) {
	h := newHouse(t)
	stderr, id := h.still()
	var got []string
	for l := range strings.Lines(stderr) {
		if strings.HasPrefix(l, "  ") {
			got = append(got, strings.TrimSpace(l))
		}
	}
	why := "; holdfast events " + id + " may tell why"
	want := []string{
		"validating", "still validating after 30s" + why, "still validating after 1m" + why,
		"in_progress 0/3", "still 0/3 after 30s" + why, "still 0/3 after 1m" + why, "still 0/3 after 2m" + why, "still 0/3 after 4m" + why, "completed 2/3",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q,\nwant %q", got, want)
	}
}

// Who can't look any longer hasn't failed to submit, and is told so.
func TestWaitThatEndsLeavesTheBatch(t *testing.T) {
	h := newHouse(t)
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("X-Request-Id", "r")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"error":{"message":"This API key lacks the scope 'read'.","code":"insufficient_permissions"}}`)
		return true
	}
	var out fault
	h.run("submit", h.file(line), "--wait", "--json").is(1).object(&out)
	if id := h.only().ID; !strings.Contains(out.Error.Hint, "Make a key with that scope") || !strings.HasSuffix(out.Error.Hint, "Batch "+id+" goes on without you: don't submit the file again.") {
		t.Errorf("%+v", out)
	}
}

func TestWaitSaysThatNothingChangesBesideABar(t *testing.T) {
	h := newHouse(t)
	h.term = true
	stderr, _ := h.still()
	for _, want := range []string{"still 0/3 after 30s; ", "still 0/3 after 4m; "} {
		if strings.Count(stderr, want) != 1 {
			t.Errorf("%q", stderr)
		}
	}
}
