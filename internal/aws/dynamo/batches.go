package dynamo

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

var _ batch.Batches = (*Batches)(nil)

// Batches is batch.Batches.
type Batches struct{ t *table }

// maxPage is the most batches that List returns at once.
const maxPage = 100

// Create implements batch.Batches (C15 create).
func (s *Batches) Create(ctx context.Context, b batch.Batch) error {
	b.Status = batch.Validating
	if b.Due.IsZero() {
		b.Due = b.Deadline
	}
	b.Ver++
	want := newBatchItem(b)
	out, err := s.t.insert(ctx, want, c15Create())
	if err == nil && out.refused {
		// What can't be read is no batch of ours, either.
		if found, bad := decode[batchItem](out.item); bad != nil || !reflect.DeepEqual(found.batch(), want.batch()) {
			err = batch.ErrExists
		}
	}
	if err != nil {
		return batchErr("create", b.Tenant, b.ID, err)
	}
	return nil
}

// Get implements batch.Batches.
func (s *Batches) Get(ctx context.Context, tenant, id string) (batch.Batch, error) {
	b, err := s.get(ctx, tenant, id)
	if err != nil {
		return batch.Batch{}, batchErr("get", tenant, id, err)
	}
	return b, nil
}

func (s *Batches) get(ctx context.Context, tenant, id string) (batch.Batch, error) {
	if !storable(id) {
		return batch.Batch{}, batch.ErrNotFound
	}
	a, err := s.t.get(ctx, metaKey(tenant, id))
	if err != nil {
		return batch.Batch{}, err
	}
	i, err := decode[batchItem](a)
	return i.batch(), err
}

// List implements batch.Batches. The cursor is read first, because the index is
// ordered by creation and an id alone doesn't say when that was. A limit outside
// 1-100 is an error.
func (s *Batches) List(ctx context.Context, tenant, after string, limit int) ([]batch.Batch, bool, error) {
	if limit < 1 || limit > maxPage {
		return nil, false, batchErr("list", tenant, "", fmt.Errorf("limit %d is not within 1-%d", limit, maxPage))
	}
	cond := expression.Key(attrTenantPK).Equal(expression.Value(tenantBatches(tenant)))
	if after != "" {
		b, err := s.get(ctx, tenant, after)
		if err != nil {
			return nil, false, batchErr("list after", tenant, after, err)
		}
		cond = cond.And(expression.Key(attrTenantSK).LessThan(expression.Value(tenantSK(b.CreatedAt, b.ID))))
	}
	page, err := s.list(ctx, cond, limit+1)
	if err != nil {
		return nil, false, batchErr("list", tenant, "", err)
	}
	if len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

// list returns the newest of what cond selects, at most limit. One answer of
// DynamoDB's holds 1 MB, which may be less.
func (s *Batches) list(ctx context.Context, cond expression.KeyConditionBuilder, limit int) ([]batch.Batch, error) {
	e, err := expression.NewBuilder().WithKeyCondition(cond).Build()
	if err != nil {
		return nil, err
	}
	pages := dynamodb.NewQueryPaginator(s.t.client, &dynamodb.QueryInput{
		TableName: &s.t.name, IndexName: aws.String(tenantIndex), ScanIndexForward: aws.Bool(false), Limit: aws.Int32(int32(limit)),
		KeyConditionExpression:   e.KeyCondition(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	})
	var found []batch.Batch
	for pages.HasMorePages() && len(found) < limit {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Items {
			i, err := decode[batchItem](a)
			if err != nil {
				return nil, err
			}
			found = append(found, i.batch())
		}
	}
	return found[:min(len(found), limit)], nil
}

// Reading implements batch.Batches. The table is asked for nothing but the id of
// what it finds; it looks at every batch of the span until it finds one.
func (s *Batches) Reading(ctx context.Context, tenant, fileID string, since time.Time) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("look for batches of %s that read %s: %w", tenant, fileID, err)
	}
	e, err := expression.NewBuilder().
		WithKeyCondition(expression.Key(attrTenantPK).Equal(expression.Value(tenantBatches(tenant))).
			And(expression.Key(attrTenantSK).GreaterThanEqual(expression.Value(tenantSK(since, ""))))).
		WithFilter(is("input_file_id", fileID).
			And(name("status").In(value(batch.Validating), value(batch.InProgress), value(batch.Finalizing)))).
		WithProjection(expression.NamesList(name("id"))).Build()
	if err != nil {
		return fail(err)
	}
	pages := dynamodb.NewQueryPaginator(s.t.client, &dynamodb.QueryInput{
		TableName: &s.t.name, IndexName: aws.String(tenantIndex), ScanIndexForward: aws.Bool(false),
		KeyConditionExpression: e.KeyCondition(), FilterExpression: e.Filter(), ProjectionExpression: e.Projection(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fail(err)
		}
		for _, a := range page.Items {
			if id, ok := a["id"].(*types.AttributeValueMemberS); ok {
				return id.Value, nil
			}
		}
	}
	return "", nil
}

// Start implements batch.Batches (C15).
func (s *Batches) Start(ctx context.Context, tenant, id string, st batch.Started, now time.Time) (batch.Batch, error) {
	return s.t.transition(ctx, "start", tenant, id, c15Start(st, now), func(b batch.Batch) error {
		if b.Status == batch.InProgress && st == (batch.Started{Parts: b.Parts, Lines: b.Lines, Model: b.Model}) {
			return nil
		}
		return batch.ErrStatus
	})
}

// Refuse implements batch.Batches (C15).
func (s *Batches) Refuse(ctx context.Context, tenant, id string, why []openai.BatchError, now time.Time) (batch.Batch, error) {
	return s.t.transition(ctx, "refuse", tenant, id, c15Refuse(newErrorItems(why), now), func(b batch.Batch) error {
		if b.Status == batch.Failed {
			return nil
		}
		return batch.ErrStatus
	})
}

// Overrun implements batch.Batches (C15).
func (s *Batches) Overrun(ctx context.Context, tenant, id string, now time.Time) (batch.Batch, error) {
	return s.t.transition(ctx, "overrun", tenant, id, c15Overrun(), func(batch.Batch) error { return batch.ErrStatus })
}

// transition writes a batch's META and returns the batch as it then is. Where
// the condition fails, judge says what the batch that was found means: nil, the
// write had been made already.
func (t *table) transition(ctx context.Context, op, tenant, id string, w write, judge func(batch.Batch) error) (batch.Batch, error) {
	if !storable(id) {
		return batch.Batch{}, batchErr(op, tenant, id, batch.ErrNotFound)
	}
	out, err := t.update(ctx, metaKey(tenant, id), w, true)
	if err != nil {
		return batch.Batch{}, batchErr(op, tenant, id, err)
	}
	if out.item == nil {
		return batch.Batch{}, batchErr(op, tenant, id, batch.ErrNotFound)
	}
	i, err := decode[batchItem](out.item)
	b := i.batch()
	if err == nil && out.refused {
		err = judge(b)
	}
	if err != nil {
		return batch.Batch{}, batchErr(op, tenant, id, err)
	}
	return b, nil
}
