package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

var _ batch.Reaps = (*Reaps)(nil)

// Reaps is batch.Reaps.
type Reaps struct{ t *table }

// Reap implements batch.Reaps (C11).
func (s *Reaps) Reap(ctx context.Context, seen batch.Part, cut, due, _ time.Time) (batch.Part, error) {
	return s.t.advance(ctx, "reap", seen, c11Reap(partKey(seen.PartKey), seen.Ver, cut, due), func(p batch.Part) error {
		if p.State == batch.Pending && p.Ver == seen.Ver+1 && p.Lapses == seen.Lapses+1 {
			return nil
		}
		return batch.ErrStale
	})
}

// Postpone implements batch.Reaps.
func (s *Reaps) Postpone(ctx context.Context, seen batch.Part, due, _ time.Time) (batch.Part, error) {
	return s.t.advance(ctx, "postpone", seen, postpone(partKey(seen.PartKey), seen, due), func(p batch.Part) error {
		if p.State == batch.Pending && p.Ver == seen.Ver+1 && p.Resends == seen.Resends+1 {
			return nil
		}
		return batch.ErrStale
	})
}

// Defer implements batch.Reaps.
func (s *Reaps) Defer(ctx context.Context, tenant, id string, due, _ time.Time) error {
	_, err := s.t.transition(ctx, "defer", tenant, id, deferBatch(metaKey(tenant, id), due), func(batch.Batch) error { return batch.ErrStatus })
	return err
}

// advance writes a part that was seen and returns it as it then is. Where the
// condition fails, judge says what the part that was found means: nil, the write
// had been made already.
func (t *table) advance(ctx context.Context, op string, seen batch.Part, w write, judge func(batch.Part) error) (batch.Part, error) {
	out, err := t.update(ctx, partKey(seen.PartKey), w, true)
	if err == nil && out.item == nil {
		err = batch.ErrNotFound
	}
	var i partItem
	if err == nil {
		i, err = decode[partItem](out.item)
	}
	if err == nil && out.refused {
		err = judge(i.part())
	}
	if err != nil {
		return batch.Part{}, partErr(op, seen.PartKey, err)
	}
	return i.part(), nil
}

// Due implements batch.Reaps. One call is one query: rows of kinds that this
// program doesn't know are left out of the page that it gives.
func (s *Reaps) Due(ctx context.Context, q batch.DueQuery) (batch.DuePage, error) {
	page, err := s.due(ctx, q)
	if err != nil {
		return batch.DuePage{}, fmt.Errorf("due in shard %d: %w", q.Shard, err)
	}
	return page, nil
}

