package door

import (
	"bytes"
	"unicode/utf8"

	"holdfast/internal/openai"
)

// Files that people put there instead, by how they begin.
var otherKinds = []struct{ begin, kind string }{
	{"\x1f\x8b", "gzip data"},
	{"PK\x03\x04", "a ZIP archive"},
	{"\x28\xb5\x2f\xfd", "Zstandard data"},
	{"BZh", "bzip2 data"},
	{"\xfd7zXZ\x00", "xz data"},
	{"PAR1", "a Parquet file"},
	{"Obj\x01", "an Avro file"},
	{"%PDF-", "a PDF file"},
	{"\xff\xfe", "UTF-16 text"},
	{"\xfe\xff", "UTF-16 text"},
	{"[", "a JSON array"},
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// looksLikeJSONL refuses what is no JSONL at its first look, so that its owner
// hears of it where the object is and not from a batch that failed. What only
// looks like it fails when it is planned, line by line. whole says that begin is
// all of it.
func looksLikeJSONL(begin []byte, whole bool) *openai.Error {
	const advice = "put one JSON object on each line of a plain UTF-8 text."
	for _, k := range otherKinds {
		if bytes.HasPrefix(begin, []byte(k.begin)) {
			return openai.Invalid("not_jsonl", "", "The object is %s, not JSONL; %s", k.kind, advice)
		}
	}
	text := bytes.TrimPrefix(begin, byteOrderMark)
	if i := invalidAt(text, whole); i >= 0 {
		return openai.Invalid(openai.CodeInvalidEncoding, "", "The object is not valid UTF-8 at byte %d; %s", len(begin)-len(text)+i, advice)
	}
	first := bytes.TrimLeft(text, " \t\r\n")
	switch {
	case len(first) > 0 && first[0] != '{':
		c, _ := utf8.DecodeRune(first)
		return openai.Invalid("not_jsonl", "", "The object's first line begins with %q at byte %d, not with '{'; %s", c, len(begin)-len(first), advice)
	case len(first) == 0 && whole:
		e := openai.EmptyFile()
		return openai.Invalid(e.Code, "", "%s", e.Message)
	}
	return nil
}

// invalidAt is the place of the first byte that is no UTF-8, -1 if there is none. A
// character that the end cuts is one, unless whole.
func invalidAt(b []byte, whole bool) int {
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			if !whole && !utf8.FullRune(b[i:]) {
				return -1
			}
			return i
		}
		i += n
	}
	return -1
}
