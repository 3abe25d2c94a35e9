package batch

import (
	"testing"

	"pgregory.net/rapid"
)

// A bitmap is a set: whatever the order and repetition of Set.
func TestBitmapIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		in := rapid.SliceOf(rapid.IntRange(0, n-1)).Draw(t, "lines")
		b, want := NewBitmap(n), map[int]bool{}
		for _, i := range in {
			b.Set(i)
			want[i] = true
		}
		c := b.Clone()
		for i := range n + 20 {
			if c.Has(i) != want[i] {
				t.Fatalf("bit %d is %v", i, c.Has(i))
			}
		}
		if b.Count() != len(want) {
			t.Fatalf("count %d, want %d", b.Count(), len(want))
		}
		if len(in) > 0 {
			c.Set((in[0] + 1) % n)
			if b.Has((in[0]+1)%n) != want[(in[0]+1)%n] {
				t.Fatal("a clone shares its bits")
			}
		}
	})
}
