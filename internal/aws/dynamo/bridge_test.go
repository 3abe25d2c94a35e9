package dynamo

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

func aRow(id string) bridge.Row {
	r := bridge.Request{Tenant: "acme", CorrelationID: id, Submitter: "ann", FileID: "file-1", Endpoint: "/v1/embeddings", Window: "24h"}
	return bridge.Row{
		Key: bridge.Key{Tenant: "acme", CorrelationID: id}, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1,
		ClaimedAt: start, Due: start.Add(bridge.DefaultClaimStale), Request: r, Hash: r.Hash(), ExpiresAt: start.Add(bridge.Kept),
	}
}

// TestLostAnswersOfTheBridge takes a row through its life while every answer is
// lost once: each write is recognised and took effect once.
func TestLostAnswersOfTheBridge(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(twice{client}, name), raw{client, name}, t.Context()
	row, thief := aRow("k"), lease.NewToken()
	ok(t, s.Bridge.Claim(ctx, row))
	ok(t, s.Bridge.Release(ctx, row.Key, row.Token))
	ok(t, s.Bridge.Claim(ctx, row))
	stolen, err := s.Bridge.Steal(ctx, row.Key, 1, start.Add(time.Second), thief, start, start)
	if err != nil || stolen.Token != thief || stolen.Ver != 2 {
		t.Errorf("stolen %+v, %v", stolen, err)
	}
	ok(t, s.Bridge.Confirm(ctx, row.Key, thief, "batch_1", start.Add(bridge.Kept)))
	if a := must(r.item(ctx, bridgeKey(row.Key)))(t); a["ver"].(*types.AttributeValueMemberN).Value != "3" {
		t.Errorf("ver %v after a claim, a theft and a confirm", a["ver"])
	}
	send := bridge.Send{Tenant: "acme", Hash: "h", ID: "batch_1", At: start}
	ok(t, s.Sends.Record(ctx, send, 0))
	send.ID = "batch_2"
	ok(t, s.Sends.Record(ctx, send, 1))
	if got := must(s.Sends.Last(ctx, "acme", "h"))(t); got.ID != "batch_2" || got.Ver != 2 {
		t.Errorf("last %+v", got)
	}
}

// A reservation is where the reaper looks, at the time it turns stale; a confirmed
// row is not. Both can expire.
func TestDueOfARow(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	row := aRow("k")
	ok(t, s.Bridge.Claim(ctx, row))
	if at := dueAt(t, r, bridgeKey(row.Key)); !at.Equal(row.Due) {
		t.Errorf("due %s, want %s", at, row.Due)
	}
	later := row.Due.Add(time.Hour)
	must(s.Bridge.Steal(ctx, row.Key, 1, row.Due, "thief", later, row.Due))(t)
	if at := dueAt(t, r, bridgeKey(row.Key)); !at.Equal(later) {
		t.Errorf("due %s once stolen, want %s", at, later)
	}
	ok(t, s.Bridge.Confirm(ctx, row.Key, "thief", "batch_1", start.Add(bridge.Kept)))
	if at := dueAt(t, r, bridgeKey(row.Key)); !at.IsZero() {
		t.Errorf("a confirmed row is due at %s", at)
	}
	ok(t, s.Sends.Record(ctx, bridge.Send{Tenant: "acme", Hash: "h", ID: "batch_1", At: start, ExpiresAt: start.Add(time.Hour)}, 0))
	for k, want := range map[key]time.Time{bridgeKey(row.Key): row.ExpiresAt, sendKey("acme", "h"): start.Add(time.Hour)} {
		a := must(r.item(ctx, k))(t)
		if ttl, ok := a["ttl"].(*types.AttributeValueMemberN); !ok || ttl.Value != strconv.FormatInt(want.Unix(), 10) {
			t.Errorf("%v: ttl %v, want %d", k, a["ttl"], want.Unix())
		}
	}
}

// What a newer program wrote is neither taken over nor taken for an answer.
func TestRowsOfANewerProgram(t *testing.T) {
	client, name := newTable(t)
	s, r, ctx := New(client, name), raw{client, name}, t.Context()
	row := aRow("k")
	send := bridge.Send{Tenant: "acme", Hash: "h", ID: "batch_1", At: start}
	ok(t, errors.Join(s.Bridge.Claim(ctx, row), s.Sends.Record(ctx, send, 0)))
	for _, k := range []key{bridgeKey(row.Key), sendKey("acme", "h")} {
		ok(t, r.set(ctx, k, "v", &types.AttributeValueMemberN{Value: "2"}))
	}
	other := row
	other.Token = lease.NewToken()
	for what, err := range map[string]error{
		"claim":     s.Bridge.Claim(ctx, other),
		"confirm":   s.Bridge.Confirm(ctx, row.Key, other.Token, "batch_1", start),
		"give back": s.Bridge.GiveBack(ctx, row.Key, other.Token, start),
		"steal":     errOf(s.Bridge.Steal(ctx, row.Key, 7, start, other.Token, start, start)),
		"last":      errOf(s.Sends.Last(ctx, "acme", "h")),
		"record":    s.Sends.Record(ctx, bridge.Send{Tenant: "acme", Hash: "h", ID: "batch_2"}, 0),
	} {
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
