package door

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
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

// violation says in a sentence how a message breaks the schema, and where; "" that
// it doesn't. The error is a fault of ours.
//
// Numbers are judged as float64: as the text that they are, an exponent of some
// digits would take minutes.
func violation(body []byte) (string, error) {
	schema, err := compiled()
	if err != nil {
		return "", err
	}
	var doc any
	if err := json.Unmarshal(body, &doc); err != nil {
		return "The message is not valid JSON: " + where(err) + ".", nil
	}
	broken, ok := errors.AsType[*jsonschema.ValidationError](schema.Validate(doc))
	if !ok {
		return "", nil
	}
	at, what := deepest(broken)
	return fmt.Sprintf("The message breaks its schema at '%s': %s.", clip(at, 200), clip(what, 500)), nil
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

func pointerTo(e *jsonschema.ValidationError) string {
	var p strings.Builder
	for _, token := range e.InstanceLocation {
		p.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return p.String()
}
