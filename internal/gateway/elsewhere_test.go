package gateway_test

import (
	"strings"
	"testing"
)

// Whoever asks the gateway for files or batches is told where they are.
func TestAnAPIPathNamesTheAPI(t *testing.T) {
	h := newHouse(t)
	for path, theirs := range map[string]bool{
		"/v1/files": true, "/v1/files/file-1/content": true, "/v1/uploads": true, "/v1/batches": true, "/v1/batches/batch_1": true, "/v1/receipts": true, "/v1/admin/keys": true,
		"/v1/filess": false, "/files": false, "/v1/images/generations": false, "/": false, "/v1/": false,
	} {
		r := h.do(call{as: "ann", path: path})
		if r.StatusCode != 404 || strings.Contains(r.body, "Files and batches are the API's: they are at its URL (the stack's output ApiUrl)") != theirs {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
	}
}
