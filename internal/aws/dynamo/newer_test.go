package dynamo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/upload"
)

// versionConjunct is what keeps a write off a newer program's item, as the mutation
// test prints it.
const versionConjunct = "v <= ?"

// TestNoWriteTouchesANewerItem: a condition that names attributes only may hold for
// an item that this program can't read. Nothing is written then; the error says why.
func TestNoWriteTouchesANewerItem(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	now := start.Add(time.Hour)
	p, leased, b := aPart("acme", 0), aPart("acme", 1), aBatch("acme")
	leased.State, leased.Owner = batch.Leased, "me"
	mine := batch.Claim{PartKey: leased.PartKey, Token: "me"}
	ended, finalizing := b, b
	ended.ID, ended.Status, ended.Ending = "batch_2", batch.InProgress, batch.Completed
	finalizing.ID, finalizing.Status, finalizing.Ending, finalizing.Finalizer = "batch_3", batch.Finalizing, batch.Completed, "me"
	finalizing.FinalizerUntil = start
	f, u := batch.File{Tenant: "acme", ID: "file-1"}, upload.Upload{Tenant: "acme", ID: "upload_1"}
	row := bridge.Row{Key: bridge.Key{Tenant: "acme", CorrelationID: "c"}, State: bridge.Reserved, Token: "me", Ver: 1}
	send := bridge.Send{Tenant: "acme", Hash: "h", ID: "batch_1"}
	stored := access.Tenant{Name: "acme", Ver: 1}
	k := access.Key{Hash: strings.Repeat("a", 64), Tenant: "acme"}
	receipt := access.Receipt{ReceiptName: access.ReceiptName{Tenant: "acme", StartedAt: start, RequestID: "req_1"}}
	for _, c := range []struct {
		name string
		item any
		do   func() error
	}{
		{"claim", newPartItem(p), func() error {
			return errOf(s.Claims.Claim(ctx, batch.Claim{PartKey: p.PartKey, Token: "me"}, "", 3, now, now))
		}},
		{"heartbeat", newPartItem(leased), func() error { return s.Claims.Heartbeat(ctx, mine, 0, now, now) }},
		{"checkpoint", newPartItem(leased), func() error {
			return s.Claims.Checkpoint(ctx, mine, batch.Checkpoint{To: 1, Done: batch.Bitmap{1}, Chunk: batch.Chunk{N: 1}}, now, now)
		}},
		{"finish", newPartItem(leased), func() error { return s.Claims.Finish(ctx, mine, 0, now) }},
		{"hand over", newPartItem(leased), func() error { return s.Claims.HandOver(ctx, mine, 0, now, now) }},
		{"fail", newPartItem(leased), func() error { return s.Claims.Fail(ctx, mine, "why", now, now) }},
		{"seal", newPartItem(p), func() error { return errOf(s.Seals.Seal(ctx, p.PartKey, p.Ver, now)) }},
		{"steal", newPartItem(lapsing(leased)), func() error {
			return errOf(s.Claims.Steal(ctx, batch.Claim{PartKey: leased.PartKey, Token: "you"}, "", leased.Ver, 3, now, now, now))
		}},
		{"suspect", newPartItem(leased), func() error {
			return s.Claims.Suspect(ctx, mine, batch.Suspect{Strikes: 1, By: mine.Token}, 0, now, now)
		}},
		{"reap", newPartItem(lapsing(leased)), func() error { return errOf(s.Reaps.Reap(ctx, leased, now, now, now)) }},
		{"postpone", newPartItem(p), func() error { return errOf(s.Reaps.Postpone(ctx, p, now, now)) }},
		{"declare dead", newPartItem(p), func() error { return errOf(s.Deaths.Declare(ctx, p, 0, now, now, now)) }},
		{"defer", validating(b), func() error { return s.Reaps.Defer(ctx, "acme", b.ID, now, now) }},
		{"start", validating(b), func() error { return errOf(s.Batches.Start(ctx, "acme", b.ID, batch.Started{}, now)) }},
		{"refuse", validating(b), func() error { return errOf(s.Batches.Refuse(ctx, "acme", b.ID, nil, now)) }},
		{"overrun", validating(b), func() error { return errOf(s.Batches.Overrun(ctx, "acme", b.ID, now)) }},
		{"end", validating(b), func() error { return errOf(s.Endings.End(ctx, "acme", b.ID, batch.Cancelled, now)) }},
		{"finalize", newBatchItem(ended), func() error { return errOf(s.Endings.Finalize(ctx, "acme", ended.ID, "me", now, now, now)) }},
		{"rob", newBatchItem(finalizing), func() error { return errOf(s.Endings.Finalize(ctx, "acme", finalizing.ID, "you", now, now, now)) }},
		{"hold", newBatchItem(finalizing), func() error { return s.Endings.Hold(ctx, "acme", finalizing.ID, "me", now, now) }},
		{"close", newBatchItem(finalizing), func() error {
			return errOf(s.Endings.Close(ctx, "acme", finalizing.ID, "me", batch.Closed{}, now))
		}},
		{"delete a file", newFileItem(f), func() error { return s.Files.Delete(ctx, "acme", f.ID, now) }},
		{"cancel an upload", newUploadItem(with(u, upload.Pending)), func() error { return errOf(s.Uploads.Cancel(ctx, "acme", u.ID)) }},
		{"finish an upload", newUploadItem(with(u, upload.Settled)), func() error { return errOf(s.Uploads.Finish(ctx, "acme", u.ID)) }},
		{"steal a reservation", newRowItem(row), func() error { return errOf(s.Bridge.Steal(ctx, row.Key, 1, now, "you", now, now)) }},
		{"confirm", newRowItem(row), func() error { return s.Bridge.Confirm(ctx, row.Key, "me", "batch_1", start) }},
		{"give back", newRowItem(row), func() error { return s.Bridge.GiveBack(ctx, row.Key, "me", start) }},
		{"release", newRowItem(row), func() error { return s.Bridge.Release(ctx, row.Key, "me") }},
		{"disable a key", newKeyItem(k), func() error { return errOf(s.Keys.Disable(ctx, "acme", k.Hash, now)) }},
		{"rotate a key", newKeyItem(k), func() error {
			return s.Keys.Rotate(ctx, k, access.Key{Hash: strings.Repeat("b", 64), Tenant: "acme", Replaces: k.ID()}, now)
		}},
		{"touch a key", newKeyItem(k), func() error { return s.Keys.Touch(ctx, k, now) }},
		{"record a send", newSendItem(send), func() error { return s.Sends.Record(ctx, send, 0) }},
		{"record a send anew", newSendItem(sent(send)), func() error { return s.Sends.Record(ctx, send, 1) }},
		{"put a tenant", newTenantItem(stored), func() error { return s.Tenants.Put(ctx, access.Tenant{Name: "acme"}) }},
		{"intend", newReceiptItem(receipt), func() error { return s.Receipts.Intend(ctx, receipt) }},
		{"complete a receipt", newReceiptItem(receipt), func() error {
			return s.Receipts.Complete(ctx, receipt.ReceiptName, access.Completion{Time: now})
		}},
		{"change a tenant", newTenantItem(stored), func() error { return s.Tenants.Put(ctx, stored) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := must(encode(c.item))(t)
			a["v"] = &types.AttributeValueMemberN{Value: fmt.Sprint(batch.FormatVersion + 1)}
			ok(t, r.putBack(ctx, a))
			if err := c.do(); !errors.Is(err, ErrFormat) || !errors.Is(err, batch.ErrNewer) {
				t.Errorf("error %v, want %v", err, batch.ErrNewer)
			}
			k := key{text(a, attrPK), text(a, attrSK)}
			if now := must(r.item(ctx, k))(t); !reflect.DeepEqual(now, a) {
				t.Errorf("written: %v\nwas %v", now, a)
			}
			// The same item of this version takes the write, so that it was the version
			// that stopped it.
			a["v"] = &types.AttributeValueMemberN{Value: fmt.Sprint(batch.FormatVersion)}
			ok(t, r.putBack(ctx, a))
			if err := c.do(); err != nil && !errors.Is(err, bridge.ErrChanged) && !errors.Is(err, access.ErrChanged) {
				t.Errorf("with v=%d: %v", batch.FormatVersion, err)
			}
		})
	}
}

