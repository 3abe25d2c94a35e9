package memory

import (
	"cmp"
	"maps"
	"slices"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// The clones share nothing with what they are made of, and their times are as
// stored: whole milliseconds, UTC.

func cloneBatch(b batch.Batch) batch.Batch {
	b.Metadata = maps.Clone(b.Metadata)
	b.Errors = cloneErrors(b.Errors)
	b.CreatedAt, b.InProgressAt, b.FinalizingAt, b.EndingAt = millis(b.CreatedAt), millis(b.InProgressAt), millis(b.FinalizingAt), millis(b.EndingAt)
	b.CompletedAt, b.FailedAt, b.ExpiredAt, b.CancelledAt = millis(b.CompletedAt), millis(b.FailedAt), millis(b.ExpiredAt), millis(b.CancelledAt)
	b.Deadline, b.Due, b.FinalizerUntil = millis(b.Deadline), millis(b.Due), millis(b.FinalizerUntil)
	return b
}

func cloneErrors(errs []openai.BatchError) []openai.BatchError {
	errs = slices.Clone(errs)
	for i := range errs {
		errs[i].Param = clonePointer(errs[i].Param)
		errs[i].Line = clonePointer(errs[i].Line)
	}
	return errs
}

func clonePointer[V any](p *V) *V {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func clonePart(p batch.Part) batch.Part {
	p.DoneLines = p.DoneLines.Clone()
	p.Chunks = slices.Clone(p.Chunks)
	p.LeaseUntil, p.Due, p.DeadAt, p.CreatedAt = millis(p.LeaseUntil), millis(p.Due), millis(p.DeadAt), millis(p.CreatedAt)
	return p
}

func cloneFile(f batch.File) batch.File {
	f.CreatedAt, f.ExpiresAt = millis(f.CreatedAt), millis(f.ExpiresAt)
	return f
}

func compare(a, b string) int { return cmp.Compare(a, b) }
