package server

import (
	"errors"
	"net/http"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Pages of events.
const (
	defaultEvents = 100
	maxEvents     = batch.MaxEvents
)

// listEvents is our extension: what happened to a batch, oldest first.
func (s *Server) listEvents(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	query := r.URL.Query()
	page, err := openai.ParsePage(query, defaultEvents, maxEvents)
	if err != nil {
		return err
	}
	if query.Has("order") && !page.Ascending {
		return openai.Invalid("invalid_order", "order", "Invalid order \"desc\": events are listed oldest first.")
	}
	if !batch.ValidID(id) {
		return openai.BatchNotFound(id)
	}
	events, more, err := s.ports.Events.List(r.Context(), r.caller.Tenant, id, page.After, page.Limit)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		// Only now: what was refused at a door has its event, and no batch.
		if _, err := s.find(r, id); err != nil {
			return err
		}
	}
	data := make([]openai.BatchEvent, len(events))
	for i, e := range events {
		data[i] = eventToWire(e)
	}
	return openai.WriteList(w, data, more, maxListBytes)
}

// find reads a batch of the caller's.
func (s *Server) find(r *request, id string) (batch.Batch, error) {
	if !batch.ValidID(id) {
		return batch.Batch{}, openai.BatchNotFound(id)
	}
	b, err := s.ports.Batches.Get(r.Context(), r.caller.Tenant, id)
	if errors.Is(err, batch.ErrNotFound) {
		return batch.Batch{}, openai.BatchNotFound(id)
	}
	return b, err
}

func eventToWire(e batch.Event) openai.BatchEvent {
	w := openai.BatchEvent{
		ID: e.ID(), Object: "batch.event", BatchID: e.Batch, CreatedAt: e.When().Unix(), Time: e.When().UTC().Format(time.RFC3339Nano),
		Kind: string(e.Kind), Owner: string(e.Owner), Attempt: e.Attempt, Reason: e.Reason,
	}
	if e.Part != batch.NoPart {
		w.Part = &e.Part
	}
	return w
}
