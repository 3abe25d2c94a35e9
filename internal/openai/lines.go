package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// DefaultLineBytes is the longest line that a Reader accepts unless told otherwise.
const DefaultLineBytes = 4 << 20

// The codes of a line that is no valid request, and of a file that is no valid
// input. They are the codes of a batch's errors.
const (
	CodeInvalidEncoding   = "invalid_encoding"
	CodeLineTooLarge      = "line_too_large"
	CodeInvalidJSONLine   = "invalid_json_line"
	CodeInvalidCustomID   = "invalid_custom_id"
	CodeDuplicateCustomID = "duplicate_custom_id"
	CodeInvalidMethod     = "invalid_method"
	CodeURLMismatch       = "url_mismatch"
	CodeInvalidBody       = "invalid_body"
	CodeEmptyFile         = "empty_file"
	CodeTooManyTasks      = "too_many_tasks"
)

// LineError is what is wrong with one line. Message says it in words that need
// no context but the line number, and what to do about it.
type LineError struct {
	Code    string
	Message string
	Param   string // the member at fault, such as custom_id; may be empty
	Line    int    // physical line, from 1; 0 while it isn't known
	// Offset is the place of the fault in bytes: in the file once Line is set,
	// before that in the line.
	Offset int64
}

// Error words the fault with its place.
func (e *LineError) Error() string {
	return fmt.Sprintf("line %d (byte %d): %s: %s", e.Line, e.Offset, e.Code, e.Message)
}

// BatchError is the fault as an entry of a batch's errors.
func (e *LineError) BatchError() BatchError {
	b := BatchError{Code: e.Code, Message: e.Message, Param: orNull(e.Param)}
	if e.Line > 0 {
		b.Line = &e.Line
	}
	return b
}

// DuplicateID is the fault of a line whose custom_id an earlier line has.
func DuplicateID(line RawLine, customID []byte) *LineError {
	return &LineError{Code: CodeDuplicateCustomID, Param: "custom_id", Line: line.Number, Offset: line.From,
		Message: fmt.Sprintf("An earlier line has the custom_id %s already; give every request an id of its own.", clipJSON(customID))}
}

// clipJSON shortens a JSON string for a message. It shows it as the file has it:
// quoted and escaped already.
func clipJSON(raw []byte) string {
	const most = 80
	if r := []rune(string(raw[:min(len(raw), 4*most)])); len(r) > most {
		return string(r[:most]) + "…"
	}
	return string(raw)
}

// EmptyFile is the fault of a file without a request.
func EmptyFile() BatchError {
	return BatchError{Code: CodeEmptyFile, Message: "The file has no requests; put one JSON object on each line."}
}

// TooManyTasks is the fault of a file with more than limit requests.
func TooManyTasks(limit int) BatchError {
	return BatchError{Code: CodeTooManyTasks, Message: fmt.Sprintf("The file has more than %d requests; split it into several batches.", limit)}
}

// Limits says how long lines may be and where in its file a stream begins. The
// zero value reads a whole file with the default limit.
type Limits struct {
	LineBytes int   // longest line without its line end; 0 means DefaultLineBytes
	FirstLine int   // number of the first line; 0 means 1
	FirstByte int64 // offset of the stream in the file; only at 0 is a byte order mark stripped
}

// RawLine is one physical line of a file. From and To are byte offsets in the file;
// To is behind the line's end, where the next line begins, so that consecutive
// lines tile the file (behind its byte order mark). Bytes is the line without its
// end and is valid until the next call of Next.
type RawLine struct {
	Number   int // from 1; blank lines are counted
	From, To int64
	Bytes    []byte
}

// Parse parses the line as [ParseLine] does; an error names the line's number and
// its place in the file.
func (l RawLine) Parse(want Expect) (Request, *LineError) {
	r, err := parseLine(l.Bytes, want) // Next has checked the encoding
	if err != nil {
		err.Line = l.Number
		err.Offset += l.From
	}
	return r, err
}

// Reader cuts a stream into lines. It holds one line at a time, in one buffer that
// grows up to the line limit. A Reader is not safe for concurrent use.
type Reader struct {
	src    io.Reader
	limit  int
	number int   // lines taken so far, counted from the first of the file
	offset int64 // of buf[start] in the file
	mark   bool  // a byte order mark may still follow

	buf        []byte
	start, end int // what was read and not yet taken
	seen       int // of that, known to hold no newline
	err        error
}

// The buffer's first size, and the room it has above the limit: a CR and the
// newline that ends a line of exactly the limit.
const (
	readerBuffer = 64 << 10
	lineEnd      = 2
)

// NewReader returns a Reader over r within limits.
func NewReader(r io.Reader, limits Limits) *Reader {
	if limits.LineBytes <= 0 {
		limits.LineBytes = DefaultLineBytes
	}
	return &Reader{
		src:    r,
		limit:  limits.LineBytes,
		number: max(limits.FirstLine, 1) - 1,
		offset: limits.FirstByte,
		mark:   limits.FirstByte == 0,
		buf:    make([]byte, min(readerBuffer, limits.LineBytes+lineEnd)),
	}
}