func lapsing(p batch.Part) batch.Part {
	p.LeaseUntil = start
	return p
}

func validating(b batch.Batch) batchItem {
	b.Status = batch.Validating
	return newBatchItem(b)
}

func with(u upload.Upload, s upload.Status) upload.Upload {
	u.Status = s
	return u
}

func sent(s bridge.Send) bridge.Send {
	s.ID, s.Ver = "batch_0", 1
	return s
}

// witness sees the condition of every update and delete, and complains of those
// that don't ask for the version: a write that is added later is found by its own
// suite, without being listed here.
type witness struct {
	Client
	t *testing.T

	mu  sync.Mutex
	bad map[string]bool
}

func newWitness(t *testing.T, client Client) *witness {
	return &witness{Client: client, t: t, bad: map[string]bool{}}
}

func (w *witness) look(condition *string, names map[string]string) {
	text := aws.ToString(condition)
	for _, c := range conjuncts(text, 0) {
		attr, _, compares := strings.Cut(text[c.from:c.to], " <= ")
		if compares && names[attr] == "v" {
			return
		}
	}
	said := caller() + ": " + text
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.bad[said] {
		w.bad[said] = true
		w.t.Errorf("an update doesn't ask for the version: %s", said)
	}
}

// UpdateItem is seen.
func (w *witness) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	w.look(in.ConditionExpression, in.ExpressionAttributeNames)
	return w.Client.UpdateItem(ctx, in, o...)
}

