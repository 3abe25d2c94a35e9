package access_test

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/access"
)

func TestRates(t *testing.T) {
	var r access.Rates
	now := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	for i := range 3 {
		if wait := r.Take("acme", 3, now); wait != 0 {
			t.Fatalf("request %d waits %v", i, wait)
		}
	}
	for range 2 { // who is refused uses nothing up
		if wait := r.Take("acme", 3, now); wait != 20*time.Second {
			t.Fatalf("the fourth waits %v, want 20s", wait)
		}
	}
	if wait := r.Take("other", 3, now); wait != 0 {
		t.Errorf("another tenant waits %v", wait)
	}
	if wait := r.Take("acme", 3, now.Add(20*time.Second-1)); wait != 1 {
		t.Errorf("a moment before its time it waits %v", wait)
	}
	if wait := r.Take("acme", 3, now.Add(20*time.Second)); wait != 0 {
		t.Errorf("when it was told to come it waits %v", wait)
	}
	for i := range 3 { // after a quiet hour there is a minute's worth, and no more
		if wait := r.Take("acme", 3, now.Add(time.Hour)); wait != 0 {
			t.Errorf("request %d of the next hour waits %v", i, wait)
		}
	}
	if wait := r.Take("acme", 3, now.Add(time.Hour)); wait == 0 {
		t.Error("hours are saved up")
	}
	if wait := r.Take("acme", 3, now); wait <= 0 || wait > time.Minute {
		t.Errorf("with a clock set back an hour it waits %v", wait)
	}
	if wait := r.Take("acme", 0, now); wait != 0 {
		t.Errorf("without a limit it waits %v", wait)
	}
	if wait := r.Take("fast", access.MaxLimit, now); wait != 0 {
		t.Errorf("at the highest limit it waits %v", wait)
	}
}

// A minute takes what it should, whatever the pace at which it is asked for.
func TestRatesPace(t *testing.T) {
	for _, perMinute := range []int{1, 7, 60, 600, 6000} {
		var r access.Rates
		now, taken := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC), 0
		for end := now.Add(10 * time.Minute); now.Before(end); now = now.Add(5 * time.Millisecond) {
			if r.Take("acme", perMinute, now) == 0 {
				taken++
			}
		}
		if most := 11 * perMinute; taken > most || taken < 10*perMinute {
			t.Errorf("%d a minute: %d in ten", perMinute, taken)
		}
	}
}

// However many tenants come by, the one in the middle of its minute may be forgotten,
// and nothing grows.
func TestRatesAreBounded(t *testing.T) {
	var r access.Rates
	now := time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)
	for i := range 20_000 {
		if wait := r.Take(fmt.Sprint(i), 1, now); wait != 0 {
			t.Fatalf("tenant %d waits %v", i, wait)
		}
	}
	if n := access.Rated(&r); n > 4096 {
		t.Errorf("%d tenants are kept", n)
	}
}
