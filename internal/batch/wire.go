package batch

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/openai"
)

// Standing is how far a batch has come, and through what.
type Standing struct {
	Counts
	Troubles
}

// ToWire is the batch as the Batches API shows it, with the standing of [Count].
// What is not there yet is null, never "" or 0. The wire has a status more than
// the table: a batch that was told to cancel is cancelling until it is closed.
// One that ran out of its window goes on showing what it does (in_progress,
// finalizing) until it is expired.
func ToWire(b Batch, s Standing) openai.Batch {
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
			Total: int(s.Total), Completed: int(s.Completed), Failed: int(s.Failed),
		},
		Metadata:     b.Metadata,
		LeaseExpired: s.Lapses, Steals: s.Steals, Repeats: s.Repeats, DeadParts: s.Dead,
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
func Count(ctx context.Context, parts Parts, b Batch) (Standing, error) {
	if b.Status == Validating || b.Status.Terminal() {
		return Standing{b.Counts, b.Troubles}, nil
	}
	s := Standing{Counts: Counts{Total: b.Lines}}
	for p, err := range parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			return Standing{}, fmt.Errorf("count %s: %w", b.ID, err)
		}
		s.Completed += p.OK()
		s.Failed += p.Err()
		s.Troubles = s.Troubles.Add(p)
	}
	return s, nil
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

// MessageOf is the message that asks a worker to run p, with the task token of
// its last claim.
func MessageOf(p Part) Message {
	return Message{V: FormatVersion, Tenant: p.Tenant, Batch: p.Batch, Part: p.N, TaskToken: p.TaskToken}
}
