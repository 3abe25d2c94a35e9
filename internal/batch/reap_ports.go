package batch

import (
	"context"
	"time"
)

// Ports of those who deal with what a worker left behind. The rules at the head
// of ports.go hold here too. A write that takes the part as it was seen compares
// its Ver; the rest of it tells one's own lost answer from another's write.

// Steals takes parts over whose holders lapsed.
type Steals interface {
	// Steal takes a leased part (C6) for c.Token, if its version is still ver, its
	// lease ended before cut, and it has attempts left or a suspect: as
	// [Claims].Claim, and lapses+1, steals+1, repeats+begun. A part that c.Token holds already is
	// the caller's own lost write. *HeldError while it is held, be it by its old
	// holder, who was only slow, or by a faster thief; ErrStale when it was given
	// back since (claim it); ErrOver, ErrDead, ErrExhausted, ErrNotFound.
	Steal(ctx context.Context, c Claim, taskToken string, ver int64, maxAttempts int, cut, until, now time.Time) (Part, error)
}

// Reaps is what the reaper reads and writes of its own. Nothing in the index
// decides anything: each write asks the item itself.
type Reaps interface {
	// Due pages through the due index: one shard's rows that q selects, the most
	// overdue first. Eventually consistent: a row may be old, missing for a
	// moment, or there twice when it moves between two pages.
	Due(ctx context.Context, q DueQuery) (DuePage, error)
	// Parts reads parts (at most MaxParts) in few calls, each strongly consistent,
	// in any order. Those that don't exist, or that a newer program wrote, are left
	// out.
	Parts(ctx context.Context, keys []PartKey) ([]Part, error)
	// Reap gives a lapsed part back (C11), if its version is still seen's and its
	// lease ended before cut: pending, owner gone, lapses+1, repeats+begun, due as given (when
	// its message is overdue). Whoever did it sends the message again. A part that
	// was reaped from just that version is success, also for the second of two
	// reapers: two messages do no harm. ErrStale otherwise; ErrNotFound.
	Reap(ctx context.Context, seen Part, cut, due, now time.Time) (Part, error)
	// Postpone moves a pending part's due time, if its version is still seen's,
	// and counts a resend: whoever did it sends the message again. One that was
	// postponed from just that version is success. ErrStale otherwise;
	// ErrNotFound.
	Postpone(ctx context.Context, seen Part, due, now time.Time) (Part, error)
	// Defer moves the due time of a batch that is not over. Its version stays: the
	// batch is what it was, for whoever read it and is about to write. ErrStatus once it is
	// terminal; ErrNotFound.
	Defer(ctx context.Context, tenant, id string, due, now time.Time) error
}

// DueShards is how many shards the due index has: an item's is a matter of its
// key, and it never moves.
const DueShards = 16

// MaxDue is the most rows that one page of the due index has.
const MaxDue = 1000

// MaxParts is the most parts that are read at once.
const MaxParts = 100

// DueQuery selects rows of the due index.
type DueQuery struct {
	Shard int  // 0 to DueShards-1
	Dead  bool // dead parts, which are due when their grace is over; false: everything else
	// From and Before bound what is due: at From or after, and before Before. Zero:
	// all that ever was, and all that will ever be.
	From, Before time.Time
	After        string // Next of the page before; "" for the first
	Limit        int    // 1 to MaxDue
}

// DuePage is a page of the due index.
type DuePage struct {
	Rows []Due  // may be fewer than Limit, or none, and yet not the last
	Next string // where the next page begins; "" when this is the last
}

// DueKind is what sort of item is due.
type DueKind string

// The kinds. Rows of any other kind, which a newer program wrote, are left out.
const (
	DueBatch  DueKind = "batch"
	DuePart   DueKind = "part"
	DueBridge DueKind = "bridge" // a correlation id whose claim turned stale
	DueFile   DueKind = "file"   // expired
	DueUpload DueKind = "upload" // expired
)

// Due names one item that is due: its key and nothing else. What it is now says
// the item.
type Due struct {
	Kind   DueKind
	Tenant string
	ID     string // the batch's (of a part too), file's or upload's; a bridge row's name
	Part   int    // of a DuePart
	At     time.Time
}

// PartKey is the part that a DuePart names.
func (d Due) PartKey() PartKey { return PartKey{d.Tenant, d.ID, d.Part} }

// Deaths declares parts dead and brings them back.
type Deaths interface {
	// Declare marks a part dead (C12), if its version is still seen's, it had its
	// attempts, it has no suspect, and nobody alive holds it: pending, or leased
	// and lapsed before cut (which counts as a lapse, repeats+begun). Owner gone, dead_at is now,
	// due when its grace is over. A part that is dead already is success. ErrOver;
	// *HeldError while a live holder has it; ErrStale when it was written since;
	// ErrAlive when it has attempts or a suspect left; ErrNotFound.
	Declare(ctx context.Context, seen Part, maxAttempts int, cut, grace, now time.Time) (Part, error)
	// Redrive brings a dead part back (C14), if its version is still seen's and
	// its batch is in_progress without an ending: pending, attempts=0, due as
	// given. Whoever did it sends the message. A part that was redriven from just
	// that version is success. ErrStatus when the batch is ending or over; ErrOver
	// when the part is; ErrAlive when it isn't dead; ErrStale when it died again
	// since it was seen; ErrNotFound.
	Redrive(ctx context.Context, seen Part, due, now time.Time) (Part, error)
}

// Events is each batch's log for its operator. It is written after the fact and
// decides nothing: counts come from the items. Events live as long as the items
// of their batch.
type Events interface {
	// Record inserts e where no event has its id. One that has it is the same
	// event, told before: success. An event that breaks [Event]'s bounds is an
	// error.
	Record(ctx context.Context, e Event) error
	// RecordAll records any number of events in few calls. One that has an event's
	// id is replaced by it, which is the same: so these are for who tells of a thing
	// with what the item said. After an error any of them may not be there.
	RecordAll(ctx context.Context, es []Event) error
	// List pages through a batch's events, oldest first, from the one behind the
	// id `after` ("" for the first page; it need not exist), at most limit
	// (1-1,000); more reports whether another page exists. Eventually consistent.
	// An unknown batch has none.
	List(ctx context.Context, tenant, batch, after string, limit int) (page []Event, more bool, err error)
}

// MaxEvents is the most events that one page has.
const MaxEvents = 1000
