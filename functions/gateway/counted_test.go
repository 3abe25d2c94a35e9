package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
)

// What a request counted is written with it, also where its answer broke off, and
// where nothing was counted nothing is.
func TestCounted(t *testing.T) {
	var log bytes.Buffer
	counts := metrics.New("gateway", &log, nil)
	refused, broken := 0.0, false
	h, _ := sampled(t, &bytes.Buffer{})
	h.http = counted{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		counts.Observer().Add(batch.MetricReplayRefused, refused)
		w.WriteHeader(http.StatusForbidden)
		if broken {
			panic(http.ErrAbortHandler)
		}
	}), counts}
	take(t, h, sample(t, "gateway-chat"))
	if log.Len() > 0 {
		t.Errorf("nothing was counted: %s", &log)
	}
	refused = 1
	for n, breaks := range []bool{false, true} {
		broken = breaks
		take(t, h, sample(t, "gateway-chat"))
		if got := strings.Count(log.String(), `"ReplayRefused":1`); got != n+1 {
			t.Errorf("%d lines, want %d: %s", got, n+1, &log)
		}
	}
}
