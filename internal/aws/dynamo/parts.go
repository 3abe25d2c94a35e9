package dynamo

import (
	"context"
	"fmt"
	"iter"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"holdfast/internal/batch"
)

var _ batch.Parts = (*Parts)(nil)

// Parts is batch.Parts.
type Parts struct{ t *table }

// insertsAtOnce bounds the puts that one Insert has in flight.
const insertsAtOnce = 16

// Insert implements batch.Parts (C17). Parts are put one by one, 16 at a time: a
// batch write takes no conditions, and a transaction would refuse all for one
// that exists.
func (s *Parts) Insert(ctx context.Context, parts []batch.Part) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(insertsAtOnce)
	for _, p := range parts {
		if inner.Err() != nil {
			break // one failed, which is what Wait returns, or ctx is over
		}
		p.State = batch.Pending
		p.Ver++
		g.Go(func() error {
			// Refused means that it exists already, and is left as it is.
			if _, err := s.t.insert(inner, newPartItem(p), c17Plan()); err != nil {
				return partErr("insert", p.PartKey, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("insert %d parts: %w", len(parts), err)
	}
	return nil
}

// Get implements batch.Parts.
func (s *Parts) Get(ctx context.Context, k batch.PartKey) (batch.Part, error) {
	a, err := s.t.get(ctx, partKey(k))
	if err != nil {
		return batch.Part{}, partErr("get", k, err)
	}
	i, err := decode[partItem](a)
	if err != nil {
		return batch.Part{}, partErr("get", k, err)
	}
	return i.part(), nil
}

// All implements batch.Parts.
func (s *Parts) All(ctx context.Context, tenant, id string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		fail := func(err error) { yield(batch.Part{}, batchErr("list parts of", tenant, id, err)) }
		e, err := expression.NewBuilder().WithKeyCondition(
			expression.Key(attrPK).Equal(expression.Value(batchPK(tenant, id))).
				And(expression.Key(attrSK).BeginsWith(partPrefix))).Build()
		if err != nil {
			fail(err)
			return
		}
		pages := dynamodb.NewQueryPaginator(s.t.client, &dynamodb.QueryInput{
			TableName: &s.t.name, ConsistentRead: aws.Bool(true),
			KeyConditionExpression:   e.KeyCondition(),
			ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				fail(err)
				return
			}
			for _, a := range page.Items {
				i, err := decode[partItem](a)
				if err != nil {
					fail(err)
					return
				}
				if !yield(i.part(), nil) {
					return
				}
			}
		}
	}
}
