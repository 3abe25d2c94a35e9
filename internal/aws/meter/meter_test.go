package meter

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"

	"holdfast/internal/batch"
	"holdfast/internal/cost"
	"holdfast/internal/memory"
)

// try sends one request through a stack with the counter, to be answered as given.
func try(ctx context.Context, operation string, body string, answer *http.Response, failure error) {
	cfg := aws.Config{}
	Count(&cfg)
	stack := middleware.NewStack(operation, smithyhttp.NewStackRequest)
	for _, option := range cfg.APIOptions {
		if err := option(stack); err != nil {
			panic(err)
		}
	}
	metadata := awsmiddleware.RegisterServiceMetadata{ServiceID: "S3", OperationName: operation}
	_ = stack.Initialize.Add(&metadata, middleware.Before)
	_ = stack.Serialize.Add(middleware.SerializeMiddlewareFunc("body", func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (middleware.SerializeOutput, middleware.Metadata, error) {
		in.Request.(*smithyhttp.Request).ContentLength = int64(len(body))
		return next.HandleSerialize(ctx, in)
	}), middleware.After)
	handler := middleware.DecorateHandler(middleware.HandlerFunc(func(ctx context.Context, _ any) (any, middleware.Metadata, error) {
		if answer == nil {
			return nil, middleware.Metadata{}, failure
		}
		return &smithyhttp.Response{Response: answer}, middleware.Metadata{}, failure
	}), stack)
	_, _, _ = handler.Handle(ctx, nil)
}

func response(status int, length int64) *http.Response {
	return &http.Response{StatusCode: status, ContentLength: length, Body: io.NopCloser(strings.NewReader(""))}
}

func TestCount(t *testing.T) {
	try(t.Context(), "PutObject", "x", response(200, 0), nil) // no record, and no harm
	ctx, r := Begin(t.Context())
	a := batch.WithSubject(ctx, "acme", "batch_a")
	try(a, "PutObject", "abcd", response(200, 0), nil)
	try(a, "PutObject", "ab", response(412, 10), nil)
	try(a, "PutObject", "ab", response(503, 0), nil)
	try(a, "PutObject", "ab", nil, io.ErrUnexpectedEOF)
	try(a, "GetObject", "", response(206, 5000), nil)
	try(a, "GetObject", "", response(200, -1), nil) // of unknown length
	try(batch.WithSubject(ctx, "acme", "batch_b"), "GetObject", "", response(200, 1), nil)
	try(ctx, "GetObject", "", response(200, 2), nil)
	Units(a, "DynamoDB.GetItem", 1.5, 0)
	Units(a, "DynamoDB.GetItem", 0.5, 2)

	got := r.Shares(nil, batch.Subject{})
	if len(got) != 3 || got[0].Batch != "" || got[1].Batch != "batch_a" || got[2].Batch != "batch_b" {
		t.Fatalf("shares %+v", got)
	}
	want := map[string]cost.Calls{
		"S3.PutObject":     {Answered: 2, Failed: 2, Sent: 10, Received: 10},
		"S3.GetObject":     {Answered: 2, Received: 5000},
		"DynamoDB.GetItem": {Reads: 2, Writes: 2},
	}
	for name, c := range want {
		if got[1].Calls[name] != c {
			t.Errorf("%s: %+v, want %+v", name, got[1].Calls[name], c)
		}
	}
	if got[0].Calls["S3.GetObject"].Received != 2 || got[2].Calls["S3.GetObject"].Received != 1 {
		t.Errorf("a call counts for another batch: %+v", got)
	}
	if got[0].Part != 0 || got[1].Part != 0.5 || got[2].Part != 0.5 {
		t.Errorf("without lines all batches share alike: %+v", got)
	}
}

func TestShares(t *testing.T) {
	a, b := batch.Subject{Tenant: "acme", Batch: "batch_a"}, batch.Subject{Tenant: "acme", Batch: "batch_b"}
	ctx, r := Begin(t.Context())
	Units(batch.WithSubject(ctx, a.Tenant, a.Batch), "DynamoDB.GetItem", 1, 0)
	Units(ctx, "SQS.ReceiveMessage", 1, 0)
	got := r.Shares(map[batch.Subject]int{a: 300, b: 100}, batch.Subject{})
	if len(got) != 3 || got[1].Part != 0.75 || got[1].Lines != 300 || got[2].Part != 0.25 {
		t.Errorf("by lines: %+v", got)
	}
	// Somebody whom everything is for that nobody was named for.
	got = r.Shares(nil, batch.Subject{Batch: "batch_c"})
	if len(got) != 2 || got[0].Batch != "batch_c" || got[0].Calls["SQS.ReceiveMessage"].Reads != 1 || got[0].Part != 0.5 {
		t.Errorf("unnamed: %+v", got)
	}
	// Also where there was no call at all.
	_, none := Begin(t.Context())
	if got := none.Shares(nil, batch.Subject{Batch: "batch_c"}); len(got) != 1 || got[0].Part != 1 {
		t.Errorf("no call: %+v", got)
	}
}

