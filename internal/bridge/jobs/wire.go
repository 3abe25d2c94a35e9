package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// formatVersion is the "v" of a post. Whoever reads one leaves alone what it
// doesn't know; what can't be left alone gets a higher version.
const formatVersion = 1

// post is the body of POST /v1/jobs. docs/jobs.md says what each member means.
type post struct {
	V                int               `json:"v"`
	ID               string            `json:"id"`
	Tenant           string            `json:"tenant"`
	Principal        string            `json:"principal"`
	RequestID        string            `json:"request_id"`
	RequestHash      string            `json:"request_hash"`
	Input            input             `json:"input"`
	Endpoint         string            `json:"endpoint"`
	CompletionWindow string            `json:"completion_window"`
	Metadata         map[string]string `json:"metadata"`
	OutputExpires    *expires          `json:"output_expires_after,omitzero"`
}

// input says where the bytes are. The version pins them, the ETag where there is none.
type input struct {
	FileID  string `json:"file_id"`
	Bucket  string `json:"bucket"`
	Key     string `json:"key"`
	Version string `json:"version,omitzero"`
	ETag    string `json:"etag"`
	Bytes   int64  `json:"bytes"`
}

type expires struct {
	Anchor  string `json:"anchor"`
	Seconds int64  `json:"seconds"`
}

// compose writes the body that asks for r's job: the same bytes whoever asks, but
// for request_id. An *openai.Error where what r names is not there to be read.
func (s *Submitter) compose(ctx context.Context, id string, r bridge.Request, now time.Time) ([]byte, error) {
	in, err := s.input(ctx, r, now)
	if err != nil {
		return nil, err
	}
	p := post{
		V: formatVersion, ID: id, Tenant: r.Tenant, Principal: r.Submitter, RequestID: r.RequestID, RequestHash: r.Hash(),
		Input: in, Endpoint: r.Endpoint, CompletionWindow: r.Window, Metadata: maps.Clone(r.Metadata),
	}
	if r.OutputExpiry > 0 {
		p.OutputExpires = &expires{"created_at", int64(r.OutputExpiry / time.Second)}
	}
	body, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		// Its text would quote the request.
		return nil, fmt.Errorf("%s can't be written as JSON", id)
	}
	return body, nil
}

// input finds the object that r is about: r's own, or that of the file it names.
func (s *Submitter) input(ctx context.Context, r bridge.Request, now time.Time) (input, error) {
	if o := r.Object; o != nil {
		return input{r.FileID, o.Bucket, o.Key, o.Version, o.ETag, o.Bytes}, nil
	}
	f, err := s.files.Get(ctx, r.Tenant, r.FileID)
	switch {
	case errors.Is(err, batch.ErrNotFound), err == nil && f.Expired(now):
		return input{}, openai.InputFileNotFound(r.FileID)
	case err != nil:
		return input{}, fmt.Errorf("read the input's record: %w", err)
	case f.Purpose != openai.PurposeBatch:
		return input{}, openai.InvalidInputPurpose(r.FileID, f.Purpose)
	}
	o := f.Object
	return input{f.ID, o.Bucket, o.Key, o.Version, o.ETag, o.Bytes}, nil
}

// The statuses that mean something here. Any other is a job that was started, how
// ever it fared since.
const (
	statusPending = "pending"
	statusRefused = "refused"
)

// Job is a job as the service tells of it.
type Job struct {
	ID             string    // the service's own; printable ASCII, at most 512 bytes
	IdempotencyKey string    // ours; "" where the service doesn't say
	RequestHash    string    // as posted; "" where the service doesn't say
	Status         string    // "pending", "refused", or how a started job fares; at most 64 bytes; "" where the service doesn't say
	Refusal        *JobError // why, of a refused one; never nil then
}

// parse reads a job from an answer with this HTTP status. ErrAnswer.
func parse(body []byte, status int, secret string) (Job, error) {
	var w struct {
		ID             string         `json:"id"`
		IdempotencyKey string         `json:"idempotency_key"`
		RequestHash    string         `json:"request_hash"`
		Status         string         `json:"status"`
		Error          jsontext.Value `json:"error"`
	}
	switch err := json.Unmarshal(body, &w); {
	case err != nil:
		return Job{}, fmt.Errorf("%w: its answer %d is not a job in JSON", ErrAnswer, status)
	case w.ID != "" && !fit(w.ID):
		return Job{}, fmt.Errorf("%w: the job's id is not printable ASCII of at most 512 bytes", ErrAnswer)
	case code(w.Status) != w.Status:
		return Job{}, fmt.Errorf("%w: the job's status is not one word", ErrAnswer)
	}
	j := Job{ID: w.ID, IdempotencyKey: w.IdempotencyKey, RequestHash: w.RequestHash, Status: w.Status}
	if j.Status == statusRefused {
		j.Refusal = &JobError{Status: status}
		j.Refusal.Code, j.Refusal.Message = explain(w.Error, secret)
	}
	return j, nil
}

// refusal reads what an answer that isn't a job says: {"error": {"code",
// "message"}}, or {"error": "message"}. Whatever else it is says nothing.
func refusal(body []byte, status int, secret string) *JobError {
	var w struct {
		Error jsontext.Value `json:"error"`
	}
	e := &JobError{Status: status}
	if json.Unmarshal(body, &w) == nil {
		e.Code, e.Message = explain(w.Error, secret)
	}
	return e
}

func explain(v jsontext.Value, secret string) (string, string) {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return "", clean(text, secret)
	}
	var w struct {
		Code    any    `json:"code"` // some services have numbers, which say nothing more than the status
		Message string `json:"message"`
	}
	if json.Unmarshal(v, &w) != nil {
		return "", ""
	}
	c, _ := w.Code.(string)
	return code(clean(c, secret)), clean(w.Message, secret)
}
