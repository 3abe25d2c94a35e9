package batch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdfast/internal/openai"
)

// Request is a batch somebody wants, checked for form by the door it came
// through and not yet for what it names.
type Request struct {
	Tenant    string // whose batch it is
	Submitter string // the principal every line will count for
	RequestID string // of the request, for tracing

	// ID is the batch's, when the door derives it from a correlation id (form:
	// see [ValidID]). Creating it again is then harmless. "" draws a fresh one.
	ID string

	FileID       string
	Endpoint     string
	Window       string
	Metadata     map[string]string
	OutputExpiry time.Duration // 0: the installation's default
}

// ErrNotStarted says that the batch is recorded but its workflow could not be
// started. Nothing is lost and nothing has run: the batch stays validating, and
// either the same [Creator.Create] (with the same id) or [Creator.Start] goes
// on from there. It must not be answered by creating another batch.
var ErrNotStarted = errors.New("batch is recorded but its workflow did not start")

// CreatorOptions are what an installation offers.
type CreatorOptions struct {
	Endpoints []string // allow-list; empty: /v1/chat/completions
	Windows   []string // allow-list, Go durations; empty: 24h

	// Admit is asked last, before anything is recorded: an [*openai.Error] refuses r,
	// whose input is f, for what its tenant has used up; any other error is trouble.
	// The batch of r's ID may be there already: refused or not, it stays. nil admits all.
	Admit func(ctx context.Context, r Request, f File, now time.Time) error
}

// Creator records batches and starts their workflows. It is the only way in:
// every door ends here.
type Creator struct {
	batches  Batches
	files    Files
	workflow Workflow
	windows  map[string]time.Duration
	o        CreatorOptions
}

// NewCreator returns a Creator, or an error when an option contradicts itself.
func NewCreator(batches Batches, files Files, workflow Workflow, o *CreatorOptions) (*Creator, error) {
	c := &Creator{batches: batches, files: files, workflow: workflow, windows: map[string]time.Duration{}}
	if o != nil {
		c.o = *o
	}
	if len(c.o.Endpoints) == 0 {
		c.o.Endpoints = []string{"/v1/chat/completions"}
	}
	if len(c.o.Windows) == 0 {
		c.o.Windows = []string{"24h"}
	}
	for _, e := range c.o.Endpoints {
		if !strings.HasPrefix(e, "/") {
			return nil, fmt.Errorf("creator: endpoint %q is not a path", e)
		}
	}
	for _, w := range c.o.Windows {
		d, err := time.ParseDuration(w)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("creator: window %q is not a positive duration", w)
		}
		c.windows[w] = d
	}
	return c, nil
}

// NewID returns a fresh batch id: unguessable, and fit for keys, URLs and
// execution names.
func NewID() string { return "batch_" + strings.ToLower(rand.Text()) }

// ValidID reports whether id has the form of a batch id: "batch_" and 18 to 74
// letters, digits, '-' or '_'. It becomes part of object keys and the name of an
// execution (at most 80 characters), so nothing else may get in.
func ValidID(id string) bool {
	rest, ok := strings.CutPrefix(id, "batch_")
	if !ok || len(rest) < 18 || len(rest) > 74 {
		return false
	}
	return !strings.ContainsFunc(rest, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}

// Create records the batch (C15 create), then starts its execution under the
// batch's own name, so that doing both twice is doing them once.
//
// A request that can't be run is refused with an [*openai.Error] and leaves
// nothing behind. When the record stands but the execution would not start, the
// recorded batch comes back together with [ErrNotStarted]: the batch is not
// failed for a trouble that passes. With a given id, Create again picks up where
// it stopped, and answers idempotency_conflict if the id stands for another
// request. Any other error means that the fate of the record is unknown.
func (c *Creator) Create(ctx context.Context, r Request, now time.Time) (Batch, error) {
	b, err := c.check(ctx, r, now)
	if err != nil {
		return Batch{}, err
	}
	err = tryAgain(ctx, func() error { return c.batches.Create(ctx, b) })
	if errors.Is(err, ErrExists) {
		// Created before: by this call (its answer was lost), or by an earlier
		// one with the same id. What is stored is the truth.
		var stored Batch
		err = tryAgain(ctx, func() (err error) { stored, err = c.batches.Get(ctx, b.Tenant, b.ID); return err })
		if err == nil && !sameRequest(stored, b) {
			return Batch{}, openai.IdempotencyConflict(b.ID, b.ID)
		}
		b = stored
	}
	if err != nil {
		return Batch{}, fmt.Errorf("create %s: %w", b.ID, err)
	}
	return b, c.Start(ctx, b)
}

// Start starts the execution of a batch that is still validating, under the
// batch's own name, so that one that runs already counts as started. For a batch
// further on it does nothing. The error is [ErrNotStarted].
func (c *Creator) Start(ctx context.Context, b Batch) error {
	if b.Status != Validating {
		return nil
	}
	err := tryAgain(ctx, func() error { return c.workflow.Start(ctx, b.ID, b.Tenant, b.ID) })
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotStarted, b.ID, err)
	}
	return nil
}

