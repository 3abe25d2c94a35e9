package openai

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"
)

// outlines remembers outlines that the JSON library found valid: the lines of a
// file differ in what they say more than in how they are built. What is asked for
// is compared byte for byte, so that a collision costs time and nothing else.
type outlines struct {
	kept [64][]byte
}

// maxOutline bounds what is remembered, to 128 KiB in all.
const maxOutline = 2 << 10

var outlineSeed = maphash.MakeSeed()

// valid reports whether the outline is JSON.
func (o *outlines) valid(outline []byte) bool {
	if len(outline) > maxOutline {
		return jsontext.Value(outline).IsValid(parserOptions...)
	}
	kept := &o.kept[maphash.Bytes(outlineSeed, outline)%uint64(len(o.kept))]
	if len(outline) > 0 && bytes.Equal(*kept, outline) {
		return true
	}
	if !jsontext.Value(outline).IsValid(parserOptions...) {
		return false
	}
	*kept = append((*kept)[:0], outline...)
	return true
}

// stringEnd returns the index behind the JSON string that begins at i, and whether it
// has escapes. It is not ok if there is none: it has no end, or a control character,
// or a backslash that begins no escape.
//
// It looks at eight bytes at a time: the top bit of a byte of found is set for the
// first that is a quote, a backslash or a control character (for later ones it may
// be wrong).
func stringEnd(b []byte, i int) (end int, escaped, ok bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for i++; ; {
		for {
			if i+8 > len(b) {
				if i = skipPlain(b, i); i >= len(b) {
					return i, escaped, false
				}
				break
			}
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^'"'*ones, w^'\\'*ones
			if found := ((w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops; found != 0 {
				i += bits.TrailingZeros64(found) >> 3
				break
			}
			i += 8
		}
		if b[i] == '"' {
			return i + 1, escaped, true
		}
		n := escapeLen(b, i)
		if n == 0 {
			return i, escaped, false
		}
		escaped = true
		for n > 0 { // other scripts are often written in nothing else
			i += n
			n = escapeLen(b, i)
		}
	}
}

// escapeLen is the length of the escape at i, or 0 if there is none.
func escapeLen(b []byte, i int) int {
	if i+1 >= len(b) || b[i] != '\\' {
		return 0
	}
	n := int(escapes[b[i+1]] & 7)
	if n == 6 && (i+6 > len(b) || escapes[b[i+2]]&escapes[b[i+3]]&escapes[b[i+4]]&escapes[b[i+5]]&isHex == 0) {
		return 0
	}
	return n
}

// isHex marks the hexadecimal digits in escapes.
const isHex = 8

// escapes is, by the byte that follows the backslash, how long an escape is.
var escapes = func() (t [256]byte) {
	for _, c := range []byte(`"\/bfnrt`) {
		t[c] = 2
	}
	t['u'] = 6
	for _, c := range []byte("0123456789abcdefABCDEF") {
		t[c] |= isHex
	}
	return t
}()

// skipPlain returns the index of the first such byte at or behind i, or the length of b.
func skipPlain(b []byte, i int) int {
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}
