package server

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
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
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	// Before it is claimed: the claim holds the whole request, and what can't be an
	// id has no bounds.
	if !validFileID(in.InputFileID) {
		return openai.InputFileNotFound(in.InputFileID)
	}
	req := bridge.Request{
		Tenant: r.caller.Tenant, Submitter: r.caller.Principal, RequestID: r.id,
		FileID: in.InputFileID, Endpoint: in.Endpoint, Window: in.CompletionWindow, Metadata: in.Metadata,
	}
	if in.OutputExpiresAfter != nil {
		req.OutputExpiry = time.Duration(in.OutputExpiresAfter.Seconds) * time.Second
	}
	var b batch.Batch
	if key != "" {
		b, err = s.createOnce(r.Context(), key, req, r.now)
	} else {
		b, err = s.createAnew(r.Context(), resent(r.Header), req, r.now)
	}
	switch {
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
	return openai.WriteList(w, data, more, maxListBytes)
}
