package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
)

// A request that counted something has its line; the others have none.
func TestCounts(t *testing.T) {
	var out bytes.Buffer
	counts := metrics.New("api", &out, nil)
	routes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/admin/reclaim" {
			counts.Observer().Add(batch.MetricReaped, 2)
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := handler{counted{routes, meter.NewInvocations("api", 0, func(string) string { return "" }, slog.New(slog.DiscardHandler)), counts}}
	for _, path := range []string{"/v1/batches", "/v1/admin/reclaim", "/v1/batches"} {
		if _, err := h.handle(t.Context(), events.APIGatewayV2HTTPRequest{RawPath: path}); err != nil {
			t.Fatal(err)
		}
	}
	if line := out.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, `"Reaped":2,`) {
		t.Errorf("%q", line)
	}
}
