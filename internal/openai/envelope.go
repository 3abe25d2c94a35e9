package openai

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maxMembers bounds the members of a line's own object, unknown ones included, which
// have to be remembered to find one that occurs twice.
const maxMembers = 100

// span is a value's place in the line; the zero span is an absent value.
type span struct{ from, to int }

func (s span) of(b []byte) []byte { return b[s.from:s.to] }

// parser reads one line. One pass over it notes where the members are, how deep it
// goes, and its outline: the line without what plain characters its strings hold.
// Then the JSON library judges the outline, which is valid JSON if and only if the
// line is, and of a usual line a tenth. Until it has, nothing that was noted counts.
//
// The outline lacks only two kinds of bytes. Within quotes, those that are at least
// 0x20, no quote and no part of an escape: they may be anything in JSON, given that
// the line is known to be valid UTF-8. And outside, space that follows a
// bracket, a comma, a colon or a string, which nothing can run into.
type parser struct {
	in       []byte
	deepest  int    // levels allowed
	outline  []byte // see above
	last     span   // the string read last, with its quotes
	escaped  bool   // it has escapes
	deep     int    // where it is too deep, or -1
	level    int
	open     [3]*span // at level 1 and 2, where to note the end of the value that is open
	inBody   bool     // level 2 is the body
	fault    *LineError
	noted    span // for the value of a member that doesn't matter
	others   [][]byte
	text     []byte // scratch for decoding
	oldModel string // most lines name the model of the line before

	id, method, url, body, model, stream span
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

// release returns p to the pool, which must not keep the line alive.
func (p *parser) release() {
	clear(p.others)
	*p = parser{outline: p.outline[:0], others: p.others[:0], text: p.text[:0], oldModel: p.oldModel}
	parsers.Put(p)
}

// Duplicate names are left to us: the library would look for them in every object
// of every body. Invalid UTF-8 is excluded before; not allowing it would exclude
// lone surrogate escapes as well.
var parserOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// read reads the line b, and reports what is wrong with it as JSON.
func (p *parser) read(b []byte, nesting int) *LineError {
	p.in, p.deepest, p.deep = b, nesting+2, -1
	p.scan()
	if p.deep >= 0 {
		return lineFault(CodeInvalidJSONLine, "", p.deep, "The line is nested deeper than %d levels; flatten the request.", nesting)
	}
	if !jsontext.Value(p.outline).IsValid(parserOptions...) {
		return syntaxFault(b)
	}
	if b = bytes.TrimLeft(b, " \t\r\n"); b[0] != '{' {
		return lineFault(CodeInvalidJSONLine, "", 0, "The line is %s, not an object; put one whole request on each line.", shown(bytes.TrimRight(b, " \t\r\n")))
	}
	return p.fault
}

// scan is the pass over the line. It can't fail, whatever the line is, and gives up
// where that is too deep: no such line reaches a recursive parser.
func (p *parser) scan() {
	b := p.in
	if cap(p.outline) < len(b) {
		p.outline = make([]byte, len(b)+len(b)/4)
	}
	out, n := p.outline[:len(b)], 0
	p.outline = out[:0]
	apart := true // what is before is a token of its own, whatever follows
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch c {
		case '"':
			next, to := skipString(out, n, b, i)
			p.last = span{i, to}
			p.escaped = next > n+2
			n, i = next, to-1
			apart = true
			continue
		case ' ', '\t', '\r', '\n':
			if apart {
				continue
			}
		case '{', '[', '}', ']':
			if !p.structure(c, i) {
				return
			}
			apart = true
		case ',', ':':
			if p.level <= 2 {
				p.structure(c, i)
			}
			apart = true
		default:
			apart = false
		}
		out[n] = c
		n++
	}
	p.outline = out[:n]
}

// structure follows the byte c at i, which is outside strings, and reports whether to
// go on.
func (p *parser) structure(c byte, i int) bool {
	switch c {
	case '{', '[':
		if p.level++; p.level > p.deepest {
			p.deep = i
			return false
		}
		if p.level == 2 {
			p.inBody = p.open[1] == &p.body && c == '{'
			p.open[2] = nil
		}
	case '}', ']':
		if p.level--; p.level < 0 {
			return false // no JSON, and neither is the empty outline
		}
		if p.level < 2 {
			p.close(p.level+1, i)
		}
	case ',':
		if p.level == 1 || p.level == 2 {
			p.close(p.level, i)
		}
	case ':':
		if p.level == 1 || p.level == 2 && p.inBody {
			if p.open[p.level] = p.member(); p.open[p.level] != nil {
				p.open[p.level].from = i + 1
			}
		}
	}
	return true
}

