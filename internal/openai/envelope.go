package openai

import (
	"bytes"
	"errors"
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
// goes, and its outline: the line without what its strings hold, without most
// of its digits and spaces. Then the JSON library judges the outline, which is valid
// JSON if and only if the line is, and of a usual line a tenth. Until it has, nothing
// that was noted counts. FuzzParseLine holds "if and only if" against the library.
//
// The outline differs from the line by three things:
//   - A string is "". One that is no JSON string, because a control character, a
//     backslash without an escape, or no end is in it, is a quote at which
//     the outline ends. (That the line is valid UTF-8 is known.)
//   - Space is left out that follows a bracket, a comma, a colon or a string, which
//     nothing can run into.
//   - 1 stands for every digit but 0, and digits that follow one directly are left
//     out: only a 0 at the front decides what may follow.
type parser struct {
	notes
	outline  []byte // see above
	others   [][]byte
	text     []byte // scratch for decoding
	oldModel string // most lines name the model of the line before
	judged   *outlines
}

// notes are what a parser has found of one line.
type notes struct {
	in      []byte
	deepest int      // levels allowed
	last    span     // the string read last at level 1 or 2, with its quotes
	escaped bool     // it has escapes
	deep    int      // where it is too deep, or -1
	open    [3]*span // at level 1 and 2, where to note the end of the value that is open
	inBody  bool     // level 2 is the body
	fault   *LineError
	noted   span // for the value of a member that doesn't matter

	id, method, url, body, model, stream span
}

var parsers = sync.Pool{New: func() any { return &parser{judged: new(outlines)} }}

// release returns p to the pool, which must not keep the line alive.
func (p *parser) release() {
	clear(p.others)
	p.notes = notes{}
	p.others = p.others[:0]
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
	if !p.judged.valid(p.outline) {
		return syntaxFault(b)
	}
	if b = b[from(b):]; b[0] != '{' {
		return lineFault(CodeInvalidJSONLine, "", 0, "The line is %s, not an object; put one whole request on each line.", shown(bytes.TrimRight(b, " \t\r\n")))
	}
	return p.fault
}

// scan is the pass over the line. It can't fail, whatever the line is, and gives up
// where that is too deep: no such line reaches a recursive parser.
func (p *parser) scan() {
	b := p.in
	if cap(p.outline) < len(b)+1 {
		p.outline = make([]byte, len(b)+len(b)/4+1)
	}
	out, n := p.outline[:len(b)+1], 0 // a byte more than the line: a lone quote at its end is written as two
	p.outline = out[:0]
	level := 0
	apart := true // what is before is a token of its own, whatever follows
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '"' {
			to, escaped, ok := stringEnd(b, i)
			out[n], out[n+1] = '"', '"'
			if !ok {
				n++
				break
			}
			if level <= 2 {
				p.last, p.escaped = span{i, to}, escaped
			}
			n += 2
			i = to - 1
			apart = true
			continue
		}
		if c == ',' || c == ':' { // outside the switch, whose jump is hard to foresee
			if level <= 2 {
				p.structure(c, i, level)
			}
			apart = true
			out[n] = c
			n++
			continue
		}
		if apart && space(c) {
			continue
		}
		switch c {
		case '{', '[':
			if level++; level <= 2 || level > p.deepest {
				if !p.structure(c, i, level) {
					return
				}
			}
			apart = true
		case '}', ']':
			if level--; level < 2 {
				if !p.structure(c, i, level) {
					return
				}
			}
			apart = true
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if !apart && out[n-1] == '1' {
				continue
			}
			if c != '0' {
				c = '1'
			}
			apart = false
		default:
			apart = false
		}
		out[n] = c
		n++
	}
	p.outline = out[:n]
}

// structure follows the byte c at i, which is outside strings and which level counts
// already, and reports whether to go on. Below level 2 only depth matters.
func (p *parser) structure(c byte, i, level int) bool {
	switch c {
	case '{', '[':
		if level > p.deepest {
			p.deep = i
			return false
		}
		if level == 2 {
			p.inBody = p.open[1] == &p.body && c == '{'
			p.open[2] = nil
		}
	case '}', ']':
		if level < 0 {
			return false // no JSON, and neither is the empty outline
		}
		p.close(level+1, i)
	case ',':
		if level == 1 || level == 2 {
			p.close(level, i)
		}
	case ':':
		if level == 1 || level == 2 && p.inBody {
			if p.open[level] = p.member(level); p.open[level] != nil {
				p.open[level].from = i + 1
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

// from is the index of the first byte of b that is no space, or len(b).
func from(b []byte) int {
	i := 0
	for i < len(b) && space(b[i]) {
		i++
	}
	return i
}

// member returns where to note the value of the member whose name was read last, or
// nil if it doesn't matter.
func (p *parser) member(level int) *span {
	raw := p.last.of(p.in)
	if len(raw) < 2 {
		return nil // a colon without a name: no JSON
	}
	name := raw[1 : len(raw)-1]
	if p.escaped {
		name = p.decode(raw)
	}
	var to *span
	if level == 1 {
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
		if level == 2 {
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
