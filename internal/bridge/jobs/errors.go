package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"holdfast/internal/bridge"
)

// What a call answers beside success, bridge.ErrRefused and bridge.ErrNotFound.
// After each the fate of the job is unknown and the claim stays. A *JobError is
// wrapped beside it where the service said something.
var (
	// ErrInstallation: the service doesn't serve this installation at all: wrong
	// URL, wrong or unreadable token, a redirect. Every request will meet it until
	// somebody sees to it, and then succeed.
	ErrInstallation = errors.New("jobs service doesn't serve this installation")
	// ErrUnavailable: no answer, or one that asks for patience.
	ErrUnavailable = errors.New("jobs service is not available")
	// ErrPending: the service took the job and hadn't decided on it in time.
	ErrPending = errors.New("jobs service has not decided yet")
	// ErrAnswer: the answer is not one of the contract's.
	ErrAnswer = errors.New("jobs service broke its contract")
)

// The longest that is kept of what a service says, in bytes.
const (
	maxMessage = 500
	maxCode    = 64
)

// JobError is what the service said was wrong. Its texts are the service's, made
// fit for a log and a person: one line, no control characters, no token.
type JobError struct {
	Status     int           // HTTP status; 200 where a job's own status says it was refused
	Code       string        // at most 64 letters, digits, '_', '-', '.'; "" where there is none
	Message    string        // at most 500 bytes; "" where there is none
	RetryAfter time.Duration // what the answer asked to wait; 0: nothing
}

// Error is status, code and message.
func (e *JobError) Error() string {
	s := fmt.Sprintf("jobs service answered %d", e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// refused is e for whoever asked for the job.
func (e *JobError) refused() *bridge.RefusedError {
	r := &bridge.RefusedError{Code: e.Code, Reason: e.Message}
	if r.Code == "" {
		r.Code = "job_refused"
	}
	if r.Reason == "" {
		r.Reason = fmt.Sprintf("The jobs service refused it (status %d) and gave no reason.", e.Status)
	}
	return r
}

// clean makes a service's text fit for JobError.Message. A service may quote what
// it was sent: secret is taken out.
func clean(text, secret string) string {
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "[token]")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) && r != '\u2028' && r != '\u2029' {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, ""))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	return text
}

// code is s if it has the form of a code, else "".
func code(s string) string {
	if len(s) > maxCode || strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	}) {
		return ""
	}
	return s
}

// fit reports whether a name can go into a header and a path: printable ASCII
// without spaces, at most 512 bytes, and no step of a path.
func fit(name string) bool {
	return name != "" && len(name) <= 512 && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}
