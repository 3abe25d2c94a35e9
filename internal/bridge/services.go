package bridge

import (
	"context"
	"fmt"
	"time"
)

// Services sends each request to the Submitter of its Service. A request of a
// service that isn't there is an error and no refusal: whoever configures it again
// finds the claim still standing.
type Services map[string]Submitter

var _ Submitter = Services(nil)

// Serves reports whether requests of this service can be submitted.
func (s Services) Serves(service string) bool { _, ok := s[service]; return ok }

// Submit is Submitter.Submit of the request's service. ErrUnserved.
func (s Services) Submit(ctx context.Context, id string, r Request, now time.Time) (string, error) {
	to, err := s.of(r)
	if err != nil {
		return "", err
	}
	return to.Submit(ctx, id, r, now)
}

// Find is Submitter.Find of the request's service. Of one that isn't there no job can
// be found: ErrNotFound beside ErrUnserved.
func (s Services) Find(ctx context.Context, id string, r Request) (string, error) {
	to, err := s.of(r)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return to.Find(ctx, id, r)
}

func (s Services) of(r Request) (Submitter, error) {
	to, ok := s[r.Service]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnserved, r.Service)
	}
	return to, nil
}
