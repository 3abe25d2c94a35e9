package storetest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// BridgePorts are what the suite of bridge.Store needs.
type BridgePorts struct {
	Store bridge.Store
	// Look reads a row past the port, which has no need to.
	Look func(T, bridge.Key) (bridge.Row, bool)
}

// RunBridge runs the suite of bridge.Store.
func RunBridge(t *testing.T, open func(T) BridgePorts) {
	t.Helper()
	run(t, BridgeCases(), open)
}

// BridgeCases is the suite of bridge.Store.
func BridgeCases() []Case[BridgePorts] {
	return []Case[BridgePorts]{
		{"claim/a full row and a bare one come back", bridgeRoundTrip},
		{"claim/nothing of a request is left out", bridgeWhole},
		{"claim/a reserved id is taken", bridgeTaken},
		{"claim/one of many wins", bridgeRace},
		{"claim/again under the same token is its own lost write", bridgeClaimAgain},
		{"claim/a confirmed id is never claimable again", bridgeConfirmedStays},
		{"claim/tenants and ids are kept apart", bridgeApart},
		{"steal/a stale reservation", bridgeSteal},
		{"steal/not a fresh one", bridgeFresh},
		{"steal/not one that moved since it was read", bridgeMoved},
		{"steal/not a confirmed one", bridgeStealConfirmed},
		{"steal/one of many thieves", bridgeThieves},
		{"steal/again is its own lost write, until it is confirmed", bridgeStealAgain},
		{"confirm/is final", bridgeConfirm},
		{"confirm/again is its own lost write", bridgeConfirmAgain},
		{"confirm/not under another token", bridgeConfirmForeign},
		{"give back/a reservation, stale before its time", bridgeGiveBack},
		{"give back/again is no more", bridgeGiveBackAgain},
		{"give back/not another's, nor after a theft", bridgeGiveBackForeign},
		{"give back/never a confirmed row", bridgeGiveBackConfirmed},
		{"release/frees the id for another claim", bridgeRelease},
		{"release/again, or of nothing, is no error", bridgeReleaseAgain},
		{"release/not another's, nor one that was claimed again since", bridgeReleaseForeign},
		{"release/never a confirmed row, also when it is confirmed in between", bridgeReleaseConfirmed},
		{"release/or confirm: one of two at once", bridgeReleaseRace},
		{"row/by its name", bridgeNamed},
		{"unknown rows", bridgeUnknown},
		{"a context that is over", bridgeInterrupted},
	}
}

// row is a claim of an id that no other case has, with everything in it.
func row(tok lease.Token) bridge.Row {
	r := bridge.Request{
		Tenant: tenant(), CorrelationID: awkward + unique() + strings.Repeat("x", 2000), RequestID: "req-" + unique(),
		Submitter: "arn:aws:iam::111122223333:user/é+=,.@-_/x", FileID: "file-" + unique(), Endpoint: "/v1/embeddings", Window: "24h",
		Metadata: map[string]string{awkward: awkward, "empty": ""}, OutputExpiry: 36 * time.Hour, Service: awkward,
		Object: &bridge.Object{
			Bucket: "inputs-" + unique(), Key: "in/acme/" + awkward, Version: awkward, ETag: `"0123456789abcdef0123456789abcdef-3"`,
			Bytes: 10 << 30, StoredAt: at(-time.Hour).Truncate(time.Second).UTC(),
		},
	}
	return bridge.Row{
		Key: bridge.Key{Tenant: r.Tenant, CorrelationID: r.CorrelationID}, State: bridge.Reserved, Token: tok, Ver: 1,
		ClaimedAt: at(0), GivenBack: true, Due: at(stale), Request: r, Hash: r.Hash(), ExpiresAt: at(time.Hour).Truncate(time.Second),
	}
}

// expires is when a confirmed row may be forgotten.
func expires() time.Time { return at(bridge.Kept).Truncate(time.Second) }

const stale = bridge.DefaultClaimStale

// claimed is a row that is stored.
func claimed(t T, p BridgePorts, tok lease.Token) bridge.Row {
	t.Helper()
	r := row(tok)
	succeeds(t, "claim", p.Store.Claim(t.Context(), r))
	return r
}

