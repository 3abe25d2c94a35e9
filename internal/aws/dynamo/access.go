package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

var _ access.Store = (*Keys)(nil)

// Keys is access.Store. Errors name no hash: it is what a key is found by.
type Keys struct{ t *table }

// Put implements access.Store.
func (s *Keys) Put(ctx context.Context, k access.Key) error {
	want := newKeyItem(k)
	out, err := s.t.insert(ctx, want, insertKey())
	if err == nil && out.refused {
		var found keyItem
		if found, err = decode[keyItem](out.item); err == nil && !reflect.DeepEqual(found.key(), want.key()) {
			err = access.ErrExists
		}
	}
	if err != nil {
		return fmt.Errorf("put key %q of %s: %w", k.Name, k.Tenant, err)
	}
	return nil
}

// Get implements access.Store.
func (s *Keys) Get(ctx context.Context, hash string) (access.Key, error) {
	k, err := s.get(ctx, hash)
	if err != nil {
		return access.Key{}, fmt.Errorf("get key: %w", err)
	}
	return k, nil
}

func (s *Keys) get(ctx context.Context, hash string) (access.Key, error) {
	if !storable(hash) {
		return access.Key{}, access.ErrNotFound
	}
	a, err := s.t.get(ctx, accessKey(hash))
	if errors.Is(err, batch.ErrNotFound) {
		err = access.ErrNotFound
	}
	if err != nil {
		return access.Key{}, err
	}
	i, err := decode[keyItem](a)
	return i.key(), err
}

// Find implements access.Store. It looks through the tenant's keys: a thousand are
// less than one answer of DynamoDB's holds.
func (s *Keys) Find(ctx context.Context, tenant, id string) (access.Key, error) {
	k, err := s.find(ctx, tenant, id)
	if err != nil {
		return access.Key{}, fmt.Errorf("find key of %s: %w", tenant, err)
	}
	return k, nil
}

func (s *Keys) find(ctx context.Context, tenant, id string) (access.Key, error) {
	prefix, ok := access.HashPrefix(id)
	if !ok || !storable(tenant) {
		return access.Key{}, access.ErrNotFound
	}
	e := expression.NewBuilder().WithKeyCondition(keysOf(tenant)).WithFilter(name("hash").BeginsWith(prefix))
	found, err := s.query(ctx, e, 1, nil)
	if err == nil && len(found) == 0 {
		err = access.ErrNotFound
	}
	if err != nil {
		return access.Key{}, err
	}
	return found[0], nil
}

// List implements access.Store. The cursor is read first, as for batches.
func (s *Keys) List(ctx context.Context, tenant, after string, limit int) ([]access.Key, bool, error) {
	found, err := s.list(ctx, tenant, after, limit)
	if err != nil {
		return nil, false, fmt.Errorf("list keys of %s: %w", tenant, err)
	}
	if len(found) > limit {
		return found[:limit], true, nil
	}
	return found, false, nil
}

func (s *Keys) list(ctx context.Context, tenant, after string, limit int) ([]access.Key, error) {
	if limit < 1 || limit > access.MaxKeys {
		return nil, fmt.Errorf("limit %d is not within 1-%d", limit, access.MaxKeys)
	}
	cond := keysOf(tenant)
	if after != "" {
		k, err := s.find(ctx, tenant, after)
		if err != nil {
			return nil, err
		}
		cond = cond.And(expression.Key(attrTenantSK).LessThan(expression.Value(tenantSK(k.CreatedAt, k.Hash))))
	}
	return s.query(ctx, expression.NewBuilder().WithKeyCondition(cond), limit+1, aws.Int32(int32(limit+1)))
}

func keysOf(tenant string) expression.KeyConditionBuilder {
	return expression.Key(attrTenantPK).Equal(expression.Value(tenantKeys(tenant)))
}

