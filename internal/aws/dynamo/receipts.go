package dynamo

import (
	"context"
	"fmt"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"holdfast/internal/access"
)

var _ access.Receipts = (*Receipts)(nil)

// Receipts is access.Receipts.
type Receipts struct{ t *table }

// Intend implements access.Receipts.
func (s *Receipts) Intend(ctx context.Context, r access.Receipt) error {
	want := newReceiptItem(r)
	out, err := s.t.insert(ctx, want, insertReceipt())
	if err == nil && out.refused {
		var found receiptItem
		found, err = decode[receiptItem](out.item)
		found.Completion = nil
		if err == nil && !reflect.DeepEqual(found.receipt(), want.receipt()) {
			err = access.ErrReceipt
		}
	}
	if err != nil {
		return fmt.Errorf("intend %s of %s: %w", r.RequestID, r.Tenant, err)
	}
	return nil
}

// Complete implements access.Receipts.
func (s *Receipts) Complete(ctx context.Context, n access.ReceiptName, c access.Completion) error {
	out, err := s.t.update(ctx, receiptKey(n), completeReceipt(c), false)
	if err == nil && out.refused {
		err = ended(out.item, c)
	}
	if err != nil {
		return fmt.Errorf("complete %s of %s: %w", n.RequestID, n.Tenant, err)
	}
	return nil
}

// ended judges the receipt that a completion found and wasn't taken by.
func ended(a attributes, c access.Completion) error {
	if a == nil {
		return access.ErrReceipt
	}
	found, err := decode[receiptItem](a)
	if err != nil {
		return err
	}
	want := newCompletionItem(c)
	if !reflect.DeepEqual(found.Completion, &want) {
		return access.ErrReceipt
	}
	return nil
}

// List implements access.Receipts. One answer of DynamoDB's holds 1 MB, which may be
// less than a page.
func (s *Receipts) List(ctx context.Context, tenant, shelf, after string, limit int) ([]access.Receipt, bool, error) {
	found, err := s.list(ctx, tenant, shelf, after, limit)
	if err != nil {
		return nil, false, fmt.Errorf("list receipts of %s: %w", tenant, err)
	}
	if len(found) > limit {
		return found[:limit], true, nil
	}
	return found, false, nil
}

func (s *Receipts) list(ctx context.Context, tenant, shelf, after string, limit int) (found []access.Receipt, err error) {
	if limit < 1 || limit > access.MaxReceipts {
		return nil, fmt.Errorf("limit %d is not within 1-%d", limit, access.MaxReceipts)
	}
	if !storable(tenant) || !storable(shelf) || len(after) > maxID {
		return nil, nil // nothing was ever stored there
	}
	cond := expression.Key(attrPK).Equal(expression.Value(receiptShelf(tenant, shelf)))
	if after != "" {
		cond = cond.And(expression.Key(attrSK).GreaterThan(expression.Value(after)))
	}
	e, err := expression.NewBuilder().WithKeyCondition(cond).Build()
	if err != nil {
		return nil, err
	}
	return collect(ctx, s.t, &dynamodb.QueryInput{
		ConsistentRead:         aws.Bool(true),
		KeyConditionExpression: e.KeyCondition(), ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	}, limit+1, receiptItem.receipt)
}
