package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"holdfast/internal/batch"
	"holdfast/internal/limits"
)

var _ limits.Batches = (*Batches)(nil)

// openPages bounds Open: so many answers of 1 MB, of items of 1 KB or so.
const openPages = 10

// openItem is what Open reads of a batch.
type openItem struct {
	head
	ID        string       `dynamodbav:"id"`
	Status    batch.Status `dynamodbav:"status"`
	Ending    batch.Status `dynamodbav:"ending,omitempty"`
	CreatedAt int64        `dynamodbav:"created_at"`
	Lines     int64        `dynamodbav:"lines,omitempty"`
}

// Open implements limits.Batches. DynamoDB looks at every batch of the span, and
// sends those that aren't over.
func (s *Batches) Open(ctx context.Context, tenant string, since time.Time) ([]limits.Open, error) {
	open, err := s.open(ctx, tenant, since)
	if err != nil {
		return nil, fmt.Errorf("look for open batches of %s: %w", tenant, err)
	}
	return open, nil
}

func (s *Batches) open(ctx context.Context, tenant string, since time.Time) (found []limits.Open, err error) {
	e, err := expression.NewBuilder().
		WithKeyCondition(expression.Key(attrTenantPK).Equal(expression.Value(tenantBatches(tenant))).
			And(expression.Key(attrTenantSK).GreaterThanEqual(expression.Value(tenantSK(since, ""))))).
		WithFilter(name("status").In(value(batch.Validating), value(batch.InProgress), value(batch.Finalizing))).
		WithProjection(expression.NamesList(name("v"), name("id"), name("status"), name("ending"), name("created_at"), name("lines"))).Build()
	if err != nil {
		return nil, err
	}
	pages := dynamodb.NewQueryPaginator(s.t.client, &dynamodb.QueryInput{
		TableName: &s.t.name, IndexName: aws.String(tenantIndex), ScanIndexForward: aws.Bool(false),
		KeyConditionExpression: e.KeyCondition(), FilterExpression: e.Filter(), ProjectionExpression: e.Projection(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	})
	for n := 0; n < openPages && pages.HasMorePages(); n++ {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Items {
			i, err := decode[openItem](a)
			if errors.Is(err, batch.ErrNewer) {
				found = append(found, limits.Open{}) // of a newer program: it runs, and more isn't known
				continue
			}
			if err != nil {
				return nil, err
			}
			o := limits.Open{ID: i.ID, CreatedAt: fromMillis(i.CreatedAt)}
			if (batch.Batch{Status: i.Status, Ending: i.Ending}).Running() {
				o.Lines = i.Lines
			}
			found = append(found, o)
		}
	}
	return found, nil
}
