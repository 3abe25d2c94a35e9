package batch

import (
	"time"

	"holdfast/internal/lease"
)

// State is what a part is doing. Done and Sealed are final; Dead waits for a
// redrive or its grace.
type State string

// The states of a part.
const (
	Pending State = "pending"
	Leased  State = "leased"
	Done    State = "done"
	Dead    State = "dead"
	Sealed  State = "sealed"
)

// PartKey names a part. N counts from 0 in input order.
type PartKey struct {
	Tenant, Batch string
	N             int
}

// Part is a run of consecutive lines of a batch's input that one worker holds
// at a time.
type Part struct {
	PartKey
	State      State
	Owner      lease.Token // of the claim that holds it, or that finished it; "" while pending
	Ver        int64       // one higher at every write
	LeaseUntil time.Time
	Due        time.Time // when the reaper should look at it; zero: never

	Attempts int // claims since the last progress; a claim adds one, a checkpoint sets zero
	Lapses   int // leases that ended without their owner's word
	Steals   int

	// Begun is how many lines the holder had sent and not committed when it last
	// prolonged its lease or checkpointed. A lapse adds it to Repeats, the lines
	// that may have been sent again for it: an estimate, as old as that word.
	Begun   int
	Repeats int

	Suspect Suspect   // the line that was alone in flight when its worker died; none, if zero
	Resends int       // how often its message was sent again since it was last claimed
	DeadAt  time.Time // when it was declared dead; zero unless it is, or was when it was sealed

	// FirstLine is the batch-wide index (from 0, counting requests, not blanks)
	// of the part's first line; Lines is how many it has. [From, To) are its
	// bytes in the input; FirstPhysical is the 1-based physical number of the
	// line at From, for messages only.
	FirstLine     int64
	FirstPhysical int64
	Lines         int
	From, To      int64

	// Processed is how many bits of DoneLines are set. Bit i stands for line
	// FirstLine+i. Both change only in a checkpoint, together with Chunks.
	Processed int
	DoneLines Bitmap
	Chunks    []Chunk

	TaskToken string // the workflow's, of the claim's message
	LastError string // of the last claim that gave up; never a body
	CreatedAt time.Time
}

// Suspect is a line of a part that was alone in flight in its worker: should
// that worker die, the line may be to blame. A checkpoint clears it.
type Suspect struct {
	Line    int         // its bit in DoneLines
	Strikes int         // how many claims sent it alone and didn't come back; 0: there is no suspect
	By      lease.Token // the claim that wrote the last strike; "" once that was taken back
}

// None reports whether there is no suspect.
func (s Suspect) None() bool { return s.Strikes == 0 }

// TakenBack is s as it was before its last strike, which its claim takes back
// when it comes to another end than death.
func (s Suspect) TakenBack() Suspect {
	if s.Strikes <= 1 {
		return Suspect{}
	}
	return Suspect{Line: s.Line, Strikes: s.Strikes - 1}
}

// Chunk is one object of results that a checkpoint made count. Its records are
// sorted by line. An object that no chunk names does not exist for the batch.
type Chunk struct {
	Key   string
	N     int    // records: OK + Err
	OK    int    // records for the output file
	Err   int    // records for the error file
	Bytes int64  // size of the object
	Sum   string // lower-case hex SHA-256 of the object
}

// Over reports whether nobody will work on the part any more, without a
// redrive.
func (p Part) Over() bool { return p.State == Done || p.State == Sealed }

// OK and Err sum over the chunks: lines that succeeded and that failed so far.
func (p Part) OK() (n int64) {
	for _, c := range p.Chunks {
		n += int64(c.OK)
	}
	return n
}

// Err is how many of the part's lines ended in the error file so far.
func (p Part) Err() (n int64) {
	for _, c := range p.Chunks {
		n += int64(c.Err)
	}
	return n
}
