package dynamo

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/aws/meter"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

func TestUnits(t *testing.T) {
	if got := []float64{ReadUnits(0, true), ReadUnits(4096, true), ReadUnits(4097, true), ReadUnits(4097, false)}; fmt.Sprint(got) != "[1 1 2 1]" {
		t.Errorf("read units %v", got)
	}
	text := func(n int) types.AttributeValue { return &types.AttributeValueMemberS{Value: strings.Repeat("x", n)} }
	base := attributes{attrPK: text(10), attrSK: text(5)} // 19 bytes with their names
	with := func(more attributes) Item {
		a := attributes{}
		for _, from := range []attributes{base, more} {
			for name, v := range from {
				a[name] = v
			}
		}
		return Item{a}
	}
	due := attributes{attrDuePK: text(6), attrDueAt: &types.AttributeValueMemberN{Value: "1800000000000"}}
	later := attributes{attrDuePK: text(6), attrDueAt: &types.AttributeValueMemberN{Value: "1800000000001"}}
	tenant := func(n int) attributes {
		return attributes{attrTenantPK: text(6), attrTenantSK: text(20), "z": text(n)}
	}
	for name, c := range map[string]struct {
		before, after Item
		want          Units
	}{
		"inserted":            {Item{}, with(nil), Units{Table: 1}},
		"a KB to the byte":    {Item{}, with(attributes{"z": text(1024 - 20)}), Units{Table: 1}},
		"a byte more":         {Item{}, with(attributes{"z": text(1024 - 19)}), Units{Table: 2}},
		"made smaller":        {with(attributes{"z": text(3000)}), with(nil), Units{Table: 3}},
		"enters due":          {with(nil), with(due), Units{Table: 1, Due: 1}},
		"stays in due":        {with(due), with(due), Units{Table: 1}},
		"moves in due":        {with(due), with(later), Units{Table: 1, Due: 2}},
		"leaves due":          {with(due), with(nil), Units{Table: 1, Due: 1}},
		"grows within due":    {with(due), with(attributes{"z": text(2000), attrDuePK: due[attrDuePK], attrDueAt: due[attrDueAt]}), Units{Table: 2}},
		"changes in tenant's": {with(tenant(1)), with(tenant(2)), Units{Table: 1, Tenant: 1}},
		"grows in tenant's":   {with(tenant(1)), with(tenant(2000)), Units{Table: 3, Tenant: 3}},
		"gone":                {with(due), Item{}, Units{Table: 1, Due: 1}},
	} {
		if got := WriteUnits(c.before, c.after); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// spy notes what the table says that each write consumed.
type spy struct {
	Client
	last Units
}

func (s *spy) note(c *types.ConsumedCapacity) {
	s.last = Units{Table: *c.Table.CapacityUnits}
	if u, ok := c.GlobalSecondaryIndexes[dueIndex]; ok {
		s.last.Due = *u.CapacityUnits
	}
	if u, ok := c.GlobalSecondaryIndexes[tenantIndex]; ok {
		s.last.Tenant = *u.CapacityUnits
	}
}

func (s *spy) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := s.Client.UpdateItem(ctx, in, o...)
	if err == nil {
		s.note(out.ConsumedCapacity)
	}
	return out, err
}

func (s *spy) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := s.Client.PutItem(ctx, in, o...)
	if err == nil {
		s.note(out.ConsumedCapacity)
	}
	return out, err
}

// The rules by which the bench reckons, held against what the table answers, for
// every write that a part has in a good life, and for what isn't answered.
func TestUnitsAreWhatTheTableConsumes(t *testing.T) {
	client, name := newTable(t)
	s := &spy{Client: client}
	store := New(s, name)
	now := time.Now()
	k := batch.PartKey{Tenant: "acme", Batch: "batch_" + strings.Repeat("b", 32), N: 7}
	var before Item
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		p, err := store.Parts.Get(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		after, err := PartItem(p)
		if err != nil {
			t.Fatal(err)
		}
		if want := WriteUnits(before, after); s.last != want {
			t.Errorf("%s: the table says %+v, the rules %+v (%d to %d bytes)", what, s.last, want, before.Bytes(), after.Bytes())
		}
		before = after
	}
	step("insert", store.Parts.Insert(t.Context(), []batch.Part{{PartKey: k, Lines: 500, To: 50_000, Due: now.Add(time.Hour), CreatedAt: now}}))
	c := batch.Claim{PartKey: k, Token: lease.NewToken()}
	_, err := store.Claims.Claim(t.Context(), c, strings.Repeat("t", 800), 3, now.Add(time.Minute), now)
	step("claim", err)
	step("heartbeat", store.Claims.Heartbeat(t.Context(), c, 3, now.Add(2*time.Minute), now))
	done := batch.NewBitmap(500)
	for n := range 5 {
		for i := range 100 {
			done.Set(100*n + i)
		}
		step("checkpoint", store.Claims.Checkpoint(t.Context(), c, batch.Checkpoint{From: 100 * n, To: 100 * (n + 1), Done: done.Clone(),
			Chunk: batch.Chunk{Key: fmt.Sprintf("acme/parts/%s/7/%s-%d.jsonl", k.Batch, c.Token, n), N: 100, OK: 100, Bytes: 40_000, Sum: strings.Repeat("0", 64)},
		}, now.Add(time.Duration(n+3)*time.Minute), now))
	}
	step("finish", store.Claims.Finish(t.Context(), c, 500, now))

	// A refused write is billed by the item that it found.
	ctx, r := meter.Begin(t.Context())
	if err := store.Claims.Heartbeat(ctx, batch.Claim{PartKey: k, Token: lease.NewToken()}, 0, now, now); err == nil {
		t.Fatal("a stranger's heartbeat was taken")
	}
	if got, want := r.Shares(nil, batch.Subject{})[0].Calls["DynamoDB.UpdateItem"].Writes, writeUnits(before.Bytes()); got != want {
		t.Errorf("a refused write counts %v units, want %v", got, want)
	}
	// What is read, the table says; the emulator takes any item for one of 4 KB.
	ctx, r = meter.Begin(t.Context())
	if _, err := store.Parts.Get(ctx, k); err != nil {
		t.Fatal(err)
	}
	if got := r.Shares(nil, batch.Subject{})[0].Calls["DynamoDB.GetItem"].Reads; got != 1 {
		t.Errorf("a read counts %v units", got)
	}
}
