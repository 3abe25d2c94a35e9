package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"holdfast/internal/batch"
)

// Text is what the requests of an Input are about.
type Text string

// The texts that people send, as far as they differ to a reader of JSON.
const (
	Prose   Text = "prose"           // English with quotes and line ends
	Tools   Text = "tool schemas"    // a question and deep objects
	Scripts Text = "mixed scripts"   // words of many alphabets, in UTF-8
	Escaped Text = "escaped scripts" // the same as \uXXXX, which is what Python writes
)

// shapes is how many different lines an Input has, its ids aside. They differ in
// length, turns, parameters and spacing.
const shapes = 64

// Input is an input file that is made as it is read and so is never held. The
// same one has the same bytes always.
type Input struct {
	shapes [][]byte
	cycle  int64 // bytes of all shapes
	lines  int64
	size   int64
}

// NewInput returns an Input of at most size bytes whose lines have about
// lineBytes on the average, or an error if not one fits.
func NewInput(text Text, lineBytes int, size int64) (*Input, error) {
	rng := rand.New(rand.NewPCG(1, uint64(lineBytes)))
	in := &Input{}
	var lists [][]byte
	if text == Tools {
		for range 4 {
			lists = append(lists, tools(rng, (lineBytes-220)/2))
		}
	}
	for range shapes {
		var list []byte
		if text == Tools {
			list = lists[rng.IntN(len(lists))]
		}
		s, err := shape(rng, text, lineBytes/2+rng.IntN(lineBytes), list)
		if err != nil {
			return nil, err
		}
		in.shapes = append(in.shapes, s)
		in.cycle += int64(len(s))
	}
	in.lines = size / in.cycle * shapes
	in.size = size / in.cycle * in.cycle
	for next := in.shapes[0]; in.size+int64(len(next)) <= size; next = in.shapes[in.lines%shapes] {
		in.size += int64(len(next))
		in.lines++
	}
	if in.lines == 0 {
		return nil, fmt.Errorf("no line of %s fits %d bytes", text, size)
	}
	return in, nil
}

// Lines is how many lines it has.
func (in *Input) Lines() int64 { return in.lines }

// Bytes is its size.
func (in *Input) Bytes() int64 { return in.size }

// Open returns its bytes from the beginning.
func (in *Input) Open() io.Reader { return in.OpenAt(0) }

// OpenAt returns its bytes from an offset on.
func (in *Input) OpenAt(from int64) io.Reader {
	r := &inputReader{in: in, next: from / in.cycle * shapes}
	for from %= in.cycle; from >= int64(len(in.shapes[r.next%shapes])); r.next++ {
		from -= int64(len(in.shapes[r.next%shapes]))
	}
	if r.next < in.lines {
		r.make()
		r.rest = r.rest[from:]
	}
	return r
}

type inputReader struct {
	in   *Input
	next int64 // line
	line []byte
	rest []byte // of line
}

// make makes the next line.
func (r *inputReader) make() {
	r.line = append(r.line[:0], r.in.shapes[r.next%shapes]...)
	number := r.line[len(idStart):][:idDigits]
	for i, v := idDigits-1, r.next; i >= 0; i, v = i-1, v/10 {
		number[i] = '0' + byte(v%10)
	}
	r.rest = r.line
	r.next++
}

