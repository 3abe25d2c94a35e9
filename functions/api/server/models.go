package server

import (
	"net/http"
	"slices"

	"holdfast/internal/openai"
)

// The models are those that the installation names (HOLDFAST_MODELS), and none
// if it names none. The upstream isn't asked: the API must answer while that is
// down, and has no business with its key. Nor is the list a fence: a line may
// name any model, and the upstream says what it thinks of it.

func (s *Server) listModels(w http.ResponseWriter, _ *request) error {
	models := make([]openai.Model, len(s.settings.Models))
	for i, id := range s.settings.Models {
		models[i] = model(id)
	}
	return openai.WriteJSON(w, http.StatusOK, openai.Models{Data: models})
}

// getModel takes the rest of the path for an id: many have a slash.
func (s *Server) getModel(w http.ResponseWriter, r *request) error {
	id := r.PathValue("id")
	if !slices.Contains(s.settings.Models, id) {
		return openai.ModelNotFound(id)
	}
	return openai.WriteJSON(w, http.StatusOK, model(id))
}

// model is what the contract demands of one. Nobody knows when it was made.
func model(id string) openai.Model { return openai.Model{ID: id, OwnedBy: "upstream"} }