func (s *Reaps) due(ctx context.Context, q batch.DueQuery) (page batch.DuePage, err error) {
	if q.Shard < 0 || q.Shard >= batch.DueShards || q.Limit < 1 || q.Limit > batch.MaxDue {
		return page, fmt.Errorf("shard %d and limit %d are not within 0-%d and 1-%d", q.Shard, q.Limit, batch.DueShards-1, batch.MaxDue)
	}
	partition := shard(duePrefix, q.Shard)
	if q.Dead {
		partition = shard(deadPrefix, q.Shard)
	}
	cond := expression.Key(attrDuePK).Equal(expression.Value(partition))
	switch at := expression.Key(attrDueAt); {
	case !q.From.IsZero() && !q.Before.IsZero() && !q.From.Before(q.Before):
		return page, nil // nothing is both
	case !q.From.IsZero() && !q.Before.IsZero():
		cond = cond.And(at.Between(expression.Value(millis(q.From)), expression.Value(millis(q.Before)-1)))
	case !q.From.IsZero():
		cond = cond.And(at.GreaterThanEqual(expression.Value(millis(q.From))))
	case !q.Before.IsZero():
		cond = cond.And(at.LessThan(expression.Value(millis(q.Before))))
	}
	e, err := expression.NewBuilder().WithKeyCondition(cond).Build()
	if err != nil {
		return page, err
	}
	in := &dynamodb.QueryInput{
		TableName: &s.t.name, IndexName: aws.String(dueIndex), Limit: aws.Int32(int32(q.Limit)),
		KeyConditionExpression:   e.KeyCondition(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	}
	if q.After != "" {
		if in.ExclusiveStartKey, err = dueCursor(partition, q.After); err != nil {
			return page, err
		}
	}
	out, err := s.t.client.Query(ctx, in)
	if err != nil {
		return page, err
	}
	for _, a := range out.Items {
		// KEYS_ONLY: nothing else of the item is here, its format version neither.
		var h head
		if err := attributevalue.UnmarshalMap(a, &h); err != nil {
			return page, fmt.Errorf("decode a row: %w", err)
		}
		if d, ok := dueRow(h); ok {
			page.Rows = append(page.Rows, d)
		}
	}
	if len(out.LastEvaluatedKey) > 0 {
		var h head
		if err := attributevalue.UnmarshalMap(out.LastEvaluatedKey, &h); err != nil {
			return page, fmt.Errorf("decode the last key: %w", err)
		}
		page.Next = strings.Join([]string{strconv.FormatInt(h.DueAt, 10), h.PK, h.SK}, cursorMark)
	}
	return page, nil
}

// Parts implements batch.Reaps. DynamoDB reads 100 items at once, and leaves for
// another call what is more than 16 MB or came too fast.
func (s *Reaps) Parts(ctx context.Context, keys []batch.PartKey) ([]batch.Part, error) {
	parts, err := s.parts(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("read %d parts: %w", len(keys), err)
	}
	return parts, nil
}

func (s *Reaps) parts(ctx context.Context, keys []batch.PartKey) ([]batch.Part, error) {
	if len(keys) > batch.MaxParts {
		return nil, fmt.Errorf("at most %d", batch.MaxParts)
	}
	asked := make([]attributes, len(keys))
	for n, k := range keys {
		asked[n] = partKey(k).attributes()
	}
	var found []batch.Part
	for n := 0; len(asked) > 0; n++ {
		if n > 0 && !pause(ctx, min(n, conflictTries)) {
			return nil, ctx.Err()
		}
		out, err := s.t.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			s.t.name: {Keys: asked, ConsistentRead: aws.Bool(true)},
		}})
		if err != nil {
			return nil, err
		}
		for _, a := range out.Responses[s.t.name] {
			i, err := decode[partItem](a)
			if errors.Is(err, batch.ErrNewer) {
				continue // one of them must not keep the others from being read
			}
			if err != nil {
				return nil, err
			}
			found = append(found, i.part())
		}
		asked = out.UnprocessedKeys[s.t.name].Keys
	}
	return found, nil
}

// cursorMark is in no key: ids and names hold no control characters.
const cursorMark = "\x1f"

// dueCursor is the key of the row that a page ended with.
func dueCursor(partition, after string) (attributes, error) {
	f := strings.Split(after, cursorMark)
	if len(f) != 3 {
		return nil, fmt.Errorf("%q is no cursor", after)
	}
	k := key{f[1], f[2]}.attributes()
	k[attrDuePK] = &types.AttributeValueMemberS{Value: partition}
	k[attrDueAt] = &types.AttributeValueMemberN{Value: f[0]}
	return k, nil
}

// dueRow reads what an item is from its key.
func dueRow(h head) (d batch.Due, ok bool) {
	d.At = fromMillis(h.DueAt)
	kind, rest, _ := strings.Cut(h.PK, "#")
	switch kind {
	case "T":
		// A batch's id has no '#'; no tenant's has either.
		if d.Tenant, d.ID, ok = strings.Cut(rest, "#B#"); !ok {
			return d, false
		}
		if h.SK == metaSK {
			d.Kind = batch.DueBatch
			return d, true
		}
		number, isPart := strings.CutPrefix(h.SK, partPrefix)
		n, err := strconv.Atoi(number)
		d.Kind, d.Part = batch.DuePart, n
		return d, isPart && err == nil
	case "BR":
		d.Kind = batch.DueBridge
		d.Tenant, d.ID, ok = strings.Cut(rest, "#")
		return d, ok
	case "F":
		d.Kind, d.Tenant, d.ID = batch.DueFile, rest, h.SK
		return d, true
	case "U":
		d.Kind, d.Tenant, d.ID = batch.DueUpload, rest, h.SK
		return d, true
	}
	return d, false
}
