package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/aws/meter"
	"holdfast/internal/cost"
)

// A request counts for the batch that it names, or makes.
func TestUsage(t *testing.T) {
	const id = "batch_4f2a9c1e7b3d5f60a1b2c3d4e5f60718"
	made := `{"id":"` + id + `","object":"batch"}`
	for name, c := range map[string]struct {
		method, path string
		status       int
		answer       string
		want         string
	}{
		"retrieve":       {"GET", "/v1/batches/" + id, 200, made, id},
		"cancel":         {"POST", "/v1/batches/" + id + "/cancel", 200, made, id},
		"create":         {"POST", "/v1/batches", 200, made, id},
		"create refused": {"POST", "/v1/batches", 400, made, ""},
		"list":           {"GET", "/v1/batches", 200, made, ""},
		"no id":          {"GET", "/v1/batches/4711", 404, "{}", ""},
		"no answer":      {"POST", "/v1/batches", 200, "oops", ""},
		"a file":         {"POST", "/v1/files", 200, made, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			routes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				meter.Units(r.Context(), "DynamoDB.GetItem", 1, 0)
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			})
			inv := meter.NewInvocations("api", 0, func(string) string { return "512" }, slog.New(slog.NewJSONHandler(&log, nil)))
			ev := events.APIGatewayV2HTTPRequest{RawPath: c.path, Headers: map[string]string{"authorization": "Bearer hf_secret"}}
			ev.RequestContext.HTTP.Method = c.method
			out, err := handler{counted{routes, inv, nil}}.handle(t.Context(), ev)
			if err != nil || out.StatusCode != c.status || out.Body != c.answer {
				t.Errorf("answer %+v, %v", out, err)
			}
			i, err := cost.ParseLine(log.String())
			if err != nil || len(i.Batches) != 1 || i.Batches[0].Batch != c.want || i.Batches[0].Calls["DynamoDB.GetItem"].Reads != 1 {
				t.Errorf("line %s: %v", log.String(), err)
			}
			if (i.Batches[0].Part == 1) != (c.want != "") || strings.Contains(log.String(), "secret") {
				t.Errorf("line %s", log.String())
			}
		})
	}
}