// steal tries to take r over for tok, as of an instant at which it is stale.
func steal(t T, p BridgePorts, r bridge.Row, seen int64, tok lease.Token) (bridge.Row, error) {
	return p.Store.Steal(t.Context(), r.Key, seen, at(time.Minute), tok, at(2*stale), at(stale))
}

// keeps demands that r is stored as it is.
func keeps(t T, p BridgePorts, what string, r bridge.Row) {
	t.Helper()
	got, there := p.Look(t, r.Key)
	if !there {
		t.Fatalf("%s: the row is gone", what)
	}
	same(t, what, got, r)
}

// taken demands that a claim is refused with the row found.
func taken(t T, what string, err error, found bridge.Row) {
	t.Helper()
	refuses(t, what, err, bridge.ErrTaken)
	e, ok := errors.AsType[*bridge.TakenError](err)
	if !ok {
		t.Fatalf("%s: %v is no *TakenError", what, err)
	}
	same(t, what+": found", e.Row, found)
}

// confirmed is r as its confirm leaves it.
func confirmed(r bridge.Row, job string) bridge.Row {
	r.State, r.Job, r.Due, r.ExpiresAt = bridge.Confirmed, job, time.Time{}, expires()
	r.Ver++
	return r
}

// stolen is r as a theft leaves it.
func stolen(r bridge.Row, tok lease.Token) bridge.Row {
	r.Token, r.ClaimedAt, r.GivenBack, r.Due, r.ExpiresAt = tok, at(stale), false, at(2*stale), time.Time{}
	r.Ver++
	return r
}

func bridgeRoundTrip(t T, p BridgePorts) {
	bare := bridge.Row{Key: bridge.Key{Tenant: tenant(), CorrelationID: "k"}, State: bridge.Reserved, Token: token(), Ver: 1, ClaimedAt: at(0)}
	bare.Request.Tenant, bare.Request.CorrelationID = bare.Tenant, bare.CorrelationID
	for _, r := range []bridge.Row{row(token()), bare} {
		succeeds(t, "claim", p.Store.Claim(t.Context(), r))
		keeps(t, p, "stored", r)
	}
}

// bridgeWhole: whoever submits the row later knows no more than it holds, so a
// member that somebody adds to a request has to be stored as well. Nor does the
// store keep what the caller goes on writing to.
func bridgeWhole(t T, p BridgePorts) {
	r := row(token())
	for _, v := range []any{r, r.Request, *r.Request.Object} {
		for f, value := range reflect.ValueOf(v).Fields() {
			if value.IsZero() && f.Name != "Job" {
				t.Errorf("the suite's row has no %T.%s: nobody would miss it", v, f.Name)
			}
		}
	}
	succeeds(t, "claim", p.Store.Claim(t.Context(), r))
	object, want := *r.Request.Object, r
	want.Request.Object = &object
	r.Request.Object.Key = "written to since"
	stolen := value(steal(t, p, want, 1, token()))(t, "steal")
	same(t, "the request of who steals it", stolen.Request, want.Request)
	stolen.Request.Object.Key = "written to since"
	got, _ := p.Look(t, want.Key)
	same(t, "the request stored", got.Request, want.Request)
}

func bridgeTaken(t T, p BridgePorts) {
	r := claimed(t, p, token())
	other := r
	other.Token = token()
	taken(t, "claim for the same", p.Store.Claim(t.Context(), other), r)
	other.Request.FileID, other.Request.Metadata = "file-other", nil
	other.Hash, other.ClaimedAt = other.Request.Hash(), at(365*24*time.Hour)
	taken(t, "claim for another, long after", p.Store.Claim(t.Context(), other), r)
	keeps(t, p, "stored", r)
}

func bridgeRace(t T, p BridgePorts) {
	r := row("")
	rows := make([]bridge.Row, racers)
	errs := race(racers, func(i int) error {
		rows[i] = r
		rows[i].Token, rows[i].ClaimedAt = token(), at(time.Duration(i)*time.Second)
		return p.Store.Claim(t.Context(), rows[i])
	})
	won := rows[winner(t, errs, bridge.ErrTaken)]
	keeps(t, p, "stored", won)
	for i, err := range errs {
		if err != nil {
			taken(t, "loser", errs[i], won)
		}
	}
}

func bridgeClaimAgain(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "claim again", p.Store.Claim(t.Context(), r))
	keeps(t, p, "stored", r)
}

