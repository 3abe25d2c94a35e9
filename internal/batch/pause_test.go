package batch

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Pauses have full jitter: each lies between zero and a ceiling that begins at the
// first, doubles, and stops at the longest; and they are spread over it.
func TestPausesHaveFullJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second)).Draw(t, "first"))
		longest := first * time.Duration(rapid.Int64Range(1, 100).Draw(t, "times"))
		p, ceiling := newPause(first, longest), first
		low, high := false, false
		for n := range rapid.IntRange(1, 200).Draw(t, "pauses") {
			d := p.NextBackOff()
			// The library rounds to a nanosecond, and up.
			if d < 0 || d > ceiling+1 {
				t.Fatalf("pause %d of %v..%v is %v, above %v", n, first, longest, d, ceiling)
			}
			low, high = low || d < ceiling/2, high || d > ceiling/2
			ceiling = min(2*ceiling, longest)
			if n > 60 && (!low || !high) {
				t.Fatalf("60 pauses and all in one half")
			}
		}
		p.Reset()
		if d := p.NextBackOff(); d > first+1 {
			t.Fatalf("after a reset the first pause is %v, above %v", d, first)
		}
	})
}

// A message that failed comes back after 5 s, twice as long at each receive, never
// later than a message can be delayed, whatever count the queue says.
func TestReturnWaitDoubles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-3, 1<<40).Draw(t, "receives")
		d := returnWait(n)
		switch {
		case n <= 1 && d != firstReturn:
			t.Fatalf("first return after %v", d)
		case d > maxDelay || d < firstReturn:
			t.Fatalf("return %d after %v", n, d)
		case returnWait(n+1) != min(2*d, maxDelay) && n >= 1:
			t.Fatalf("return %d after %v, the next after %v", n, d, returnWait(n+1))
		}
	})
}
