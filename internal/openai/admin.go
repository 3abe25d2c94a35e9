package openai

import (
	"io"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// Ours, beside what OpenAI has: what happened to a batch, and what its
// administrators do about its parts.

// BatchEvent is one thing that happened to a batch or to a part of it.
type BatchEvent struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // batch.event
	BatchID   string `json:"batch_id"`
	CreatedAt int64  `json:"created_at"` // seconds since 1970
	Time      string `json:"time"`       // the same to the millisecond, RFC 3339, UTC
	Kind      string `json:"kind"`
	Part      *int   `json:"part"` // null: the batch as a whole
	Owner     string `json:"owner,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// ObjectID is the cursor of a list.
func (e BatchEvent) ObjectID() string { return e.ID }

// BatchPart is a part as an administrator sees it. It holds nothing that lets
// anybody write to the part.
type BatchPart struct {
	ID        string `json:"id"`     // a cursor of the list of dead parts; batch_id and part name the part
	Object    string `json:"object"` // batch.part
	BatchID   string `json:"batch_id"`
	Part      int    `json:"part"`
	State     string `json:"state"`
	FirstLine int64  `json:"first_line"` // of the batch, counted from 0
	Lines     int    `json:"lines"`
	Processed int    `json:"processed"` // of its lines, have a result
	Attempts  int    `json:"attempts"`  // since the last progress
	Lapses    int    `json:"lapses"`
	Steals    int    `json:"steals"`
	DeadAt    *int64 `json:"dead_at"`  // null unless it is dead, or was when it was sealed
	SealsAt   *int64 `json:"seals_at"` // when its grace is over; null unless it is dead
	LastError string `json:"last_error,omitempty"`
}

// ObjectID is the cursor of a list.
func (p BatchPart) ObjectID() string { return p.ID }

// Redrive is the request of POST /admin/redrive.
type Redrive struct {
	BatchID string
	Part    int
}

// ParseRedrive reads and checks the body of POST /admin/redrive. Every error is an
// [*Error] that names the parameter at fault.
func ParseRedrive(r io.Reader) (Redrive, error) {
	var raw struct {
		BatchID jsontext.Value `json:"batch_id"`
		Part    jsontext.Value `json:"part"`
	}
	if err := readUploadJSON(r, &raw); err != nil {
		return Redrive{}, err
	}
	id, err := requiredText("batch_id", raw.BatchID)
	if err != nil {
		return Redrive{}, err
	}
	if absent(raw.Part) {
		return Redrive{}, MissingParameter("part")
	}
	n, ok := wholeNumber(raw.Part)
	if !ok {
		return Redrive{}, InvalidType("part", "a whole number from 0")
	}
	return Redrive{BatchID: id, Part: n}, nil
}

// wholeNumber reads a JSON number that is a part's.
func wholeNumber(v jsontext.Value) (int, bool) {
	const most = 9 // digits
	if len(v) == 0 || len(v) > most {
		return 0, false
	}
	n := 0
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

// PartNotFound is the 404 for a part that its batch doesn't have; part may be
// anything that was sent.
func PartNotFound(batch, part string) *Error {
	return refuse(http.StatusNotFound, "part_not_found", "part", "Batch %s has no part %s.", clip(batch), clip(part))
}

// PartNotDead is the 400 for a redrive of what isn't dead.
func PartNotDead(batch string, part int, state string) *Error {
	return Invalid("part_not_dead", "part", "Part %d of batch %s is %s: only a dead part can be redriven.", part, clip(batch), state)
}

// BatchNotRunning is the 400 for what can be done to a batch in progress only.
func BatchNotRunning(batch, status string) *Error {
	return Invalid("batch_not_running", "batch_id", "Batch %s is %s: nothing of it will be run any more.", clip(batch), status)
}
