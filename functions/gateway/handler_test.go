package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/access"
	"holdfast/internal/aws/meter"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/gateway"
	"holdfast/internal/memory"
)

func sample(t *testing.T, name string) events.LambdaFunctionURLRequest {
	t.Helper()
	raw, err := os.ReadFile("../../events/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var ev events.LambdaFunctionURLRequest
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// echo is an upstream that answers with what it was sent, in the form that was asked
// for.
type echo struct{}

func (echo) Open(_ context.Context, _, endpoint string, header http.Header, body []byte, _ func(context.Context) error) (*http.Response, error) {
	kind, text := "application/json", string(body)
	if header.Get("Accept") == "text/event-stream" {
		kind, text = "text/event-stream", "data: "+text+"\n\n"
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}, nil
}

const sampleBatch = "batch_sample000000000000000001"

// sampled is the gateway over stores that hold what the samples name.
func sampled(t *testing.T, log io.Writer) (handler, *memory.Memory) {
	t.Helper()
	mem := memory.New(memory.Options{})
	for name, k := range map[string]access.Key{
		"gateway-chat":   {Tenant: "acme", Principal: "ann@acme", Name: "people", Scopes: []access.Scope{access.Submit, access.Read}},
		"gateway-replay": {Tenant: "fleet", Principal: "worker", Name: "workers", Scopes: []access.Scope{access.BatchReplay}},
	} {
		k.Hash = access.HashSecret(strings.TrimPrefix(sample(t, name).Headers["authorization"], "Bearer "))
		if err := mem.Table.Keys.Put(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: sampleBatch, Status: batch.InProgress, Submitter: "ann@acme", Endpoint: "/v1/chat/completions", Lines: 1})
	settings := config.Default()
	settings.Models = []string{"sim"}
	lines := slog.New(slog.NewJSONHandler(log, nil))
	g := gateway.New(gateway.Ports{
		Keys: access.NewCache(mem.Table.Keys, nil), Tenants: access.NewTenantCache(mem.Table.Tenants, nil),
		Batches: mem.Table.Batches, Replays: mem.Table.Keys, Receipts: mem.Table.Receipts, Upstream: echo{},
	}, settings, &gateway.Options{Log: lines})
	return handler{g, meter.NewInvocations("gateway", 0, func(string) string { return "512" }, lines)}, mem
}

// taken is an answer as the function URL takes it: prelude, eight zero bytes, body.
type taken struct {
	status  int
	headers map[string]string
	body    string
	err     error // of reading it
}

func take(t *testing.T, h handler, ev events.LambdaFunctionURLRequest) taken {
	t.Helper()
	out, err := h.handle(t.Context(), ev)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	raw, err := io.ReadAll(out)
	prelude, body, ok := bytes.Cut(raw, make([]byte, 8))
	var p struct {
		StatusCode int               `json:"statusCode"`
		Headers    map[string]string `json:"headers"`
	}
	if !ok || json.Unmarshal(prelude, &p) != nil {
		t.Fatalf("answer %q, %v", raw, err)
	}
	return taken{p.StatusCode, p.Headers, string(body), err}
}

func TestSamples(t *testing.T) {
	for name, want := range map[string]struct{ kind, body string }{
		"gateway-chat":        {"application/json", `{"model": "sim", "messages": [{"role": "user", "content": "Grüße"}]}`},
		"gateway-stream":      {"text/event-stream", `data: {"model": "sim", "stream": true, "stream_options": {"include_usage": true}, "messages": []}` + "\n\n"},
		"gateway-replay":      {"application/json", `{"model": "sim", "messages": []}`},
		"gateway-list-models": {"application/json", `{"object":"list","data":[{"id":"sim","object":"model","created":0,"owned_by":"upstream"}]}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h, mem := sampled(t, &log)
			ev := sample(t, name)
			a := take(t, h, ev)
			if a.status != 200 || a.body != want.body || a.err != nil || a.headers["Content-Type"] != want.kind || a.headers["X-Request-Id"] != ev.RequestContext.RequestID {
				t.Errorf("%+v", a)
			}
			if _, there := a.headers["Content-Length"]; there {
				t.Errorf("a length, of a body that is cut into chunks: %v", a.headers)
			}
			shelf := access.DayShelf(time.Now())
			if name == "gateway-replay" {
				shelf = sampleBatch
			}
			page, _, err := mem.Table.Receipts.List(t.Context(), "acme", shelf, "", 10)
			if calls := map[bool]int{true: 1}[name != "gateway-list-models"]; err != nil || len(page) != calls {
				t.Errorf("%d receipts, %v", len(page), err)
			}
			for _, r := range page {
				// The answer ends after its receipt, or the process could stand still before.
				if r.Completion == nil || r.RequestID != ev.RequestContext.RequestID || r.OnBehalfOf != "ann@acme" {
					t.Errorf("receipt %+v", r)
				}
			}
			if strings.Count(log.String(), `"msg":"request"`) != 1 || strings.Count(log.String(), `"function":"gateway"`) != 1 || strings.Contains(log.String(), "Bearer") {
				t.Errorf("log %s", log.String())
			}
			// Sent by somebody without a key.
			delete(ev.Headers, "authorization")
			if a := take(t, h, ev); a.status != 401 || !strings.Contains(a.body, "invalid_api_key") {
				t.Errorf("%+v", a)
			}
		})
	}
}

// What a client may send that lambdaurl has no answer to, and what must not be taken
// for what it isn't.
func TestOddEvents(t *testing.T) {
	h, _ := sampled(t, io.Discard)
	for name, c := range map[string]struct {
		change func(*events.LambdaFunctionURLRequest)
		status int
	}{
		"a stray % in the path":  {func(ev *events.LambdaFunctionURLRequest) { ev.RawPath = "/v1/%zz" }, 404},
		"a path without a slash": {func(ev *events.LambdaFunctionURLRequest) { ev.RawPath = "v1/chat/completions" }, 200},
		"a path that is a host":  {func(ev *events.LambdaFunctionURLRequest) { ev.RawPath = "//evil.example/v1/chat/completions" }, 404},
		"no path":                {func(ev *events.LambdaFunctionURLRequest) { ev.RawPath = "" }, 404},
		"base64 that is none":    {func(ev *events.LambdaFunctionURLRequest) { ev.IsBase64Encoded, ev.Body = true, "%%%" }, 400},
		"no method":              {func(ev *events.LambdaFunctionURLRequest) { ev.RequestContext.HTTP.Method = "" }, 405},
		"two keys, as the door joins": {func(ev *events.LambdaFunctionURLRequest) {
			ev.Headers["authorization"] += "," + ev.Headers["authorization"]
		}, 401},
		"two tenants, likewise": {func(ev *events.LambdaFunctionURLRequest) { ev.Headers["x-tenant-id"] = "acme,acme" }, 403},
		"its own tenant":        {func(ev *events.LambdaFunctionURLRequest) { ev.Headers["x-tenant-id"] = "acme" }, 200},
		"nothing at all":        {func(ev *events.LambdaFunctionURLRequest) { *ev = events.LambdaFunctionURLRequest{} }, 404},
	} {
		ev := sample(t, "gateway-chat")
		c.change(&ev)
		if a := take(t, h, ev); a.status != c.status || a.headers["X-Request-Id"] == "" {
			t.Errorf("%s: %+v, want %d", name, a, c.status)
		}
	}
	ev := sample(t, "gateway-replay")
	ev.Headers["x-tenant-id"] = "acme,acme"
	if a := take(t, h, ev); a.status != 403 || !strings.Contains(a.body, "batch_replay_not_authorized") {
		t.Errorf("a joined tenant of a replay: %+v", a)
	}
	ev = sample(t, "gateway-list-models")
	ev.RequestContext.HTTP.Method = "HEAD"
	if a := take(t, h, ev); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %+v", a)
	}
}

// Who guesses is known by the address that the door saw.
func TestSourceIsTheContexts(t *testing.T) {
	h, _ := sampled(t, io.Discard)
	ev := sample(t, "gateway-chat")
	good := ev.Headers["authorization"]
	for i := range 10 {
		ev.Headers["authorization"] = "Bearer hf_" + strings.Repeat(string(rune('a'+i)), 32)
		ev.Headers["x-forwarded-for"] = "198.51.100." + string(rune('0'+i))
		if a := take(t, h, ev); a.status != 401 {
			t.Fatalf("guess %d: %+v", i, a)
		}
	}
	ev.Headers["authorization"], ev.Headers["x-forwarded-for"] = good, "203.0.113.9"
	if a := take(t, h, ev); a.status != 429 || a.headers["Retry-After"] == "" {
		t.Errorf("after ten guesses from one address: %+v", a)
	}
	ev.RequestContext.HTTP.SourceIP = "203.0.113.9"
	if a := take(t, h, ev); a.status != 200 {
		t.Errorf("from another address: %+v", a)
	}
}

func handlerOf(f http.HandlerFunc) handler { return handler{http: f} }

// What is written is there to be read before anything else is written.
func TestStreams(t *testing.T) {
	goOn := make(chan struct{})
	h := handlerOf(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		for _, text := range []string{"one", "two"} {
			<-goOn
			_, _ = io.WriteString(w, text)
		}
		<-goOn
	})
	out, err := h.handle(t.Context(), sample(t, "gateway-chat"))
	if err != nil || out.StatusCode != 200 || out.Headers["Content-Type"] != "text/event-stream" {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, want := range []string{"one", "two"} {
		goOn <- struct{}{}
		got := make([]byte, 3)
		if _, err := io.ReadFull(out.Body, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	close(goOn)
	if n, err := out.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("at its end %d bytes, %v", n, err)
	}
}

// A reply that breaks off, for whatever reason, has no end that looks like one.
func TestBrokenAnswers(t *testing.T) {
	begun := handlerOf(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	if a := take(t, begun, sample(t, "gateway-chat")); a.status != 200 || a.body != "half" || !errors.Is(a.err, errBroke) {
		t.Errorf("%+v", a)
	}
	bug := handlerOf(func(http.ResponseWriter, *http.Request) { panic("a secret") })
	if a := take(t, bug, sample(t, "gateway-chat")); a.status != 500 || a.body != "" || !errors.Is(a.err, errBroke) || strings.Contains(a.err.Error(), "secret") {
		t.Errorf("%+v", a)
	}
}

// When the runtime lets go of the answer, the request is over, whatever it waits for.
func TestReaderGone(t *testing.T) {
	over := make(chan error, 2)
	h := handlerOf(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		<-r.Context().Done()
		over <- r.Context().Err()
		_, err := io.WriteString(w, "more")
		over <- err
	})
	out, err := h.handle(t.Context(), sample(t, "gateway-chat"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the request's context: %v", err)
	}
	if err := <-over; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write behind that: %v", err)
	}
}

// A request is over before the function is, so that there is time for its receipt.
func TestDeadline(t *testing.T) {
	end := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	h := handlerOf(func(_ http.ResponseWriter, r *http.Request) {
		if got, ok := r.Context().Deadline(); !ok || !got.Equal(end.Add(-toEnd)) {
			t.Errorf("deadline %v, want %v", got, end.Add(-toEnd))
		}
	})
	out, err := h.handle(ctx, sample(t, "gateway-chat"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(out); err != nil {
		t.Error(err)
	}
}

// A body comes as it was sent.
func TestBody(t *testing.T) {
	for _, want := range []string{"", "{}", "a", "ab", "abc", strings.Repeat("ü", 1000)} {
		ev := sample(t, "gateway-chat")
		ev.Body, ev.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(want)), true
		r := request(t.Context(), ev)
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != want || r.ContentLength != int64(len(want)) {
			t.Errorf("%q of length %d, %v; want %q", got, r.ContentLength, err, want)
		}
	}
}

func TestWire(t *testing.T) {
	env := map[string]string{"HOLDFAST_TABLE": "t", "HOLDFAST_UPSTREAM_URL": "https://models.example", "AWS_REGION": "eu-central-1"}
	getenv := func(name string) string { return env[name] }
	if h, err := wire(t.Context(), getenv, slog.New(slog.DiscardHandler)); err != nil || h.http == nil {
		t.Errorf("%v", err)
	}
	env["HOLDFAST_UPSTREAM_URL"] = "http://169.254.169.254"
	if _, err := wire(t.Context(), getenv, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "address is refused") {
		t.Errorf("%v", err)
	}
	delete(env, "HOLDFAST_TABLE")
	delete(env, "HOLDFAST_UPSTREAM_URL")
	_, err := wire(t.Context(), getenv, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "HOLDFAST_TABLE") || !strings.Contains(err.Error(), "HOLDFAST_UPSTREAM_URL") {
		t.Errorf("%v", err)
	}
}

// A status that no answer has doesn't become a success on its way.
func TestStatusThatIsNone(t *testing.T) {
	for _, status := range []int{0, 99, 101, 600, 999} {
		h := handler{http: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "{}")
		})}
		if a := take(t, h, events.LambdaFunctionURLRequest{}); a.status != http.StatusBadGateway {
			t.Errorf("%d became %d", status, a.status)
		}
	}
}