// Next returns the next line that isn't blank. At the end of the stream the error
// is io.EOF itself. A [*LineError] concerns this one line, whose number and range are
// returned with it; the next call goes on behind it. Any other error is the
// stream's, wrapped with the place, final, and says nothing about the lines: what
// was read of an unfinished line is dropped.
func (r *Reader) Next() (RawLine, error) {
	for {
		if r.mark && (r.end-r.start >= len(byteOrderMark) || r.err != nil) {
			r.mark = false
			if bytes.HasPrefix(r.buf[r.start:r.end], byteOrderMark) {
				r.take(len(byteOrderMark))
			}
		}
		if !r.mark {
			if i := bytes.IndexByte(r.buf[r.start+r.seen:r.end], '\n'); i >= 0 {
				if line, err, ok := r.line(r.seen+i, r.seen+i+1); ok {
					return line, err
				}
				continue
			}
			r.seen = r.end - r.start
		}
		switch {
		case r.err == io.EOF && r.seen == 0:
			return RawLine{}, io.EOF
		case r.err == io.EOF:
			if line, err, ok := r.line(r.seen, r.seen); ok {
				return line, err
			}
		case r.err != nil:
			return RawLine{}, r.failure()
		case r.seen >= r.limit+lineEnd:
			return r.discard()
		default:
			r.fill()
		}
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// take hands out the next n bytes.
func (r *Reader) take(n int) []byte {
	b := r.buf[r.start : r.start+n : r.start+n]
	r.start += n
	r.offset += int64(n)
	r.seen = 0
	return b
}

// line takes the next whole bytes, of which the first n are before the newline;
// ok is false for a blank line.
func (r *Reader) line(n, whole int) (line RawLine, err error, ok bool) {
	r.number++
	line = RawLine{Number: r.number, From: r.offset, To: r.offset + int64(whole)}
	b := r.take(whole)
	if n < whole && n > 0 && b[n-1] == '\r' {
		n--
	}
	b = b[:n]
	switch {
	case len(b) > r.limit:
		return line, r.tooLarge(line, int64(len(b))), true
	case blank(b):
		return line, nil, false
	case !validUTF8(b):
		at := invalidUTF8(b)
		e := encodingError(b, at)
		e.Line, e.Offset = line.Number, line.From+int64(at)
		e.Message = fmt.Sprintf("Byte %d of the file, byte %d of this line, is not valid UTF-8; save the file as UTF-8.", e.Offset, at)
		return line, e, true
	}
	line.Bytes = b
	return line, nil, true
}

func (r *Reader) tooLarge(line RawLine, length int64) *LineError {
	return &LineError{Code: CodeLineTooLarge, Line: line.Number, Offset: line.From,
		Message: fmt.Sprintf("The line has %d bytes; the most is %d. Shorten the request.", length, r.limit)}
}

// discard reads past a line that is longer than the limit, keeping none of it.
func (r *Reader) discard() (RawLine, error) {
	line := RawLine{Number: r.number + 1, From: r.offset}
	carriage := 0 // 1 while the last byte was a CR, which may belong to the line's end
	for {
		if i := bytes.IndexByte(r.buf[r.start:r.end], '\n'); i >= 0 {
			if i > 0 {
				carriage = isCR(r.buf[r.start+i-1])
			}
			r.take(i + 1)
			line.To = r.offset
			r.number++
			return line, r.tooLarge(line, line.To-line.From-1-int64(carriage))
		}
		if r.end > r.start {
			carriage = isCR(r.buf[r.end-1])
			r.take(r.end - r.start)
		}
		switch {
		case r.err == io.EOF:
			line.To = r.offset
			r.number++
			return line, r.tooLarge(line, line.To-line.From)
		case r.err != nil:
			return RawLine{}, r.failure()
		}
		r.fill()
	}
}

func isCR(c byte) int {
	if c == '\r' {
		return 1
	}
	return 0
}

// fill reads once, after making room. A stream that yields neither bytes nor an
// error for ever is ended with io.ErrNoProgress.
func (r *Reader) fill() {
	switch {
	case r.start == r.end:
		r.start, r.end = 0, 0
	case r.end == len(r.buf) && r.start > 0:
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	case r.end == len(r.buf):
		grown := make([]byte, min(2*len(r.buf), r.limit+lineEnd))
		r.end = copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// failure words the stream's error. It never matches io.EOF, which would make a
// torn stream look like a finished one.
func (r *Reader) failure() error {
	if errors.Is(r.err, io.EOF) {
		return fmt.Errorf("openai: read line %d at byte %d: %w: %v", r.number+1, r.offset, io.ErrUnexpectedEOF, r.err)
	}
	return fmt.Errorf("openai: read line %d at byte %d: %w", r.number+1, r.offset, r.err)
}

// blank reports whether b is ASCII white space only.
func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && (c < '\t' || c > '\r') {
			return false
		}
	}
	return true
}

// invalidUTF8 returns the index of the first byte of b that is no UTF-8, or len(b).
func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		c, n := utf8.DecodeRune(b[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

func encodingError(b []byte, at int) *LineError {
	return &LineError{Code: CodeInvalidEncoding, Offset: int64(at),
		Message: fmt.Sprintf("Byte %d of this line (of %d) is not valid UTF-8; save the file as UTF-8.", at, len(b))}
}
