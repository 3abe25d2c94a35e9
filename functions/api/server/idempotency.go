package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// Three ways to create a batch, and what makes each of them one batch:
//
//	Idempotency-Key              the bridge's claim, for as long as anybody remembers
//	X-Stainless-Retry-Count > 0  the last send of the same by the same principal,
//	                             for 15 minutes
//	neither                      nothing: asked for twice is two batches

// createOnce creates the batch that the key stands for, or finds it.
func (s *Server) createOnce(ctx context.Context, key string, req bridge.Request, now time.Time) (batch.Batch, error) {
	req.CorrelationID = key
	id, err := s.ports.Bridge.Submit(ctx, req, now)
	switch held, _ := errors.AsType[*bridge.HeldError](err); {
	case held != nil:
		return batch.Batch{}, openai.IdempotencyInProgress(key, held.RetryAfter, err)
	case errors.Is(err, bridge.ErrConflict):
		return batch.Batch{}, openai.IdempotencyConflict(key, bridge.BatchID(req.Tenant, key))
	case errors.Is(err, batch.ErrNotStarted):
		// Recorded all the same; its claim stays, for whoever starts it.
		id = bridge.BatchID(req.Tenant, key)
	case err != nil:
		return batch.Batch{}, err
	}
	b, readErr := s.ports.Batches.Get(ctx, req.Tenant, id)
	switch {
	case errors.Is(readErr, batch.ErrNotFound):
		// Asking again won't make it one.
		return batch.Batch{}, openai.Invalid("idempotency_key_in_use", "Idempotency-Key",
			"The Idempotency-Key stands for the job %q, which is no batch here: another service runs it, or it isn't kept any more. Use a new key for a new request.", id)
	case readErr != nil:
		return batch.Batch{}, readErr
	}
	return b, err
}

// createAnew creates a batch that has no key; or, if it is said to be sent again,
// finds the one that it started before.
func (s *Server) createAnew(ctx context.Context, resent bool, req bridge.Request, now time.Time) (batch.Batch, error) {
	id, err := s.ports.Resends.ID(ctx, req, resent, now)
	if err != nil {
		return batch.Batch{}, err
	}
	return s.ports.Jobs.Create(ctx, id, req, now)
}

// idempotencyKey reads the optional header: 1 to 255 printable ASCII characters.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values(openai.IdempotencyKey)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > openai.MaxIdempotencyKey ||
		strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if bad {
		return "", openai.Invalid("invalid_idempotency_key", "Idempotency-Key",
			"Invalid Idempotency-Key: send one, of 1 to 255 printable ASCII characters.")
	}
	return key, nil
}
