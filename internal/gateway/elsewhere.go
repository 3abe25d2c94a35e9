package gateway

import (
	"slices"
	"strings"
)

// ofTheAPI are the first segments, behind /v1, of the API's paths.
var ofTheAPI = []string{"files", "uploads", "batches", "receipts", "admin"}

// elsewhere says of a path that the API has, and not the gateway, whose it is; "" of
// any other.
func elsewhere(path string) string {
	rest, versioned := strings.CutPrefix(path, "/v1/")
	first, _, _ := strings.Cut(rest, "/")
	if !versioned || !slices.Contains(ofTheAPI, first) {
		return ""
	}
	return "Files and batches are the API's: they are at its URL (the stack's output ApiUrl); this is the gateway's, for calling models."
}
