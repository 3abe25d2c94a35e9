package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/functions/api/server"
	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

func sample(t *testing.T, name string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	raw, err := os.ReadFile("../../events/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var ev events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

type noLinks struct{}

func (noLinks) Presign(_ context.Context, o batch.Object, _, _ string, _ time.Duration) (string, error) {
	return "https://objects.example/" + o.Key, nil
}

// What the samples name.
const (
	sampleFile  = "file-sample0000000000000000001"
	sampleBatch = "batch_sample000000000000000001"
)

// sampled is the API over stores that hold what the samples name.
func sampled(t *testing.T) (handler, *memory.Memory) {
	t.Helper()
	mem := memory.New(memory.Options{})
	now := time.Now()
	secret := strings.TrimPrefix(sample(t, "api-get-file").Headers["authorization"], "Bearer ")
	key := access.Key{Hash: access.HashSecret(secret), Tenant: "acme", Principal: "ann@acme.example", Name: "sample",
		Scopes: []access.Scope{access.Submit, access.Read}, CreatedAt: now}
	file := batch.File{Tenant: "acme", ID: sampleFile, Purpose: "batch", Filename: "in.jsonl", Object: batch.Object{Bucket: "in", Key: "files/acme/" + sampleFile}}
	if err := errors.Join(mem.Table.Keys.Put(t.Context(), key), mem.Table.Files.Put(t.Context(), file)); err != nil {
		t.Fatal(err)
	}
	mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: sampleBatch, Status: batch.Completed, CreatedAt: now.Add(-time.Hour)})
	settings := config.Default()
	creator, err := batch.NewCreator(mem.Table.Batches, mem.Table.Files, mem.Workflow, &batch.CreatorOptions{Endpoints: settings.Endpoints, Windows: settings.Windows})
	if err != nil {
		t.Fatal(err)
	}
	jobs := batches.New(creator, mem.Table.Batches, mem.Table.Files, 30*24*time.Hour)
	claims, err := bridge.New(mem.Table.Bridge, jobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return handler{server.New(server.Ports{
		Keys: access.NewCache(mem.Table.Keys, nil), Tenants: access.NewTenantCache(mem.Table.Tenants, nil), Batches: mem.Table.Batches, Parts: mem.Table.Parts, Files: mem.Table.Files,
		Objects: mem.Objects, Links: noLinks{},
		Ender: batch.NewEnder(mem.Table.Batches, mem.Table.Endings, mem.Workflow),
		Jobs:  jobs, Bridge: claims, Resends: bridge.NewResends(mem.Table.Sends, batch.NewID),
	}, settings, "in", nil)}, mem
}

func TestSamples(t *testing.T) {
	for name, want := range map[string]struct {
		status int
		body   string
	}{
		"api-upload-file":  {200, `"filename":"requests.jsonl"`},
		"api-get-file":     {200, sampleFile},
		"api-get-content":  {302, ""},
		"api-create-batch": {200, `"status":"validating"`},
		"api-get-batch":    {200, `"status":"completed"`},
		"api-cancel-batch": {200, `"status":"completed"`},
		"api-list-batches": {200, `"object":"list"`},
		"api-list-files":   {200, sampleFile},
		"api-list-models":  {200, `"data":[]`},
		"api-delete-file":  {200, `"deleted":true`},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := sampled(t) // its own: one of them deletes what others read
			ev := sample(t, name)
			out, err := h.handle(t.Context(), ev)
			if err != nil {
				t.Fatal(err)
			}
			if out.StatusCode != want.status || !strings.Contains(out.Body, want.body) || out.IsBase64Encoded {
				t.Errorf("%d %s", out.StatusCode, out.Body)
			}
			if got := out.Headers["X-Request-Id"]; got != ev.RequestContext.RequestID {
				t.Errorf("x-request-id %q, the gateway's is %q", got, ev.RequestContext.RequestID)
			}
			if name == "api-get-content" && out.Headers["Location"] != "https://objects.example/files/acme/"+sampleFile {
				t.Errorf("location %q", out.Headers["Location"])
			}
			// Sent by somebody without a key.
			delete(ev.Headers, "authorization")
			if out, err := h.handle(t.Context(), ev); err != nil || out.StatusCode != 401 || !strings.Contains(out.Body, "invalid_api_key") {
				t.Errorf("without a key: %d %s %v", out.StatusCode, out.Body, err)
			}
		})
	}
}

