package batch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/lease"
)

// EventKind is what an event tells of.
type EventKind string

// The kinds. A name is for ever: it is part of an event's id.
const (
	EventClaimed      EventKind = "claimed"
	EventLeaseExpired EventKind = "lease_expired" // a holder went without a word
	EventStolen       EventKind = "stolen"
	EventFailed       EventKind = "failed"      // a worker gave the part back with an error
	EventHandedOver   EventKind = "handed_over" // a worker gave it back in good order
	EventBlamed       EventKind = "blamed"      // a line killed two workers in a row and got its error
	EventDead         EventKind = "dead"
	EventRedriven     EventKind = "redriven"
	EventSealed       EventKind = "sealed"
	EventResent       EventKind = "resent"       // a part's message was overdue
	EventCircuitOpen  EventKind = "circuit_open" // a model answers nothing but errors
	EventRestarted    EventKind = "restarted"    // an execution was gone before its work was done
	EventEnding       EventKind = "ending"       // how the batch ends was decided; Reason says how
	EventRefused      EventKind = "refused"      // the batch that a correlation id stands for was not created; Reason says why
)

// NoPart is the Part of an event that is about the batch as a whole.
const NoPart = -1

// maxEventReason bounds an event's reason, in bytes.
const maxEventReason = 1000

// Event is one thing that happened to a batch or a part of it. It holds no body,
// key or token that opens anything (an owner's token doesn't).
type Event struct {
	Tenant, Batch string

	// At, Part, Ver and Kind are the event's identity: who tells of a thing twice
	// gives the same. So At comes from the item, where more than one may tell (a
	// lease that expired: LeaseUntil; a death: DeadAt), and Ver is the part's (or
	// batch's) after the write. What only its holder tells, and doesn't know the
	// version of (handed_over, failed, blamed), has that of its claim. circuit_open is
	// told once for a batch and a model in ten minutes: At is when these began, Ver
	// stands for the model, and Seen is when the circuit opened.
	At   time.Time // in whole milliseconds, after 1970
	Part int       // or NoPart
	Ver  int64
	Kind EventKind // lower-case letters, digits and '_'

	Seen    time.Time   // when it happened, in whole milliseconds, where that isn't At; zero: At
	Owner   lease.Token // of whom it is about; "" if of nobody
	Attempt int         // the claim's number since the last progress; 0: no claim
	Reason  string      // at most 1,000 bytes
}

// When is when it happened.
func (e Event) When() time.Time {
	if e.Seen.IsZero() {
		return e.At
	}
	return e.Seen
}

// ID names the event within its batch: ids sort by time, then part, then version.
// It is fit for URLs once escaped.
func (e Event) ID() string {
	part := "-" // before every number
	if e.Part != NoPart {
		part = fmt.Sprintf("%08d", e.Part)
	}
	return fmt.Sprintf("%015d#%s#%012d#%s", e.At.UnixMilli(), part, e.Ver, e.Kind)
}

// Check says what is wrong with e; nil: it can be recorded.
func (e Event) Check() error {
	switch {
	case e.Tenant == "" || e.Batch == "":
		return errors.New("event of no batch")
	case e.At.UnixMilli() <= 0:
		return fmt.Errorf("event at %v", e.At)
	case e.Part < NoPart || e.Ver < 0:
		return fmt.Errorf("event of part %d at version %d", e.Part, e.Ver)
	case e.Kind == "" || strings.Trim(string(e.Kind), "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return fmt.Errorf("event of kind %q", e.Kind)
	case len(e.Reason) > maxEventReason:
		return fmt.Errorf("event's reason of %d bytes exceeds %d", len(e.Reason), maxEventReason)
	}
	return nil
}

// DeathOf tells that a part was declared dead. Who declares it and who learns of
// it later tell the same.
func DeathOf(dead Part) Event {
	return Event{
		Tenant: dead.Tenant, Batch: dead.Batch, Part: dead.N, At: dead.DeadAt, Ver: dead.Ver,
		Kind: EventDead, Attempt: dead.Attempts, Reason: dead.LastError,
	}
}

// RefusalOf tells that a request under this id started nothing, and why. A request that
// is refused again is told again.
func RefusalOf(tenant, id string, why error, at time.Time) Event {
	return Event{Tenant: tenant, Batch: id, Part: NoPart, At: at, Kind: EventRefused, Reason: reason(why)}
}
