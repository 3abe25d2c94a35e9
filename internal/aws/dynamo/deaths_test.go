package dynamo

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

// conflicting lets other writes get in the way of the next transactions, as they
// do on AWS and don't in the emulator.
type conflicting struct {
	Client
	times int
	calls int
}

func (c *conflicting) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	if c.calls++; c.calls <= c.times {
		return nil, &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{
			{Code: aws.String("None")}, {Code: aws.String("TransactionConflict")},
		}}
	}
	return c.Client.TransactWriteItems(ctx, in, o...)
}

// TestRedriveAmongOtherWrites: META is written by whoever ends, finalizes or
// defers the batch; a redrive meanwhile is repeated, not refused.
func TestRedriveAmongOtherWrites(t *testing.T) {
	client, name := newTable(t)
	r, ctx := raw{client, name}, t.Context()
	b, dead := aBatch("acme"), aPart("acme", 0)
	ok(t, New(client, name).Batches.Create(ctx, b))
	must(New(client, name).Batches.Start(ctx, b.Tenant, b.ID, batch.Started{Parts: 1}, start))(t)
	dead.State = batch.Dead
	ok(t, r.seed(ctx, dead))
	for _, times := range []int{1000, 3} {
		c := &conflicting{Client: client, times: times}
		got, err := New(c, name).Deaths.Redrive(ctx, dead, start, start)
		if times == 3 {
			if err != nil || got.State != batch.Pending || c.calls != 4 {
				t.Errorf("after %d calls: %+v, %v", c.calls, got, err)
			}
			continue
		}
		if _, conflict := errors.AsType[*types.TransactionCanceledException](err); !conflict || c.calls != conflictTries+1 {
			t.Errorf("after %d calls: %v", c.calls, err)
		}
		for _, decision := range []error{batch.ErrStatus, batch.ErrStale, batch.ErrAlive, batch.ErrOver} {
			if errors.Is(err, decision) {
				t.Errorf("a conflict decides something: %v", err)
			}
		}
	}
	must(New(client, name).Endings.End(ctx, b.Tenant, b.ID, batch.Cancelled, start))(t)
	ok(t, r.seed(ctx, dead))
	if _, err := New(&conflicting{Client: client, times: 2}, name).Deaths.Redrive(ctx, dead, start, start); !errors.Is(err, batch.ErrStatus) {
		t.Errorf("after the end: %v", err)
	}
}