// What a client or a gateway may send is answered, never an error of the
// function.
func TestOddEventsAreAnswered(t *testing.T) {
	h, _ := sampled(t)
	for name, c := range map[string]struct {
		change func(*events.APIGatewayV2HTTPRequest)
		status int
	}{
		"nothing at all":      {func(ev *events.APIGatewayV2HTTPRequest) { *ev = events.APIGatewayV2HTTPRequest{} }, 404},
		"path with a stray %": {func(ev *events.APIGatewayV2HTTPRequest) { ev.RawPath = "/v1/batches/%zz" }, 404},
		"path with blanks":    {func(ev *events.APIGatewayV2HTTPRequest) { ev.RawPath = "/v1/batches/a b\x00\r\n" }, 404},
		"path like a host":    {func(ev *events.APIGatewayV2HTTPRequest) { ev.RawPath = "//evil.example/v1" }, 404},
		"bad query":           {func(ev *events.APIGatewayV2HTTPRequest) { ev.RawPath, ev.RawQueryString = "/v1/batches", "limit=%zz;&" }, 200},
		"not base64": {func(ev *events.APIGatewayV2HTTPRequest) {
			*ev = sample(t, "api-create-batch")
			ev.IsBase64Encoded = true
		}, 400},
		"base64 with an end that isn't": {func(ev *events.APIGatewayV2HTTPRequest) {
			*ev = sample(t, "api-create-batch")
			body := ev.Body + strings.Repeat(" ", 3-len(ev.Body)%3) // whole groups, then what is none
			ev.Body, ev.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(body))+"!", true
		}, 400},
		"truncated base64": {func(ev *events.APIGatewayV2HTTPRequest) {
			*ev = sample(t, "api-upload-file")
			ev.Body = ev.Body[:101]
		}, 400},
		"stage in the path": {func(ev *events.APIGatewayV2HTTPRequest) {
			ev.RequestContext.Stage, ev.RawPath = "prod", "/prod"+ev.RawPath
		}, 200},
		"method in lower case": {func(ev *events.APIGatewayV2HTTPRequest) { ev.RequestContext.HTTP.Method = "get" }, 405},
		"two keys in one": {func(ev *events.APIGatewayV2HTTPRequest) {
			ev.Headers["authorization"] += "," + ev.Headers["authorization"]
		}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			ev := sample(t, "api-get-batch")
			c.change(&ev)
			out, err := h.handle(t.Context(), ev)
			if err != nil || out.StatusCode != c.status {
				t.Errorf("%d, want %d: %s, %v", out.StatusCode, c.status, out.Body, err)
			}
			if out.StatusCode >= 400 && !strings.HasPrefix(out.Body, `{"error":{`) {
				t.Errorf("body %q", out.Body)
			}
		})
	}
}

