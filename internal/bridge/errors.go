package bridge

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/lease"
)

var (
	// ErrTaken: the correlation id has a row already. It comes as a *TakenError.
	ErrTaken = errors.New("correlation id is taken")
	// ErrConflict: the correlation id stands for another request. No delivery of
	// this one will ever succeed under it. It comes as a *ConflictError where anybody
	// knows for which.
	ErrConflict = errors.New("correlation id stands for another request")
	// ErrRefused: the job was definitely refused. Nothing runs and nothing will;
	// the cause is wrapped beside it, and the id is free again.
	ErrRefused = errors.New("refused")
	// ErrLater: refused for now, for what the tenant has running; the same may be
	// taken later. It comes beside ErrRefused.
	ErrLater = errors.New("no room at present")
	// ErrNotFound: no such job, row or send.
	ErrNotFound = errors.New("not found")
	// ErrUnserved: the request's service ([Request.Service]) isn't configured here. No
	// refusal: another process may serve it, or this one once it is configured again.
	ErrUnserved = errors.New("no such service is configured here")
	// ErrChanged: the send recorded is not the one that was read. It comes as a
	// *ChangedError.
	ErrChanged = errors.New("another send was recorded since")
)

// TakenError is ErrTaken with the row that was found.
type TakenError struct{ Row Row }

// Error says what the row is.
func (e *TakenError) Error() string { return fmt.Sprintf("%v: %s", ErrTaken, e.Row.State) }

// Unwrap makes errors.Is(err, ErrTaken) true.
func (e *TakenError) Unwrap() error { return ErrTaken }

// ConflictError is ErrConflict with what the id stands for.
type ConflictError struct {
	// Row is the one that holds the id. Where there is none any more and a job alone
	// says so, it is what that job's row would be, as far as the job tells: confirmed.
	Row Row
}

// Error says what the row is.
func (e *ConflictError) Error() string { return fmt.Sprintf("%v: %s", ErrConflict, e.Row.State) }

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// ChangedError is ErrChanged with the send that was found; its zero value if
// there is none any more.
type ChangedError struct{ Found Send }

// Error says no more than the sentinel.
func (e *ChangedError) Error() string { return ErrChanged.Error() }

// Unwrap makes errors.Is(err, ErrChanged) true.
func (e *ChangedError) Unwrap() error { return ErrChanged }

// HeldError is lease.ErrHeld: somebody else submits this request now, or died
// doing so, and there is no job yet. The same request may succeed later.
type HeldError struct {
	RetryAfter time.Duration // when to come again
	Stale      time.Time     // when the claim may be taken over
	GivenBack  bool          // its owner had trouble, and said so: nobody submits it now
}

// Error says until when the claim holds.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%v until %s", lease.ErrHeld, e.Stale.UTC().Format(time.RFC3339Nano))
}

// Unwrap makes errors.Is(err, lease.ErrHeld) true.
func (e *HeldError) Unwrap() error { return lease.ErrHeld }
