package openai

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Body is what is to be known of the body of a request to an endpoint. The body
// itself is passed on byte for byte.
type Body struct {
	Model  string // body.model where that is a string, otherwise empty
	Stream bool   // it asks for a stream of events
}

// ParseBody judges a request's body as [ParseLine] judges that of a line, but that it
// may ask for a stream: valid UTF-8, one JSON object, nesting levels deep below itself
// at most (0: DefaultNesting), model and stream once at most. The error is an *Error,
// and holds nothing of the body.
func ParseBody(b []byte, nesting int) (Body, error) {
	if !validUTF8(b) {
		return Body{}, InvalidJSON("it is not valid UTF-8")
	}
	if nesting <= 0 {
		nesting = DefaultNesting
	}
	// The parser of lines finds model and stream one level down. What is put around
	// the body can't make something of it that it isn't: it has to end where it ends.
	const before = `{"body":`
	line := make([]byte, 0, len(before)+len(b)+1)
	line = append(append(append(line, before...), b...), '}')
	p := parsers.Get().(*parser)
	defer p.release()
	fault := p.read(line, nesting)
	// Of what is no JSON nothing counts that was noted.
	whole := (fault == nil || fault == p.fault) && bytes.Equal(p.body.of(line), bytes.Trim(b, " \t\r\n"))
	switch {
	case fault == nil && whole && p.inObject():
		return Body{Model: p.modelName(), Stream: string(p.stream.of(line)) == "true"}, nil
	case fault != nil && whole && fault.Param != "":
		return Body{}, DuplicateParameter(strings.TrimPrefix(fault.Param, "body."))
	case p.deep >= 0:
		return Body{}, InvalidJSON("it is nested too deep")
	}
	return Body{}, InvalidJSON(bodyReason(b))
}

// inObject reports whether the body is an object.
func (p *parser) inObject() bool {
	body := p.body.of(p.in)
	return len(body) > 0 && body[0] == '{'
}

// bodyReason words what is wrong with a body.
func bodyReason(b []byte) string {
	if len(bytes.Trim(b, " \t\r\n")) == 0 {
		return "it is empty"
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(b), parserOptions...)
	v, err := dec.ReadValue()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return syntaxReason(syntax)
	}
	if err == nil && v.Kind() == '{' {
		return "something follows the object"
	}
	return "it must be an object"
}
