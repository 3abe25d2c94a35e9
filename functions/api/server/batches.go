package server

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Pages of batches, from the contract.
const (
	defaultPage = 20
	maxPage     = 100
)

// countersAtOnce bounds the queries that one list makes side by side.
const countersAtOnce = 8

// createBatch answers with the batch once it is recorded, also when its
// workflow would not start: telling the client to come again would make a
// second batch of it.
func (s *Server) createBatch(w http.ResponseWriter, r *request) error {
	in, err := openai.ParseCreateBatch(r.Body, openai.Allow{Endpoints: s.settings.Endpoints, Windows: s.settings.Windows})
	if err != nil {
		return err
	}
	req := batch.Request{
		Tenant: r.caller.Tenant, Submitter: r.caller.Principal, RequestID: r.id,
		FileID: in.InputFileID, Endpoint: in.Endpoint, Window: in.CompletionWindow, Metadata: in.Metadata,
	}
	if in.OutputExpiresAfter != nil {
		req.OutputExpiry = time.Duration(in.OutputExpiresAfter.Seconds) * time.Second
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	if key != "" {
		req.ID = derivedID(r.caller.Tenant, key)
	}
	b, err := s.ports.Creator.Create(r.Context(), req, r.now)
	switch e, _ := errors.AsType[*openai.Error](err); {
	case e != nil && e.Code == "idempotency_conflict":
		return openai.IdempotencyConflict(key) // the client knows its key, not the id made of it
	case errors.Is(err, batch.ErrNotStarted):
		s.log.LogAttrs(r.Context(), slog.LevelError, "workflow not started",
			slog.String("request_id", r.id), slog.String("tenant", b.Tenant), slog.String("batch", b.ID), slog.Any("error", err))
	case err != nil:
		return err
	}
	counts, err := batch.Count(r.Context(), s.ports.Parts, b) // not always zero: it may be an old one, found by its key
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, batch.ToWire(b, counts))
}

// idempotencyKey reads the optional header: 1 to 255 printable ASCII characters.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > 255 ||
		strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if bad {
		return "", openai.Invalid("invalid_idempotency_key", "Idempotency-Key",
			"Invalid Idempotency-Key: send one, of 1 to 255 printable ASCII characters.")
	}
	return key, nil
}

// derivedID is the id of the one batch that a tenant may create under a key.
// Tenants hold no NUL, so no two pairs read alike.
func derivedID(tenant, key string) string {
	sum := sha256.Sum256([]byte("Idempotency-Key\x00" + tenant + "\x00" + key))
	return "batch_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}

func (s *Server) getBatch(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if !batch.ValidID(id) {
		return openai.BatchNotFound(id)
	}
	b, err := s.ports.Batches.Get(r.Context(), r.caller.Tenant, id)
	if errors.Is(err, batch.ErrNotFound) {
		return openai.BatchNotFound(id)
	}
	if err != nil {
		return err
	}
	counts, err := batch.Count(r.Context(), s.ports.Parts, b)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, batch.ToWire(b, counts))
}

func (s *Server) listBatches(w http.ResponseWriter, r *request) error {
	page, err := openai.ParsePage(r.URL.Query(), defaultPage, maxPage)
	if err != nil {
		return err
	}
	if page.Ascending {
		return openai.Invalid("invalid_order", "order", "Invalid order \"asc\": batches are listed newest first.")
	}
	if page.After != "" && !batch.ValidID(page.After) {
		return openai.InvalidCursor(page.After)
	}
	batches, more, err := s.ports.Batches.List(r.Context(), r.caller.Tenant, page.After, page.Limit)
	if errors.Is(err, batch.ErrNotFound) {
		return openai.InvalidCursor(page.After)
	}
	if err != nil {
		return err
	}
	data := make([]openai.Batch, len(batches))
	group, ctx := errgroup.WithContext(r.Context())
	group.SetLimit(countersAtOnce)
	for i, b := range batches {
		group.Go(func() error {
			counts, err := batch.Count(ctx, s.ports.Parts, b)
			data[i] = batch.ToWire(b, counts)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, openai.NewList(data, more))
}
