package lease

import (
	"testing"
	"time"

	"holdfast/internal/deptest"
)

func TestImports(t *testing.T) { deptest.Only(t) }

func TestTokensAreUniqueAndFitKeys(t *testing.T) {
	seen := map[Token]bool{}
	for range 1000 {
		tok := NewToken()
		if len(tok) != 26 || seen[tok] {
			t.Fatalf("token %q: %d characters, seen %v", tok, len(tok), seen[tok])
		}
		for _, c := range tok {
			if !(c >= 'A' && c <= 'Z' || c >= '2' && c <= '7') {
				t.Fatalf("token %q has %q", tok, c)
			}
		}
		seen[tok] = true
	}
}

func TestCutLeavesTheMargin(t *testing.T) {
	now := time.Unix(1000, 0)
	cut := Cut(now, 5*time.Second)
	if until := now.Add(-5 * time.Second); until.Before(cut) {
		t.Error("a lease that ended exactly one margin ago already counts as lapsed")
	}
	if until := now.Add(-5*time.Second - time.Millisecond); !until.Before(cut) {
		t.Error("a lease that ended more than the margin ago does not count as lapsed")
	}
}
