package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// The statuses of a batch, in the order of its life.
const (
	StatusValidating = "validating"
	StatusInProgress = "in_progress"
	StatusFinalizing = "finalizing"
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
	StatusExpired    = "expired"
	StatusCancelling = "cancelling"
	StatusCancelled  = "cancelled"
)

// The purposes of a file: input files are uploaded with [PurposeBatch], output
// and error files are made with [PurposeBatchOutput].
const (
	PurposeBatch       = "batch"
	PurposeBatchOutput = "batch_output"
)

// The statuses of a file. The field is deprecated upstream, but required.
const (
	FileUploaded  = "uploaded"
	FileProcessed = "processed"
	FileFailed    = "error"
)

// File is a file object. Bytes is its size; CreatedAt and ExpiresAt are Unix
// seconds. ExpiresAt and StatusDetails are absent when unset.
type File struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"` // always written as "file"
	Bytes         int64   `json:"bytes"`
	CreatedAt     int64   `json:"created_at"`
	ExpiresAt     *int64  `json:"expires_at,omitempty"`
	Filename      string  `json:"filename"`
	Purpose       string  `json:"purpose"`
	Status        string  `json:"status"`
	StatusDetails *string `json:"status_details,omitempty"`
}

// ObjectID is the file's id, which is also its cursor.
func (f File) ObjectID() string { return f.ID }

// MarshalJSON writes the file with its fixed object name.
func (f File) MarshalJSON() ([]byte, error) {
	type plain File
	f.Object = "file"
	return json.Marshal(plain(f))
}

// DeletedFile answers DELETE /files/{id}.
type DeletedFile struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // always written as "file"
	Deleted bool   `json:"deleted"`
}

// MarshalJSON writes the answer with its fixed object name.
func (d DeletedFile) MarshalJSON() ([]byte, error) {
	type plain DeletedFile
	d.Object = "file"
	return json.Marshal(plain(d))
}

// Batch is a batch object. Every *At is Unix seconds; what is nil is written as
// null, never as "" or 0. RequestCounts is always there.
type Batch struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"` // always written as "batch"
	Endpoint         string            `json:"endpoint"`
	Model            *string           `json:"model"`
	Errors           *BatchErrors      `json:"errors"`
	InputFileID      string            `json:"input_file_id"`
	CompletionWindow string            `json:"completion_window"`
	Status           string            `json:"status"`
	OutputFileID     *string           `json:"output_file_id"`
	ErrorFileID      *string           `json:"error_file_id"`
	CreatedAt        int64             `json:"created_at"`
	InProgressAt     *int64            `json:"in_progress_at"`
	ExpiresAt        *int64            `json:"expires_at"`
	FinalizingAt     *int64            `json:"finalizing_at"`
	CompletedAt      *int64            `json:"completed_at"`
	FailedAt         *int64            `json:"failed_at"`
	ExpiredAt        *int64            `json:"expired_at"`
	CancellingAt     *int64            `json:"cancelling_at"`
	CancelledAt      *int64            `json:"cancelled_at"`
	RequestCounts    RequestCounts     `json:"request_counts"`
	Usage            *Usage            `json:"usage"`
	Metadata         map[string]string `json:"metadata"`

	// Ours, beside the contract's: what befell the batch's parts. A worker that
	// went without a word costs nobody a line.
	LeaseExpired int64 `json:"lease_expired_events"` // parts whose worker did
	Steals       int64 `json:"steals"`               // of those, taken over by another worker itself
	Repeats      int64 `json:"repeats"`              // lines that may have been sent again for it: an estimate
	DeadParts    int64 `json:"dead_parts"`           // parts that were given up, until they are redriven
}

// ObjectID is the batch's id, which is also its cursor.
func (b Batch) ObjectID() string { return b.ID }

// MarshalJSON writes the batch with its fixed object name.
func (b Batch) MarshalJSON() ([]byte, error) {
	type plain Batch
	b.Object = "batch"
	return json.Marshal(plain(b))
}

// RequestCounts counts a batch's requests: Completed are the lines of its output
// file, Failed those of its error file.
type RequestCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// Usage sums the tokens of a batch or of one reply.
type Usage struct {
	InputTokens         int64               `json:"input_tokens"`
	InputTokensDetails  InputTokensDetails  `json:"input_tokens_details"`
	OutputTokens        int64               `json:"output_tokens"`
	OutputTokensDetails OutputTokensDetails `json:"output_tokens_details"`
	TotalTokens         int64               `json:"total_tokens"`
}

// InputTokensDetails says how many input tokens came from a cache.
type InputTokensDetails struct {
	CachedTokens int64 `json:"cached_tokens"`
}

// OutputTokensDetails says how many output tokens were spent on reasoning.
type OutputTokensDetails struct {
	ReasoningTokens int64 `json:"reasoning_tokens"`
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.InputTokensDetails.CachedTokens += v.InputTokensDetails.CachedTokens
	u.OutputTokens += v.OutputTokens
	u.OutputTokensDetails.ReasoningTokens += v.OutputTokensDetails.ReasoningTokens
	u.TotalTokens += v.TotalTokens
	return u
}

// BatchErrors lists why a batch's input was refused.
type BatchErrors struct {
	Object string       `json:"object"` // always written as "list"
	Data   []BatchError `json:"data"`
}

// MarshalJSON writes the list with its fixed object name and never a null for
// its data.
func (e BatchErrors) MarshalJSON() ([]byte, error) {
	type plain BatchErrors
	e.Object = "list"
	if e.Data == nil {
		e.Data = []BatchError{}
	}
	return json.Marshal(plain(e))
}

// BatchError is one fault of an input file. Line is the 1-based physical line.
type BatchError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int    `json:"line"`
}

// Identified is an object that can be listed; its id is its cursor.
type Identified interface{ ObjectID() string }

// List is one page of objects. FirstID and LastID are null when it is empty.
type List[T Identified] struct {
	Object  string  `json:"object"` // always written as "list"
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// NewList makes the page that holds data. An empty page never has more: official
// clients stop at one, and would lose what follows.
func NewList[T Identified](data []T, hasMore bool) List[T] {
	l := List[T]{Object: "list", Data: data}
	if len(data) > 0 {
		first, last := data[0].ObjectID(), data[len(data)-1].ObjectID()
		l.FirstID, l.LastID, l.HasMore = &first, &last, hasMore
	}
	return l
}

// MarshalJSON writes the page with its fixed object name and never a null for
// its data.
func (l List[T]) MarshalJSON() ([]byte, error) {
	type plain List[T]
	l.Object = "list"
	if l.Data == nil {
		l.Data = []T{}
	}
	return json.Marshal(plain(l))
}

// WriteJSON answers with v as JSON. What can't be marshalled is answered as a
// 500 and returned, to be logged; any other error is the client's connection.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		WriteError(w, Internal(err))
		return err
	}
	return writeBody(w, status, body)
}

func writeBody(w http.ResponseWriter, status int, body []byte) error {
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}
