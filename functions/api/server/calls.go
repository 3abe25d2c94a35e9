package server

import (
	"context"
	"net/http"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Calls reads receipts of what the gateway called. Every access.Receipts is one.
type Calls interface {
	// List is access.Receipts.List.
	List(ctx context.Context, tenant, shelf, after string, limit int) (page []access.Receipt, more bool, err error)
}

// Pages of the gateway's receipts.
const defaultCalls = 100

// listCallsOfBatch is our extension: what the gateway called for a batch, the oldest
// first, while it runs and after.
func (s *Server) listCallsOfBatch(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if !batch.ValidID(id) {
		return openai.BatchNotFound(id)
	}
	return s.listCalls(w, r, id, func() error {
		_, err := s.find(r, id)
		return err
	})
}

// listCallsOfDay is our extension: what the gateway called for the tenant on a day and
// for no batch, the oldest first.
func (s *Server) listCallsOfDay(w http.ResponseWriter, r *request) error {
	day := r.now
	if text := r.URL.Query().Get("day"); text != "" {
		var err error
		if day, err = time.Parse(time.DateOnly, text); err != nil {
			return openai.Invalid("invalid_day", "day", "Invalid 'day': it must be a day (UTC) like 2026-12-31.")
		}
	}
	return s.listCalls(w, r, access.DayShelf(day), func() error { return nil })
}

// listCalls answers with a page of a shelf; empty is asked where nothing is there.
func (s *Server) listCalls(w http.ResponseWriter, r *request, shelf string, empty func() error) error {
	query := r.URL.Query()
	page, err := openai.ParsePage(query, defaultCalls, access.MaxReceipts)
	if err != nil {
		return err
	}
	if query.Has("order") && !page.Ascending {
		return openai.Invalid("invalid_order", "order", "Invalid order \"desc\": receipts are listed oldest first.")
	}
	if page.After != "" && !access.ValidReceiptID(page.After) {
		return openai.InvalidCursor(page.After)
	}
	receipts, more, err := s.ports.Calls.List(r.Context(), r.caller.Tenant, shelf, page.After, page.Limit)
	if err != nil {
		return err
	}
	if len(receipts) == 0 {
		if err := empty(); err != nil {
			return err
		}
	}
	data := make([]access.ToldReceipt, len(receipts))
	for i, c := range receipts {
		data[i] = c.Tell(r.now)
	}
	return openai.WriteList(w, data, more, maxListBytes)
}
