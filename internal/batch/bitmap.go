package batch

import "math/bits"

// Bitmap is a set of line indices within a part: bit i of byte i/8 (least
// significant first) stands for line i. The zero value is empty; bits beyond
// its length are unset. It is stored as it is.
type Bitmap []byte

// NewBitmap returns an empty set with room for n lines.
func NewBitmap(n int) Bitmap { return make(Bitmap, (n+7)/8) }

// Has reports whether line i is in the set. i must not be negative.
func (b Bitmap) Has(i int) bool { return i/8 < len(b) && b[i/8]&(1<<(i%8)) != 0 }

// Set adds line i, which must be within the length given to NewBitmap.
func (b Bitmap) Set(i int) { b[i/8] |= 1 << (i % 8) }

// Count is the number of lines in the set.
func (b Bitmap) Count() (n int) {
	for _, x := range b {
		n += bits.OnesCount8(x)
	}
	return n
}

// Clone returns an independent copy.
func (b Bitmap) Clone() Bitmap { return append(Bitmap(nil), b...) }
