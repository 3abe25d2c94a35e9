package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// seen is what a test notes of one answer of Next.
type seen struct {
	Number   int
	From, To int64
	Text     string // the line, or the code of its fault
}

func readAll(t testing.TB, r *Reader) ([]seen, error) {
	t.Helper()
	var all []seen
	for {
		line, err := r.Next()
		fault, isFault := errors.AsType[*LineError](err)
		switch {
		case err == io.EOF:
			return all, nil
		case isFault:
			if fault.Line != line.Number || fault.Offset < line.From || fault.Offset > line.To {
				t.Errorf("fault %v is not in its line %d (%d to %d)", fault, line.Number, line.From, line.To)
			}
			all = append(all, seen{line.Number, line.From, line.To, "!" + fault.Code})
		case err != nil:
			return all, err
		default:
			all = append(all, seen{line.Number, line.From, line.To, string(line.Bytes)})
		}
	}
}

func TestReader(t *testing.T) {
	tests := []struct {
		name, in string
		limits   Limits
		want     []seen
	}{
		{"empty", "", Limits{}, nil},
		{"only a newline", "\n", Limits{}, nil},
		{"only blanks", " \n\t\r\n\v\f\n  ", Limits{}, nil},
		{"last line with newline", "a\nb\n", Limits{}, []seen{{1, 0, 2, "a"}, {2, 2, 4, "b"}}},
		{"last line without newline", "a\nb", Limits{}, []seen{{1, 0, 2, "a"}, {2, 2, 3, "b"}}},
		{"CRLF", "a\r\nb\r\n", Limits{}, []seen{{1, 0, 3, "a"}, {2, 3, 6, "b"}}},
		{"one CR is the line end's, others are not", "a\r\r\nb\rc\n", Limits{}, []seen{{1, 0, 4, "a\r"}, {2, 4, 8, "b\rc"}}},
		{"a CR at the end of the file stays", "a\r", Limits{}, []seen{{1, 0, 2, "a\r"}}},
		{"blank lines are counted", "\n  \na\n\r\n\nb", Limits{}, []seen{{3, 4, 6, "a"}, {6, 9, 10, "b"}}},
		{"a no-break space is not blank", "\u00a0\n", Limits{}, []seen{{1, 0, 3, "\u00a0"}}},
		{"byte order mark", "\ufeffa\nb\n", Limits{}, []seen{{1, 3, 5, "a"}, {2, 5, 7, "b"}}},
		{"only a byte order mark", "\ufeff", Limits{}, nil},
		{"a second byte order mark stays", "\ufeff\ufeffa", Limits{}, []seen{{1, 3, 7, "\ufeffa"}}},
		{"a byte order mark elsewhere stays", "a\n\ufeffb", Limits{}, []seen{{1, 0, 2, "a"}, {2, 2, 6, "\ufeffb"}}},
		{"half a byte order mark", "\xef\xbb", Limits{}, []seen{{1, 0, 2, "!invalid_encoding"}}},
		{"invalid UTF-8, and on", "a\nb\xff\nc", Limits{}, []seen{{1, 0, 2, "a"}, {2, 2, 5, "!invalid_encoding"}, {3, 5, 6, "c"}}},
		{"a surrogate in UTF-8", "\xed\xa0\x80", Limits{}, []seen{{1, 0, 3, "!invalid_encoding"}}},
		{"exactly the limit", "abcd\nabcd\r\nabcd", Limits{LineBytes: 4}, []seen{{1, 0, 5, "abcd"}, {2, 5, 11, "abcd"}, {3, 11, 15, "abcd"}}},
		{"one above", "abcde\nb\nabcde\r\nabcde", Limits{LineBytes: 4}, []seen{{1, 0, 6, "!line_too_large"}, {2, 6, 8, "b"}, {3, 8, 15, "!line_too_large"}, {4, 15, 20, "!line_too_large"}}},
		{"far above", strings.Repeat("x", 100) + "\r\nb\n", Limits{LineBytes: 4}, []seen{{1, 0, 102, "!line_too_large"}, {2, 102, 104, "b"}}},
		{"too large and torn UTF-8 at once", strings.Repeat("é", 50) + "\nb", Limits{LineBytes: 5}, []seen{{1, 0, 101, "!line_too_large"}, {2, 101, 102, "b"}}},
		{"from the middle", "\ufeffa\nb", Limits{FirstLine: 7, FirstByte: 100}, []seen{{7, 100, 105, "\ufeffa"}, {8, 105, 106, "b"}}},
		{"a limit below the mark", "\ufeffa\n", Limits{LineBytes: 1}, []seen{{1, 3, 5, "a"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, wrap := range chunkings {
				got, err := readAll(t, NewReader(wrap(strings.NewReader(tt.in)), tt.limits))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
				}
			}
		})
	}
}

var chunkings = map[string]func(io.Reader) io.Reader{
	"whole":          func(r io.Reader) io.Reader { return r },
	"byte by byte":   iotest.OneByteReader,
	"halves":         iotest.HalfReader,
	"error with end": iotest.DataErrReader,
}

func TestReaderNamesTheBadByte(t *testing.T) {
	r := NewReader(strings.NewReader("{}\n{\"é\":\"\xc3\x28\"}\n"), Limits{})
	_, _ = r.Next()
	_, err := r.Next()
	fault, ok := errors.AsType[*LineError](err)
	if !ok || fault.Line != 2 || fault.Offset != 10 || !strings.Contains(fault.Message, "Byte 10 of the file, byte 7 of this line") {
		t.Fatalf("got %+v", fault)
	}
}

