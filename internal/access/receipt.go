package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"holdfast/internal/openai"
)

// Receipt is the record of one call that the gateway made of an upstream: who made
// it, for whom, and how it went. It never holds a body, a secret or a header, only
// hashes. What a receipt of the batch path (batch.Receipt) says too has the same
// name in JSON and the same meaning.
//
// It is stored before the call, without a Completion: no receipt, no call. One that
// stays without says that the call may have been made, and that whoever made it died
// or couldn't write any more: see Fate.
type Receipt struct {
	ReceiptName
	Line        *int64 `json:"line,omitempty"` // batch-wide index, from 0; nil: for none in particular
	OnBehalfOf  string `json:"on_behalf_of"`   // the principal that it counts for; of a replay, the batch's submitter
	Key         string `json:"key"`            // ID of the key that was shown
	Endpoint    string `json:"endpoint"`       // "/v1/…"
	Model       string `json:"model,omitempty"`
	RequestHash string `json:"request_sha256"` // of the body as it was sent, which is as it came

	*Completion // nil: none yet
}

// ReceiptName is what a receipt is found by.
type ReceiptName struct {
	Tenant    string    `json:"tenant"`
	Batch     string    `json:"batch_id,omitempty"` // "": a call for no batch
	StartedAt time.Time `json:"started_at"`         // when the call was allowed; whole milliseconds, UTC
	RequestID string    `json:"request_id"`         // the gateway's x-request-id
}

// Completion is how a call ended.
type Completion struct {
	Time       time.Time     `json:"time"` // when; whole milliseconds, UTC
	Outcome    Outcome       `json:"outcome"`
	Status     int           `json:"status"` // the upstream's HTTP status; 0: no reply
	Usage      *openai.Usage `json:"usage,omitempty"`
	ReplyHash  string        `json:"reply_sha256,omitempty"` // of the body as far as it came; absent without a reply
	ReplyBytes int64         `json:"reply_bytes"`
	Millis     int64         `json:"duration_ms"` // since StartedAt
}

// Outcome is what became of a call.
type Outcome string

// The outcomes. Of all but Replied what the client got is not the upstream's whole
// reply.
const (
	Replied     Outcome = "replied"              // the reply was whole, whatever its status, and was passed on
	ClientGone  Outcome = "client_gone"          // the client left before
	Torn        Outcome = "torn"                 // the reply broke off
	TimedOut    Outcome = "request_timeout"      // the time for it was over
	TooLarge    Outcome = "response_too_large"   // it was cut at the bound for replies
	Unreachable Outcome = "upstream_unreachable" // no reply
	Unserved    Outcome = "model_not_found"      // no upstream serves the model; nothing was sent
	NoSecret    Outcome = "no_credential"        // the upstream's secret can't be read; nothing was sent
	Withdrawn   Outcome = "withdrawn"            // the batch ended in the moment before; nothing was sent
	Denied      Outcome = "upstream_denied"      // the upstream took our credential for no good, or quoted it, or redirected; its reply was kept from the client, or cut
)

// What Fate says of a call whose end no receipt tells. They are never stored.
const (
	Pending Outcome = "pending" // it may be under way
	Lost    Outcome = "lost"    // whoever made it died, or couldn't write any more: it may have been made
)

// LostAfter is how long a call may be under way: as long as a function may.
const LostAfter = 15 * time.Minute

// Fate is what became of the call, as far as is known at now.
func (r Receipt) Fate(now time.Time) Outcome {
	switch {
	case r.Completion != nil:
		return r.Outcome
	case now.Sub(r.StartedAt) > LostAfter:
		return Lost
	}
	return Pending
}

// ToldReceipt is a receipt as the API tells of it: with its ID, and an outcome always,
// for the one that was never completed says most.
type ToldReceipt struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"` // "gateway.receipt"
	Outcome Outcome `json:"outcome"`
	Receipt
}

// Tell is the receipt for the API, as of now.
func (r Receipt) Tell(now time.Time) ToldReceipt {
	return ToldReceipt{ID: r.ReceiptName.ID(), Object: "gateway.receipt", Outcome: r.Fate(now), Receipt: r}
}

// ObjectID is the cursor in a list of them.
func (r ToldReceipt) ObjectID() string { return r.ID }

// ReceiptLife is how long a receipt is kept.
const ReceiptLife = 365 * 24 * time.Hour

// Shelf is where the receipt lies among its tenant's: those of one batch are
// together, and so are those of one day (UTC) that are for no batch.
func (n ReceiptName) Shelf() string {
	if n.Batch != "" {
		return n.Batch
	}
	return DayShelf(n.StartedAt)
}

// DayShelf is the shelf of calls for no batch on the day of t.
func DayShelf(t time.Time) string { return "-" + t.UTC().Format(time.DateOnly) }

// ID orders a shelf by time. It is unique there, and the cursor of its list.
func (n ReceiptName) ID() string {
	return fmt.Sprintf("%013d#%s", n.StartedAt.UnixMilli(), n.RequestID)
}

var receiptIDPattern = regexp.MustCompile(`^[0-9]{13}#[!-~]{1,128}$`)

// ValidReceiptID reports whether s could be the ID of a receipt.
func ValidReceiptID(s string) bool { return receiptIDPattern.MatchString(s) }

// MaxReceipts is the most receipts that List returns at once.
const MaxReceipts = 1000

// ErrReceipt: what is stored under a receipt's name is not what this write leaves.
// Anything else that Receipts answers beside success is trouble of the moment.
var ErrReceipt = errors.New("receipt is another, or complete already, or missing")

// Receipts keeps what the gateway called. Nothing is changed once it is complete, and
// nothing is deleted before its time. A call may be repeated after an error that
// isn't ErrReceipt. Its suite is in storetest.
type Receipts interface {
	// Intend stores r, which has no Completion. ErrReceipt where one is stored under
	// its name, except that an equal one, complete or not, counts as success: it is
	// this write, whose answer was lost.
	Intend(ctx context.Context, r Receipt) error
	// Complete says how the call of that name ended, once. ErrReceipt where there is
	// none, or it has ended otherwise; an equal Completion counts as success.
	Complete(ctx context.Context, n ReceiptName, c Completion) error
	// List returns up to limit (1 to MaxReceipts) receipts of a shelf, the oldest
	// first, those behind the ID after ("": from the first), and whether there are
	// more. It is strongly consistent.
	List(ctx context.Context, tenant, shelf, after string, limit int) (page []Receipt, more bool, err error)
}
