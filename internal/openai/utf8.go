package openai

import "encoding/binary"

// validUTF8 is utf8.Valid for text of many scripts. That one branches on the length
// of every character, which no processor foresees; this one walks an automaton, a
// shift a byte, in both halves of the text at once: each step waits for the one
// before, but not for the other half's.
func validUTF8(b []byte) bool {
	const tops = 0x8080808080808080
	for len(b) >= 32 && (binary.LittleEndian.Uint64(b)|binary.LittleEndian.Uint64(b[8:])|
		binary.LittleEndian.Uint64(b[16:])|binary.LittleEndian.Uint64(b[24:]))&tops == 0 {
		b = b[32:]
	}
	middle := len(b) / 2
	for middle < len(b) && b[middle]&0xc0 == 0x80 {
		middle++ // no character begins here
	}
	first, second := b[:middle], b[middle:]
	one, two := uint64(utf8Whole), uint64(utf8Whole)
	for len(first) >= 8 && len(second) >= 8 {
		v, w := binary.LittleEndian.Uint64(first), binary.LittleEndian.Uint64(second)
		first, second = first[8:], second[8:]
		if (v|w)&tops == 0 && one&63 == utf8Whole && two&63 == utf8Whole {
			continue
		}
		// A state is the place of the next one in a row of the table, whose bits
		// above it are left as they come.
		one, two = utf8Rows[byte(v)]>>(one&63), utf8Rows[byte(w)]>>(two&63)
		one, two = utf8Rows[byte(v>>8)]>>(one&63), utf8Rows[byte(w>>8)]>>(two&63)
		one, two = utf8Rows[byte(v>>16)]>>(one&63), utf8Rows[byte(w>>16)]>>(two&63)
		one, two = utf8Rows[byte(v>>24)]>>(one&63), utf8Rows[byte(w>>24)]>>(two&63)
		one, two = utf8Rows[byte(v>>32)]>>(one&63), utf8Rows[byte(w>>32)]>>(two&63)
		one, two = utf8Rows[byte(v>>40)]>>(one&63), utf8Rows[byte(w>>40)]>>(two&63)
		one, two = utf8Rows[byte(v>>48)]>>(one&63), utf8Rows[byte(w>>48)]>>(two&63)
		one, two = utf8Rows[byte(v>>56)]>>(one&63), utf8Rows[byte(w>>56)]>>(two&63)
	}
	for _, c := range first {
		one = utf8Rows[c] >> (one & 63)
	}
	for _, c := range second {
		two = utf8Rows[c] >> (two & 63)
	}
	return one&63 == utf8Whole && two&63 == utf8Whole
}

// The states: what must follow. They are multiples of 6, the bits of a state.
const (
	utf8Bad   = 6 * iota // nothing mends it
	utf8Whole            // a character
	utf8One              // one continuation byte
	utf8Two
	utf8Three
	utf8E0 // two, the first from a0: shorter spellings are not allowed
	utf8ED // two, the first up to 9f: nor are surrogates
	utf8F0 // three, the first from 90
	utf8F4 // three, the first up to 8f: nor is what lies above U+10FFFF
)

// utf8Rows has, for each byte, the state that follows each state, at the bit that is
// the state's number.
var utf8Rows = func() (rows [256]uint64) {
	for _, t := range []struct{ state, from, to, next int }{
		{utf8Whole, 0x00, 0x7f, utf8Whole},
		{utf8Whole, 0xc2, 0xdf, utf8One},
		{utf8Whole, 0xe0, 0xe0, utf8E0},
		{utf8Whole, 0xe1, 0xec, utf8Two},
		{utf8Whole, 0xed, 0xed, utf8ED},
		{utf8Whole, 0xee, 0xef, utf8Two},
		{utf8Whole, 0xf0, 0xf0, utf8F0},
		{utf8Whole, 0xf1, 0xf3, utf8Three},
		{utf8Whole, 0xf4, 0xf4, utf8F4},
		{utf8One, 0x80, 0xbf, utf8Whole},
		{utf8Two, 0x80, 0xbf, utf8One},
		{utf8Three, 0x80, 0xbf, utf8Two},
		{utf8E0, 0xa0, 0xbf, utf8One},
		{utf8ED, 0x80, 0x9f, utf8One},
		{utf8F0, 0x90, 0xbf, utf8Two},
		{utf8F4, 0x80, 0x8f, utf8Two},
	} {
		for c := t.from; c <= t.to; c++ {
			rows[c] |= uint64(t.next) << t.state
		}
	}
	return rows
}()
