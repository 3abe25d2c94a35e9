package batch

import (
	"time"

	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// Status is what a batch is doing, as stored. The wire's `cancelling` is not
// stored: it is an in_progress or finalizing batch whose Ending is Cancelled.
type Status string

// The statuses. Completed, Failed, Expired and Cancelled are terminal and
// immutable. As an Ending only Completed, Expired and Cancelled occur.
const (
	Validating Status = "validating"
	InProgress Status = "in_progress"
	Finalizing Status = "finalizing"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Expired    Status = "expired"
	Cancelled  Status = "cancelled"
)

// Terminal reports whether nothing about the batch changes any more.
func (s Status) Terminal() bool {
	return s == Completed || s == Failed || s == Expired || s == Cancelled
}

// Batch is one batch as the table's META item holds it.
type Batch struct {
	Tenant string
	ID     string // "batch_…", URL-safe
	Status Status
	Ending Status // "" until the end is decided; then it never changes

	Submitter string // the principal every line counts for; fixed at creation
	RequestID string // of the request that created it
	Endpoint  string // "/v1/chat/completions", …: every line's url
	Input     Input
	Window    string // completion_window as submitted, "24h"
	Metadata  map[string]string

	// OutputExpiry is how long result files live, from their own creation; zero
	// means the configured default.
	OutputExpiry time.Duration

	CreatedAt    time.Time // each is set once, at its transition, in whole milliseconds, UTC
	InProgressAt time.Time
	FinalizingAt time.Time
	EndingAt     time.Time // when Ending was decided: the wire's cancelling_at when that is Cancelled
	CompletedAt  time.Time
	FailedAt     time.Time
	ExpiredAt    time.Time
	CancelledAt  time.Time
	Deadline     time.Time // CreatedAt + window
	Due          time.Time // when the reaper should look at it; zero at creation: at the deadline; zero when over: never

	Parts int    // set by Start
	Lines int64  // accepted requests, set by Start
	Model string // the model of the first line, "" if none is named

	// Frozen by Close; while the batch runs, counts are the sum over its parts.
	Counts       Counts
	Usage        openai.Usage
	Troubles     Troubles
	OutputFileID string // "" when no line succeeded
	ErrorFileID  string // "" when no line failed

	Overruns int                 // plannings that their time was too short for
	Errors   []openai.BatchError // why validation refused it: at most 100

	Workflow       string      // name of the execution last started for it
	Finalizer      lease.Token // who assembles the results
	FinalizerUntil time.Time
	Progress       Progress // how far the results are assembled; it stays when they are
	Ver            int64    // one higher at every write
}

// Input names the bytes a batch runs on, pinned: an object overwritten or
// deleted since makes reads fail with ErrChanged instead of mixing two files.
type Input struct {
	FileID string
	Object Object
}

// Counts are lines. Total is zero until validation is over. On every terminal
// batch that got past validation Completed + Failed = Total (promise 1).
type Counts struct {
	Total, Completed, Failed int64
}

// Troubles are what befell a batch's parts on the way, summed over them. No line
// was lost for any of it.
type Troubles struct {
	Lapses  int64 // leases that ended without their holder's word
	Steals  int64 // of those, parts that a worker took over itself
	Repeats int64 // lines that may have been sent again for that (see Part.Begun)
	Dead    int64 // parts that are dead, or were when they were sealed
}

// Add counts a part's in.
func (t Troubles) Add(p Part) Troubles {
	t.Lapses += int64(p.Lapses)
	t.Steals += int64(p.Steals)
	t.Repeats += int64(p.Repeats)
	if !p.DeadAt.IsZero() {
		t.Dead++
	}
	return t
}

// Object names one stored object, and which bytes under that name.
type Object struct {
	Bucket  string
	Key     string
	Version string // "" where the bucket keeps no versions
	ETag    string // as the store gave it, quotes included
	Bytes   int64
}

// File is a file as the Files API shows it.
type File struct {
	Tenant    string
	ID        string // "file-…"
	Purpose   string // "batch" for inputs, "batch_output" for both result files
	Filename  string // data: never part of a key or header unescaped
	Object    Object
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never; after it the file is as good as gone
}
