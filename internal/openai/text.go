package openai

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// appendText appends the text of raw, a valid JSON string with its quotes. It
// decodes as WTF-8: an escaped surrogate without its other half becomes the three
// bytes that UTF-8 would use for it, if it allowed that. So two strings have the
// same text only if they are the same string, which a decoder that puts U+FFFD in
// their place can't say. Of a string that isn't valid the text is nothing in
// particular.
func appendText(dst, raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		c, n := unescape(raw[i:])
		dst = appendWTF8(dst, c)
		raw = raw[i+n:]
	}
	return dst
}

// textLen counts the characters of a valid JSON string: code points, a lone
// surrogate being one.
func textLen(raw []byte) int {
	raw = raw[1 : len(raw)-1]
	count := 0
	for len(raw) > 0 {
		n := 1
		switch {
		case raw[0] == '\\':
			_, n = unescape(raw)
		case raw[0] >= utf8.RuneSelf:
			_, n = utf8.DecodeRune(raw)
		}
		raw = raw[n:]
		count++
	}
	return count
}

// unescape decodes the escape that raw, part of a valid JSON string, begins with,
// and returns its length. A pair of surrogate escapes is one escape.
func unescape(raw []byte) (rune, int) {
	if len(raw) < 2 || raw[1] == 'u' && len(raw) < 6 {
		return utf8.RuneError, len(raw) // not valid
	}
	switch c := raw[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(c), 2
	}
	c := hex4(raw[2:])
	if utf16.IsSurrogate(c) && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
		if pair := utf16.DecodeRune(c, hex4(raw[8:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return c, 6
}

func hex4(b []byte) (c rune) {
	for _, d := range b[:4] {
		switch {
		case d <= '9':
			d -= '0'
		default:
			d = d&^0x20 - 'A' + 10
		}
		c = c<<4 | rune(d)
	}
	return c
}

// appendWTF8 is utf8.AppendRune that keeps surrogates.
func appendWTF8(dst []byte, c rune) []byte {
	if !utf16.IsSurrogate(c) {
		return utf8.AppendRune(dst, c)
	}
	return append(dst, 0xe0|byte(c>>12), 0x80|byte(c>>6)&0xbf, 0x80|byte(c)&0x3f)
}
