package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"holdfast/internal/access"
)

// The headers that say for whom a request is. A client's are read for the replay rule
// and never passed on; what the upstream gets is what was decided.
const (
	headerTenant     = "X-Tenant-ID"
	headerOnBehalfOf = "X-On-Behalf-Of"
	headerBatch      = "X-Batch-ID"
	headerLine       = "X-Batch-Line"
)

func assertedBy(h http.Header, endpoint string) access.Asserted {
	return access.Asserted{Tenant: h.Values(headerTenant), Batch: h.Values(headerBatch), Line: h.Values(headerLine), Endpoint: endpoint}
}

// outgoing is what the upstream gets beside what package upstream sets: the same four
// headers that a worker sends, as far as they apply, and our id of the request.
func outgoing(who access.Identity, id string, stream bool) http.Header {
	h := http.Header{}
	h.Set(headerTenant, who.Tenant)
	h.Set(headerOnBehalfOf, who.OnBehalfOf)
	if who.Batch != "" {
		h.Set(headerBatch, who.Batch)
	}
	if who.Line != access.NoLine {
		h.Set(headerLine, strconv.FormatInt(who.Line, 10))
	}
	h.Set("X-Request-Id", id)
	h.Set("Accept", "application/json")
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	return h
}

// passed are the headers of an upstream's answer that a client gets. Not among them:
// cookies and whatever else the upstream sets for itself, how many requests its
// account has left, which is no one tenant's business, and where it would redirect to.
var passed = []string{"Content-Type", "Content-Encoding", "Retry-After", "Retry-After-Ms"}

// maxPassed is the longest value that is passed on.
const maxPassed = 256

// pass copies those headers, and the upstream's own id of the request under another
// name: x-request-id is ours.
func pass(to, from http.Header) {
	for _, name := range passed {
		if v := from.Get(name); plain(v) {
			to.Set(name, v)
		}
	}
	if v := from.Get("X-Request-Id"); plain(v) {
		to.Set("X-Upstream-Request-Id", v)
	}
}

// plain reports whether v is a header's value: there, of readable length, printable.
func plain(v string) bool {
	return v != "" && len(v) <= maxPassed && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' })
}
