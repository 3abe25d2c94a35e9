package batch

import (
	"fmt"
	"net/http"

	"holdfast/internal/openai"
)

// Withheld is an upstream's answer whose body nobody gets, because it is about the
// installation's credential and may quote it, or was seen to, or because it is a
// redirect, which nobody follows. It is an error to whoever has no use for such an
// answer; its text holds nothing of it.
type Withheld struct {
	Status int
	Code   string // what is said instead: openai.CodeUpstreamDenied or CodeUpstreamRedirected
	Sum    string // SHA-256 of the body, as far as it was read
	Bytes  int64  // that were read
}

// Error names the status.
func (w *Withheld) Error() string { return fmt.Sprintf("%s: status %d", w.Code, w.Status) }

// Withhold makes one of an answer of which body was read.
func Withhold(status int, code string, body []byte) *Withheld {
	return &Withheld{Status: status, Code: code, Sum: sumOf(body), Bytes: int64(len(body))}
}

// WithheldCode is why an answer of this status is withheld whatever it says, or "".
func WithheldCode(status int) string {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return openai.CodeUpstreamDenied
	case status >= 300 && status < 400:
		return openai.CodeUpstreamRedirected
	}
	return ""
}