func (r *inputReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(r.rest) == 0 {
			if r.next == r.in.lines {
				break
			}
			r.make()
		}
		m := copy(p[n:], r.rest)
		r.rest = r.rest[m:]
		n += m
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// A line begins so, followed by its number. Python's spacing is as long as ours.
const (
	idStart  = `{"custom_id":"request-`
	idDigits = 10
)

// shape is a line, with its end, of about size bytes; list is its tools.
func shape(rng *rand.Rand, text Text, size int, list json.RawMessage) ([]byte, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	type body struct {
		Model       string          `json:"model"`
		Messages    []message       `json:"messages"`
		Tools       json.RawMessage `json:"tools,omitempty"`
		MaxTokens   int             `json:"max_tokens"`
		Temperature float64         `json:"temperature"`
		Seed        int             `json:"seed,omitempty"`
	}
	b := body{Model: "gpt-4o-mini", Tools: list, MaxTokens: 100 * (1 + rng.IntN(20)), Temperature: float64(rng.IntN(11)) / 10}
	if rng.IntN(4) == 0 {
		b.Seed = rng.IntN(1 << 30)
	}
	if rng.IntN(4) > 0 {
		b.Messages = append(b.Messages, message{"system", "You are a helpful assistant."})
	}
	turns := 1
	if size > 700 {
		turns += 2 * rng.IntN(3) // the user's and the assistant's, and the user's again
	}
	room := size - 220 - len(list)
	for i := range turns {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		b.Messages = append(b.Messages, message{role, content(rng, text, room/turns-35)})
	}
	raw, err := marshal(b)
	if err != nil {
		return nil, err
	}
	if text == Escaped {
		raw = escape(raw)
	}
	const head = `","method":"POST","url":"/v1/chat/completions","body":`
	line := fmt.Appendf(nil, "%s%0*d%s%s}", idStart, idDigits, 0, head, raw)
	if rng.IntN(2) == 0 { // as Python's json.dumps spaces it
		line = spaced(line)
	}
	return append(line, '\n'), nil
}

// spaced is line with a space behind every colon and comma outside strings, but
// for the first colon.
func spaced(line []byte) []byte {
	out := append([]byte(nil), line[:len(idStart)]...)
	for inside, i := true, len(idStart); i < len(line); i++ {
		c := line[i]
		out = append(out, c)
		switch {
		case c == '\\':
			i++
			out = append(out, line[i])
		case c == '"':
			inside = !inside
		case !inside && (c == ',' || c == ':'):
			out = append(out, ' ')
		}
	}
	return out
}

// marshal is json.Marshal without the escapes that are meant for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// escape writes everything that isn't ASCII as \uXXXX.
func escape(raw []byte) []byte {
	var out []byte
	for _, c := range string(raw) {
		if c < utf8.RuneSelf {
			out = append(out, byte(c))
			continue
		}
		for _, u := range utf16.AppendRune(nil, c) {
			out = fmt.Appendf(out, `\u%04x`, u)
		}
	}
	return out
}

var (
	english = strings.Fields(`the quick brown fox jumps over a lazy dog then it went home and wrote long letter about experience
		before falling asleep please summarize following text in three sentences answer only with number translate into explain why question context document paragraph`)
	foreign = strings.Fields(`Größe naïve café señor 東京 は 日本の 首都です 今日は 天気が いい Привет мир как дела 안녕하세요 세계 مرحبا بالعالم שלום 😀 🎉👩‍💻 Ελλάδα the answer is`)
)

// content is text of about n bytes.
func content(rng *rand.Rand, text Text, n int) string {
	words := english
	if text == Scripts || text == Escaped {
		words = foreign
	}
	width := func(w string) int { return len(w) + 1 }
	if text == Escaped {
		width = func(w string) int { return len(escape([]byte(w))) + 1 }
	}
	var b strings.Builder
	for used := 0; used < n; {
		w := words[rng.IntN(len(words))]
		used += width(w)
		switch rng.IntN(32) {
		case 0:
			b.WriteString(w + ".\n")
			used += 2
		case 1:
			b.WriteString(`"` + w + `" `)
			used += 4
		default:
			b.WriteString(w + " ")
		}
	}
	return b.String()
}

// tools is a list of tools with their schemas, of about n bytes.
func tools(rng *rand.Rand, n int) []byte {
	out := []byte{'['}
	for len(out) == 1 || len(out) < n-150 {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, `{"type":"function","function":{"name":"%s_%s","parameters":{"type":"object","properties":{"%s":{"type":"string"},"limit":{"type":"integer","minimum":%d}},"required":["%[3]s"]}}}`,
			english[rng.IntN(len(english))], english[rng.IntN(len(english))], english[rng.IntN(len(english))], rng.IntN(10))
	}
	return append(out, ']')
}

// inputObjects are Objects of which each is an Input to who reads it.
type inputObjects struct {
	batch.Objects // what is written
	in            *Input
}

func (o inputObjects) Open(_ context.Context, _ batch.Object, from, to int64) (io.ReadCloser, error) {
	if from < 0 || from > to || to > o.in.size {
		return nil, fmt.Errorf("no range [%d, %d) in %d bytes", from, to, o.in.size)
	}
	return io.NopCloser(io.LimitReader(o.in.OpenAt(from), to-from)), nil
}
