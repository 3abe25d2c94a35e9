package door

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"holdfast/events"
)

// compiled is the schema of messages. That it compiles is a test's to see.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	const name = "urn:holdfast:ingest-message:1"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(events.MessageSchema))
	if err != nil {
		return nil, fmt.Errorf("schema of messages: %w", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("schema of messages: %w", err)
	}
	return c.Compile(name)
})

// maxDescribed bounds the members that the schema describes, as they are written,
// together. The largest that it allows takes less, every character escaped.
const maxDescribed = 192 << 10

// violation says in a sentence how a message breaks the schema, and where; "" that
// it doesn't. The error is a fault of ours.
//
// What it costs has a bound. A message may have 1 MiB, which as Go values is fifty
// times as much, and five come in one event: they would end the process, their
// neighbours in it, and all of their next tries. So a member that the schema doesn't
// describe is left as text, and what it describes is measured first. Numbers are
// judged as float64: as the text that they are, an exponent of some digits would take
// minutes.
func violation(body []byte) (string, error) {
	schema, err := compiled()
	if err != nil {
		return "", err
	}
	doc, at, what := described(body, schema.Properties)
	if at == "" && what != "" {
		return "The message is not valid JSON: " + what + ".", nil
	}
	if what == "" {
		broken, ok := errors.AsType[*jsonschema.ValidationError](schema.Validate(doc))
		if !ok {
			return "", nil
		}
		at, what = deepest(broken)
	}
	return fmt.Sprintf("The message breaks its schema at '%s': %s.", clip(at, 200), clip(what, 500)), nil
}

// described is as much of a message as there are properties, or what is wrong with it,
// and where; "" where it is no JSON.
func described(body []byte, properties map[string]*jsonschema.Schema) (doc any, at, what string) {
	if kind := jsontext.Value(body).Kind(); kind != '{' && kind != jsontext.KindInvalid {
		var anything jsontext.Value
		if err := json.Unmarshal(body, &anything); err != nil {
			return nil, "", where(err)
		}
		// One like it: it is no object, whatever is in it.
		return map[jsontext.Kind]any{'[': []any{}, '"': "", '0': 0.0, 't': true, 'f': false}[kind], "", ""
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, "", where(err)
	}
	all, values := 0, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		raw, given := members[name]
		if !given {
			continue
		}
		if all += len(raw); all > maxDescribed {
			return nil, "/" + name, fmt.Sprintf("with it the members that the schema describes have %d bytes; the most is %d", all, maxDescribed)
		}
		var value any
		if err := json.Unmarshal(raw, &value); err != nil { // as JSON it was sound
			at = "/" + name
			if e, ok := errors.AsType[*json.SemanticError](err); ok {
				at += string(e.JSONPointer)
			}
			return nil, at, "the number is out of range"
		}
		values[name] = value
	}
	return values, "", ""
}

// deepest picks one fault of all, the first by its place, and words it.
func deepest(e *jsonschema.ValidationError) (at, what string) {
	switch e.ErrorKind.(type) {
	case *kind.OneOf: // the only one there is: the causes tell of both sides
		return pointerTo(e), "give either file_id, or bucket and key"
	case *kind.AdditionalProperties: // likewise, of metadata
		return pointerTo(e), "the name of a pair must have 1 to 64 characters"
	}
	if len(e.Causes) == 0 {
		return pointerTo(e), e.DetailedOutput().Error.String()
	}
	first := slices.MinFunc(e.Causes, func(a, b *jsonschema.ValidationError) int { return strings.Compare(pointerTo(a), pointerTo(b)) })
	return deepest(first)
}

// escaped is made once: a message may have thousands of faults.
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

func pointerTo(e *jsonschema.ValidationError) string {
	var p strings.Builder
	for _, token := range e.InstanceLocation {
		p.WriteString("/" + escaped.Replace(token))
	}
	return p.String()
}