func bridgeConfirmedStays(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()))
	done := confirmed(r, "batch_1")
	for name, tok := range map[string]lease.Token{"another token": token(), "the token it was claimed under": r.Token} {
		again := r
		again.Token, again.ClaimedAt = tok, at(80*24*time.Hour)
		taken(t, "claim under "+name, p.Store.Claim(t.Context(), again), done)
	}
	keeps(t, p, "stored", done)
}

func bridgeApart(t T, p BridgePorts) {
	r := claimed(t, p, token())
	namesake, longer := r, r
	namesake.Tenant = tenant()
	longer.CorrelationID += "x"
	for _, other := range []*bridge.Row{&namesake, &longer} {
		other.Token, other.Request.Tenant, other.Request.CorrelationID = token(), other.Tenant, other.CorrelationID
		succeeds(t, "claim", p.Store.Claim(t.Context(), *other))
	}
	keeps(t, p, "the first", r)
	keeps(t, p, "the other tenant's", namesake)
	keeps(t, p, "the longer one", longer)
}

func bridgeSteal(t T, p BridgePorts) {
	r, tok := claimed(t, p, token()), token()
	got := value(steal(t, p, r, 1, tok))(t, "steal")
	want := stolen(r, tok)
	same(t, "answer", got, want)
	keeps(t, p, "stored", want)
	// Who was robbed can write nothing more.
	refuses(t, "confirm by who was robbed", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()), lease.ErrLost)
	refuses(t, "release by who was robbed", p.Store.Release(t.Context(), r.Key, r.Token), lease.ErrLost)
	keeps(t, p, "stored after that", want)
}

func bridgeFresh(t T, p BridgePorts) {
	r := claimed(t, p, token())
	for _, cut := range []time.Time{at(-time.Hour), at(0)} {
		_, err := p.Store.Steal(t.Context(), r.Key, 1, cut, token(), at(2*stale), at(0))
		refuses(t, "steal", err, lease.ErrLost)
	}
	keeps(t, p, "stored", r)
	_, err := p.Store.Steal(t.Context(), r.Key, 1, at(time.Millisecond), token(), at(2*stale), at(0))
	succeeds(t, "steal a millisecond later", err)
}

func bridgeMoved(t T, p BridgePorts) {
	r, first := claimed(t, p, token()), token()
	got := value(steal(t, p, r, 1, first))(t, "steal")
	for _, seen := range []int64{0, 1, 3} {
		_, err := p.Store.Steal(t.Context(), r.Key, seen, at(24*time.Hour), token(), at(3*stale), at(24*time.Hour))
		refuses(t, "steal with another ver", err, lease.ErrLost)
	}
	keeps(t, p, "stored", got)
}

func bridgeStealConfirmed(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()))
	for seen := range int64(4) {
		_, err := steal(t, p, r, seen, token())
		refuses(t, "steal", err, lease.ErrLost)
	}
	keeps(t, p, "stored", confirmed(r, "batch_1"))
}

func bridgeThieves(t T, p BridgePorts) {
	r := claimed(t, p, token())
	toks := make([]lease.Token, racers)
	errs := race(racers, func(i int) error {
		toks[i] = token()
		return fault(steal(t, p, r, 1, toks[i]))
	})
	keeps(t, p, "stored", stolen(r, toks[winner(t, errs, lease.ErrLost)]))
}

func bridgeStealAgain(t T, p BridgePorts) {
	r, tok := claimed(t, p, token()), token()
	first := value(steal(t, p, r, 1, tok))(t, "steal")
	second := value(steal(t, p, r, 1, tok))(t, "steal again")
	same(t, "answer", second, first)
	keeps(t, p, "stored", first)
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, tok, "batch_1", expires()))
	_, err := steal(t, p, r, 1, tok)
	refuses(t, "steal what is confirmed", err, lease.ErrLost)
	keeps(t, p, "confirmed", confirmed(first, "batch_1"))
}

func bridgeConfirm(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, r.Token, awkward, expires()))
	keeps(t, p, "stored", confirmed(r, awkward))
}

func bridgeConfirmAgain(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()))
	succeeds(t, "confirm again", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_2", expires()))
	keeps(t, p, "stored", confirmed(r, "batch_1"))
	refuses(t, "confirm under another token", p.Store.Confirm(t.Context(), r.Key, token(), "batch_1", expires()), lease.ErrLost)
}

