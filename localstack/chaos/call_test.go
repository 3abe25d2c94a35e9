package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// The steps are told by what the adapters really send: one that is sent another
// way must not go by unseen, or nobody is struck there any more.
func TestCallsOfTheAdapters(t *testing.T) {
	var seen []call
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bodied(r.Header) {
			body = nil
		}
		seen = append(seen, callOf(r.Method, r.URL.Path, r.Header, body))
		w.WriteHeader(http.StatusBadRequest) // refused for good: the adapter doesn't try again
		io.WriteString(w, `{"__type":"ValidationException","message":"no"}`)
	}))
	t.Cleanup(s.Close)
	cfg := aws.Config{
		BaseEndpoint: &s.URL, Region: "us-east-1", RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	var (
		ctx    = t.Context()
		table  = dynamo.Open(cfg, "table")
		key    = batch.PartKey{Tenant: "acme", Batch: "batch_x", N: 7}
		claims = batch.Claim{PartKey: key, Token: lease.NewToken()}
		now    = time.Now()
	)
	for _, tt := range []struct {
		name string
		want step
		call func(context.Context) error
	}{
		{"claim", claim, func(ctx context.Context) error {
			_, err := table.Claims.Claim(ctx, claims, "task", 3, now.Add(time.Minute), now)
			return err
		}},
		{"steal", claim, func(ctx context.Context) error {
			_, err := table.Claims.Steal(ctx, claims, "task", 4, 3, now, now.Add(time.Minute), now)
			return err
		}},
		{"heartbeat", other, func(ctx context.Context) error {
			return table.Claims.Heartbeat(ctx, claims, 1, now.Add(time.Minute), now)
		}},
		{"suspect", suspect, func(ctx context.Context) error {
			return table.Claims.Suspect(ctx, claims, batch.Suspect{Line: 2, Strikes: 1, By: claims.Token}, 0, now.Add(time.Minute), now)
		}},
		{"checkpoint", checkpoint, func(ctx context.Context) error {
			return table.Claims.Checkpoint(ctx, claims, batch.Checkpoint{To: 1, Done: batch.Bitmap{1}, Chunk: batch.Chunk{Key: "k", N: 1, OK: 1}}, now.Add(time.Minute), now)
		}},
		{"hand over", other, func(ctx context.Context) error { return table.Claims.HandOver(ctx, claims, 0, now, now) }},
	} {
		seen = nil
		if err := tt.call(ctx); err == nil {
			t.Errorf("%s: succeeded against a table that refuses everything", tt.name)
		}
		if len(seen) == 0 {
			t.Errorf("%s: no call", tt.name)
			continue
		}
		c := seen[0]
		if c.step != tt.want || c.part != key {
			t.Errorf("%s is step %d of %+v, want %d", tt.name, c.step, c.part, tt.want)
		}
		if len(c.tokens) == 0 || c.tokens[0] != claims.Token {
			t.Errorf("%s names %q, want %s", tt.name, c.tokens, claims.Token)
		}
	}

	seen = nil
	d := batch.Delivery{Receipt: "receipt-1"}
	if err := queue.New(cfg, s.URL+"/queue").Hide(ctx, d, time.Minute); err == nil {
		t.Error("the queue took it")
	}
	if len(seen) != 1 || seen[0].step != arrival || seen[0].receipt != d.Receipt {
		t.Errorf("visibility: %+v", seen)
	}
	seen = nil
	if err := workflow.New(cfg, "").Report(ctx, "task"); err == nil {
		t.Error("the workflow took it")
	}
	if len(seen) != 1 || seen[0].step != report {
		t.Errorf("report: %+v", seen)
	}
}

// Nor those of whoever starts a batch: a claim is held, and its confirm isn't.
func TestCallsOfTheBridge(t *testing.T) {
	var seen []call
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bodied(r.Header) {
			body = nil
		}
		seen = append(seen, callOf(r.Method, r.URL.Path, r.Header, body))
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"ValidationException","message":"no"}`)
	}))
	t.Cleanup(s.Close)
	cfg := aws.Config{
		BaseEndpoint: &s.URL, Region: "us-east-1", RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	var (
		table = dynamo.Open(cfg, "table")
		flow  = workflow.New(cfg, "arn:aws:states:us-east-1:000000000000:stateMachine:m")
		now   = time.Now()
		key   = bridge.Key{Tenant: "acme#1", CorrelationID: "T#x#B#y"}
		row   = bridge.Row{Key: key, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1, ClaimedAt: now, Due: now}
	)
	for _, tt := range []struct {
		name string
		want step
		call func(context.Context) error
	}{
		{"claim", reserve, func(ctx context.Context) error { return table.Bridge.Claim(ctx, row) }},
		{"steal", reserve, func(ctx context.Context) error {
			_, err := table.Bridge.Steal(ctx, key, 1, now, lease.NewToken(), now, now)
			return err
		}},
		{"confirm", other, func(ctx context.Context) error { return table.Bridge.Confirm(ctx, key, row.Token, "job", time.Now()) }},
		{"release", other, func(ctx context.Context) error { return table.Bridge.Release(ctx, key, row.Token) }},
		{"send", other, func(ctx context.Context) error {
			return table.Sends.Record(ctx, bridge.Send{Tenant: "acme#1", Hash: "h", ID: "i", At: now, ExpiresAt: now}, 0)
		}},
		{"create", create, func(ctx context.Context) error {
			return table.Batches.Create(ctx, batch.Batch{Tenant: "acme#1", ID: "batch_x", CreatedAt: now})
		}},
		{"event", other, func(ctx context.Context) error {
			return table.Events.Record(ctx, batch.Event{Tenant: "acme#1", Batch: "batch_x", Part: batch.NoPart, Kind: "refused", At: now})
		}},
		{"start", launch, func(ctx context.Context) error { return flow.Start(ctx, "batch_x", "acme#1", "batch_x") }},
		{"start of the last step", other, func(ctx context.Context) error { return flow.Finish(ctx, "batch_x-finish", "acme#1", "batch_x") }},
	} {
		seen = nil
		if err := tt.call(t.Context()); err == nil {
			t.Errorf("%s: succeeded against a table that refuses everything", tt.name)
		}
		if len(seen) == 0 {
			t.Errorf("%s: no call", tt.name)
			continue
		}
		c := seen[0]
		if c.step != tt.want || c.step.starting() != (tt.want != other) || tt.want != other && c.tenant != "acme#1" {
			t.Errorf("%s is step %d of %q, want %d", tt.name, c.step, c.tenant, tt.want)
		}
	}
}

func TestReadsOfInput(t *testing.T) {
	for _, tt := range []struct {
		method, path string
		want         step
	}{
		{"GET", "/inputs/files/acme/file-1", read},
		{"GET", "/results/acme/out/batch_x_output.jsonl", other},
		{"PUT", "/results/acme/parts/batch_x/0/T-0.jsonl", other},
	} {
		if got := callOf(tt.method, tt.path, http.Header{}, nil).step; got != tt.want {
			t.Errorf("%s %s is step %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
}