func TestReaderSaysHowLongALineIs(t *testing.T) {
	for name, wrap := range chunkings {
		for _, end := range []string{"\n", "\r\n", ""} {
			in := strings.Repeat("x", 70_000) + end
			_, err := NewReader(wrap(strings.NewReader(in)), Limits{LineBytes: 1000}).Next()
			if err == nil || !strings.Contains(err.Error(), "The line has 70000 bytes; the most is 1000") {
				t.Errorf("%s, line end %q: %v", name, end, err)
			}
		}
	}
}

func TestReaderTornStream(t *testing.T) {
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		name   string
		cause  error
		limits Limits
	}{
		{"in a line", broken, Limits{}},
		{"in a line that is too large", broken, Limits{LineBytes: 2}},
		{"unexpected end", io.ErrUnexpectedEOF, Limits{}},
		{"a wrapped end", fmt.Errorf("body: %w", io.EOF), Limits{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(io.MultiReader(strings.NewReader("a\nunfinished"), iotest.ErrReader(tt.cause)), tt.limits)
			got, err := readAll(t, r)
			if len(got) != 1 || got[0].Text != "a" {
				t.Errorf("read %v, want the whole line only", got)
			}
			want := tt.cause
			if errors.Is(want, io.EOF) {
				want = io.ErrUnexpectedEOF
			}
			if !errors.Is(err, want) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "line 2 at byte") {
				t.Errorf("got %v", err)
			}
			if _, again := r.Next(); again == nil || again.Error() == io.EOF.Error() {
				t.Errorf("the next call forgot the error: %v", again)
			}
		})
	}
}

func TestReaderGivesUpWithoutProgress(t *testing.T) {
	_, err := NewReader(stuck{}, Limits{}).Next()
	if !errors.Is(err, io.ErrNoProgress) {
		t.Fatalf("got %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// TestReaderHoldsNoLongLine reads a line of 32 MiB: its buffer must not follow.
func TestReaderHoldsNoLongLine(t *testing.T) {
	endless := io.LimitReader(repeat('x'), 32<<20)
	r := NewReader(io.MultiReader(endless, strings.NewReader("\nafter")), Limits{LineBytes: 1 << 20})
	got, err := readAll(t, r)
	if err != nil || len(got) != 2 || got[0].Text != "!line_too_large" || got[1].Text != "after" {
		t.Fatalf("got %v, %v", got, err)
	}
	if cap(r.buf) > 1<<20+lineEnd {
		t.Errorf("the buffer grew to %d bytes", cap(r.buf))
	}
}

type repeat byte

func (c repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

// FuzzReader holds that lines tile the file, that their text is the file's, that
// numbers count newlines, and that neither the chunks of the stream nor the place
// where a file is cut into parts changes anything.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"", "\n", "a\nb", "a\r\n\r\n b \r\n", "\ufeffa\n\ufeff\n", "\xef\xbb", "a\xff\nb\n", "long line here\nshort\n", "\r\r\n\n", strings.Repeat("y", 40)} {
		f.Add([]byte(s), uint8(8))
	}
	f.Fuzz(func(t *testing.T, in []byte, limit uint8) {
		limits := Limits{LineBytes: int(limit)%32 + 1}
		all, err := readAll(t, NewReader(bytes.NewReader(in), limits))
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		if bytes.HasPrefix(in, byteOrderMark) {
			at = 3
		}
		for i, l := range all {
			if !blank(in[at:l.From]) {
				t.Fatalf("line %d: %q was left out", l.Number, in[at:l.From])
			}
			if n := 1 + bytes.Count(in[:l.From], []byte{'\n'}); n != l.Number {
				t.Fatalf("line at %d has the number %d, want %d", l.From, l.Number, n)
			}
			raw := in[l.From:l.To]
			text, ended := bytes.CutSuffix(raw, []byte{'\n'})
			if ended {
				text = bytes.TrimSuffix(text, []byte{'\r'})
			} else if l.To != int64(len(in)) {
				t.Fatalf("line %d has no end", l.Number)
			}
			switch l.Text {
			case "!" + CodeLineTooLarge:
				if len(text) <= limits.LineBytes {
					t.Fatalf("line %d of %d bytes is too large", l.Number, len(text))
				}
			case "!" + CodeInvalidEncoding:
				if invalidUTF8(text) == len(text) {
					t.Fatalf("line %d is valid", l.Number)
				}
			default:
				if l.Text != string(text) || len(text) > limits.LineBytes {
					t.Fatalf("line %d is %q, want %q", l.Number, l.Text, text)
				}
			}
			at = l.To
			// A part that begins at any line reads on as the whole file did.
			part := limits
			part.FirstLine, part.FirstByte = l.Number, l.From
			if l.From == 0 {
				continue
			}
			rest, err := readAll(t, NewReader(bytes.NewReader(in[l.From:]), part))
			if err != nil || fmt.Sprint(rest) != fmt.Sprint(all[i:]) {
				t.Fatalf("from line %d: %+v, want %+v", l.Number, rest, all[i:])
			}
		}
		if !blank(in[at:]) {
			t.Fatalf("%q was left out at the end", in[at:])
		}
		for name, wrap := range chunkings {
			again, err := readAll(t, NewReader(wrap(bytes.NewReader(in)), limits))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(all) {
				t.Fatalf("%s: %+v, %v; want %+v", name, again, err, all)
			}
		}
	})
}