// DeleteItem is seen.
func (w *witness) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	w.look(in.ConditionExpression, in.ExpressionAttributeNames)
	return w.Client.DeleteItem(ctx, in, o...)
}

// TransactWriteItems is seen, with the checks in it.
func (w *witness) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	for _, i := range in.TransactItems {
		if i.Update != nil {
			w.look(i.Update.ConditionExpression, i.Update.ExpressionAttributeNames)
		}
		if i.ConditionCheck != nil {
			w.look(i.ConditionCheck.ConditionExpression, i.ConditionCheck.ExpressionAttributeNames)
		}
	}
	return w.Client.TransactWriteItems(ctx, in, o...)
}

// TestUnknownAttributesStay: what a newer program added to an item of this version
// survives whatever this one writes.
func TestUnknownAttributesStay(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	now := start.Add(time.Hour)
	p, b := aPart("acme", 0), aBatch("acme")
	send := bridge.Send{Tenant: "acme", Hash: "h", ID: "batch_1"}
	row := bridge.Row{Key: bridge.Key{Tenant: "acme", CorrelationID: "c"}, State: bridge.Reserved, Token: "me", Ver: 1}
	ok(t, s.Batches.Create(ctx, b))
	ok(t, s.Parts.Insert(ctx, []batch.Part{p}))
	ok(t, s.Sends.Record(ctx, send, 0))
	ok(t, s.Tenants.Put(ctx, access.Tenant{Name: "acme", Drop: &access.Drop{Principal: "ann", Window: "1h"}, Limits: access.Limits{FileBytes: 1}}))
	ok(t, s.Bridge.Claim(ctx, row))
	ok(t, s.Uploads.Create(ctx, upload.Upload{Tenant: "acme", ID: "upload_1"}))
	ok(t, s.Files.Put(ctx, batch.File{Tenant: "acme", ID: "file-1"}))
	secretKey := access.Key{Hash: strings.Repeat("a", 64), Tenant: "acme"}
	ok(t, s.Keys.Put(ctx, secretKey))
	added := &types.AttributeValueMemberM{Value: attributes{"a": &types.AttributeValueMemberN{Value: "1"}}}
	keys := []key{metaKey("acme", b.ID), partKey(p.PartKey), sendKey("acme", "h"), bridgeKey(row.Key), uploadKey("acme", "upload_1"), fileKey("acme", "file-1"), tenantKey("acme"), accessKey(secretKey.Hash)}
	for _, k := range keys {
		ok(t, r.set(ctx, k, "later", added))
	}
	c := batch.Claim{PartKey: p.PartKey, Token: "me"}
	ok(t, errOf(s.Batches.Start(ctx, "acme", b.ID, batch.Started{Parts: 1, Lines: 2}, now)))
	ok(t, errOf(s.Claims.Claim(ctx, c, "", 3, now, now)))
	ok(t, s.Claims.Checkpoint(ctx, c, batch.Checkpoint{To: 1, Done: batch.Bitmap{1}, Chunk: batch.Chunk{N: 1}}, now, now))
	ok(t, s.Claims.HandOver(ctx, c, 0, now, now))
	ok(t, errOf(s.Seals.Seal(ctx, p.PartKey, must(s.Parts.Get(ctx, p.PartKey))(t).Ver, now)))
	ok(t, errOf(s.Endings.End(ctx, "acme", b.ID, batch.Cancelled, now)))
	ok(t, errOf(s.Endings.Finalize(ctx, "acme", b.ID, "me", now, now, now)))
	ok(t, errOf(s.Endings.Close(ctx, "acme", b.ID, "me", batch.Closed{}, now)))
	send.ID = "batch_2"
	ok(t, s.Sends.Record(ctx, send, 1))
	ok(t, s.Tenants.Put(ctx, access.Tenant{Name: "acme", Ver: 1}))
	ok(t, s.Bridge.Confirm(ctx, row.Key, "me", "batch_1", start))
	ok(t, errOf(s.Uploads.Cancel(ctx, "acme", "upload_1")))
	ok(t, s.Files.Put(ctx, batch.File{Tenant: "acme", ID: "file-1"})) // again: it is the same file
	ok(t, s.Files.Delete(ctx, "acme", "file-1", now))
	ok(t, s.Keys.Touch(ctx, secretKey, now))
	ok(t, s.Keys.Rotate(ctx, secretKey, access.Key{Hash: strings.Repeat("b", 64), Tenant: "acme"}, now))
	ok(t, errOf(s.Keys.Disable(ctx, "acme", secretKey.Hash, now)))
	for _, k := range keys {
		if got := must(r.item(ctx, k))(t)["later"]; !reflect.DeepEqual(got, types.AttributeValue(added)) {
			t.Errorf("%v: %v of a newer program's attribute is left", k, got)
		}
	}
}

