package openai

import "fmt"

// MaxCustomID is the longest custom_id, in characters.
const MaxCustomID = 64

// DefaultNesting is the deepest nesting unless told otherwise.
const DefaultNesting = 1000

// Expect is what every line of one batch must satisfy.
type Expect struct {
	Endpoint string // the batch's endpoint, which every line must name as its url
	// Nesting is how many levels of objects and arrays may lie below a line's
	// object and its body; 0 means DefaultNesting. Above 9,000 the JSON library's
	// own bound (10,000) takes over.
	Nesting int
	// KeysOnly leaves Request.CustomID and Request.Model empty, which spares a reader
	// of millions of lines, who needs only [Request.IDKey], the garbage.
	KeysOnly bool
}

// Request is one valid line. RawCustomID and Body are slices of the line, with its
// lifetime: copy what must outlive it.
type Request struct {
	// CustomID is the decoded id. A lone surrogate escape is decoded as WTF-8, so the
	// string is not valid UTF-8 then; write RawCustomID to a file, never this.
	CustomID    string
	RawCustomID []byte // the id as a JSON string, quotes included, byte for byte
	Body        []byte // the body, byte for byte
	Model       string // body.model where that is a string, otherwise empty
}

// ParseLine parses one line of an input file, without its line end. The line must
// be valid UTF-8 and one JSON object, with nothing behind it, whose members
// are custom_id (a string of 1 to 64 characters, that is code points), method
// ("POST"), url (want.Endpoint) and body (an object that doesn't ask for a stream).
// Up to 100 other members are ignored. No member may occur twice, in whatever spelling.
//
// The error's Offset counts from the start of the line and its Line is 0; use
// [RawLine.Parse] for lines of a [Reader]. JSON faults are reported before those of
// members, and these in the order custom_id, method, url, body: one fault a line.
func ParseLine(b []byte, want Expect) (Request, *LineError) {
	if !validUTF8(b) {
		return Request{}, encodingError(b, invalidUTF8(b))
	}
	return parseLine(b, want)
}

// parseLine is ParseLine for a line that is known to be valid UTF-8.
func parseLine(b []byte, want Expect) (Request, *LineError) {
	limit := want.Nesting
	if limit <= 0 {
		limit = DefaultNesting
	}
	p := parsers.Get().(*parser)
	defer p.release()
	if fault := p.read(b, limit); fault != nil {
		return Request{}, fault
	}
	return p.request(want)
}

func lineFault(code, param string, at int, format string, args ...any) *LineError {
	return &LineError{Code: code, Param: param, Offset: int64(at), Message: fmt.Sprintf(format, args...)}
}

// request judges the members of a line that is well-formed.
func (p *parser) request(want Expect) (Request, *LineError) {
	raw := p.id.of(p.in)
	switch {
	case len(raw) == 0:
		return Request{}, lineFault(CodeInvalidCustomID, "custom_id", 0, "The line has no custom_id; give every request one of its own.")
	case raw[0] != '"':
		return Request{}, lineFault(CodeInvalidCustomID, "custom_id", p.id.from, "The custom_id must be a string, but is %s.", shown(raw))
	}
	// A character has at least a byte, so that only long ids have to be counted.
	if n := len(raw) - 2; n == 0 || n > MaxCustomID {
		if n = textLen(raw); n == 0 || n > MaxCustomID {
			return Request{}, lineFault(CodeInvalidCustomID, "custom_id", p.id.from, "The custom_id has %d characters; it must have 1 to %d.", n, MaxCustomID)
		}
	}
	if got := p.method.of(p.in); !p.isText(got, "POST") {
		return Request{}, lineFault(CodeInvalidMethod, "method", p.method.from, "The method is %s; it must be \"POST\".", shown(got))
	}
	if got := p.url.of(p.in); !p.isText(got, want.Endpoint) {
		return Request{}, lineFault(CodeURLMismatch, "url", p.url.from, "The url is %s, but the batch's endpoint is %s; a batch has one endpoint.", shown(got), clip(want.Endpoint))
	}
	body := p.body.of(p.in)
	if len(body) == 0 || body[0] != '{' {
		return Request{}, lineFault(CodeInvalidBody, "body", p.body.from, "The body is %s; it must be an object.", shown(body))
	}
	if string(p.stream.of(p.in)) == "true" {
		return Request{}, lineFault(CodeInvalidBody, "body.stream", p.stream.from, "The body asks for a stream, which a batch can't have; remove stream or set it to false.")
	}
	r := Request{RawCustomID: raw[:len(raw):len(raw)], Body: body[:len(body):len(body)]}
	if !want.KeysOnly {
		r.CustomID = string(p.decode(raw))
		r.Model = p.modelName()
	}
	return r, nil
}

// isText reports whether the JSON value raw is the string s.
func (p *parser) isText(raw []byte, s string) bool {
	return len(raw) > 0 && raw[0] == '"' && string(p.decode(raw)) == s
}

// shown words a value for a message.
func shown(raw []byte) string {
	if len(raw) == 0 {
		return "missing"
	}
	switch raw[0] {
	case '"':
		return clip(appendText(nil, raw))
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 'n', 't', 'f':
		return string(raw)
	}
	return "a number"
}

func (p *parser) modelName() string {
	raw := p.model.of(p.in)
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	if name := p.decode(raw); string(name) != p.oldModel {
		p.oldModel = string(name)
	}
	return p.oldModel
}
