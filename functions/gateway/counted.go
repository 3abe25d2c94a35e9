package main

import (
	"net/http"
	"time"

	"holdfast/internal/aws/metrics"
)

// counted writes what a request counted, before its answer ends: behind that the
// process may stand still.
type counted struct {
	routes http.Handler
	counts *metrics.Recorder
}

// ServeHTTP implements http.Handler.
func (c counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() { c.counts.Flush(time.Now()) }()
	c.routes.ServeHTTP(w, r)
}
