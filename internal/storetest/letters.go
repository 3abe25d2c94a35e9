package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
)

// LettersPorts are what the suite of bridge.Postponer and door.DeadLetters needs: a
// queue of the case's own that hides for a minute what it delivers, and whoever
// sends, receives and looks at the dead.
type LettersPorts struct {
	Postponer bridge.Postponer
	Dead      door.DeadLetters
	Post      func(ctx context.Context, body string) error
	Receive   func(ctx context.Context) ([]bridge.Letter, error)
	Look      func(ctx context.Context) ([]LookedAt, error) // at the dead letters, each once
}

// LookedAt is a dead letter as people see it.
type LookedAt struct{ Body, Code, Reason string }

// RunLetters runs the suite of bridge.Postponer and door.DeadLetters.
func RunLetters(t *testing.T, open func(T) LettersPorts) {
	t.Helper()
	run(t, LettersCases(), open)
}

// LettersCases is the suite of bridge.Postponer and door.DeadLetters.
func LettersCases() []Case[LettersPorts] {
	return []Case[LettersPorts]{
		{"postpone/by nothing", hideLetterZero},
		{"postpone/by a second", hideLetterWaits},
		{"postpone/for longer than the queue's own", hideLetterLong},
		{"postpone/by another delivery's receipt", hideLetterStale},
		{"postpone/out of bounds", hideLetterBounds},
		{"dead/as it was, with code and reason", keepLetterWhole},
		{"dead/twice is two", keepLetterTwice},
		{"dead/the largest body", keepLetterLarge},
		{"a context that is over", lettersInterrupted},
	}
}

// next receives the one letter there is.
func (p LettersPorts) next(t T) bridge.Letter {
	t.Helper()
	var got []bridge.Letter
	eventually(t, "a letter", func() bool {
		var err error
		got, err = p.Receive(t.Context())
		succeeds(t, "receive", err)
		return len(got) > 0
	})
	if len(got) != 1 {
		t.Fatalf("%d letters", len(got))
	}
	return got[0]
}

func (p LettersPorts) none(t T) {
	t.Helper()
	stays(t, "nothing to receive", 200*time.Millisecond, func() bool {
		got, err := p.Receive(t.Context())
		succeeds(t, "receive", err)
		return len(got) == 0
	})
}

func hideLetterZero(t T, p LettersPorts) {
	succeeds(t, "post", p.Post(t.Context(), "{}"))
	for n := 1; n <= 3; n++ {
		l := p.next(t)
		if l.Receives != n || string(l.Body) != "{}" || l.ID == "" {
			t.Errorf("%+v, want receive %d", l, n)
		}
		succeeds(t, "postpone", p.Postponer.Postpone(t.Context(), l, 0))
	}
}

func hideLetterWaits(t T, p LettersPorts) {
	succeeds(t, "post", p.Post(t.Context(), "{}"))
	l := p.next(t)
	since := time.Now()
	succeeds(t, "postpone", p.Postponer.Postpone(t.Context(), l, time.Second))
	p.next(t)
	if took := time.Since(since); took < 600*time.Millisecond {
		t.Errorf("visible after %v, want a second", took)
	}
}

func hideLetterLong(t T, p LettersPorts) {
	succeeds(t, "post", p.Post(t.Context(), "{}"))
	succeeds(t, "postpone", p.Postponer.Postpone(t.Context(), p.next(t), 15*time.Minute))
	p.none(t)
}

func hideLetterStale(t T, p LettersPorts) {
	succeeds(t, "post", p.Post(t.Context(), "{}"))
	old := p.next(t)
	succeeds(t, "postpone", p.Postponer.Postpone(t.Context(), old, 0))
	last := p.next(t)
	refuses(t, "postpone by the old receipt", p.Postponer.Postpone(t.Context(), old, 0), batch.ErrNotFound)
	p.none(t)
	succeeds(t, "postpone by the last receipt", p.Postponer.Postpone(t.Context(), last, 0))
	p.next(t)
}

func hideLetterBounds(t T, p LettersPorts) {
	succeeds(t, "post", p.Post(t.Context(), "{}"))
	l := p.next(t)
	for _, wait := range []time.Duration{-time.Second, 12*time.Hour + time.Second} {
		if err := p.Postponer.Postpone(t.Context(), l, wait); err == nil || errors.Is(err, batch.ErrNotFound) {
			t.Errorf("postponed by %v: %v", wait, err)
		}
	}
}

// dead demands that just these come to be the dead letters.
func (p LettersPorts) dead(t T, want ...LookedAt) {
	t.Helper()
	var got []LookedAt
	eventually(t, "the dead letters", func() bool {
		some, err := p.Look(t.Context())
		succeeds(t, "look", err)
		got = append(got, some...)
		return len(got) >= len(want)
	})
	if len(got) != len(want) {
		t.Fatalf("%d dead letters, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("dead letter %.200q\nwant %.200q", got[i], want[i])
		}
	}
}

func keepLetterWhole(t T, p LettersPorts) {
	l := LookedAt{`{"v": 1, "é日👩": "<&>"}`, "invalid_message", `At '/input': give either file_id, or "bucket" and "key" – é日👩.`}
	succeeds(t, "send", p.Dead.Send(t.Context(), []byte(l.Body), l.Code, l.Reason))
	p.dead(t, l)
	p.none(t) // the queue itself
}

func keepLetterTwice(t T, p LettersPorts) {
	l := LookedAt{"no JSON", "invalid_message", "The message is not valid JSON."}
	for range 2 {
		succeeds(t, "send", p.Dead.Send(t.Context(), []byte(l.Body), l.Code, l.Reason))
	}
	p.dead(t, l, l)
}

// The body comes first: where it leaves no room the reason may be missing.
func keepLetterLarge(t T, p LettersPorts) {
	body := strings.Repeat("x", 1<<20)
	succeeds(t, "send", p.Dead.Send(t.Context(), []byte(body), "invalid_message", "It is large."))
	var got []LookedAt
	eventually(t, "the dead letter", func() bool {
		var err error
		got, err = p.Look(t.Context())
		succeeds(t, "look", err)
		return len(got) > 0
	})
	if got[0].Body != body {
		t.Errorf("a body of %d bytes, want %d", len(got[0].Body), len(body))
	}
}

func lettersInterrupted(t T, p LettersPorts) {
	succeeds(t, "post", p.Post(t.Context(), "{}"))
	l := p.next(t)
	interrupts(t, map[string]func(context.Context) error{
		"Postpone": func(ctx context.Context) error { return p.Postponer.Postpone(ctx, l, 0) },
		"Send":     func(ctx context.Context) error { return p.Dead.Send(ctx, []byte("{}"), "code", "reason") },
	})
	p.none(t)
}