// TestFileRecordedByAnotherRelease: a result file's record is written again by
// whoever goes on, also when the first one indexed it otherwise.
func TestFileRecordedByAnotherRelease(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	f := batch.File{Tenant: "acme", ID: "file-1", Purpose: "batch_output", CreatedAt: start, ExpiresAt: start.Add(time.Hour)}
	ok(t, s.Files.Put(ctx, f))
	a := must(r.item(ctx, fileKey("acme", f.ID)))(t)
	delete(a, "ttl")
	a[attrDuePK] = &types.AttributeValueMemberS{Value: "DUE#elsewhere"}
	ok(t, r.putBack(ctx, a))
	if err := s.Files.Put(ctx, f); err != nil {
		t.Errorf("put again: %v", err)
	}
	f.Filename = "another"
	if err := s.Files.Put(ctx, f); !errors.Is(err, batch.ErrExists) {
		t.Errorf("put another: %v", err)
	}
}

// TestReadableIsPartOfTheCondition: an OR in a write's own condition must not let a
// newer item through.
func TestReadableIsPartOfTheCondition(t *testing.T) {
	e, err := expression.NewBuilder().WithCondition(readable(is("a", 1).Or(is("b", 2)))).Build()
	ok(t, err)
	if got := conjuncts(*e.Condition(), 0); len(got) < 2 || !strings.HasPrefix((*e.Condition())[got[len(got)-1].from:], "#2 <= ") {
		t.Errorf("condition %s", *e.Condition())
	}
}
