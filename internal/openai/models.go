package openai

import (
	"encoding/json"
	"net/http"
)

// Model is one entry of the models list. Created is Unix seconds.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // always written as "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// MarshalJSON writes the model with its fixed object name.
func (m Model) MarshalJSON() ([]byte, error) {
	type plain Model
	m.Object = "model"
	return json.Marshal(plain(m))
}

// Models answers GET /models. It has no pages, and so none of a [List]'s cursors.
type Models struct {
	Object string  `json:"object"` // always written as "list"
	Data   []Model `json:"data"`
}

// MarshalJSON writes the list with its fixed object name and never a null for
// its data.
func (m Models) MarshalJSON() ([]byte, error) {
	type plain Models
	m.Object = "list"
	if m.Data == nil {
		m.Data = []Model{}
	}
	return json.Marshal(plain(m))
}

// ModelNotFound is the 404 for a model that is not on the list.
func ModelNotFound(id string) *Error {
	return refuse(http.StatusNotFound, "model_not_found", "model", "No such model: %s.", clip(id))
}
