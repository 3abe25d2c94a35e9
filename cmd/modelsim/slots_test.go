package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// statsOf reads a batch's stats as a client does.
func statsOf(t *testing.T, h http.Handler, batch string) stats {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/sim/stats?batch="+batch, nil))
	if strings.Contains(w.Body.String(), `"lines"`) {
		t.Errorf("stats list the lines: %s", w.Body)
	}
	var s stats
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends a line of the batch b to h, past any network.
func ask(t *testing.T, h http.Handler, line string) {
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(`{"model":"sim"}`))
	r.Header.Set("X-Batch-ID", "b")
	r.Header.Set("X-Batch-Line", line)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("line %s: status %d", line, w.Code)
	}
}

// Ten requests of 100 ms through four slots take three turns, and the ledger
// tells waiting in line from being answered.
func TestSlotsBoundWhatIsAnsweredAtOnce(t *testing.T) {
	for _, tt := range []struct {
		slots, answered int
		took            time.Duration
	}{{4, 4, 300 * time.Millisecond}, {0, 10, 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			h := newServer(options{latency: 100 * time.Millisecond, slots: tt.slots})
			begun := time.Now()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { ask(t, h, "7") })
			}
			synctest.Wait()
			if s := statsOf(t, h, "b"); s.InFlight != 10 || s.Answering != tt.answered {
				t.Errorf("%d slots: at first %+v", tt.slots, s)
			}
			all.Wait()
			s := statsOf(t, h, "b")
			want := stats{Requests: 10, MaxInFlight: 10, MaxAnswered: tt.answered, Busy: 1, First: s.First, Last: s.Last}
			s.Busy = float64(int(s.Busy*1e6+0.5)) / 1e6 // it is a sum of tenths
			if s != want || !s.First.Equal(begun) || s.Last.Sub(begun) != tt.took {
				t.Errorf("%d slots: %+v, over after %s, want %s", tt.slots, s, s.Last.Sub(begun), tt.took)
			}
		})
	}
}

// Who gives up in line leaves it and never takes the slot that becomes free.
func TestGivingUpInLineTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(options{slots: 1, latency: time.Second})
		var all sync.WaitGroup
		all.Go(func() { ask(t, h, "0") })
		synctest.Wait()
		ctx, giveUp := context.WithCancel(t.Context())
		all.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/x", strings.NewReader(`{"model":"sim"}`))
			r.Header.Set("X-Batch-ID", "b")
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		synctest.Wait()
		if s := statsOf(t, h, "b"); s.InFlight != 2 || s.Answering != 1 {
			t.Errorf("one answered, one in line: %+v", s)
		}
		giveUp()
		synctest.Wait()
		if s := statsOf(t, h, "b"); s.InFlight != 1 || s.Answering != 1 {
			t.Errorf("one gave up: %+v", s)
		}
		all.Wait()
		begun := time.Now()
		ask(t, h, "1")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the next one took %s", took)
		}
	})
}

// Nothing is known of a batch that nobody sent.
func TestStatsOfNothing(t *testing.T) {
	if s := statsOf(t, newServer(options{}), "none"); s != (stats{}) {
		t.Errorf("%+v", s)
	}
}
