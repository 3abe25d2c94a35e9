package server_test

import (
	"strings"
	"testing"
)

// Whoever asks the API for a model is told where it is.
func TestAModelsPathNamesTheGateway(t *testing.T) {
	h := newHouse(t)
	for path, theirs := range map[string]bool{"/v1/chat/completions": true, "/v1/embeddings": true, "/v1/engines": false, "/": false} {
		r := h.do(call{method: "POST", path: path, as: "acme submit"})
		r.refused(404, "unknown_url", "")
		if got := strings.Contains(r.Body.String(), "Models are called at the gateway's URL (the stack's output GatewayUrl, if it has one)"); got != theirs {
			t.Errorf("%s: %s", path, r.Body)
		}
	}
}