func bridgeConfirmForeign(t T, p BridgePorts) {
	r := claimed(t, p, token())
	refuses(t, "confirm", p.Store.Confirm(t.Context(), r.Key, token(), "batch_1", expires()), lease.ErrLost)
	keeps(t, p, "stored", r)
}

func bridgeRelease(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "release", p.Store.Release(t.Context(), r.Key, r.Token))
	if _, there := p.Look(t, r.Key); there {
		t.Errorf("the row is still there")
	}
	r.Token, r.Request.FileID = token(), "file-other"
	r.Hash = r.Request.Hash()
	succeeds(t, "claim again, for something else", p.Store.Claim(t.Context(), r))
	keeps(t, p, "stored", r)
}

func bridgeReleaseAgain(t T, p BridgePorts) {
	r := claimed(t, p, token())
	for range 2 {
		succeeds(t, "release", p.Store.Release(t.Context(), r.Key, r.Token))
	}
}

func bridgeReleaseForeign(t T, p BridgePorts) {
	r := claimed(t, p, token())
	refuses(t, "release", p.Store.Release(t.Context(), r.Key, token()), lease.ErrLost)
	keeps(t, p, "stored", r)
	succeeds(t, "release", p.Store.Release(t.Context(), r.Key, r.Token))
	next := r
	next.Token = token()
	succeeds(t, "claim by the next", p.Store.Claim(t.Context(), next))
	// The first one's release was only late.
	refuses(t, "release again", p.Store.Release(t.Context(), r.Key, r.Token), lease.ErrLost)
	keeps(t, p, "stored", next)
}

func bridgeReleaseConfirmed(t T, p BridgePorts) {
	r := claimed(t, p, token())
	keeps(t, p, "read by who is about to release", r)
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()))
	refuses(t, "release", p.Store.Release(t.Context(), r.Key, r.Token), lease.ErrLost)
	keeps(t, p, "stored", confirmed(r, "batch_1"))
}

func bridgeReleaseRace(t T, p BridgePorts) {
	r := claimed(t, p, token())
	errs := race(2, func(i int) error {
		if i == 0 {
			return p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires())
		}
		return p.Store.Release(t.Context(), r.Key, r.Token)
	})
	if w := winner(t, errs, lease.ErrLost); w == 0 {
		keeps(t, p, "confirmed", confirmed(r, "batch_1"))
	} else if _, there := p.Look(t, r.Key); there {
		t.Errorf("released, and still there")
	}
}

// bridgeCalls is each call about a row.
func bridgeCalls(p BridgePorts, r bridge.Row) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Claim": func(ctx context.Context) error { return p.Store.Claim(ctx, r) },
		"Steal": func(ctx context.Context) error {
			return fault(p.Store.Steal(ctx, r.Key, 1, at(time.Hour), r.Token, at(time.Hour), at(time.Hour)))
		},
		"Confirm":  func(ctx context.Context) error { return p.Store.Confirm(ctx, r.Key, r.Token, "batch_1", expires()) },
		"Release":  func(ctx context.Context) error { return p.Store.Release(ctx, r.Key, r.Token) },
		"GiveBack": func(ctx context.Context) error { return p.Store.GiveBack(ctx, r.Key, r.Token, at(-time.Hour)) },
	}
}

func bridgeUnknown(t T, p BridgePorts) {
	r, foreign := claimed(t, p, token()), row(token())
	foreign.CorrelationID = r.CorrelationID
	for name, other := range map[string]bridge.Row{"unknown": row(token()), "another tenant's": foreign} {
		calls := bridgeCalls(p, other)
		refuses(t, "steal "+name, calls["Steal"](t.Context()), lease.ErrLost)
		refuses(t, "confirm "+name, calls["Confirm"](t.Context()), lease.ErrLost)
		refuses(t, "give back "+name, calls["GiveBack"](t.Context()), lease.ErrLost)
		succeeds(t, "release "+name, calls["Release"](t.Context()))
		if _, there := p.Look(t, other.Key); there {
			t.Errorf("%s: there is a row now", name)
		}
	}
	keeps(t, p, "stored", r)
}

func bridgeInterrupted(t T, p BridgePorts) {
	r := claimed(t, p, token())
	calls := bridgeCalls(p, r)
	calls["Claim of a free one"] = bridgeCalls(p, row(token()))["Claim"]
	interrupts(t, calls)
	keeps(t, p, "stored", r)
}
