package dynamo

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var _ batch.Events = (*Events)(nil)

// Events is batch.Events.
type Events struct{ t *table }

// Events sort before META and the parts of their batch, and are not among them.
const eventPrefix = "EVENT#"

func eventKey(e batch.Event) key { return key{batchPK(e.Tenant, e.Batch), eventPrefix + e.ID()} }

// eventItem is one event. It has no ttl, as its batch has none.
type eventItem struct {
	head
	Tenant  string          `dynamodbav:"tenant"`
	Batch   string          `dynamodbav:"batch"`
	At      int64           `dynamodbav:"at"`
	Part    int             `dynamodbav:"part"`
	Ver     int64           `dynamodbav:"ver"`
	Kind    batch.EventKind `dynamodbav:"kind"`
	Seen    int64           `dynamodbav:"seen,omitempty"`
	Owner   lease.Token     `dynamodbav:"owner,omitempty"`
	Attempt int             `dynamodbav:"attempt,omitempty"`
	Reason  string          `dynamodbav:"reason,omitempty"`
}

func newEventItem(e batch.Event) eventItem {
	return eventItem{
		head: head{PK: eventKey(e).pk, SK: eventKey(e).sk, V: batch.FormatVersion}, Tenant: e.Tenant, Batch: e.Batch,
		At: e.At.UnixMilli(), Part: e.Part, Ver: e.Ver, Kind: e.Kind, Seen: millis(e.Seen), Owner: e.Owner, Attempt: e.Attempt, Reason: e.Reason,
	}
}

func (i eventItem) event() batch.Event {
	return batch.Event{
		Tenant: i.Tenant, Batch: i.Batch, At: fromMillis(i.At), Part: i.Part, Ver: i.Ver, Kind: i.Kind, Seen: fromMillis(i.Seen),
		Owner: i.Owner, Attempt: i.Attempt, Reason: i.Reason,
	}
}

// Record implements batch.Events.
func (s *Events) Record(ctx context.Context, e batch.Event) error {
	err := e.Check()
	if err == nil {
		_, err = s.t.insert(ctx, newEventItem(e), insertEvent()) // refused: told before
	}
	if err != nil {
		return fmt.Errorf("record event %q: %w", e.Kind, batchErr("of", e.Tenant, e.Batch, err))
	}
	return nil
}

// putsAtOnce is the most items that DynamoDB puts in one call.
const putsAtOnce = 25

// RecordAll implements batch.Events. DynamoDB takes no conditions where it takes
// many items, nor one key twice.
func (s *Events) RecordAll(ctx context.Context, es []batch.Event) error {
	var puts []types.WriteRequest
	seen := map[key]bool{}
	for _, e := range es {
		if err := e.Check(); err != nil {
			return fmt.Errorf("record events: %w", err)
		}
		if seen[eventKey(e)] {
			continue
		}
		seen[eventKey(e)] = true
		a, err := encode(newEventItem(e))
		if err != nil {
			return fmt.Errorf("record events: %w", err)
		}
		puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: a}})
	}
	for some := range slices.Chunk(puts, putsAtOnce) {
		for n := 0; len(some) > 0; n++ {
			if n > 0 && !pause(ctx, min(n, conflictTries)) {
				return fmt.Errorf("record events: %w", ctx.Err())
			}
			out, err := s.t.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{s.t.name: some}})
			if err != nil {
				return fmt.Errorf("record %d events: %w", len(some), err)
			}
			some = out.UnprocessedItems[s.t.name] // what came too fast
		}
	}
	return nil
}

// List implements batch.Events.
func (s *Events) List(ctx context.Context, tenant, id, after string, limit int) ([]batch.Event, bool, error) {
	page, err := s.list(ctx, tenant, id, after, limit)
	if err != nil {
		return nil, false, batchErr("list events of", tenant, id, err)
	}
	if len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

func (s *Events) list(ctx context.Context, tenant, id, after string, limit int) (found []batch.Event, err error) {
	if limit < 1 || limit > batch.MaxEvents {
		return nil, fmt.Errorf("limit %d is not within 1-%d", limit, batch.MaxEvents)
	}
	if len(after) > maxID-len(eventPrefix) {
		return nil, fmt.Errorf("a cursor of %d bytes", len(after))
	}
	// Behind the last event of all: '$' follows '#'. Behind one event: its own key
	// with the lowest character added.
	const end = "EVENT$"
	from := eventPrefix
	if after != "" {
		from += after + "\x00"
	}
	e, err := expression.NewBuilder().WithKeyCondition(
		expression.Key(attrPK).Equal(expression.Value(batchPK(tenant, id))).
			And(expression.Key(attrSK).Between(expression.Value(from), expression.Value(end)))).Build()
	if err != nil {
		return nil, err
	}
	return collect(ctx, s.t, &dynamodb.QueryInput{
		KeyConditionExpression: e.KeyCondition(), ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	}, limit+1, eventItem.event)
}
