package dynamo

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/storetest"
)

// TestLimitSuites runs the suites of what limits are judged by.
func TestLimitSuites(t *testing.T) {
	client, name := newTable(t)
	s := New(newWitness(t, client), name)
	t.Run("Open", func(t *testing.T) {
		storetest.RunOpen(t, func(storetest.T) storetest.OpenPorts {
			return storetest.OpenPorts{Open: s.Batches, BatchesPorts: storetest.BatchesPorts{Batches: s.Batches, Endings: s.Endings}}
		})
	})
	t.Run("Pairs", func(t *testing.T) {
		storetest.RunPairs(t, func(storetest.T) storetest.PairsPorts {
			return storetest.PairsPorts{Pairs: s.Keys, Replays: s.Keys, Keys: s.Keys, Tenants: s.Tenants, Batches: s.Batches}
		})
	})
}

// scripted is a client whose reads answer what they are told.
type scripted struct {
	Client
	gets    []*dynamodb.BatchGetItemOutput
	queries func(n int) *dynamodb.QueryOutput // the n-th, from 1
	calls   int
}

func (s *scripted) BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	s.calls++
	return s.gets[s.calls-1], nil
}

func (s *scripted) Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	s.calls++
	return s.queries(s.calls), nil
}

// What DynamoDB left out, because it was throttled, is asked for again.
func TestPairGoesOn(t *testing.T) {
	k := access.Key{Hash: access.HashSecret("x"), Tenant: "acme", Principal: "ann", CreatedAt: time.UnixMilli(1).UTC()}
	a, err := encode(newKeyItem(k))
	if err != nil {
		t.Fatal(err)
	}
	x := access.Tenant{Name: "acme", Limits: access.Limits{RunningBatches: 3}, CreatedAt: time.UnixMilli(1).UTC(), UpdatedAt: time.UnixMilli(1).UTC(), Ver: 2}
	b, err := encode(newTenantItem(x))
	if err != nil {
		t.Fatal(err)
	}
	c := &scripted{gets: []*dynamodb.BatchGetItemOutput{
		{Responses: map[string][]map[string]types.AttributeValue{"table": {b}}, UnprocessedKeys: map[string]types.KeysAndAttributes{"table": {Keys: []map[string]types.AttributeValue{accessKey(k.Hash).attributes()}}}},
		{Responses: map[string][]map[string]types.AttributeValue{"table": {a}}},
	}}
	gotKey, gotTenant, err := New(c, "table").Keys.Pair(t.Context(), k.Hash, "acme")
	if err != nil || gotKey.Hash != k.Hash || gotTenant.Limits != x.Limits || gotTenant.Ver != 2 || c.calls != 2 {
		t.Errorf("%+v, %+v, %v after %d calls", gotKey, gotTenant, err, c.calls)
	}
}

// However many batches a tenant has, the look at them ends; and one that a newer
// program wrote runs, too.
func TestOpenIsBounded(t *testing.T) {
	newer := attributes{"v": &types.AttributeValueMemberN{Value: "99"}, "id": &types.AttributeValueMemberS{Value: "batch_x"}}
	next := attributes{attrPK: &types.AttributeValueMemberS{Value: "x"}}
	c := &scripted{queries: func(int) *dynamodb.QueryOutput {
		return &dynamodb.QueryOutput{Items: []map[string]types.AttributeValue{newer}, LastEvaluatedKey: next}
	}}
	open, err := New(c, "table").Batches.Open(t.Context(), "acme", time.Time{})
	if err != nil || c.calls != openPages || len(open) != openPages || open[0].Lines != 0 {
		t.Errorf("%d open, %v after %d calls", len(open), err, c.calls)
	}
	if batch.FormatVersion >= 99 {
		t.Error("the newer item isn't newer any more")
	}
}
