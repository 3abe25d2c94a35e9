package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

func aBatch(tenant string) batch.Batch {
	return batch.Batch{Tenant: tenant, ID: "batch_1", CreatedAt: start, Deadline: start.Add(24 * time.Hour)}
}

func aPart(tenant string, n int) batch.Part {
	return batch.Part{
		PartKey: batch.PartKey{Tenant: tenant, Batch: "batch_1", N: n}, State: batch.Pending,
		Lines: 2, From: 0, To: 20, Due: start.Add(2 * time.Hour), CreatedAt: start,
	}
}

func must[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestItemsOfANewerProgram: each kind of item, by each way that reads it.
func TestItemsOfANewerProgram(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	p, f := aPart("acme", 0), batch.File{Tenant: "acme", ID: "file-1"}
	k := access.Key{Hash: strings.Repeat("a", 64), Tenant: "acme"}
	ok(t, s.Batches.Create(ctx, aBatch("acme")))
	ok(t, s.Parts.Insert(ctx, []batch.Part{p}))
	ok(t, s.Files.Put(ctx, f))
	ok(t, s.Keys.Put(ctx, k))
	ok(t, s.Uploads.Create(ctx, upload.Upload{Tenant: "acme", ID: "upload_1"}))

	for _, v := range []types.AttributeValue{
		&types.AttributeValueMemberN{Value: fmt.Sprint(batch.FormatVersion + 1)},
		&types.AttributeValueMemberN{Value: "0"},
	} {
		for _, key := range []key{metaKey("acme", "batch_1"), partKey(p.PartKey), fileKey("acme", "file-1"), accessKey(k.Hash), uploadKey("acme", "upload_1")} {
			ok(t, r.set(ctx, key, "v", v))
		}
		for op, err := range map[string]error{
			"Batches.Get": errOf(s.Batches.Get(ctx, "acme", "batch_1")),
			"Batches.List": func() error {
				_, _, err := s.Batches.List(ctx, "acme", "", 10)
				return err
			}(),
			"Batches.Start": errOf(s.Batches.Start(ctx, "acme", "batch_1", batch.Started{}, start)),
			"Parts.Get":     errOf(s.Parts.Get(ctx, p.PartKey)),
			"Parts.All": func() (err error) {
				for _, err = range s.Parts.All(ctx, "acme", "batch_1") {
				}
				return err
			}(),
			"Claims.Heartbeat": s.Claims.Heartbeat(ctx, batch.Claim{PartKey: p.PartKey, Token: "nobody"}, 0, start, start),
			"Files.Get":        errOf(s.Files.Get(ctx, "acme", "file-1")),
			"Files.Put":        s.Files.Put(ctx, f),
			"Files.List": func() error {
				_, _, err := s.Files.List(ctx, "acme", batch.FileQuery{Limit: 10}, start)
				return err
			}(),
			"Keys.Get":  errOf(s.Keys.Get(ctx, k.Hash)),
			"Keys.Put":  s.Keys.Put(ctx, k),
			"Keys.Find": errOf(s.Keys.Find(ctx, "acme", k.ID())),
			"Keys.List": func() error {
				_, _, err := s.Keys.List(ctx, "acme", "", 10)
				return err
			}(),
			"Keys.Disable":   errOf(s.Keys.Disable(ctx, "acme", k.Hash, start)),
			"Uploads.Get":    errOf(s.Uploads.Get(ctx, "acme", "upload_1")),
			"Uploads.Cancel": errOf(s.Uploads.Cancel(ctx, "acme", "upload_1")),
		} {
			if e, is := errors.AsType[*FormatError](err); !is || !errors.Is(err, ErrFormat) || e.PK == "" {
				t.Errorf("%s of an item with v=%v: %v", op, v, err)
			}
			if strings.Contains(fmt.Sprint(err), k.Hash) {
				t.Errorf("%s: the error shows a hash: %v", op, err)
			}
		}
	}
}

func errOf[V any](_ V, err error) error { return err }

// dueAt is where the index would have the reaper look at an item; zero: nowhere.
func dueAt(t *testing.T, r raw, k key) time.Time {
	t.Helper()
	var found []time.Time
	for shard := range batch.DueShards {
		e := must(expression.NewBuilder().WithKeyCondition(expression.Key("due_pk").Equal(expression.Value(fmt.Sprintf("DUE#%d", shard)))).Build())(t)
		out := must(r.client.Query(t.Context(), &dynamodb.QueryInput{
			TableName: &r.name, IndexName: aws.String(dueIndex), KeyConditionExpression: e.KeyCondition(),
			ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
		}))(t)
		for _, a := range out.Items {
			// KEYS_ONLY: the rest of the item isn't here.
			var h head
			ok(t, attributevalue.UnmarshalMap(a, &h))
			if (key{h.PK, h.SK}) == k {
				found = append(found, fromMillis(h.DueAt))
			}
		}
	}
	switch len(found) {
	case 0:
		return time.Time{}
	case 1:
		return found[0]
	}
	t.Fatalf("%v is in the due index %d times", k, len(found))
	return time.Time{}
}

func TestDueOfAPart(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	p := aPart("acme", 7)
	k := partKey(p.PartKey)
	c := batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}
	after := func(d time.Duration) time.Time { return start.Add(d) }
	steps := []struct {
		name string
		do   func() error
		want time.Time
	}{
		{"insert", func() error { return s.Parts.Insert(ctx, []batch.Part{p}) }, p.Due},
		{"claim", func() error { return errOf(s.Claims.Claim(ctx, c, "", 3, after(1*time.Minute), start)) }, after(1 * time.Minute)},
		{"heartbeat", func() error { return s.Claims.Heartbeat(ctx, c, 0, after(2*time.Minute), start) }, after(1 * time.Minute)},
		{"checkpoint", func() error {
			return s.Claims.Checkpoint(ctx, c, batch.Checkpoint{To: 1, Done: batch.Bitmap{1}}, after(3*time.Minute), start)
		}, after(3 * time.Minute)},
		{"hand over", func() error { return s.Claims.HandOver(ctx, c, 0, after(4*time.Minute), start) }, after(4 * time.Minute)},
		{"claim", func() error { return errOf(s.Claims.Claim(ctx, c, "", 3, after(5*time.Minute), start)) }, after(5 * time.Minute)},
		{"fail", func() error { return s.Claims.Fail(ctx, c, "", after(6*time.Minute), start) }, after(6 * time.Minute)},
		{"claim", func() error { return errOf(s.Claims.Claim(ctx, c, "", 3, after(7*time.Minute), start)) }, after(7 * time.Minute)},
		{"hand over for good", func() error { return s.Claims.HandOver(ctx, c, 0, time.Time{}, start) }, time.Time{}},
		{"claim", func() error { return errOf(s.Claims.Claim(ctx, c, "", 3, after(8*time.Minute), start)) }, after(8 * time.Minute)},
		{"finish", func() error { return s.Claims.Finish(ctx, c, 1, start) }, time.Time{}},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%d %s: %v", i, step.name, err)
		}
		if got := dueAt(t, r, k); !got.Equal(step.want) {
			t.Errorf("after %d %s due at %v, want %v", i, step.name, got, step.want)
		}
		p := must(s.Parts.Get(ctx, p.PartKey))(t)
		if held := p.State == batch.Leased || p.State == batch.Done; p.LeaseUntil.IsZero() == held {
			t.Errorf("after %d %s it is %s and leased until %v", i, step.name, p.State, p.LeaseUntil)
		}
	}
}