// The API knows a batch by its id before it knows whose it is. That is one batch,
// and it has one share.
func TestOneBatchByTwoNames(t *testing.T) {
	id := "batch_a"
	ctx, r := Begin(t.Context())
	Units(batch.WithSubject(ctx, "acme", id), "DynamoDB.UpdateItem", 0, 10)
	Units(batch.WithSubject(ctx, "", id), "DynamoDB.UpdateItem", 0, 2)
	Units(ctx, "DynamoDB.GetItem", 1, 0)
	got := r.Shares(nil, batch.Subject{Batch: id})
	if len(got) != 1 || got[0].Tenant != "acme" || got[0].Part != 1 || got[0].Calls["DynamoDB.UpdateItem"].Writes != 12 || got[0].Calls["DynamoDB.GetItem"].Reads != 1 {
		t.Fatalf("shares %+v", got)
	}
	i := cost.Invocation{Batches: got}
	if s, ok := i.Of("acme", id); !ok || s.Calls["DynamoDB.UpdateItem"].Writes != 12 {
		t.Errorf("acme's share is %+v", s)
	}
}

type slow struct{ d time.Duration }

func (s slow) Call(ctx context.Context, _ batch.Call) (batch.Reply, error) {
	return batch.Reply{}, memory.Wait(ctx, s.d)
}

func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Model{slow{1500 * time.Millisecond}}
		_, _ = m.Call(t.Context(), batch.Call{})
		ctx, r := Begin(t.Context())
		for range 2 {
			_, _ = m.Call(batch.WithSubject(ctx, "acme", "batch_a"), batch.Call{})
		}
		if got := r.Shares(nil, batch.Subject{}); len(got) != 1 || got[0].Upstream != (cost.Upstream{Requests: 2, Waited: 3000}) {
			t.Errorf("shares %+v", got)
		}
	})
}

// The line is short, and nothing is in it but names of batches and operations,
// and numbers.
func TestLine(t *testing.T) {
	var out bytes.Buffer
	inv := NewInvocations("work", 32, func(name string) string {
		return map[string]string{"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}[name]
	}, slog.New(slog.NewJSONHandler(&out, nil)))
	id := "batch_" + strings.Repeat("a", 32)
	for range 2 {
		ctx, end := inv.Start(t.Context())
		a := batch.WithSubject(ctx, "acme", id)
		for _, operation := range []string{"PutObject", "GetObject"} {
			try(a, operation, "secret body", response(200, 100), nil)
		}
		for _, operation := range []string{"DynamoDB.UpdateItem", "DynamoDB.GetItem", "SQS.ChangeMessageVisibility", "SQS.DeleteMessage", "SFN.SendTaskSuccess"} {
			Units(a, operation, 12.5, 345)
		}
		end(map[batch.Subject]int{{Tenant: "acme", Batch: id}: 500}, batch.Subject{})
	}
	lines := strings.SplitAfter(out.String(), "\n")
	if len(lines) != 3 || len(lines[0]) > 1000 {
		t.Fatalf("lines of %d bytes: %s", len(lines[0]), out.String())
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("a body was logged")
	}
	for n, line := range lines[:2] {
		i, err := cost.ParseLine(line)
		if err != nil || i.Function != "work" || i.Memory != 512 || i.Slots != 32 || (i.Init > 0) != (n == 0) {
			t.Errorf("line %d: %+v, %v", n, i, err)
		}
		s, ok := i.Of("acme", id)
		if !ok || s.Lines != 500 || s.Part != 1 || s.Calls["DynamoDB.UpdateItem"].Writes != 345 || math.IsNaN(s.Part) {
			t.Errorf("share %+v", s)
		}
	}
	var nobody Invocations // what a test's handler has
	ctx, end := nobody.Start(t.Context())
	try(ctx, "PutObject", "", response(200, 0), nil)
	end(nil, batch.Subject{})
}
