package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

var _ access.Tenants = (*Tenants)(nil)

// Tenants is access.Tenants.
type Tenants struct{ t *table }

// Get implements access.Tenants.
func (s *Tenants) Get(ctx context.Context, name string) (access.Tenant, error) {
	if !storable(name) {
		return access.Tenant{}, fmt.Errorf("get tenant: %w", access.ErrNoTenant)
	}
	a, err := s.t.get(ctx, tenantKey(name))
	if errors.Is(err, batch.ErrNotFound) {
		err = access.ErrNoTenant
	}
	var i tenantItem
	if err == nil {
		i, err = decode[tenantItem](a)
	}
	if err != nil {
		return access.Tenant{}, fmt.Errorf("get tenant %s: %w", name, err)
	}
	return i.record(), nil
}

// Put implements access.Tenants.
func (s *Tenants) Put(ctx context.Context, t access.Tenant) error {
	err := t.Check()
	if err == nil {
		err = s.put(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("put tenant %s: %w", t.Name, err)
	}
	return nil
}

func (s *Tenants) put(ctx context.Context, t access.Tenant) error {
	seen := t.Ver
	t.Ver++
	want := newTenantItem(t)
	var (
		out outcome
		err error
	)
	if seen == 0 {
		out, err = s.t.insert(ctx, want, insertTenant())
	} else {
		out, err = s.t.update(ctx, tenantKey(t.Name), replaceTenant(want, seen), false)
	}
	if err != nil || !out.refused {
		return err
	}
	if out.item == nil {
		return access.ErrChanged
	}
	found, err := decode[tenantItem](out.item)
	if err == nil && !reflect.DeepEqual(found.record(), want.record()) {
		err = access.ErrChanged
	}
	return err
}

// List implements access.Tenants. One answer of DynamoDB's holds 1 MB, which may
// be less than a page.
func (s *Tenants) List(ctx context.Context, after string, limit int) ([]access.Tenant, bool, error) {
	page, err := s.list(ctx, after, limit)
	if err != nil {
		return nil, false, fmt.Errorf("list tenants: %w", err)
	}
	if len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

func (s *Tenants) list(ctx context.Context, after string, limit int) (found []access.Tenant, err error) {
	if limit < 1 || limit > access.MaxTenants {
		return nil, fmt.Errorf("limit %d is not within 1-%d", limit, access.MaxTenants)
	}
	if len(after) > maxID {
		return nil, fmt.Errorf("a cursor of %d bytes", len(after))
	}
	cond := expression.Key(attrTenantPK).Equal(expression.Value(tenantRecords))
	if after != "" {
		cond = cond.And(expression.Key(attrTenantSK).GreaterThan(expression.Value(after)))
	}
	e, err := expression.NewBuilder().WithKeyCondition(cond).Build()
	if err != nil {
		return nil, err
	}
	return collect(ctx, s.t, &dynamodb.QueryInput{
		IndexName:              aws.String(tenantIndex),
		KeyConditionExpression: e.KeyCondition(), ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	}, limit+1, tenantItem.record)
}
