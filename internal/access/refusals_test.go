package access_test

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/access"
)

func TestRefusals(t *testing.T) {
	r := access.NewRefusals(3)
	for n := range 3 {
		if wait := r.Wait("key_a", now); wait != 0 {
			t.Fatalf("after %d refusals it waits %v", n, wait)
		}
		r.Count("key_a", now)
	}
	for at, want := range map[time.Duration]time.Duration{0: 20 * time.Second, 19 * time.Second: time.Second, 20 * time.Second: 0, time.Hour: 0} {
		if wait := r.Wait("key_a", now.Add(at)); wait != want {
			t.Errorf("after %v it waits %v, want %v", at, wait, want)
		}
	}
	if wait := r.Wait("key_b", now); wait != 0 {
		t.Errorf("another key waits %v", wait)
	}
	// A clock that was set back makes nobody wait until it has caught up.
	if wait := r.Wait("key_a", now.Add(-time.Hour)); wait != 20*time.Second {
		t.Errorf("with a clock set back it waits %v", wait)
	}
	if wait := r.Wait("key_a", now.Add(20*time.Second-time.Hour)); wait != 0 {
		t.Errorf("and then it waits %v", wait)
	}
	for range 3 {
		r.Count("key_a", now)
	}
	// What isn't refused uses nothing up.
	at := now.Add(20 * time.Second)
	for range 10 {
		if wait := r.Wait("key_a", at); wait != 0 {
			t.Errorf("who is let in waits %v", wait)
		}
	}
	// However many keys there are, who was refused often isn't forgotten for those that
	// were refused once.
	for range 3 {
		r.Count("key_a", at)
	}
	for n := range 10_000 {
		r.Count(fmt.Sprintf("key_%024d", n), at)
	}
	if wait := r.Wait("key_a", at); wait != 20*time.Second {
		t.Errorf("forgotten: it waits %v", wait)
	}
}

// Of a call whose end nobody told it is said what can be known.
func TestFate(t *testing.T) {
	r := access.Receipt{ReceiptName: access.ReceiptName{StartedAt: now}}
	for after, want := range map[time.Duration]access.Outcome{
		-time.Minute: access.Pending, 0: access.Pending, access.LostAfter: access.Pending, access.LostAfter + time.Millisecond: access.Lost, 100 * time.Hour: access.Lost,
	} {
		if got := r.Fate(now.Add(after)); got != want {
			t.Errorf("%v after its intent: %s, want %s", after, got, want)
		}
	}
	r.Completion = &access.Completion{Outcome: access.Torn}
	if got := r.Fate(now.Add(time.Hour)); got != access.Torn {
		t.Errorf("one with an end: %s", got)
	}
}
