package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
)

var _ access.Pairs = (*Keys)(nil)

// Pair implements access.Pairs.
func (s *Keys) Pair(ctx context.Context, hash, tenant string) (access.Key, access.Tenant, error) {
	k, t, err := s.pair(ctx, hash, tenant)
	if err != nil {
		return access.Key{}, access.Tenant{}, fmt.Errorf("get key and tenant: %w", err)
	}
	return k, t, nil
}

func (s *Keys) pair(ctx context.Context, hash, tenant string) (k access.Key, t access.Tenant, err error) {
	if !storable(hash) || !storable(tenant) {
		return k, t, access.ErrNotFound
	}
	there := false
	asked := []attributes{accessKey(hash).attributes(), tenantKey(tenant).attributes()}
	for n := 0; len(asked) > 0; n++ {
		if n > 0 && !pause(ctx, min(n, conflictTries)) {
			return k, t, ctx.Err()
		}
		out, err := s.t.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			s.t.name: {Keys: asked, ConsistentRead: aws.Bool(true)},
		}})
		if err != nil {
			return k, t, err
		}
		for _, a := range out.Responses[s.t.name] {
			if pk, _ := a[attrPK].(*types.AttributeValueMemberS); pk != nil && pk.Value == tenantKey(tenant).pk {
				i, err := decode[tenantItem](a)
				if err != nil {
					return k, t, err
				}
				t = i.record()
				continue
			}
			i, err := decode[keyItem](a)
			if err != nil {
				return k, t, err
			}
			k, there = i.key(), true
		}
		asked = out.UnprocessedKeys[s.t.name].Keys // throttled
	}
	if !there {
		return k, t, access.ErrNotFound
	}
	return k, t, nil
}
