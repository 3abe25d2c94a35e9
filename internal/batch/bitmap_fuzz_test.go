package batch

import (
	"bytes"
	"testing"
)

// FuzzBitmap sets lines in a stored bitmap, whatever bytes that is: it is a set of
// small numbers, and stays as stored but for what was set.
func FuzzBitmap(f *testing.F) {
	for _, s := range []struct{ stored, set []byte }{
		{nil, nil}, {[]byte{0}, []byte{0}}, {[]byte{0xff, 0x01}, []byte{7, 8, 9, 15}}, {[]byte{0x80}, []byte{7, 7, 0}}, {make([]byte, 63), []byte{0, 255}},
	} {
		f.Add(s.stored, s.set)
	}
	f.Fuzz(func(t *testing.T, stored, set []byte) {
		b, want := Bitmap(stored).Clone(), map[int]bool{}
		for i := range 8 * len(stored) {
			if stored[i/8]>>(i%8)&1 == 1 {
				want[i] = true
			}
		}
		for _, x := range set {
			if i := int(x); i < 8*len(b) {
				b.Set(i)
				want[i] = true
			}
		}
		for i := range 8*len(b) + 20 {
			if b.Has(i) != want[i] {
				t.Fatalf("bit %d of %x is %t", i, b, b.Has(i))
			}
		}
		if b.Count() != len(want) {
			t.Fatalf("%x counts %d, want %d", b, b.Count(), len(want))
		}
		if len(set) == 0 && !bytes.Equal(b, stored) {
			t.Fatalf("%x became %x", stored, b)
		}
	})
}
