// Package batches lets the bridge start Holdfast's own batches. The correlation
// id's job is the batch of the derived id, so that starting it twice, by
// whomever, is starting it once.
package batches

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// Submitter is bridge.Submitter over a Creator. Safe for concurrent use.
type Submitter struct {
	creator *batch.Creator
	batches batch.Batches
	files   batch.Files
	expiry  time.Duration
}

var _ bridge.Submitter = (*Submitter)(nil)

// New returns a Submitter. Batches and files are those of the Creator. A file that
// is recorded for an object expires that long after the object was stored.
func New(creator *batch.Creator, batches batch.Batches, files batch.Files, expiry time.Duration) *Submitter {
	return &Submitter{creator, batches, files, expiry}
}

// Submit is bridge.Submitter.Submit; the job's name is id. The errors are
// Create's: batch.ErrNotStarted keeps the claim, so that whoever steals it starts
// the workflow.
func (s *Submitter) Submit(ctx context.Context, id string, r bridge.Request, now time.Time) (string, error) {
	_, err := s.Create(ctx, id, r, now)
	if err != nil {
		return "", err
	}
	return id, nil
}

// Create creates the batch of this id, or finds it created by the same request.
// The answer is the batch as it is stored; with batch.ErrNotStarted too. A refusal
// is bridge.ErrRefused, with an *openai.Error, or with a *bridge.ConflictError where
// the id stands for another request; a 429 is bridge.ErrLater too. An object that is the input has its file
// recorded first; one whose file was deleted since is no input any more.
func (s *Submitter) Create(ctx context.Context, id string, r bridge.Request, now time.Time) (batch.Batch, error) {
	if r.Object != nil {
		// That it exists is what makes this call fit to be repeated: also under another
		// expiry, where that setting was changed.
		if err := s.files.Put(ctx, s.file(r)); err != nil && !errors.Is(err, batch.ErrExists) {
			return batch.Batch{}, fmt.Errorf("record the file of an object: %w", err)
		}
	}
	b, err := s.creator.Create(ctx, batch.Request{
		Tenant: r.Tenant, Submitter: r.Submitter, RequestID: r.RequestID, ID: id,
		FileID: r.FileID, Endpoint: r.Endpoint, Window: r.Window, Metadata: r.Metadata, OutputExpiry: r.OutputExpiry,
	}, now)
	if refused, ok := errors.AsType[*openai.Error](err); ok && refused.Status < 500 {
		// No refusal of the request is one of the batch: it may have been created
		// when its input was still there, and the answer, or the claim, lost.
		b, err = s.find(ctx, id, r)
		if errors.Is(err, bridge.ErrNotFound) {
			err = fmt.Errorf("%w: %w", bridge.ErrRefused, refused)
			if refused.Status == http.StatusTooManyRequests {
				err = fmt.Errorf("%w: %w", bridge.ErrLater, err)
			}
		}
	}
	return b, err
}

// file is the record of the file that the request's object is. All of it follows
// from the object, so that whoever comes upon it records the same.
func (s *Submitter) file(r bridge.Request) batch.File {
	o := r.Object
	return batch.File{
		Tenant: r.Tenant, ID: r.FileID, Purpose: openai.PurposeBatch, Filename: path.Base(o.Key),
		Object:    batch.Object{Bucket: o.Bucket, Key: o.Key, Version: o.Version, ETag: o.ETag, Bytes: o.Bytes},
		CreatedAt: o.StoredAt, ExpiresAt: o.StoredAt.Add(s.expiry),
	}
}

// Find is bridge.Submitter.Find. A batch whose workflow never started is started.
func (s *Submitter) Find(ctx context.Context, id string, r bridge.Request) (string, error) {
	if _, err := s.find(ctx, id, r); err != nil {
		return "", err
	}
	return id, nil
}

func (s *Submitter) find(ctx context.Context, id string, r bridge.Request) (batch.Batch, error) {
	b, err := s.batches.Get(ctx, r.Tenant, id)
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return batch.Batch{}, fmt.Errorf("%w: batch %s", bridge.ErrNotFound, id)
	case err != nil:
		return batch.Batch{}, err
	case !asked(b, r):
		return batch.Batch{}, fmt.Errorf("%w: %w", bridge.ErrRefused, &bridge.ConflictError{Row: row(b, r)})
	}
	return b, s.creator.Start(ctx, b)
}

// row is what b says of the row that it was started for, under the id of r.
func row(b batch.Batch, r bridge.Request) bridge.Row {
	q := bridge.Request{
		Tenant: b.Tenant, CorrelationID: r.CorrelationID, RequestID: b.RequestID, Submitter: b.Submitter, FileID: b.Input.FileID,
		Endpoint: b.Endpoint, Window: b.Window, Metadata: b.Metadata, OutputExpiry: b.OutputExpiry,
	}
	return bridge.Row{
		Key: bridge.Key{Tenant: b.Tenant, CorrelationID: r.CorrelationID}, State: bridge.Confirmed, Request: q, Hash: q.Hash(), Job: b.ID,
	}
}

// asked reports whether b is what r asks for.
func asked(b batch.Batch, r bridge.Request) bool {
	return b.Submitter == r.Submitter && b.Input.FileID == r.FileID && b.Endpoint == r.Endpoint &&
		b.Window == r.Window && b.OutputExpiry == r.OutputExpiry && maps.Equal(b.Metadata, r.Metadata)
}
