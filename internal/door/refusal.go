package door

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// refused makes a refusal of e, whose code the log may have.
func refused(e *openai.Error) error {
	return fmt.Errorf("%w: %w", &bridge.RefusedError{Code: e.Code, Reason: e.Message}, e)
}

// asError is what err says in the API's words, for a caller who may see all of it.
func asError(err error) *openai.Error {
	if e, ok := errors.AsType[*bridge.LastError](err); ok {
		return openai.Invalid("tries_ended", "", "Nothing could be started in %d deliveries, and Holdfast gave up: %s. Where a claim was left open the batch is started yet, and its status tells.",
			e.Receives, clip(strings.TrimSuffix(asError(e.Cause).Message, "."), maxCause))
	}
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*bridge.RefusedError](err); ok {
		return openai.Invalid(e.Code, "", "%s", e.Reason)
	}
	return openai.Invalid("refused", "", "%s", clip(err.Error(), maxReason))
}

// maxReason bounds a reason, in bytes, for whoever keeps it.
const maxReason = 1000

// maxCause leaves a reason room for the sentence around a cause.
const maxCause = maxReason - 200

// clip cuts s to at most so many bytes, between characters.
func clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= most {
		return s
	}
	const dots = "…"
	cut := most - len(dots)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + dots
}

// where words what the JSON library found, and at which place.
func where(err error) string {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		switch {
		case errors.Is(e.Err, io.ErrUnexpectedEOF), errors.Is(e.Err, io.EOF):
			if e.ByteOffset == 0 {
				return "it is empty"
			}
			return fmt.Sprintf("it ends in the middle of a value, at byte %d", e.ByteOffset)
		case errors.Is(e.Err, jsontext.ErrDuplicateName):
			return fmt.Sprintf("the member at '%s' is there twice, at byte %d", pointer(e.JSONPointer), e.ByteOffset)
		}
		return fmt.Sprintf("%v at byte %d", e.Err, e.ByteOffset)
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return fmt.Sprintf("the value at '%s' is not of the right type, at byte %d", pointer(e.JSONPointer), e.ByteOffset)
	}
	return clip(err.Error(), 200)
}

// pointer is a JSON pointer that fits into a sentence.
func pointer(p jsontext.Pointer) string { return clip(string(p), 200) }
