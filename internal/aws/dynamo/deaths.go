package dynamo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

var _ batch.Deaths = (*Deaths)(nil)

// Deaths is batch.Deaths.
type Deaths struct{ t *table }

// Declare implements batch.Deaths (C12).
func (s *Deaths) Declare(ctx context.Context, seen batch.Part, maxAttempts int, cut, grace, now time.Time) (batch.Part, error) {
	w := c12Dead(partKey(seen.PartKey), seen, maxAttempts, cut, grace, now)
	return s.t.advance(ctx, "declare dead", seen, w, func(p batch.Part) error {
		switch {
		case p.State == batch.Dead:
			return nil
		case p.Over():
			return batch.ErrOver
		case p.State == batch.Leased && !p.LeaseUntil.Before(fromMillis(millis(cut))):
			return &batch.HeldError{Until: p.LeaseUntil, Ver: p.Ver, Owner: p.Owner, Begun: p.Begun}
		case p.Ver != seen.Ver:
			return batch.ErrStale
		}
		return batch.ErrAlive
	})
}

// Redrive implements batch.Deaths (C14).
func (s *Deaths) Redrive(ctx context.Context, seen batch.Part, due, _ time.Time) (batch.Part, error) {
	k := partKey(seen.PartKey)
	found, refused, err := s.t.updateIf(ctx, k, c14Redrive(k, seen.Ver, due), metaKey(seen.Tenant, seen.Batch), c14Open())
	if err != nil {
		return batch.Part{}, partErr("redrive", seen.PartKey, err)
	}
	// A transaction answers with nothing when it is made, and when it isn't, with
	// those items only whose own conditions failed.
	if found == nil {
		if found, err = s.t.get(ctx, k); err != nil {
			return batch.Part{}, partErr("redrive", seen.PartKey, err)
		}
	}
	i, err := decode[partItem](found)
	p := i.part()
	if err == nil && refused {
		err = notRedriven(seen, p)
	}
	if err != nil {
		return batch.Part{}, partErr("redrive", seen.PartKey, err)
	}
	return p, nil
}

// notRedriven says what the part that was found means; nil: it was redriven
// before.
func notRedriven(seen, found batch.Part) error {
	switch {
	case seen.State == batch.Dead && found.State == batch.Pending && found.Ver == seen.Ver+1:
		return nil
	case found.Over():
		return batch.ErrOver
	case found.State == batch.Dead && found.Ver != seen.Ver:
		return batch.ErrStale
	case found.State == batch.Dead:
		return batch.ErrStatus // so it was the batch that refused
	}
	return batch.ErrAlive
}

// updateIf makes w if another item's condition holds too, in one transaction.
// Refused, it gives the item under k if that was at fault.
func (t *table) updateIf(ctx context.Context, k key, w write, other key, holds expression.ConditionBuilder) (found attributes, refused bool, err error) {
	u, err := expression.NewBuilder().WithCondition(readable(w.when)).WithUpdate(w.then).Build()
	if err != nil {
		return nil, false, fmt.Errorf("build expression: %w", err)
	}
	c, err := expression.NewBuilder().WithCondition(readable(holds)).Build()
	if err != nil {
		return nil, false, fmt.Errorf("build expression: %w", err)
	}
	return t.transact(ctx, dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Update: &types.Update{
			TableName: &t.name, Key: k.attributes(),
			ConditionExpression: u.Condition(), UpdateExpression: u.Update(),
			ExpressionAttributeNames: u.Names(), ExpressionAttributeValues: u.Values(),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
		{ConditionCheck: &types.ConditionCheck{
			TableName: &t.name, Key: other.attributes(), ConditionExpression: c.Condition(),
			ExpressionAttributeNames: c.Names(), ExpressionAttributeValues: c.Values(),
		}},
	}})
}

// transact makes a transaction. Refused, it gives its first item if that was at
// fault and is there.
func (t *table) transact(ctx context.Context, in dynamodb.TransactWriteItemsInput) (found attributes, refused bool, err error) {
	for n := 0; ; n++ {
		once := in // the SDK sets a request token in it
		_, err = t.client.TransactWriteItems(ctx, &once)
		found, refused, conflict := cancelled(err)
		switch {
		case refused:
			return found, true, nil
		case !conflict || n == conflictTries || !pause(ctx, n):
			return nil, false, err
		}
	}
}

// Reasons for which a transaction is cancelled.
const (
	conditionFailed = "ConditionalCheckFailed"
	writeConflict   = "TransactionConflict"
)

// conflictTries is how often a transaction is repeated that another write of one
// of its items got in the way of. The SDK doesn't do it.
const conflictTries = 6

// cancelled says why a transaction was not made: because a condition failed (and
// what its first item was, if it was that one's), or because of another write.
func cancelled(err error) (found attributes, refused, conflict bool) {
	e, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return nil, false, false
	}
	for n, r := range e.CancellationReasons {
		switch aws.ToString(r.Code) {
		case conditionFailed:
			refused = true
			if n == 0 {
				found = r.Item
			}
		case writeConflict:
			conflict = true
		}
	}
	return found, refused, conflict
}

// pause waits before try n+1, a little longer each time; false: ctx ended.
func pause(ctx context.Context, n int) bool {
	timer := time.NewTimer(rand.N(20 * time.Millisecond << n))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