func TestTranslation(t *testing.T) {
	binary := []byte("\x00\xff\xfe line\r\n")
	h := handler{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(body, binary) || r.ContentLength != int64(len(binary)) {
			t.Errorf("body %q, %v, length %d", body, err, r.ContentLength)
		}
		if r.Method != "PUT" || r.URL.Path != "/v1/x y" || r.URL.Query().Get("a") != "1 2" || r.Host != "api.example" || r.RemoteAddr != "192.0.2.7" {
			t.Errorf("%s %s on %s from %s", r.Method, r.URL, r.Host, r.RemoteAddr)
		}
		if got := r.Header.Get("X-Trace"); got != "a, b" {
			t.Errorf("header %q", got)
		}
		if c, err := r.Cookie("two"); err != nil || c.Value != "2" {
			t.Errorf("cookie %v, %v", c, err)
		}
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.Header().Add("Vary", "x")
		w.Header().Add("Vary", "y")
		w.Header().Set("Content-Length", "9")
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusTeapot) // too late, as with net/http
		w.Header().Set("Late", "1")
		w.Write(binary)
	})}
	ev := events.APIGatewayV2HTTPRequest{
		RawPath: "/v1/x y", RawQueryString: "a=1+2", Cookies: []string{"one=1", "two=2"}, Headers: map[string]string{"x-trace": "a, b"},
		Body: base64.StdEncoding.EncodeToString(binary), IsBase64Encoded: true,
	}
	ev.RequestContext.HTTP.Method, ev.RequestContext.HTTP.SourceIP, ev.RequestContext.DomainName = "PUT", "192.0.2.7", "api.example"
	out, err := h.handle(t.Context(), ev)
	if err != nil {
		t.Fatal(err)
	}
	if out.StatusCode != 202 || out.Headers["Vary"] != "x, y" || len(out.Cookies) != 2 || out.Headers["Late"] != "" || out.Headers["Content-Length"] != "" {
		t.Errorf("%+v", out)
	}
	if got, err := base64.StdEncoding.DecodeString(out.Body); !out.IsBase64Encoded || err != nil || !bytes.Equal(got, binary) {
		t.Errorf("body %q", out.Body)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	ev := sample(t, "api-get-batch")
	ev.RequestContext.HTTP.Method = http.MethodHead
	h, _ := sampled(t)
	out, err := h.handle(t.Context(), ev)
	if err != nil || out.StatusCode != 200 || out.Body != "" || out.Headers["Content-Type"] != "application/json" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestWireReportsEveryFault(t *testing.T) {
	env := map[string]string{config.EnvTable: "t", "HOLDFAST_LEASE": "soon", "HOLDFAST_PART_LINES": "0"}
	_, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	for _, name := range []string{"HOLDFAST_LEASE", "HOLDFAST_PART_LINES", config.EnvInputsBucket, config.EnvResultsBucket, config.EnvStateMachineARN} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}

// The largest list that the API gives, of names that take most bytes in every
// form they go through, fits into what Lambda takes for an answer.
func TestLargestListFitsAnAnswer(t *testing.T) {
	h, mem := sampled(t)
	f := batch.File{Tenant: "acme", Purpose: "batch", CreatedAt: time.Now()}
	awkward := []string{`"`, `\`, "<", "\x01", "\u2028", "é"}
	for i := range 10_000 {
		f.ID, f.Filename = fmt.Sprintf("file-%026d", i), strings.Repeat(awkward[i%len(awkward)], 255)
		if err := mem.Table.Files.Put(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	ev := sample(t, "api-list-files")
	ev.RawQueryString = ""
	seen := 0
	for more := true; more; {
		out, err := h.handle(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := json.Marshal(out)
		if err != nil || len(whole) > 6<<20 {
			t.Fatalf("an answer of %d bytes, %v", len(whole), err)
		}
		body := []byte(out.Body)
		if out.IsBase64Encoded {
			if body, err = base64.StdEncoding.DecodeString(out.Body); err != nil {
				t.Fatal(err)
			}
		}
		var l openai.List[openai.File]
		if err := json.Unmarshal(body, &l); err != nil {
			t.Fatal(err)
		}
		seen, more = seen+len(l.Data), l.HasMore
		ev.RawQueryString = "after=" + *l.LastID
	}
	if seen != 10_001 { // and the sample
		t.Errorf("%d files listed", seen)
	}
}

// The largest body that goes as text fits too, whatever is in it, and one byte
// more goes as base64.
func TestTextAnswersFit(t *testing.T) {
	for size, encoded := range map[int]bool{maxText: false, maxText + 1: true} {
		h := handler{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat([]byte{1}, size)) })}
		out, err := h.handle(t.Context(), events.APIGatewayV2HTTPRequest{})
		if err != nil || out.IsBase64Encoded != encoded {
			t.Errorf("%d bytes: base64 %v, %v", size, out.IsBase64Encoded, err)
		}
		if whole, err := json.Marshal(out); err != nil || len(whole) > 6<<20 {
			t.Errorf("%d bytes: an answer of %d, %v", size, len(whole), err)
		}
	}
}

// A port that hangs leaves time to answer.
func TestAnswersBeforeTheDeadline(t *testing.T) {
	end := time.Now().Add(29 * time.Second)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	asked := false
	h := handler{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = true
		if d, ok := r.Context().Deadline(); !ok || end.Sub(d) < toAnswer {
			t.Errorf("the request may run until %v before the function is ended", end.Sub(d))
		}
	})}
	if _, err := h.handle(ctx, events.APIGatewayV2HTTPRequest{}); err != nil || !asked {
		t.Error(err, asked)
	}
}

// Where a request came from is what the gateway saw, and no header: a client that
// guesses keys would otherwise be somebody else each time.
func TestSourceIsTheGateways(t *testing.T) {
	h, _ := sampled(t)
	ev := sample(t, "api-get-file")
	right := ev.Headers["authorization"]
	from := func(ip, header string, n int) int {
		ev.RequestContext.HTTP.SourceIP = ip
		ev.Headers["authorization"] = header
		for _, name := range []string{"x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip"} {
			ev.Headers[name] = fmt.Sprintf("198.51.100.%d", n)
		}
		out, err := h.handle(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		return out.StatusCode
	}
	guess := func(n int) string { return "Bearer hf_" + strings.Repeat(string(rune('a'+n)), 32) }
	for n := range 12 {
		want := 401
		if n >= 10 {
			want = 429
		}
		if got := from("203.0.113.7", guess(n), n); got != want {
			t.Errorf("guess %d: %d, want %d", n, got, want)
		}
	}
	if got := from("203.0.113.8", right, 7); got != 200 {
		t.Errorf("from elsewhere: %d", got)
	}
}
