package dynamo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// twice sends every write a second time and gives that answer: what the SDK does
// when the first one's was lost.
type twice struct{ Client }

func (c twice) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if out, err := c.Client.PutItem(ctx, in, o...); err != nil {
		return out, err
	}
	return c.Client.PutItem(ctx, in, o...)
}

func (c twice) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if out, err := c.Client.UpdateItem(ctx, in, o...); err != nil {
		return out, err
	}
	return c.Client.UpdateItem(ctx, in, o...)
}

func (c twice) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	if out, err := c.Client.DeleteItem(ctx, in, o...); err != nil {
		return out, err
	}
	return c.Client.DeleteItem(ctx, in, o...)
}

func (c twice) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	first, second := *in, *in // each gets a request token of its own: to DynamoDB they are two
	if out, err := c.Client.TransactWriteItems(ctx, &first, o...); err != nil {
		return out, err
	}
	return c.Client.TransactWriteItems(ctx, &second, o...)
}

// TestLostAnswers takes a batch through its life while every answer is lost
// once. What a port recognises as its own write is success and took effect
// once; Create, HandOver, Fail and Delete say what they say to anybody.
func TestLostAnswers(t *testing.T) {
	client, name := newTable(t)
	s, ctx := New(twice{client}, name), t.Context()
	b, p := aBatch("acme"), aPart("acme", 0)
	c := batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}
	tok, open := lease.NewToken(), aPart("acme", 1)
	check := batch.Checkpoint{To: 2, Done: batch.Bitmap{3}, Chunk: batch.Chunk{Key: "k", N: 2, OK: 2}}
	f := batch.File{Tenant: "acme", ID: "file-1", CreatedAt: start, ExpiresAt: start}
	receipt := access.Receipt{ReceiptName: access.ReceiptName{Tenant: "acme", StartedAt: start, RequestID: "req_1"}}
	for _, step := range []struct {
		name string
		do   func() error
		want error
	}{
		{"Files.Put", func() error { return s.Files.Put(ctx, f) }, nil},
		{"Files.Delete", func() error { return s.Files.Delete(ctx, f.Tenant, f.ID, start) }, batch.ErrDeleted},
		{"Keys.Put", func() error {
			return s.Keys.Put(ctx, access.Key{Hash: "h", Tenant: "acme", Scopes: []access.Scope{access.Read, access.Admin}, CreatedAt: start})
		}, nil},
		{"Keys.Touch", func() error { return s.Keys.Touch(ctx, access.Key{Hash: "h", Tenant: "acme", CreatedAt: start}, start) }, nil},
		{"Keys.Rotate", func() error {
			return s.Keys.Rotate(ctx, access.Key{Hash: "h", Tenant: "acme"}, access.Key{Hash: strings.Repeat("b", 64), Tenant: "acme", CreatedAt: start}, start)
		}, nil},
		{"Keys.Disable", func() error { return errOf(s.Keys.Disable(ctx, "acme", "h", start)) }, nil},
		{"Tenants.Put", func() error { return s.Tenants.Put(ctx, access.Tenant{Name: "acme", CreatedAt: start}) }, nil},
		{"Tenants.Put", func() error { return s.Tenants.Put(ctx, access.Tenant{Name: "acme", CreatedAt: start, Ver: 1}) }, nil},
		{"Receipts.Intend", func() error { return s.Receipts.Intend(ctx, receipt) }, nil},
		{"Receipts.Complete", func() error { return s.Receipts.Complete(ctx, receipt.ReceiptName, access.Completion{Time: start}) }, nil},
		{"Batches.Create", func() error { return s.Batches.Create(ctx, b) }, nil},
		{"Parts.Insert", func() error { return s.Parts.Insert(ctx, []batch.Part{p}) }, nil},
		{"Batches.Start", func() error {
			return errOf(s.Batches.Start(ctx, b.Tenant, b.ID, batch.Started{Parts: 1, Lines: 2, Model: "m"}, start))
		}, nil},
		{"Claims.Claim", func() error {
			got, err := s.Claims.Claim(ctx, c, "token", 3, start, start)
			if got.Attempts != 1 || got.Owner != c.Token {
				t.Errorf("claimed %+v", got)
			}
			return err
		}, nil},
		{"Claims.Fail", func() error { return s.Claims.Fail(ctx, c, "why", start, start) }, lease.ErrLost},
		{"Claims.Claim", func() error { return errOf(s.Claims.Claim(ctx, c, "token", 3, start, start)) }, nil},
		{"Claims.HandOver", func() error { return s.Claims.HandOver(ctx, c, 0, start, start) }, lease.ErrLost},
		{"Claims.Claim", func() error { return errOf(s.Claims.Claim(ctx, c, "token", 3, start, start)) }, nil},
		{"Claims.Heartbeat", func() error { return s.Claims.Heartbeat(ctx, c, 0, start, start) }, nil},
		{"Claims.Checkpoint", func() error { return s.Claims.Checkpoint(ctx, c, check, start, start) }, nil},
		{"Claims.Finish", func() error { return s.Claims.Finish(ctx, c, 2, start) }, nil},
		{"Parts.Insert", func() error { return s.Parts.Insert(ctx, []batch.Part{open}) }, nil},
		{"Seals.Seal", func() error {
			got, err := s.Seals.Seal(ctx, open.PartKey, 1, start)
			if got.State != batch.Sealed || got.Ver != 2 {
				t.Errorf("sealed %+v", got)
			}
			return err
		}, nil},
		{"Endings.End", func() error { return errOf(s.Endings.End(ctx, b.Tenant, b.ID, batch.Completed, start)) }, nil},
		{"Endings.Finalize", func() error { return errOf(s.Endings.Finalize(ctx, b.Tenant, b.ID, tok, start, start, start)) }, nil},
		{"Endings.Hold", func() error { return s.Endings.Hold(ctx, b.Tenant, b.ID, tok, start, start) }, nil},
		{"Endings.Close", func() error { return errOf(s.Endings.Close(ctx, b.Tenant, b.ID, tok, batch.Closed{}, start)) }, nil},
	} {
		if err := step.do(); !errors.Is(err, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, err, step.want)
		}
	}
	got := must(s.Parts.Get(ctx, p.PartKey))(t)
	if got.State != batch.Done || got.Processed != 2 || len(got.Chunks) != 1 {
		t.Errorf("part %+v: want it done with one chunk", got)
	}
	if b := must(s.Batches.Get(ctx, b.Tenant, b.ID))(t); b.Status != batch.Completed || b.Finalizer != tok {
		t.Errorf("batch %+v", b)
	}

	b.ID = "batch_2"
	ok(t, s.Batches.Create(ctx, b))
	must(s.Batches.Refuse(ctx, b.Tenant, b.ID, nil, start))(t)
}