// query gives the newest keys that b selects, most at the most. page is how many
// one answer of DynamoDB's looks at, nil for as many as it holds.
func (s *Keys) query(ctx context.Context, b expression.Builder, most int, page *int32) (found []access.Key, err error) {
	e, err := b.Build()
	if err != nil {
		return nil, err
	}
	pages := dynamodb.NewQueryPaginator(s.t.client, &dynamodb.QueryInput{
		TableName: &s.t.name, IndexName: aws.String(tenantIndex), ScanIndexForward: aws.Bool(false), Limit: page,
		KeyConditionExpression: e.KeyCondition(), FilterExpression: e.Filter(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	})
	for pages.HasMorePages() && len(found) < most {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range out.Items {
			i, err := decode[keyItem](a)
			if err != nil {
				return nil, err
			}
			found = append(found, i.key())
		}
	}
	return found[:min(len(found), most)], nil
}

// Disable implements access.Store.
func (s *Keys) Disable(ctx context.Context, tenant, hash string, now time.Time) (access.Key, error) {
	k, err := s.disable(ctx, tenant, hash, now)
	if err != nil {
		return access.Key{}, fmt.Errorf("disable key of %s: %w", tenant, err)
	}
	return k, nil
}

func (s *Keys) disable(ctx context.Context, tenant, hash string, now time.Time) (access.Key, error) {
	if !storable(hash) {
		return access.Key{}, access.ErrNotFound
	}
	out, err := s.t.update(ctx, accessKey(hash), disableKey(tenant, now), true)
	if err != nil {
		return access.Key{}, err
	}
	if out.item == nil {
		return access.Key{}, access.ErrNotFound
	}
	i, err := decode[keyItem](out.item)
	if err == nil && i.Tenant != tenant {
		err = access.ErrNotFound
	}
	if err != nil {
		return access.Key{}, err
	}
	return i.key(), nil
}

// Rotate implements access.Store: a transaction, so that nobody ends up without the
// one key or with a second one that nobody knows of.
func (s *Keys) Rotate(ctx context.Context, old, next access.Key, until time.Time) error {
	if err := s.rotate(ctx, old, next, until); err != nil {
		return fmt.Errorf("rotate key %q of %s: %w", old.Name, old.Tenant, err)
	}
	return nil
}

func (s *Keys) rotate(ctx context.Context, old, next access.Key, until time.Time) error {
	if !storable(old.Hash) {
		return access.ErrNotFound
	}
	want := newKeyItem(next)
	found, refused, err := s.t.updateAndInsert(ctx, accessKey(old.Hash), replaceKey(old.Tenant, next.ID(), until), want, insertKey())
	if err != nil || !refused {
		return err
	}
	if found == nil {
		// Either there is no such key, or it would have taken the write and it was the
		// new one that was refused.
		if _, err := s.get(ctx, old.Hash); err != nil {
			return err
		}
		return access.ErrExists
	}
	i, err := decode[keyItem](found)
	switch {
	case err != nil:
		return err
	case i.Tenant != old.Tenant:
		return access.ErrNotFound
	case i.ReplacedBy == next.ID():
		if stored, err := s.get(ctx, next.Hash); err == nil && reflect.DeepEqual(stored, want.key()) {
			return nil
		} else if err != nil && !errors.Is(err, access.ErrNotFound) {
			return err
		}
	}
	if i.ReplacedBy != "" {
		return &access.ReplacedError{By: i.ReplacedBy}
	}
	return access.ErrDisabled
}

// Touch implements access.Store.
func (s *Keys) Touch(ctx context.Context, k access.Key, day time.Time) error {
	if err := s.touch(ctx, k, day); err != nil {
		return fmt.Errorf("touch key %q of %s: %w", k.Name, k.Tenant, err)
	}
	return nil
}

func (s *Keys) touch(ctx context.Context, k access.Key, day time.Time) error {
	if !storable(k.Hash) {
		return access.ErrNotFound
	}
	out, err := s.t.update(ctx, accessKey(k.Hash), touchKey(k, day), false)
	if err != nil || !out.refused {
		return err
	}
	if out.item == nil {
		return access.ErrNotFound
	}
	_, err = decode[keyItem](out.item) // that it was touched since then is as good
	return err
}

// updateAndInsert makes w and inserts an item, in one transaction. Refused, it gives
// the item under k if that was at fault.
func (t *table) updateAndInsert(ctx context.Context, k key, w write, item any, when expression.ConditionBuilder) (found attributes, refused bool, err error) {
	u, err := expression.NewBuilder().WithCondition(readable(w.when)).WithUpdate(w.then).Build()
	if err != nil {
		return nil, false, fmt.Errorf("build expression: %w", err)
	}
	p, err := expression.NewBuilder().WithCondition(when).Build()
	if err != nil {
		return nil, false, fmt.Errorf("build expression: %w", err)
	}
	a, err := encode(item)
	if err != nil {
		return nil, false, err
	}
	return t.transact(ctx, dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Update: &types.Update{
			TableName: &t.name, Key: k.attributes(),
			ConditionExpression: u.Condition(), UpdateExpression: u.Update(),
			ExpressionAttributeNames: u.Names(), ExpressionAttributeValues: u.Values(),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
		{Put: &types.Put{
			TableName: &t.name, Item: a,
			ConditionExpression: p.Condition(), ExpressionAttributeNames: p.Names(), ExpressionAttributeValues: p.Values(),
		}},
	}})
}
