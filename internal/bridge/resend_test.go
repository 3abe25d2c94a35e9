package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

// sender is a Resends over a table of its own, whose ids are id-1, id-2, …
type sender struct {
	*bridge.Resends
	table *memory.Table
	n     atomic.Int64
}

func newSender() *sender {
	s := &sender{table: memory.NewTable(nil)}
	s.Resends = s.process(nil)
	return s
}

func (s *sender) process(f *memory.Faults) *bridge.Resends {
	return bridge.NewResends(s.table.With(f).Sends, func() string { return fmt.Sprint("id-", s.n.Add(1)) })
}

func TestResends(t *testing.T) {
	type step struct {
		resent bool
		after  time.Duration // start
		change func(*bridge.Request)
		want   string
	}
	const first, again = false, true
	other := func(r *bridge.Request) { r.FileID = "file-2" }
	for name, steps := range map[string][]step{
		"a resend finds the first send":     {{first, 0, nil, "id-1"}, {again, time.Second, nil, "id-1"}, {again, time.Minute, nil, "id-1"}},
		"two first sends are two":           {{first, 0, nil, "id-1"}, {first, 0, nil, "id-2"}, {again, 1, nil, "id-2"}},
		"within the window":                 {{first, 0, nil, "id-1"}, {again, 15*time.Minute - 1, nil, "id-1"}},
		"not after it":                      {{first, 0, nil, "id-1"}, {again, 15 * time.Minute, nil, "id-2"}, {again, 16 * time.Minute, nil, "id-2"}},
		"a resend that was never sent":      {{again, 0, nil, "id-1"}, {again, 0, nil, "id-1"}},
		"another request":                   {{first, 0, nil, "id-1"}, {again, 0, other, "id-2"}, {again, 0, nil, "id-1"}},
		"another principal":                 {{first, 0, nil, "id-1"}, {again, 0, func(r *bridge.Request) { r.Submitter = "bob" }, "id-2"}},
		"another tenant":                    {{first, 0, nil, "id-1"}, {again, 0, func(r *bridge.Request) { r.Tenant = "other" }, "id-2"}},
		"a request's own id makes no other": {{first, 0, nil, "id-1"}, {again, 0, func(r *bridge.Request) { r.RequestID = "req-2" }, "id-1"}},
		"a clock that is behind":            {{first, time.Minute, nil, "id-1"}, {again, 0, nil, "id-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender()
			for i, st := range steps {
				r := request("")
				if st.change != nil {
					st.change(&r)
				}
				got, err := s.ID(t.Context(), r, st.resent, start.Add(st.after))
				if err != nil || got != st.want {
					t.Errorf("step %d: %s, %v, want %s", i, got, err, st.want)
				}
			}
		})
	}
}

// Copies of a resend that cross each other agree, with or without a first send.
func TestResendsAtOnce(t *testing.T) {
	for _, primed := range []bool{false, true} {
		s := newSender()
		if primed {
			if _, err := s.ID(t.Context(), request(""), false, start.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		ids := at64(t, func() (string, error) { return s.ID(t.Context(), request(""), true, start) })
		if slices.Sort(ids); ids[0] != ids[63] {
			t.Errorf("%v", slices.Compact(ids))
		}
	}
}

// A copy that has looked and not recorded yet when another one does takes that one's id:
// two ids would be two batches.
func TestResendThatIsOvertaken(t *testing.T) {
	for name, sent := range map[string]bool{"no first send": false, "one too old": true} {
		t.Run(name, func(t *testing.T) {
			s, f, gate := newSender(), memory.NewFaults(), memory.NewGate()
			if sent {
				if _, err := s.ID(t.Context(), request("k"), false, start.Add(-time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			f.Before("Sends.Record", 1, gate.Wait)
			got := make(chan string)
			go func() {
				id, err := s.process(f).ID(t.Context(), request("k"), true, start)
				got <- fmt.Sprint(id, err)
			}()
			<-gate.Reached()
			want, err := s.ID(t.Context(), request("k"), true, start)
			gate.Open()
			if id := <-got; err != nil || id != fmt.Sprint(want, nil) {
				t.Errorf("%s, and the other's is %s, %v", id, want, err)
			}
		})
	}
}

// A first send that others overtake over and over starts all the same: whose id a resend
// will find is all one.
func TestFirstSendThatIsAlwaysOvertaken(t *testing.T) {
	s, f := newSender(), memory.NewFaults()
	f.Before("Sends.Record", 0, func(ctx context.Context, _ memory.Point) error {
		_, err := s.ID(ctx, request("k"), false, start)
		return err
	})
	if id, err := s.process(f).ID(t.Context(), request("k"), false, start); err != nil || id != "id-1" || f.Count("Sends.Record") > 3 {
		t.Errorf("%q, %v after %d tries", id, err, f.Count("Sends.Record"))
	}
}

// First sends never share an id, however many there are at once.
func TestFirstSendsAtOnce(t *testing.T) {
	s := newSender()
	ids := at64(t, func() (string, error) { return s.ID(t.Context(), request(""), false, start) })
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n != 64 {
		t.Errorf("%d ids", n)
	}
	again, err := s.ID(t.Context(), request(""), true, start)
	if _, known := slices.BinarySearch(ids, again); err != nil || !known {
		t.Errorf("a resend gets %s, %v, which is none of theirs", again, err)
	}
}

func at64(t *testing.T, do func() (string, error)) []string {
	ids := make([]string, 64)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			id, err := do()
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	wg.Wait()
	return ids
}

// An id that isn't recorded is not given away: its resend would find another.
func TestSendNotRecorded(t *testing.T) {
	for _, resent := range []bool{false, true} {
		s, f := newSender(), memory.NewFaults()
		f.After("Sends.Record", 1, memory.Fail(nil))
		if id, err := s.process(f).ID(t.Context(), request(""), resent, start); !errors.Is(err, memory.ErrInjected) || id != "" {
			t.Errorf("%q, %v", id, err)
		}
		f.Before("Sends.Last", 0, memory.Fail(context.DeadlineExceeded))
		if id, err := s.process(f).ID(t.Context(), request(""), true, start); !errors.Is(err, context.DeadlineExceeded) || id != "" {
			t.Errorf("%q, %v", id, err)
		}
		// It was, though: the resend goes on from it.
		if id, err := s.ID(t.Context(), request(""), true, start); err != nil || id != "id-1" {
			t.Errorf("%q, %v", id, err)
		}
	}
}
