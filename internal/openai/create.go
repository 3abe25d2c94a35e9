package openai

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The bounds of a batch's metadata; lengths are in characters.
const (
	MaxMetadataPairs = 16
	MaxMetadataKey   = 64
	MaxMetadataValue = 512
)

// The bounds of an expiry policy, in seconds.
const (
	MinExpirySeconds = 3600
	MaxExpirySeconds = 2592000
)

// maxCreateBytes bounds the body of POST /batches. The largest metadata, every
// character escaped as a surrogate pair, stays well below it.
const maxCreateBytes = 1 << 20

// ExpiresAfter is an expiry policy: Seconds after the creation of the file.
type ExpiresAfter struct {
	Anchor  string `json:"anchor"` // always created_at
	Seconds int64  `json:"seconds"`
}

// CreateBatch is the request of POST /batches. Metadata is nil when it was absent
// or null.
type CreateBatch struct {
	InputFileID        string            `json:"input_file_id"`
	Endpoint           string            `json:"endpoint"`
	CompletionWindow   string            `json:"completion_window"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	OutputExpiresAfter *ExpiresAfter     `json:"output_expires_after,omitempty"`
}

// Allow lists what an installation offers.
type Allow struct {
	Endpoints []string // paths such as /v1/chat/completions
	Windows   []string // completion windows such as 24h
}

// ParseCreateBatch reads and checks the body of POST /batches, of which it takes at
// most 1 MiB. Unknown fields are ignored, since official clients add some. Every
// error is an [*Error] that names the parameter at fault; whether the file exists
// is not looked at.
func ParseCreateBatch(r io.Reader, allow Allow) (CreateBatch, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxCreateBytes+1))
	if err != nil {
		e := InvalidJSON("the request ended early")
		e.Err = err
		return CreateBatch{}, e
	}
	if len(body) > maxCreateBytes {
		return CreateBatch{}, RequestTooLarge(maxCreateBytes)
	}
	var raw struct {
		InputFileID        jsontext.Value `json:"input_file_id"`
		Endpoint           jsontext.Value `json:"endpoint"`
		CompletionWindow   jsontext.Value `json:"completion_window"`
		Metadata           jsontext.Value `json:"metadata"`
		OutputExpiresAfter jsontext.Value `json:"output_expires_after"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return CreateBatch{}, jsonError(body, err)
	}
	var c CreateBatch
	for _, f := range []struct {
		name  string
		value jsontext.Value
		to    *string
	}{
		{"input_file_id", raw.InputFileID, &c.InputFileID},
		{"endpoint", raw.Endpoint, &c.Endpoint},
		{"completion_window", raw.CompletionWindow, &c.CompletionWindow},
	} {
		if absent(f.value) {
			return CreateBatch{}, MissingParameter(f.name)
		}
		if f.value.Kind() != '"' {
			return CreateBatch{}, InvalidType(f.name, "a string")
		}
		if *f.to = string(appendText(nil, f.value)); *f.to == "" {
			return CreateBatch{}, MissingParameter(f.name)
		}
	}
	if !slices.Contains(allow.Endpoints, c.Endpoint) {
		return CreateBatch{}, InvalidEndpoint(c.Endpoint, allow.Endpoints)
	}
	if !slices.Contains(allow.Windows, c.CompletionWindow) {
		return CreateBatch{}, InvalidCompletionWindow(c.CompletionWindow, allow.Windows)
	}
	if !absent(raw.Metadata) {
		if c.Metadata, err = parseMetadata(raw.Metadata); err != nil {
			return CreateBatch{}, err
		}
	}
	if !absent(raw.OutputExpiresAfter) {
		if c.OutputExpiresAfter, err = parseExpiresAfter("output_expires_after", raw.OutputExpiresAfter); err != nil {
			return CreateBatch{}, err
		}
	}
	return c, nil
}