// firstLook is when the reaper first looks at a batch: whether its workflow has
// started at all.
const firstLook = 90 * time.Second

// check turns the request into the batch it asks for.
func (c *Creator) check(ctx context.Context, r Request, now time.Time) (Batch, error) {
	if r.Tenant == "" || r.Submitter == "" {
		return Batch{}, errors.New("create: a batch needs a tenant and a submitter")
	}
	if r.ID == "" {
		r.ID = NewID()
	} else if !ValidID(r.ID) {
		return Batch{}, fmt.Errorf("create: %q is not a batch id", r.ID)
	}
	if r.FileID == "" {
		return Batch{}, openai.MissingParameter("input_file_id")
	}
	if !slices.Contains(c.o.Endpoints, r.Endpoint) {
		return Batch{}, openai.InvalidEndpoint(r.Endpoint, c.o.Endpoints)
	}
	window, ok := c.windows[r.Window]
	if !ok {
		return Batch{}, openai.InvalidCompletionWindow(r.Window, c.o.Windows)
	}
	if err := openai.ValidateMetadata(r.Metadata); err != nil {
		return Batch{}, err
	}
	if r.OutputExpiry < 0 {
		return Batch{}, openai.InvalidExpiresAfter("output_expires_after", "it must not be negative")
	}
	var f File
	err := tryAgain(ctx, func() (err error) { f, err = c.files.Get(ctx, r.Tenant, r.FileID); return err })
	switch {
	case errors.Is(err, ErrNotFound), err == nil && f.Expired(now):
		return Batch{}, openai.InputFileNotFound(r.FileID)
	case err != nil:
		return Batch{}, fmt.Errorf("create %s: read the input's record: %w", r.ID, err)
	case f.Purpose != openai.PurposeBatch:
		return Batch{}, openai.InvalidInputPurpose(r.FileID, f.Purpose)
	}
	if c.o.Admit != nil {
		if err := c.o.Admit(ctx, r, f, now); err != nil {
			return Batch{}, fmt.Errorf("create %s: %w", r.ID, err)
		}
	}
	at := now.UTC().Truncate(time.Millisecond)
	return Batch{
		Tenant: r.Tenant, ID: r.ID, Status: Validating,
		Submitter: r.Submitter, RequestID: r.RequestID, Endpoint: r.Endpoint,
		Input: Input{FileID: f.ID, Object: f.Object}, Window: r.Window,
		Metadata: maps.Clone(r.Metadata), OutputExpiry: r.OutputExpiry,
		CreatedAt: at, Deadline: at.Add(window), Due: at.Add(min(window, firstLook)), Workflow: r.ID,
	}, nil
}

// sameRequest reports whether two batches come from one request. When, and
// under which request id, may differ: a repeated request is another request.
func sameRequest(a, b Batch) bool {
	return a.Tenant == b.Tenant && a.ID == b.ID && a.Submitter == b.Submitter && a.Endpoint == b.Endpoint &&
		a.Input == b.Input && a.Window == b.Window && a.OutputExpiry == b.OutputExpiry && maps.Equal(a.Metadata, b.Metadata)
}

// Expired reports whether the file's time is over at now. It then counts as
// gone, whether or not its bytes still exist.
func (f File) Expired(now time.Time) bool { return !f.ExpiresAt.IsZero() && !now.Before(f.ExpiresAt) }
