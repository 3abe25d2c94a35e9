package batch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"holdfast/internal/openai"
)

// lineFile reads a JSONL file line by line.
type lineFile struct {
	name string
	r    *bufio.Reader // nil: the file isn't there, and has no line
	n    int64         // physical line that next gave, from 1
	long []byte        // the line, where it is longer than r's buffer
}

// maxResultLine is more than a result line can have in bytes: a reply of 64 MiB, and
// what is around it.
const maxResultLine = 65 << 20

// errNoLine: a file that isn't whole, or isn't one of ours.
var errNoLine = errors.New("the file ends within a line, or a line is too long")

func newLineFile(name string, r io.Reader) *lineFile {
	f := &lineFile{name: name}
	if r != nil {
		f.r = bufio.NewReaderSize(r, 256<<10)
	}
	return f
}

// next gives the next line without its newline, valid until the next call. io.EOF,
// errNoLine, or the reader's own error.
func (f *lineFile) next() ([]byte, error) {
	if f.r == nil {
		return nil, io.EOF
	}
	b, err := f.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		f.long = f.long[:0]
		for err == bufio.ErrBufferFull && len(f.long) <= maxResultLine {
			f.long = append(f.long, b...)
			b, err = f.r.ReadSlice('\n')
		}
		f.long = append(f.long, b...)
		b = f.long
	}
	if len(b) > 0 {
		f.n++
	}
	switch {
	case err == io.EOF && len(b) == 0:
		return nil, io.EOF
	case err == io.EOF, err == bufio.ErrBufferFull:
		return nil, errNoLine
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", f.name, err)
	}
	return bytes.TrimSuffix(b, newline), nil
}

// resultLines is an output or error file, with its next line.
type resultLines struct {
	file *lineFile
	at   *openai.ReadResult // nil: there is none left
}

// id is the custom_id of the next line, for a message.
func (r resultLines) id() string {
	if r.at == nil {
		return "none"
	}
	return string(r.at.RawCustomID)
}

// inputLines reads the requests of an input.
type inputLines struct {
	r        *openai.Reader
	endpoint string // "": the first line's
}

// next gives the next request and its physical line; bad says in words why it isn't
// one. io.EOF.
func (in *inputLines) next() (req openai.Request, number int64, bad string, err error) {
	raw, err := in.r.Next()
	if fault, ok := errors.AsType[*openai.LineError](err); ok {
		return req, int64(fault.Line), fault.Code, nil
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read %s: %w", InputFile, err)
	}
	if err != nil {
		return req, 0, "", err
	}
	if in.endpoint == "" {
		var first struct {
			URL string `json:"url"`
		}
		_ = json.Unmarshal(raw.Bytes, &first) // parsed below, and judged there
		in.endpoint = first.URL
	}
	req, fault := openai.ParseLine(raw.Bytes, openai.Expect{Endpoint: in.endpoint, Nesting: maxNesting, KeysOnly: true})
	if fault != nil {
		bad = fault.Code
	}
	return req, int64(raw.Number), bad, nil
}
