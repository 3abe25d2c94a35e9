package openai

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// validUTF8 agrees with the standard library on four bytes of every kind in each half
// of a text and across its middle, and on texts with and without a fault.
func TestValidUTF8(t *testing.T) {
	check := func(b []byte) {
		if got, want := validUTF8(b), utf8.Valid(b); got != want {
			t.Fatalf("% x: valid %v, want %v", b, got, want)
		}
	}
	// The first and last byte of every row of the automaton.
	kinds := []byte{0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff}
	for _, a := range kinds {
		for _, b := range kinds {
			for _, c := range kinds {
				for _, d := range kinds {
					for _, at := range []int{4, 14, 15, 20} {
						text := []byte("éééééééééééééééé")
						if at%2 == 1 {
							text[0], text[1], text[at-1] = 'x', 'y', 'z'
						}
						copy(text[at:], []byte{a, b, c, d})
						check(text)
					}
					check([]byte{a, b, c, d})
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	runes := []rune("az\u0000\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff東😀é")
	for range 100_000 {
		var b []byte
		for n := rng.IntN(40); len(b) < n; {
			b = utf8.AppendRune(b, runes[rng.IntN(len(runes))])
		}
		check(b)
		if len(b) > 0 {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			check(b)
			check(b[:rng.IntN(len(b))])
		}
	}
}

func FuzzValidUTF8(f *testing.F) {
	for _, s := range []string{"", "abcdefgh", "abcdefg\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "東京は日本の首都です", "😀😀😀", "\xc0\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if validUTF8(b) != utf8.Valid(b) {
			t.Fatalf("% x", b)
		}
	})
}
