package batch

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Record is one line's result as a chunk holds it. A chunk is records sorted
// by line, each
//
//	<line> TAB <o|e> TAB <receipt JSON> TAB <result JSON> LF
//
// where o sends the result to the output file and e to the error file. Neither
// JSON text holds a raw TAB or LF, so that a reader splits without parsing.
type Record struct {
	Line    int64  // batch-wide index, from 0
	OK      bool   // output file, else error file
	Receipt []byte // one JSON object, without newline
	Result  []byte // the result line, without newline
}

// ErrRecord: a chunk's bytes are not what a worker writes. A bug or a damaged
// object, never bad input.
var ErrRecord = errors.New("malformed chunk record")

// Append adds the record in its stored form to dst.
func (r Record) Append(dst []byte) []byte {
	dst = strconv.AppendInt(dst, r.Line, 10)
	if r.OK {
		dst = append(dst, "\to\t"...)
	} else {
		dst = append(dst, "\te\t"...)
	}
	dst = append(dst, r.Receipt...)
	dst = append(dst, '\t')
	dst = append(dst, r.Result...)
	return append(dst, '\n')
}

// ParseRecord reads one stored record (with or without its newline). The
// fields alias b. ErrRecord, wrapped.
func ParseRecord(b []byte) (Record, error) {
	b = bytes.TrimSuffix(b, []byte("\n"))
	num, rest, ok1 := bytes.Cut(b, []byte("\t"))
	kind, rest, ok2 := bytes.Cut(rest, []byte("\t"))
	receipt, result, ok3 := bytes.Cut(rest, []byte("\t"))
	if !ok1 || !ok2 || !ok3 || len(kind) != 1 || (kind[0] != 'o' && kind[0] != 'e') {
		return Record{}, fmt.Errorf("%w: %d bytes, not four fields", ErrRecord, len(b))
	}
	line, err := strconv.ParseInt(string(num), 10, 64)
	if err != nil || line < 0 {
		return Record{}, fmt.Errorf("%w: line number", ErrRecord)
	}
	if len(receipt) == 0 || receipt[0] != '{' || len(result) == 0 || result[0] != '{' {
		return Record{}, fmt.Errorf("%w: line %d is not two JSON objects", ErrRecord, line)
	}
	return Record{Line: line, OK: kind[0] == 'o', Receipt: receipt, Result: result}, nil
}
