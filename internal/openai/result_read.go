package openai

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrResultLine: a line is no result, as [ResultLine.Append] writes them.
var ErrResultLine = errors.New("not a result line")

// ReadResult is a result line as it was read. Its slices are of the line.
type ReadResult struct {
	ID          string
	RawCustomID []byte // the JSON string, byte for byte
	StatusCode  int    // 0 without a response
	RawBody     []byte // response.body, byte for byte; nil without a response
	Code        string // error.code; "" without an error
}

// ParseResultLine reads one line of an output or error file, without its newline.
// Members that it doesn't know are passed over; one that it knows is there once, and in
// no other spelling, for other readers take the last one, and some whatever its case. It
// finds where values begin and end, and doesn't judge what is in them: a body is proven
// by its hash, and may be nested as deep as a parser takes it without the line around
// it. ErrResultLine.
func ParseResultLine(line []byte) (ReadResult, error) {
	var r ReadResult
	known := members{
		"id":        func(v jsontext.Value) bool { return text(v, &r.ID) },
		"custom_id": func(v jsontext.Value) bool { r.RawCustomID = v; return v.Kind() == '"' },
		"response": func(v jsontext.Value) bool {
			if v.Kind() == 'n' {
				return true
			}
			return eachMember(v, members{
				"status_code": func(v jsontext.Value) (ok bool) {
					n, err := strconv.Atoi(string(v))
					r.StatusCode = n
					return err == nil && n > 0
				},
				"body": func(v jsontext.Value) bool { r.RawBody = v; return true },
			}) && r.StatusCode != 0 && r.RawBody != nil
		},
		"error": func(v jsontext.Value) bool {
			if v.Kind() == 'n' {
				return true
			}
			return eachMember(v, members{
				"code": func(v jsontext.Value) bool { return text(v, &r.Code) },
			}) && r.Code != ""
		},
	}
	if !eachMember(line, known) || r.ID == "" || r.RawCustomID == nil {
		return ReadResult{}, ErrResultLine
	}
	return r, nil
}

// members are what to do with the values of an object, by name; false says that a
// value isn't what it should be.
type members map[string]func(jsontext.Value) bool

// eachMember hands the values of an object to who knows them. They are slices of it.
// It is false where object is none, or anything follows it, or where the name of a member
// is escaped, a known one's in another case, or that for a second time.
func eachMember(object []byte, known members) bool {
	var seen []string
	i := skipSpace(object, 0)
	if i == len(object) || object[i] != '{' {
		return false
	}
	for i = skipSpace(object, i+1); i < len(object) && object[i] == '"'; i = skipSpace(object, i+1) {
		colon, ok := valueEnd(object, i)
		name := object[i:colon]
		from := skipSpace(object, colon)
		if !ok || from == len(object) || object[from] != ':' {
			return false
		}
		from = skipSpace(object, from+1)
		to, ok := valueEnd(object, from)
		if !ok {
			return false
		}
		if bytes.IndexByte(name, '\\') >= 0 {
			return false
		}
		for is, take := range known {
			if !strings.EqualFold(is, string(name[1:len(name)-1])) {
				continue
			}
			if string(name) != `"`+is+`"` || slices.Contains(seen, is) || !take(jsontext.Value(object[from:to:to])) {
				return false
			}
			seen = append(seen, is)
		}
		if i = skipSpace(object, to); i == len(object) || object[i] != ',' {
			break
		}
	}
	return i < len(object) && object[i] == '}' && skipSpace(object, i+1) == len(object)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// valueEnd returns the index behind the JSON value that begins at i. What it
// accepts is more than JSON; of what is JSON it finds the end.
func valueEnd(b []byte, i int) (end int, ok bool) {
	if i >= len(b) {
		return i, false
	}
	switch b[i] {
	case '"':
		end, _, ok = stringEnd(b, i)
		return end, ok
	case '{', '[':
		for depth := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				if end, _, ok = stringEnd(b, i); !ok {
					return end, false
				}
				i = end - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1, true
				}
			}
		}
		return i, false
	}
	from := i
	for i < len(b) && (b[i] >= '0' && b[i] <= '9' || b[i] >= 'a' && b[i] <= 'z' || b[i] == '-' || b[i] == '+' || b[i] == '.' || b[i] == 'E') {
		i++
	}
	return i, i > from
}

// text reads a JSON string.
func text(v jsontext.Value, into *string) bool {
	b, err := jsontext.AppendUnquote(nil, v)
	*into = string(b)
	return err == nil && v.Kind() == '"'
}
