package openai

import "strings"

// IdempotencyKey is the header that makes a create one batch, however often it is sent.
const IdempotencyKey = "Idempotency-Key"

// MaxIdempotencyKey is the longest key in bytes.
const MaxIdempotencyKey = 255

// ValidIdempotencyKey reports whether key can be sent as it is: 1 to
// [MaxIdempotencyKey] printable ASCII characters, and no space at its ends, because
// HTTP takes those off and another key would arrive.
func ValidIdempotencyKey(key string) bool {
	return key != "" && len(key) <= MaxIdempotencyKey && strings.Trim(key, " ") == key &&
		!strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
}
