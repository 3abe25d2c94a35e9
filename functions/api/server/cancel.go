package server

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// cancelBatch answers with the batch as the decision left it: cancelling, or
// unchanged where it is over or ends otherwise. A body is ignored; official
// clients send none. When the workflow could not be told, the decision stands, but
// nobody may be there to carry it out: the client is asked to cancel again, which
// tells the workflow again.
func (s *Server) cancelBatch(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if !batch.ValidID(id) {
		return openai.BatchNotFound(id)
	}
	b, err := s.ports.Ender.Cancel(r.Context(), r.caller.Tenant, id, r.now)
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return openai.BatchNotFound(id)
	case errors.Is(err, batch.ErrNotHandedOn):
		s.log.LogAttrs(r.Context(), slog.LevelError, "workflow not told of a cancel",
			slog.String("request_id", r.id), slog.String("tenant", b.Tenant), slog.String("batch", b.ID), slog.Any("error", err))
		return openai.Unavailable(time.Second, err)
	case err != nil:
		return err
	}
	counts, err := batch.Count(r.Context(), s.ports.Parts, b)
	if err != nil {
		return err
	}
	return openai.WriteJSON(w, http.StatusOK, batch.ToWire(b, counts))
}
