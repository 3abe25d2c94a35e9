package dynamo

import (
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

type attributes = map[string]types.AttributeValue

// head begins every item.
type head struct {
	PK string `dynamodbav:"pk"`
	SK string `dynamodbav:"sk"`
	V  int    `dynamodbav:"v"`

	DuePK    string `dynamodbav:"due_pk,omitempty"`
	DueAt    int64  `dynamodbav:"due_at,omitempty"`
	TenantPK string `dynamodbav:"tenant_pk,omitempty"`
	TenantSK string `dynamodbav:"tenant_sk,omitempty"`
}

func newHead(k key, due time.Time) head {
	h := head{PK: k.pk, SK: k.sk, V: batch.FormatVersion}
	if !due.IsZero() {
		h.DuePK, h.DueAt = k.shard(), millis(due)
	}
	return h
}

func (h head) version() int { return h.V }

// versioned is any item's struct.
type versioned interface{ version() int }

func encode(item any) (attributes, error) {
	a, err := attributevalue.MarshalMap(item)
	if err != nil {
		return nil, fmt.Errorf("encode item: %w", err)
	}
	return a, nil
}

// decode reads an item of any version up to this program's.
func decode[T versioned](a attributes) (item T, err error) {
	// The version comes first: what a newer program wrote may not even fit.
	var h head
	if err := attributevalue.UnmarshalMap(a, &h); err != nil {
		return item, fmt.Errorf("decode item: %w", err)
	}
	if h.V < 1 || h.V > batch.FormatVersion {
		return item, &FormatError{PK: h.PK, SK: h.SK, V: h.V}
	}
	if err := attributevalue.UnmarshalMap(a, &item); err != nil {
		return item, fmt.Errorf("decode item %s %s: %w", shown(h.PK), h.SK, err)
	}
	return item, nil
}

// millis is a time as it is stored; zero stands for none.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

type objectItem struct {
	Bucket  string `dynamodbav:"bucket"`
	Key     string `dynamodbav:"key"`
	Version string `dynamodbav:"version,omitempty"`
	ETag    string `dynamodbav:"etag"`
	Bytes   int64  `dynamodbav:"bytes"`
}

// batchItem is a batch's META.
type batchItem struct {
	head
	Tenant    string            `dynamodbav:"tenant"`
	ID        string            `dynamodbav:"id"`
	Status    batch.Status      `dynamodbav:"status"`
	Ending    batch.Status      `dynamodbav:"ending,omitempty"` // absent until decided: conditions ask for that
	Submitter string            `dynamodbav:"submitter"`
	RequestID string            `dynamodbav:"request_id,omitempty"`
	Endpoint  string            `dynamodbav:"endpoint"`
	FileID    string            `dynamodbav:"input_file_id"`
	Input     objectItem        `dynamodbav:"input"`
	Window    string            `dynamodbav:"window"`
	Metadata  map[string]string `dynamodbav:"metadata,omitempty"`
	Expiry    int64             `dynamodbav:"output_expiry,omitempty"` // milliseconds

	CreatedAt    int64 `dynamodbav:"created_at"`
	InProgressAt int64 `dynamodbav:"in_progress_at,omitempty"`
	FinalizingAt int64 `dynamodbav:"finalizing_at,omitempty"`
	EndingAt     int64 `dynamodbav:"ending_at,omitempty"`
	EndedAt      int64 `dynamodbav:"ended_at,omitempty"` // when Status became the terminal one that it is
	Deadline     int64 `dynamodbav:"deadline,omitempty"`

	Parts int    `dynamodbav:"parts"`
	Lines int64  `dynamodbav:"lines"`
	Model string `dynamodbav:"model,omitempty"`

	Counts       countsItem    `dynamodbav:"counts"`
	Usage        usageItem     `dynamodbav:"usage"`
	Troubles     *troublesItem `dynamodbav:"troubles,omitempty"`
	OutputFileID string        `dynamodbav:"output_file_id,omitempty"`
	ErrorFileID  string        `dynamodbav:"error_file_id,omitempty"`
	Overruns     int           `dynamodbav:"overruns,omitempty"` // absent: none
	Errors       []errorItem   `dynamodbav:"errors,omitempty"`

	Workflow       string        `dynamodbav:"workflow,omitempty"`
	Finalizer      lease.Token   `dynamodbav:"finalizer,omitempty"`
	FinalizerUntil int64         `dynamodbav:"finalizer_until,omitempty"`
	Progress       *progressItem `dynamodbav:"progress,omitempty"` // absent before the first: conditions ask for that
	Ver            int64         `dynamodbav:"ver"`
}

type countsItem struct {
	Total     int64 `dynamodbav:"total"`
	Completed int64 `dynamodbav:"completed"`
	Failed    int64 `dynamodbav:"failed"`
}

// troublesItem is written when a batch is closed; absent before, and where an
// older program closed it.
type troublesItem struct {
	Lapses  int64 `dynamodbav:"lapses"`
	Steals  int64 `dynamodbav:"steals"`
	Repeats int64 `dynamodbav:"repeats"`
	Dead    int64 `dynamodbav:"dead"`
}

type usageItem struct {
	Input     int64 `dynamodbav:"input"`
	Cached    int64 `dynamodbav:"cached"`
	Output    int64 `dynamodbav:"output"`
	Reasoning int64 `dynamodbav:"reasoning"`
	Total     int64 `dynamodbav:"total"`
}

func newUsageItem(u openai.Usage) usageItem {
	return usageItem{u.InputTokens, u.InputTokensDetails.CachedTokens, u.OutputTokens, u.OutputTokensDetails.ReasoningTokens, u.TotalTokens}
}

func (i usageItem) usage() openai.Usage {
	return openai.Usage{
		InputTokens: i.Input, InputTokensDetails: openai.InputTokensDetails{CachedTokens: i.Cached},
		OutputTokens: i.Output, OutputTokensDetails: openai.OutputTokensDetails{ReasoningTokens: i.Reasoning},
		TotalTokens: i.Total,
	}
}

type errorItem struct {
	Code    string  `dynamodbav:"code"`
	Message string  `dynamodbav:"message"`
	Param   *string `dynamodbav:"param,omitempty"`
	Line    *int    `dynamodbav:"line,omitempty"`
}

func newErrorItems(errs []openai.BatchError) []errorItem {
	items := make([]errorItem, 0, len(errs))
	for _, e := range errs {
		items = append(items, errorItem(e))
	}
	return items
}

func newBatchItem(b batch.Batch) batchItem {
	i := batchItem{
		head:   newHead(metaKey(b.Tenant, b.ID), b.Due),
		Tenant: b.Tenant, ID: b.ID, Status: b.Status, Ending: b.Ending,
		Submitter: b.Submitter, RequestID: b.RequestID, Endpoint: b.Endpoint,
		FileID: b.Input.FileID, Input: objectItem(b.Input.Object), Window: b.Window, Metadata: b.Metadata,
		Expiry:    b.OutputExpiry.Milliseconds(),
		CreatedAt: millis(b.CreatedAt), InProgressAt: millis(b.InProgressAt), FinalizingAt: millis(b.FinalizingAt),
		EndingAt: millis(b.EndingAt), Deadline: millis(b.Deadline),
		Parts: b.Parts, Lines: b.Lines, Model: b.Model,
		Counts: countsItem(b.Counts), Usage: newUsageItem(b.Usage),
		OutputFileID: b.OutputFileID, ErrorFileID: b.ErrorFileID, Overruns: b.Overruns, Errors: newErrorItems(b.Errors),
		Workflow: b.Workflow, Finalizer: b.Finalizer, FinalizerUntil: millis(b.FinalizerUntil), Ver: b.Ver,
	}
	if b.Troubles != (batch.Troubles{}) {
		i.Troubles = (*troublesItem)(&b.Troubles)
	}
	if b.Progress.Step > 0 {
		i.Progress = newProgressItem(b.Progress)
	}
	i.TenantPK, i.TenantSK = tenantBatches(b.Tenant), tenantSK(b.CreatedAt, b.ID)
	return i
}

func (i batchItem) batch() batch.Batch {
	b := batch.Batch{
		Tenant: i.Tenant, ID: i.ID, Status: i.Status, Ending: i.Ending,
		Submitter: i.Submitter, RequestID: i.RequestID, Endpoint: i.Endpoint,
		Input: batch.Input{FileID: i.FileID, Object: batch.Object(i.Input)}, Window: i.Window, Metadata: i.Metadata,
		OutputExpiry: time.Duration(i.Expiry) * time.Millisecond,
		CreatedAt:    fromMillis(i.CreatedAt), InProgressAt: fromMillis(i.InProgressAt), FinalizingAt: fromMillis(i.FinalizingAt),
		EndingAt: fromMillis(i.EndingAt), Deadline: fromMillis(i.Deadline), Due: fromMillis(i.DueAt),
		Parts: i.Parts, Lines: i.Lines, Model: i.Model,
		Counts: batch.Counts(i.Counts), Usage: i.Usage.usage(),
		OutputFileID: i.OutputFileID, ErrorFileID: i.ErrorFileID, Overruns: i.Overruns,
		Workflow: i.Workflow, Finalizer: i.Finalizer, FinalizerUntil: fromMillis(i.FinalizerUntil), Ver: i.Ver,
	}
	if i.Troubles != nil {
		b.Troubles = batch.Troubles(*i.Troubles)
	}
	if i.Progress != nil {
		b.Progress = i.Progress.progress()
	}
	for _, e := range i.Errors {
		b.Errors = append(b.Errors, openai.BatchError(e))
	}
	// One attribute holds when the batch ended, because Close sets the status
	// from the stored ending and so can't choose an attribute by it.
	switch ended := fromMillis(i.EndedAt); i.Status {
	case batch.Completed:
		b.CompletedAt = ended
	case batch.Failed:
		b.FailedAt = ended
	case batch.Expired:
		b.ExpiredAt = ended
	case batch.Cancelled:
		b.CancelledAt = ended
	}
	return b
}

// fileGrace is how long a file's record outlives the file before TTL takes it:
// the sweeper that deletes the object still needs to find it.
const fileGrace = 7 * 24 * time.Hour

// fileItem is one file.
type fileItem struct {
	head
	Tenant    string     `dynamodbav:"tenant"`
	ID        string     `dynamodbav:"id"`
	Purpose   string     `dynamodbav:"purpose"`
	Filename  string     `dynamodbav:"filename"`
	Object    objectItem `dynamodbav:"object"`
	CreatedAt int64      `dynamodbav:"created_at"`
	ExpiresAt int64      `dynamodbav:"expires_at,omitempty"`
	DeletedAt int64      `dynamodbav:"deleted_at,omitempty"` // then the rest is gone but for id and created_at
	TTL       int64      `dynamodbav:"ttl,omitempty"`        // Unix seconds, as TTL demands
}

func newFileItem(f batch.File) fileItem {
	i := fileItem{
		head:   newHead(fileKey(f.Tenant, f.ID), f.ExpiresAt),
		Tenant: f.Tenant, ID: f.ID, Purpose: f.Purpose, Filename: f.Filename, Object: objectItem(f.Object),
		CreatedAt: millis(f.CreatedAt), ExpiresAt: millis(f.ExpiresAt),
	}
	i.TenantPK, i.TenantSK = tenantFiles(f.Tenant), tenantSK(f.CreatedAt, f.ID)
	if !f.ExpiresAt.IsZero() {
		i.TTL = f.ExpiresAt.Add(fileGrace).Unix()
	}
	return i
}

// same reports whether the two record the same file. How they do (which format,
// indexed how) doesn't matter: a result file's record is written again by whoever
// finishes a batch that a dead finisher of another version has begun to.
func (i fileItem) same(other fileItem) bool {
	return i.file() == other.file() && i.DeletedAt == other.DeletedAt
}

func (i fileItem) file() batch.File {
	return batch.File{
		Tenant: i.Tenant, ID: i.ID, Purpose: i.Purpose, Filename: i.Filename, Object: batch.Object(i.Object),
		CreatedAt: fromMillis(i.CreatedAt), ExpiresAt: fromMillis(i.ExpiresAt),
	}
}
