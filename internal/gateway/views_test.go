package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

type batchesFunc func(tenant, id string) (batch.Batch, error)

func (f batchesFunc) Get(_ context.Context, tenant, id string) (batch.Batch, error) {
	return f(tenant, id)
}

var running = batch.Batch{ID: "b", Status: batch.InProgress, Submitter: "ann", Lines: 3}

// Two requests look at once, and the older look comes in last: it is what that one
// request goes by, and nobody after it.
func TestOlderLookComesLast(t *testing.T) {
	now := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	clock := now
	slow := true
	var s *views
	var seen time.Time
	s = newViews(batchesFunc(func(tenant, id string) (batch.Batch, error) {
		if slow {
			slow = false
			clock = now.Add(time.Second)
			if _, err := s.runs(nil, &seen)(t.Context(), tenant, id); err != nil {
				t.Error(err)
			}
			return running, nil // as it was before it was cancelled
		}
		return batch.Batch{ID: "b", Status: batch.Cancelled, Submitter: "ann", Lines: 3}, nil
	}), time.Minute, func() time.Time { return clock })

	run, err := s.runs(nil, &seen)(t.Context(), "acme", "b")
	if err != nil || !run.Replayable || !seen.Equal(now) {
		t.Errorf("the older look: %+v at %v, %v", run, seen, err)
	}
	if run, err = s.runs(nil, &seen)(t.Context(), "acme", "b"); err != nil || run.Replayable || !seen.Equal(now.Add(time.Second)) {
		t.Errorf("whoever comes next: %+v at %v, %v", run, seen, err)
	}
}

// However many batches are asked for, the memory is bounded, and what nobody uses any
// more goes first.
func TestViewsAreBounded(t *testing.T) {
	now := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	reads := 0
	s := newViews(batchesFunc(func(_, id string) (batch.Batch, error) {
		reads++
		if id[0] == 'n' {
			return batch.Batch{}, batch.ErrNotFound
		}
		return running, nil
	}), time.Minute, func() time.Time { return now })
	var seen time.Time
	ask := func(id string) {
		t.Helper()
		if _, err := s.runs(nil, &seen)(t.Context(), "acme", id); err != nil && !errors.Is(err, access.ErrNoRun) {
			t.Error(err)
		}
	}
	for i := range maxViews - 1 {
		ask(fmt.Sprintf("none-%d", i))
	}
	now = now.Add(keepBad)
	ask("good")
	for i := range 100 {
		ask(fmt.Sprintf("some-%d", i))
	}
	if before := reads; len(s.seen) > maxViews {
		t.Errorf("%d views are kept", len(s.seen))
	} else if ask("good"); reads != before {
		t.Error("a view was forgotten for those that nobody uses any more")
	}
	for i := range maxViews + 100 {
		ask(fmt.Sprintf("more-%d", i))
	}
	if len(s.seen) > maxViews {
		t.Errorf("%d views are kept", len(s.seen))
	}
}

// Trouble is not kept, and a batch that isn't there is, for a second.
func TestViewsOfNothing(t *testing.T) {
	now := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	reads, trouble := 0, errors.New("throttled")
	answer := trouble
	s := newViews(batchesFunc(func(string, string) (batch.Batch, error) {
		reads++
		return running, answer
	}), time.Minute, func() time.Time { return now })
	var seen time.Time
	for _, want := range []struct {
		answer, err error
		reads       int
	}{{trouble, trouble, 1}, {trouble, trouble, 2}, {batch.ErrNotFound, access.ErrNoRun, 3}, {nil, access.ErrNoRun, 3}} {
		answer = want.answer
		if _, err := s.runs(nil, &seen)(t.Context(), "acme", "b"); !errors.Is(err, want.err) || reads != want.reads {
			t.Errorf("%v after %d reads, want %v after %d", err, reads, want.err, want.reads)
		}
	}
	now = now.Add(keepBad)
	if run, err := s.runs(nil, &seen)(t.Context(), "acme", "b"); err != nil || !run.Replayable {
		t.Errorf("a second later: %+v, %v", run, err)
	}
}
