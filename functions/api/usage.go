package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
)

// counted writes the usage line of each request, and what a reclaim counted. What a request is for is in its
// path; what it made, which is the one case that isn't, is in its answer.
type counted struct {
	routes http.Handler
	usage  meter.Invocations
	counts *metrics.Recorder
}

// ServeHTTP implements http.Handler.
func (c counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() { c.counts.Flush(time.Now()) }()
	ctx, end := c.usage.Start(r.Context())
	c.routes.ServeHTTP(w, r.WithContext(ctx))
	end(nil, batch.Subject{Batch: about(w, r)})
}

// about is the id of the batch that a request was for, "" for none. The tenant
// stays unsaid: who asked is the routes' business, and ids are unique without it.
func about(w http.ResponseWriter, r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.Path, "/v1/batches")
	if !ok {
		return ""
	}
	if id, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/"); batch.ValidID(id) {
		return id
	}
	a, ok := w.(*answer)
	if !ok || rest != "" || r.Method != http.MethodPost || a.status != http.StatusOK {
		return ""
	}
	var made struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(a.body.Bytes(), &made) != nil || !batch.ValidID(made.ID) {
		return ""
	}
	return made.ID
}
