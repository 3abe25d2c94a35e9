package batch

import (
	"context"
	"io"
	"iter"
	"time"

	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// The ports. Rules for all of them: `now` is the caller's one reading of the
// clock for the operation; times are stored in whole milliseconds; a call may
// be repeated after an error that is not one of errors.go's, and a repeated
// write recognises its own earlier effect where its comment says so; adapters
// retry throttling and torn connections themselves (a few times, bounded by
// ctx), callers decide about the rest. Each has a suite in storetest that runs
// on memory and on the real adapter.

// Batches keeps batches (META items). Reads by id are strongly consistent.
type Batches interface {
	// Create inserts b (C15 create), with status Validating. ErrExists when the
	// id is taken for the tenant; a batch that is stored just as this call would store
	// b counts as success: it is this write, whose answer was lost.
	Create(ctx context.Context, b Batch) error
	// Get reads one batch. ErrNotFound.
	Get(ctx context.Context, tenant, id string) (Batch, error)
	// List pages through a tenant's batches, newest first (created_at, then id,
	// descending), from the one after `after` ("" for the first page), at most
	// limit (1-100); more reports whether another page exists. Eventually
	// consistent. ErrNotFound when after names no batch of the tenant.
	List(ctx context.Context, tenant, after string, limit int) (page []Batch, more bool, err error)
	// Reading gives the id of a batch that reads the input file and is not
	// terminal, among those created at or after since; "" when there is none.
	// Eventually consistent: a batch of the last second may be missed.
	Reading(ctx context.Context, tenant, fileID string, since time.Time) (id string, err error)
	// Start moves validating to in_progress (C15) and records what planning
	// found. ErrStatus when it left validating already; if the stored batch then
	// is in_progress with equal numbers, it was this write (or its twin), and
	// Start succeeds.
	Start(ctx context.Context, tenant, id string, s Started, now time.Time) (Batch, error)
	// Refuse moves validating to failed (C15) with the reasons. ErrStatus
	// otherwise, except that a batch already failed counts as success.
	Refuse(ctx context.Context, tenant, id string, why []openai.BatchError, now time.Time) (Batch, error)
	// Overrun counts one planning more that its time was too short for (C15: status
	// = validating). It is not idempotent: call it once. ErrStatus when the batch
	// left validating already.
	Overrun(ctx context.Context, tenant, id string, now time.Time) (Batch, error)
}

// Started is what planning found.
type Started struct {
	Parts int
	Lines int64
	Model string
}

// Endings is the last stretch of a batch. ErrNotFound where there is no such
// batch, for all of them.
type Endings interface {
	// End decides how the batch ends (C15): from {validating, in_progress}
	// without an ending to Cancelled or Expired, from in_progress without an
	// ending to Completed (the caller has seen every part over). An equal ending
	// stored already counts as success; ErrStatus otherwise.
	End(ctx context.Context, tenant, id string, ending Status, now time.Time) (Batch, error)
	// Finalize takes the right to assemble (C15): an in_progress batch with an
	// ending becomes finalizing, held by tok until `until`. A finalizing one
	// whose holder lapsed (finalizer_until < cut, and ver unchanged since read)
	// is robbed. A finalizing batch already held by tok is the caller's own.
	// *HeldError while another holds it; ErrStatus when terminal or no ending.
	Finalize(ctx context.Context, tenant, id string, tok lease.Token, until, cut, now time.Time) (Batch, error)
	// Hold prolongs the right (status=finalizing AND finalizer=tok). ErrLost.
	Hold(ctx context.Context, tenant, id string, tok lease.Token, until, now time.Time) error
	// Advance records how far the results are assembled, and prolongs the right
	// (status=finalizing AND finalizer=tok AND the stored Progress.Step is one below
	// p.Step, 0 where nothing is stored). A batch that tok finalizes and that is at
	// p.Step already counts as success: its answer was lost. ErrLost otherwise.
	Advance(ctx context.Context, tenant, id string, tok lease.Token, p Progress, until, now time.Time) error
	// Close makes the ending the status (C16: status=finalizing AND
	// finalizer=tok), with counts, usage and file ids in the same write.
	// ErrLost when tok is not the finalizer, except that a terminal batch whose
	// finalizer is tok counts as success (its answer was lost).
	Close(ctx context.Context, tenant, id string, tok lease.Token, c Closed, now time.Time) (Batch, error)
}

// Closed is what Close freezes.
type Closed struct {
	Counts       Counts
	Usage        openai.Usage
	Troubles     Troubles
	OutputFileID string
	ErrorFileID  string
}

// Parts keeps the parts of batches.
type Parts interface {
	// Insert adds pending parts (C17: each only where it is absent; one that
	// exists is left as it is). Not atomic as a whole: repeat after an error.
	Insert(ctx context.Context, parts []Part) error
	// Get reads one part, strongly consistent. ErrNotFound.
	Get(ctx context.Context, key PartKey) (Part, error)
	// All yields a batch's parts by number, strongly consistent page by page.
	// It yields nothing for an unknown batch and stops after an error.
	All(ctx context.Context, tenant, batch string) iter.Seq2[Part, error]
}

// Claim is one worker's hold of a part: which, and under which token.
type Claim struct {
	PartKey
	Token lease.Token
}

// Claims is everything a worker writes about a part. Every write but the
// first names the claim's token, so a replaced worker can write nothing:
// lease.ErrLost. ErrNotFound where there is no such part, for all of them.
type Claims interface {
	// Claim takes a pending part (C5) for c.Token: leased until `until` (also
	// its due time), attempts+1, ver+1, the message's task token kept. The
	// answer is the part as it now is: the attempts before are Attempts-1, the
	// suspect is the one that was found, which is dealt with first. A part that
	// c.Token holds already is the caller's own lost write. Otherwise *HeldError,
	// ErrOver, ErrDead or ErrExhausted (attempts >= maxAttempts and no suspect).
	Claim(ctx context.Context, c Claim, taskToken string, maxAttempts int, until, now time.Time) (Part, error)
	// Heartbeat prolongs the lease (C7); due stays. begun is how many lines are sent
	// and not committed. ErrLost.
	Heartbeat(ctx context.Context, c Claim, begun int, until, now time.Time) error
	// Suspect makes s the part's suspect, or leaves it none if s is none (C7s: C7 and
	// processed_lines=processed). Before a line is sent alone: that it will be, this
	// being the s.Strikes-th claim to do so in a row, with s.By its own token, by which
	// HandOver and Fail know the strike. When that line is in flight no more, and has
	// no result: what was there before. The lease is prolonged, due stays; one line
	// counts as begun. A late first write of a repeated one is refused once the line is
	// checkpointed. ErrLost.
	Suspect(ctx context.Context, c Claim, s Suspect, processed int, until, now time.Time) error
	// Checkpoint makes a chunk count (C8: C7 and processed_lines=k.From):
	// processed_lines, done_lines, the chunk appended, attempts=0, no suspect any
	// more, lease and due to `until`. If the token owns the part and processed_lines is already
	// k.To, it was this write: success. ErrLost otherwise. One with k.Last makes the
	// part done with it, as Finish does. After an error of
	// unknown fate repeat the identical checkpoint only, never a larger one.
	Checkpoint(ctx context.Context, c Claim, k Checkpoint, until, now time.Time) error
	// Finish marks a part done (C9: C7 and processed_lines=lines) that a checkpoint
	// didn't, such as one that was found with nothing left to do; owner stays, due
	// goes. A part already done by the token is success. ErrLost.
	Finish(ctx context.Context, c Claim, lines int, now time.Time) error
	// HandOver gives the part back (C10): pending, owner gone, attempts as
	// given, due as given (when its message is overdue). A strike that this claim
	// wrote is taken back; those of others stay. ErrLost.
	HandOver(ctx context.Context, c Claim, attempts int, due, now time.Time) error
	// Fail gives the part back after a failure of the worker's own (C10f):
	// pending, owner gone, attempts kept, reason (no body, at most 1,000 bytes)
	// and due recorded, this claim's strike taken back. ErrLost.
	Fail(ctx context.Context, c Claim, reason string, due, now time.Time) error
}

// Seals closes parts for good, whoever holds them: what ends a batch early.
type Seals interface {
	// Seal makes an open part (pending, leased or dead) sealed (C13), if its
	// version is still ver: owner and due gone, ver+1. Its holder can write
	// nothing from then on; what it checkpointed before counts. The answer is the
	// part as it now is. A part that is over already is left as it is, and is
	// success: nobody writes to it either. ErrStale when the part was written
	// since (its holder was faster; read it again); ErrNotFound.
	Seal(ctx context.Context, key PartKey, ver int64, now time.Time) (Part, error)
}

// Checkpoint is one step of a part's progress.
type Checkpoint struct {
	From, To int    // processed lines before and after; To-From = Chunk.N > 0
	Done     Bitmap // all lines done once it counts, To bits set
	Chunk    Chunk
	Begun    int // lines sent that are not in it nor in an earlier one
	// Last says that To is all the part's lines: the same write makes it done (C9).
	// It saves a write of an item that is at its largest then.
	Last bool
}

// Files keeps file records. Reads are strongly consistent.
type Files interface {
	// Put inserts f. ErrExists when the id is taken for the tenant; a record
	// equal to f counts as success, so that a derived id can be written again.
	Put(ctx context.Context, f File) error
	// Get reads one. ErrNotFound; ErrDeleted, which is one, when it was deleted.
	// Expiry is the caller's to judge.
	Get(ctx context.Context, tenant, id string) (File, error)
	// List pages through a tenant's files by created_at, then id: those that q
	// selects, from the one behind q.After, at most q.Limit (1-10,000); more
	// reports whether another page exists. Files that expired by now are left
	// out. Eventually consistent. ErrNotFound when q.After names no file of the
	// tenant; one that expired, was deleted or isn't selected is still a cursor,
	// so that a client may delete what it lists.
	List(ctx context.Context, tenant string, q FileQuery, now time.Time) (page []File, more bool, err error)
	// Delete makes the record as good as gone. What stays is its id, for a week:
	// it can't be taken again, and Get and Delete say ErrDeleted. ErrNotFound
	// when there never was one. A lost answer isn't recognised: ErrDeleted then.
	Delete(ctx context.Context, tenant, id string, now time.Time) error
}

// FileQuery selects files and says in which order and from where.
type FileQuery struct {
	Purpose   string // "": any
	After     string // id of the last file already seen, "" for the first page
	Limit     int
	Ascending bool // oldest first; else newest first
}

// Objects reads and writes objects. A written object is readable at once.
type Objects interface {
	// Open streams bytes [from, to) of o, pinned by its ETag. ErrNotFound;
	// ErrChanged when the object is another now or the store ignored the range.
	// A stream that ends early gives io.ErrUnexpectedEOF, never io.EOF.
	Open(ctx context.Context, o Object, from, to int64) (io.ReadCloser, error)
	// Put writes data under o's bucket and key and returns the object with its
	// version, ETag and size. An existing one is replaced.
	Put(ctx context.Context, o Object, data []byte) (Object, error)
	// Delete removes keys of one bucket; absent ones are no error. At most 1,000
	// keys a call.
	Delete(ctx context.Context, bucket string, keys []string) error
}

// Uploads writes large objects piece by piece. Nothing is visible before
// Complete.
type Uploads interface {
	// Begin opens an upload under o's bucket and key.
	Begin(ctx context.Context, o Object) (id string, err error)
	// PutPiece stores piece n (1-10,000; all but the last at least 5 MiB).
	PutPiece(ctx context.Context, o Object, id string, n int, data []byte) (Piece, error)
	// Complete joins the pieces in order and returns the object. ErrNotFound
	// when the upload is gone (completed or aborted by somebody).
	Complete(ctx context.Context, o Object, id string, pieces []Piece) (Object, error)
	// Abort drops the upload and its pieces; a gone one is no error.
	Abort(ctx context.Context, o Object, id string) error
	// Pieces gives the pieces stored so far, by number. ErrNotFound when the upload
	// is gone.
	Pieces(ctx context.Context, o Object, id string) ([]StoredPiece, error)
	// Stat names the object under o's bucket and key as it is now, with version,
	// ETag and size: whether a completion of unknown fate took effect. ErrNotFound.
	Stat(ctx context.Context, o Object) (Object, error)
}

// Piece is a stored piece of an upload.
type Piece struct {
	N    int
	ETag string
}

// StoredPiece is a piece as the store holds it.
type StoredPiece struct {
	Piece
	Bytes    int64
	StoredAt time.Time
}

// Message asks a worker to run a part. It is a hint: any number of copies may
// exist, at any time.
type Message struct {
	V         int    `json:"v"`
	Tenant    string `json:"tenant"`
	Batch     string `json:"batch"`
	Part      int    `json:"part"`
	TaskToken string `json:"task_token"`
}

// Key is the part that the message is about.
func (m Message) Key() PartKey { return PartKey{m.Tenant, m.Batch, m.Part} }

// Delivery is one receipt of a message. Until it is hidden anew or deleted it
// becomes visible again when its visibility ends.
type Delivery struct {
	Message
	Receipt  string // of this receipt only: an older one does nothing
	Receives int    // how often the message was received, at least 1
}

// Queue carries messages.
type Queue interface {
	// Receive takes one message without waiting. ErrEmpty.
	Receive(ctx context.Context) (Delivery, error)
	// Hide makes the delivery visible again d from now (0: at once; at most
	// 12 h). ErrNotFound when the receipt is no longer valid.
	Hide(ctx context.Context, d Delivery, wait time.Duration) error
	// Delete removes it for good. A receipt no longer valid is no error.
	Delete(ctx context.Context, d Delivery) error
	// Send adds a message, visible after delay (0-15 min).
	Send(ctx context.Context, m Message, delay time.Duration) error
	// SendAll adds any number of messages, visible at once, in few calls. An error
	// says that one of them at least may not have been added; the others were.
	SendAll(ctx context.Context, ms []Message) error
}

// Workflow is told, and tells others, that there is something to do.
type Workflow interface {
	// Start starts the batch's execution under the name given. One of that name
	// that exists already with the same input is success while it runs and once it
	// has succeeded; one that ended otherwise is ErrEnded.
	Start(ctx context.Context, name, tenant, batch string) error
	// Stop ends the execution of that name. One that is over, or never was, is no
	// error. What the execution has begun (functions, messages) goes on.
	Stop(ctx context.Context, name string) error
	// Finish starts an execution under the name given that only finishes the
	// batch. One of that name that exists already is as with Start.
	Finish(ctx context.Context, name, tenant, batch string) error
	// Seen looks what became of the execution of that name.
	Seen(ctx context.Context, name string) (Execution, error)
	// Report tells the workflow that a part is over. A token it no longer knows
	// is no error: the table says done.
	Report(ctx context.Context, taskToken string) error
}

// Execution is what is known of an execution.
type Execution string

// What an execution may be. Fallen ones ended without success: failed, timed out
// or were stopped.
const (
	Running Execution = "running"
	Over    Execution = "over" // with success
	Fallen  Execution = "fallen"
	Never   Execution = "never" // there is none of that name
)

// Call is one request to a model, on a submitter's behalf.
type Call struct {
	Tenant, Batch, Submitter string
	Line                     int64  // batch-wide index from 0
	Endpoint                 string // "/v1/…"
	Model                    string // the body's; "" if it names none
	Body                     []byte // sent byte for byte
	Try                      int    // from 1
	// Room is to be asked before the reply's body takes up more memory: n is what
	// it will take in all. It waits until the worker has that much (promise 8) and
	// gives ctx's error when that ends first. Nil: there is room.
	Room func(ctx context.Context, n int64) error
	// Ready is asked each time the request is about to go on the wire, with nothing left
	// to wait for: reading a secret and connecting may have taken long. After an error
	// nothing is sent, and it is Call's; the request of a second attempt in the same call
	// leaves the first one's answer then. Nil: it may go.
	Ready func(ctx context.Context) error
}

// Reply is what a model answered: any HTTP status.
type Reply struct {
	Status     int
	RequestID  string        // the upstream's, "" if it gave none
	Body       []byte        // at most the configured bound
	RetryAfter time.Duration // 0 if it named none
	// Withheld is why there is no Body although there was one; nil: it is here. Never nil
	// where WithheldCode has something against the status.
	Withheld *Withheld
}

// Model answers calls. It makes one attempt a call: retrying is the Runner's.
type Model interface {
	// Call asks c.Room and c.Ready. It returns ErrTimeout, ErrUnreachable or ErrReplyTooLarge (wrapped) when
	// there is no whole reply; ctx's own error when ctx ended first;
	// ErrModelNotFound or ErrNoCredential when it could not even ask.
	Call(ctx context.Context, c Call) (Reply, error)
}