// close notes that the open value at level ends before i, space excluded.
func (p *parser) close(level, i int) {
	v := p.open[level]
	if v == nil {
		return
	}
	p.open[level] = nil
	for v.from < i && space(p.in[v.from]) {
		v.from++
	}
	for i > v.from && space(p.in[i-1]) {
		i--
	}
	v.to = i
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// member returns where to note the value of the member whose name was read last, or
// nil if it doesn't matter.
func (p *parser) member() *span {
	raw := p.last.of(p.in)
	if len(raw) < 2 {
		return nil // a colon without a name: no JSON
	}
	name := raw[1 : len(raw)-1]
	if p.escaped {
		name = p.decode(raw)
	}
	var to *span
	if p.level == 1 {
		switch string(name) {
		case "custom_id":
			to = &p.id
		case "method":
			to = &p.method
		case "url":
			to = &p.url
		case "body":
			to = &p.body
		default:
			p.other(name)
			return nil
		}
	} else {
		switch string(name) {
		case "model":
			to = &p.model
		case "stream":
			to = &p.stream
		default:
			return nil
		}
	}
	if *to != (span{}) {
		param := string(name)
		if p.level == 2 {
			param = "body." + param
		}
		p.twice(param, name)
		to = &p.noted // the value of the first stays
	}
	return to
}

// other remembers the name of an unknown member of the line.
func (p *parser) other(name []byte) {
	for _, o := range p.others {
		if bytes.Equal(o, name) {
			p.twice("", name)
			return
		}
	}
	if len(p.others) == maxMembers {
		p.blame(lineFault(CodeInvalidJSONLine, "", p.last.from, "The line has more than %d members that a request doesn't have; remove them.", maxMembers))
		return
	}
	if len(name) != p.last.to-p.last.from-2 { // decoded, in scratch
		name = bytes.Clone(name)
	}
	p.others = append(p.others, name)
}

func (p *parser) twice(param string, name []byte) {
	p.blame(lineFault(CodeInvalidJSONLine, param, p.last.from, "The member %s occurs twice; keep one of them.", clip(name)))
}

// blame notes the first fault; it counts if the line turns out to be JSON.
func (p *parser) blame(fault *LineError) {
	if p.fault == nil {
		p.fault = fault
	}
}

// decode decodes a string; the result is valid until the next call.
func (p *parser) decode(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	p.text = appendText(p.text[:0], raw)
	return p.text
}

// skipString returns the index behind the string that begins at i, or the length of
// b if it has no end. Its outline is put into out from n on.
func skipString(out []byte, n int, b []byte, i int) (int, int) {
	out[n] = '"'
	n++
	for i++; ; {
		i = skipPlain(b, i)
		if i >= len(b) {
			return n, len(b)
		}
		c := b[i]
		out[n] = c
		n++
		i++
		switch {
		case c == '"':
			return n, i
		case c == '\\' && i < len(b):
			c = b[i]
			out[n] = c
			n++
			i++
			for k := 0; c == 'u' && k < 4 && i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\'; k++ {
				out[n] = b[i]
				n++
				i++
			}
		}
	}
}

// skipPlain returns the index of the first byte at or behind i that matters within
// a string: a quote, a backslash, or a control character, which JSON forbids there.
// It looks at eight at a time: the top bit of a byte of found is set for the first
// such byte (for later ones it may be wrong).
func skipPlain(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^'"'*ones, w^'\\'*ones
		found := ((w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// syntaxFault words why the line b is no JSON. The library reads it again, as it is,
// to say where.
func syntaxFault(b []byte) *LineError {
	if bytes.HasPrefix(b, byteOrderMark) {
		return lineFault(CodeInvalidJSONLine, "", 0, "The line begins with a byte order mark, which only the file may; remove it.")
	}
	reason, at := "it is empty", 0
	dec := jsontext.NewDecoder(bytes.NewBuffer(b), parserOptions...)
	_, err := dec.ReadValue()
	if err == nil {
		at = int(dec.InputOffset())
		return lineFault(CodeInvalidJSONLine, "", at, "Something follows the JSON value at byte %d; put one request on each line.", at)
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		reason, at = syntaxReason(syntax), int(syntax.ByteOffset)
	}
	return lineFault(CodeInvalidJSONLine, "", at, "The line is not valid JSON: %s. Put one whole request on each line.", reason)
}
