package batch

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/lease"
)

// What the ports answer beside success. Each is a decision for the caller;
// everything else is trouble of the moment and may be retried.
var (
	// ErrNotFound: no such item or object (or not for this tenant).
	ErrNotFound = errors.New("not found")
	// ErrDeleted: there was one, and its owner deleted it. It is an ErrNotFound.
	ErrDeleted = fmt.Errorf("%w any more: it was deleted", ErrNotFound)
	// ErrExists: an insert-if-absent found the name taken.
	ErrExists = errors.New("exists already")
	// ErrEnded: an execution of that name and input was started before and is
	// over without having succeeded (stopped, failed, timed out): nobody is at it,
	// and its name is spent. It is an ErrExists.
	ErrEnded = fmt.Errorf("%w, and ended without success", ErrExists)
	// ErrChanged: the object is no longer the one that was pinned, or the store
	// could not prove that it answered with the bytes asked for.
	ErrChanged = errors.New("object changed since it was named")
	// ErrArchived: the object is there, but lies in an archive, and nobody reads it
	// before somebody has it restored.
	ErrArchived = errors.New("object is archived")
	// ErrCustomerKey: the object is there, but encrypted with a key that came with it
	// and has to come with every request (SSE-C).
	ErrCustomerKey = errors.New("object is encrypted with its owner's own key")
	// ErrStatus: the batch is not in a status that this transition leaves. The
	// transition may have been made by somebody else; read again.
	ErrStatus = errors.New("batch is not in a status that allows this")
	// ErrOver: the part is done or sealed; nothing is left to do but to report.
	ErrOver = errors.New("part is over")
	// ErrDead: the part is dead and waits for a redrive.
	ErrDead = errors.New("part is dead")
	// ErrAlive: the part is neither dead nor due to be: it can be claimed, or is held.
	ErrAlive = errors.New("part is alive")
	// ErrExhausted: the part is pending but has had its attempts.
	ErrExhausted = errors.New("part has had its attempts")
	// ErrMessage: a message is not one that this program understands. It is never
	// thrown away: a newer program may understand it, and if none does it ends in
	// the dead-letter queue.
	ErrMessage = errors.New("message not understood")
	// ErrStale: the item was written since the version that was read; read again.
	ErrStale = errors.New("item was written since it was read")
	// ErrEmpty: the queue has nothing to receive now.
	ErrEmpty = errors.New("queue is empty")
)

// HeldError is lease.ErrHeld with what a caller needs to come back or to
// steal: until when the lease runs, by the holder's clock, and the version
// seen, and of a part what its holder left behind, should it have lapsed.
type HeldError struct {
	Until time.Time
	Ver   int64
	Owner lease.Token
	Begun int // as in Part
}

// Error says until when the part is held.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%v until %s", lease.ErrHeld, e.Until.UTC().Format(time.RFC3339Nano))
}

// Unwrap makes errors.Is(err, lease.ErrHeld) true.
func (e *HeldError) Unwrap() error { return lease.ErrHeld }

// What a Model answers when there was no HTTP reply to keep. A reply with any
// status is not an error.
var (
	// ErrTimeout: the line's timeout passed, or the server's answer stalled.
	ErrTimeout = errors.New("request timed out")
	// ErrUnreachable: no connection, or it broke before the reply was whole.
	ErrUnreachable = errors.New("upstream unreachable")
	// ErrRefusedAddress: the upstream's address is one that may not be connected to,
	// which only a change of the configuration mends. It is an ErrUnreachable.
	ErrRefusedAddress = fmt.Errorf("%w: its address is refused", ErrUnreachable)
	// ErrModelNotFound: no upstream serves the model that the line names, so nothing
	// was sent. It is the line's own error, and not retried.
	ErrModelNotFound = errors.New("no upstream serves this model")
	// ErrReplyTooLarge: the reply exceeds the configured bound; not retried.
	ErrReplyTooLarge = errors.New("reply too large")
	// ErrNoCredential: the secret for the upstream can't be read, so nothing was
	// sent. No line is to blame; the worker can't work.
	ErrNoCredential = errors.New("upstream secret can't be read")
)
