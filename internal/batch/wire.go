package batch

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/openai"
)

// ToWire is the batch as the Batches API shows it, with the counts of [Count].
// What is not there yet is null, never "" or 0. The wire has a status more than
// the table: a batch that was told to cancel is cancelling until it is closed.
// One that ran out of its window goes on showing what it does (in_progress,
// finalizing) until it is expired.
func ToWire(b Batch, counts Counts) openai.Batch {
	w := openai.Batch{
		ID: b.ID, Endpoint: b.Endpoint, Model: wireText(b.Model),
		InputFileID: b.Input.FileID, CompletionWindow: b.Window, Status: string(b.Status),
		OutputFileID: wireText(b.OutputFileID), ErrorFileID: wireText(b.ErrorFileID),
		CreatedAt:    b.CreatedAt.Unix(),
		InProgressAt: wireTime(b.InProgressAt),
		ExpiresAt:    wireTime(b.Deadline),
		FinalizingAt: wireTime(b.FinalizingAt),
		CompletedAt:  wireTime(b.CompletedAt),
		FailedAt:     wireTime(b.FailedAt),
		ExpiredAt:    wireTime(b.ExpiredAt),
		CancelledAt:  wireTime(b.CancelledAt),
		RequestCounts: openai.RequestCounts{
			Total: int(counts.Total), Completed: int(counts.Completed), Failed: int(counts.Failed),
		},
		Metadata: b.Metadata,
	}
	if len(b.Metadata) == 0 {
		w.Metadata = nil
	}
	if b.Ending == Cancelled {
		w.CancellingAt = wireTime(b.EndingAt)
		if !b.Status.Terminal() {
			w.Status = openai.StatusCancelling
		}
	}
	if len(b.Errors) > 0 {
		w.Errors = &openai.BatchErrors{Data: b.Errors}
	}
	// Usage is known once every line is: at the end, and only where lines ran.
	if b.Status.Terminal() && b.Status != Failed {
		w.Usage = &b.Usage
	}
	return w
}

// Count is how far a batch has come: zero while it validates (the wire shows
// 0/0/0), the sum over its parts while it runs, and what was frozen once it is
// terminal. A running sum may trail the writes of workers, and never goes back.
func Count(ctx context.Context, parts Parts, b Batch) (Counts, error) {
	if b.Status == Validating || b.Status.Terminal() {
		return b.Counts, nil
	}
	c := Counts{Total: b.Lines}
	for p, err := range parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			return Counts{}, fmt.Errorf("count %s: %w", b.ID, err)
		}
		c.Completed += p.OK()
		c.Failed += p.Err()
	}
	return c, nil
}

// FileToWire is the file as the Files API shows it.
func FileToWire(f File) openai.File {
	return openai.File{
		ID: f.ID, Bytes: f.Object.Bytes, CreatedAt: f.CreatedAt.Unix(), ExpiresAt: wireTime(f.ExpiresAt),
		Filename: f.Filename, Purpose: f.Purpose, Status: openai.FileProcessed,
	}
}

func wireText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func wireTime(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.Unix()
	return &n
}