// absent reports whether an optional member is missing, or null, which is the same.
func absent(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// jsonError words what the JSON library found in a request body.
func jsonError(body []byte, err error) *Error {
	e := InvalidJSON("it must be an object")
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		e = InvalidJSON(syntaxReason(syntax))
		if errors.Is(syntax.Err, jsontext.ErrDuplicateName) {
			e = InvalidJSON(fmt.Sprintf("the name %s occurs twice in one object", clip(syntax.JSONPointer.LastToken())))
		}
	}
	if len(body) == 0 {
		e = InvalidJSON("it is empty")
	}
	e.Err = err
	return e
}

// syntaxReason words a syntax error without its location prefix.
func syntaxReason(err *jsontext.SyntacticError) string {
	switch {
	case errors.Is(err.Err, io.ErrUnexpectedEOF), errors.Is(err.Err, io.EOF):
		return "it ends in the middle of a value"
	case errors.Is(err.Err, jsontext.ErrDuplicateName):
		return "a name occurs twice in one object"
	}
	return fmt.Sprintf("%v at byte %d", err.Err, err.ByteOffset)
}

// parseMetadata reads the metadata of a request: an object of strings.
func parseMetadata(v jsontext.Value) (map[string]string, error) {
	var raw map[string]jsontext.Value
	if v.Kind() != '{' || json.Unmarshal(v, &raw) != nil {
		return nil, InvalidMetadata("it must be an object whose values are strings")
	}
	m := make(map[string]string, len(raw))
	for k, v := range raw {
		if v.Kind() != '"' {
			return nil, InvalidMetadata(fmt.Sprintf("the value of %s is not a string", clip(k)))
		}
		m[k] = string(appendText(nil, v))
	}
	if err := ValidateMetadata(m); err != nil {
		return nil, err
	}
	return m, nil
}

// ValidateMetadata checks the bounds of metadata: at most 16 pairs, keys of at
// most 64 and values of at most 512 characters. The error is invalid_metadata.
func ValidateMetadata(m map[string]string) error {
	if len(m) > MaxMetadataPairs {
		return InvalidMetadata(fmt.Sprintf("it has %d pairs; the most is %d", len(m), MaxMetadataPairs))
	}
	for k, v := range m {
		if k == "" {
			return InvalidMetadata("a key is empty")
		}
		if n := utf8.RuneCountInString(k); n > MaxMetadataKey {
			return InvalidMetadata(fmt.Sprintf("the key %s has %d characters; the most is %d", clip(k), n, MaxMetadataKey))
		}
		if n := utf8.RuneCountInString(v); n > MaxMetadataValue {
			return InvalidMetadata(fmt.Sprintf("the value of %s has %d characters; the most is %d", clip(k), n, MaxMetadataValue))
		}
	}
	return nil
}

// parseExpiresAfter reads the expiry policy of a JSON request.
func parseExpiresAfter(param string, v jsontext.Value) (*ExpiresAfter, error) {
	var raw struct {
		Anchor  jsontext.Value `json:"anchor"`
		Seconds jsontext.Value `json:"seconds"`
	}
	if v.Kind() != '{' || json.Unmarshal(v, &raw) != nil {
		return nil, InvalidExpiresAfter(param, "it must be an object with anchor and seconds")
	}
	var anchor, seconds string
	if raw.Anchor.Kind() == '"' {
		anchor = string(appendText(nil, raw.Anchor))
	}
	if raw.Seconds.Kind() == '0' {
		seconds = string(raw.Seconds)
	}
	return checkExpiresAfter(param, anchor, seconds)
}

func checkExpiresAfter(param, anchor, seconds string) (*ExpiresAfter, error) {
	if anchor != "created_at" {
		return nil, InvalidExpiresAfter(param, "its anchor must be 'created_at'")
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < MinExpirySeconds || n > MaxExpirySeconds {
		return nil, InvalidExpiresAfter(param, fmt.Sprintf("its seconds must be an integer from %d to %d", MinExpirySeconds, MaxExpirySeconds))
	}
	return &ExpiresAfter{Anchor: anchor, Seconds: n}, nil
}