func TestDueOfABatch(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	b := aBatch("acme")
	tok := lease.NewToken()
	for _, step := range []struct {
		name string
		do   func() error
		want time.Time
	}{
		{"create", func() error { return s.Batches.Create(ctx, b) }, b.Deadline},
		{"start", func() error { return errOf(s.Batches.Start(ctx, b.Tenant, b.ID, batch.Started{}, start)) }, b.Deadline},
		{"end", func() error { return errOf(s.Endings.End(ctx, b.Tenant, b.ID, batch.Completed, start)) }, b.Deadline},
		{"finalize", func() error { return errOf(s.Endings.Finalize(ctx, b.Tenant, b.ID, tok, start, start, start)) }, b.Deadline},
		{"close", func() error { return errOf(s.Endings.Close(ctx, b.Tenant, b.ID, tok, batch.Closed{}, start)) }, time.Time{}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := dueAt(t, r, metaKey(b.Tenant, b.ID)); !got.Equal(step.want) {
			t.Errorf("after %s due at %v, want %v", step.name, got, step.want)
		}
	}
	b.ID = "batch_2"
	ok(t, s.Batches.Create(ctx, b))
	must(s.Batches.Refuse(ctx, b.Tenant, b.ID, nil, start))(t)
	if got := dueAt(t, r, metaKey(b.Tenant, b.ID)); !got.IsZero() {
		t.Errorf("a failed batch is due at %v", got)
	}
}

func TestLifeOfAFile(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	f := batch.File{Tenant: "acme", ID: "file-1", CreatedAt: start, ExpiresAt: start.Add(30 * 24 * time.Hour)}
	ok(t, s.Files.Put(ctx, f))
	if got := dueAt(t, r, fileKey("acme", "file-1")); !got.Equal(f.ExpiresAt) {
		t.Errorf("due at %v, want %v", got, f.ExpiresAt)
	}
	// TTL counts in seconds: in milliseconds it would be a year 58,000 and later.
	ttl, _ := must(r.item(ctx, fileKey("acme", "file-1")))(t)["ttl"].(*types.AttributeValueMemberN)
	if want := fmt.Sprint(f.ExpiresAt.Add(7 * 24 * time.Hour).Unix()); ttl == nil || ttl.Value != want {
		t.Errorf("ttl %v, want %s", ttl, want)
	}
	f.ID, f.ExpiresAt = "file-2", time.Time{}
	ok(t, s.Files.Put(ctx, f))
	if a := must(r.item(ctx, fileKey("acme", "file-2")))(t); a["ttl"] != nil || a["due_at"] != nil {
		t.Error("a file without expiry expires")
	}
}

// TestLongPages: DynamoDB ends a page at 1 MB, wherever that is.
func TestLongPages(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	const n = 8
	for i := range n {
		p := aPart("acme", n-1-i)
		p.LastError = strings.Repeat("x", 300_000)
		ok(t, r.seed(ctx, p))
		b := aBatch("acme")
		b.ID = fmt.Sprintf("batch_%d", i)
		b.CreatedAt = start.Add(time.Duration(i) * time.Millisecond)
		b.Errors = []openai.BatchError{{Message: p.LastError}}
		ok(t, s.Batches.Create(ctx, b))
	}
	next := 0
	for p, err := range s.Parts.All(ctx, "acme", "batch_1") {
		ok(t, err)
		if p.N != next {
			t.Fatalf("part %d, want %d", p.N, next)
		}
		next++
	}
	if next != n {
		t.Errorf("%d parts, want %d", next, n)
	}
	for limit, wantMore := range map[int]bool{n: false, n - 1: true} {
		page, more, err := s.Batches.List(ctx, "acme", "", limit)
		ok(t, err)
		if len(page) != limit || more != wantMore || page[limit-1].ID != fmt.Sprintf("batch_%d", n-limit) {
			t.Errorf("limit %d: %d batches, more %v", limit, len(page), more)
		}
	}
}

func TestAllEndsAfterAnError(t *testing.T) {
	client, name := newTable(t)
	s := New(client, name)
	ok(t, s.Parts.Insert(t.Context(), []batch.Part{aPart("acme", 0)}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rounds := 0
	for _, err := range s.Parts.All(ctx, "acme", "batch_1") {
		if rounds++; err == nil {
			t.Error("a part from a cancelled context")
		}
	}
	if rounds != 1 {
		t.Errorf("%d rounds, want the error alone", rounds)
	}
}

func TestIDsThatNoKeyHolds(t *testing.T) {
	client, name := newTable(t)
	s, ctx := New(client, name), t.Context()
	for _, id := range []string{"", strings.Repeat("x", 1025), strings.Repeat("x", 100_000)} {
		for op, err := range map[string]error{
			"Batches.Get":     errOf(s.Batches.Get(ctx, "acme", id)),
			"Batches.Start":   errOf(s.Batches.Start(ctx, "acme", id, batch.Started{}, start)),
			"Batches.Refuse":  errOf(s.Batches.Refuse(ctx, "acme", id, nil, start)),
			"Batches.Overrun": errOf(s.Batches.Overrun(ctx, "acme", id, start)),
			"Endings.End":     errOf(s.Endings.End(ctx, "acme", id, batch.Expired, start)),
			"Files.Get":       errOf(s.Files.Get(ctx, "acme", id)),
		} {
			if !errors.Is(err, batch.ErrNotFound) {
				t.Errorf("%s with an id of %d bytes: %v", op, len(id), err)
			}
		}
		if _, err := s.Keys.Get(ctx, id); !errors.Is(err, access.ErrNotFound) {
			t.Errorf("Keys.Get with a hash of %d bytes: %v", len(id), err)
		}
	}
}

// TestShardsAreUsed: ids that differ little still spread.
func TestShardsAreUsed(t *testing.T) {
	count := map[string]int{}
	for n := range 1600 {
		count[partKey(batch.PartKey{Tenant: "acme", Batch: "batch_1", N: n}).shard()]++
	}
	for shard, n := range count {
		if n > 200 {
			t.Errorf("%s has %d of 1,600", shard, n)
		}
	}
	if len(count) != batch.DueShards {
		t.Errorf("%d shards of %d used", len(count), batch.DueShards)
	}
}
