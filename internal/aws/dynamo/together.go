package dynamo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

var _ access.Pairs = (*Keys)(nil)

// Pair implements access.Pairs.
func (s *Keys) Pair(ctx context.Context, hash, tenant string) (access.Key, access.Tenant, error) {
	var more []key
	if tenant != "" {
		more = append(more, tenantKey(tenant))
	}
	of, err := s.together(ctx, hash, more...)
	if err == nil && hash == "" {
		err = access.ErrNotFound
	}
	if err != nil {
		return access.Key{}, access.Tenant{}, fmt.Errorf("get key and tenant: %w", err)
	}
	return of.key, of.tenants[tenant], nil
}

// Replay implements gateway.Replays.
func (s *Keys) Replay(ctx context.Context, hash, tenant, id string, records ...string) (access.Key, batch.Batch, map[string]access.Tenant, error) {
	more := []key{metaKey(tenant, id)}
	for _, name := range records {
		more = append(more, tenantKey(name))
	}
	of, err := s.together(ctx, hash, more...)
	if err != nil {
		return access.Key{}, batch.Batch{}, nil, fmt.Errorf("get batch and what it goes by: %w", err)
	}
	return of.key, of.batch, of.tenants, nil
}

// together is what one call read; zero where there is nothing.
type together struct {
	key     access.Key
	batch   batch.Batch
	tenants map[string]access.Tenant
}

// together reads the key with this hash, if there is a hash, and other items, each at
// most once. Of a key that isn't there it says so, whatever the rest is.
func (s *Keys) together(ctx context.Context, hash string, more ...key) (together, error) {
	if hash != "" {
		more = append(more, accessKey(hash))
	}
	var asked []attributes
	for _, k := range more {
		if len(k.pk) <= maxPK { // what can't be stored isn't there
			asked = append(asked, k.attributes())
		}
	}
	var found []attributes
	for n := 0; len(asked) > 0; n++ {
		if n > 0 && !pause(ctx, min(n, conflictTries)) {
			return together{}, ctx.Err()
		}
		out, err := s.t.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			s.t.name: {Keys: asked, ConsistentRead: aws.Bool(true)},
		}})
		if err != nil {
			return together{}, err
		}
		found = append(found, out.Responses[s.t.name]...)
		asked = out.UnprocessedKeys[s.t.name].Keys // throttled
	}
	if hash != "" && !slices.ContainsFunc(found, isKey) {
		return together{}, access.ErrNotFound
	}
	return sorted(found)
}

// maxPK is the table's bound for a partition key.
const maxPK = 2048

func isKey(a attributes) bool {
	pk, _ := a[attrPK].(*types.AttributeValueMemberS)
	return pk != nil && strings.HasPrefix(pk.Value, keyPrefix)
}

// sorted tells by their keys which item is what.
func sorted(found []attributes) (of together, err error) {
	of.tenants = map[string]access.Tenant{}
	for _, a := range found {
		var fault error
		switch pk, _ := a[attrPK].(*types.AttributeValueMemberS); {
		case pk == nil:
			fault = fmt.Errorf("an item without %s", attrPK)
		case isKey(a):
			var i keyItem
			i, fault = decode[keyItem](a)
			of.key = i.key()
		case strings.HasPrefix(pk.Value, tenantPrefix):
			var i tenantItem
			i, fault = decode[tenantItem](a)
			of.tenants[i.Tenant] = i.record()
		default:
			var i batchItem
			i, fault = decode[batchItem](a)
			of.batch = i.batch()
		}
		if fault != nil {
			return together{}, fault
		}
	}
	return of, nil
}
