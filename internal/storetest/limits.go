package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/gateway"
	"holdfast/internal/limits"
)

// OpenPorts are what the suite of limits.Batches needs.
type OpenPorts struct {
	Open limits.Batches
	BatchesPorts
}

// RunOpen runs the suite of limits.Batches.
func RunOpen(t *testing.T, open func(T) OpenPorts) {
	t.Helper()
	run(t, OpenCases(), open)
}

// OpenCases is the suite of limits.Batches.
func OpenCases() []Case[OpenPorts] {
	return []Case[OpenPorts]{
		{"open/newest first, not older than asked for", openSince},
		{"open/until it is over, with lines while they may be begun", openLines},
		{"open/more than a page", openMany},
		{"a context that is over", openInterrupted},
	}
}

// opened demands that this is what the tenant has open.
func opened(t T, p OpenPorts, what, who string, since time.Time, want ...limits.Open) {
	t.Helper()
	var got []limits.Open
	eventually(t, what, func() bool {
		got = value(p.Open.Open(t.Context(), who, since))(t, what)
		return len(got) == len(want) && fmt.Sprint(got) == fmt.Sprint(want)
	})
	for i, o := range got {
		if i < len(want) && (o.ID != want[i].ID || o.Lines != want[i].Lines || !o.CreatedAt.Equal(want[i].CreatedAt)) {
			t.Errorf("%s: %+v, want %+v", what, o, want[i])
		}
	}
}

func openOf(b batch.Batch, lines int64) limits.Open {
	return limits.Open{ID: b.ID, CreatedAt: stored(b.CreatedAt), Lines: lines}
}

func openSince(t T, p OpenPorts) {
	all := listed(t, p.BatchesPorts)
	var want []limits.Open
	for _, b := range all {
		want = append(want, openOf(b, 0))
	}
	who := all[0].Tenant
	opened(t, p, "all", who, at(-time.Hour), want...)
	opened(t, p, "of the very millisecond", who, all[3].CreatedAt, want[:4]...)
	opened(t, p, "newer ones", who, at(-1500*time.Millisecond), want[:2]...)
	opened(t, p, "none so new", who, at(time.Second))
	opened(t, p, "a tenant without batches", tenant(), at(-time.Hour))
}

func openLines(t T, p OpenPorts) {
	ctx := t.Context()
	run := begin(t, p.Batches, fullBatch())
	look := func(what string, want ...limits.Open) {
		t.Helper()
		opened(t, p, what, run.Tenant, at(-time.Hour), want...)
	}
	look("validating", openOf(run, 0))
	succeeds(t, "start", fault(p.Batches.Start(ctx, run.Tenant, run.ID, batch.Started{Parts: 2, Lines: 7}, at(0))))
	look("in progress", openOf(run, 7))
	succeeds(t, "end", fault(p.Endings.End(ctx, run.Tenant, run.ID, batch.Cancelled, at(0))))
	look("told to end", openOf(run, 0))
	tok := token()
	succeeds(t, "finalize", fault(p.Endings.Finalize(ctx, run.Tenant, run.ID, tok, at(time.Hour), at(0), at(0))))
	look("finalizing", openOf(run, 0))
	succeeds(t, "close", fault(p.Endings.Close(ctx, run.Tenant, run.ID, tok, batch.Closed{}, at(0))))
	look("over")

	refused := fullBatch()
	refused.Tenant = run.Tenant
	refused = begin(t, p.Batches, refused)
	look("another", openOf(refused, 0))
	succeeds(t, "refuse", fault(p.Batches.Refuse(ctx, refused.Tenant, refused.ID, reasons(1), at(0))))
	look("failed")
}

func openMany(t T, p OpenPorts) {
	who, want := tenant(), make([]limits.Open, 120)
	for i := range want {
		b := fullBatch()
		b.Tenant, b.CreatedAt = who, at(-time.Duration(i)*time.Second)
		want[i] = openOf(begin(t, p.Batches, b), 0)
	}
	opened(t, p, "all of them", who, at(-time.Hour), want...)
}

func openInterrupted(t T, p OpenPorts) {
	interrupts(t, map[string]func(context.Context) error{
		"Open": func(ctx context.Context) error { return fault(p.Open.Open(ctx, tenant(), at(0))) },
	})
}

// PairsPorts are what the suite of access.Pairs and gateway.Replays needs.
type PairsPorts struct {
	Pairs   access.Pairs
	Replays gateway.Replays
	Keys    access.Store
	Tenants access.Tenants
	Batches batch.Batches
}

// RunPairs runs the suite of access.Pairs and gateway.Replays.
func RunPairs(t *testing.T, open func(T) PairsPorts) {
	t.Helper()
	run(t, PairsCases(), open)
}

// PairsCases is the suite of access.Pairs and gateway.Replays.
func PairsCases() []Case[PairsPorts] {
	return []Case[PairsPorts]{
		{"pair/each as it is", pairOfBoth},
		{"pair/what is missing", pairMissing},
		{"replay/each as it is", replayOfAll},
		{"replay/what is missing", replayMissing},
		{"a context that is over", pairInterrupted},
	}
}

func pairOfBoth(t T, p PairsPorts) {
	k, x := fullKey(), someTenant()
	succeeds(t, "put key", p.Keys.Put(t.Context(), k))
	succeeds(t, "put tenant", p.Tenants.Put(t.Context(), x))
	gotKey, gotTenant, err := p.Pairs.Pair(t.Context(), k.Hash, x.Name) // another tenant's, all one
	succeeds(t, "pair", err)
	x.Ver = 1
	same(t, "key", gotKey, k)
	same(t, "tenant", gotTenant, x)
	x.Limits, x.Drop = access.Limits{RunningBatches: 1}, nil
	succeeds(t, "replace", p.Tenants.Put(t.Context(), x))
	x.Ver = 2
	_, gotTenant, err = p.Pairs.Pair(t.Context(), k.Hash, x.Name)
	succeeds(t, "pair", err)
	same(t, "tenant", gotTenant, x)
}

func pairMissing(t T, p PairsPorts) {
	k, x := fullKey(), someTenant()
	succeeds(t, "put tenant", p.Tenants.Put(t.Context(), x))
	for what, ids := range map[string][2]string{
		"no key": {k.Hash, x.Name}, "neither": {k.Hash, tenant()}, "no hash": {"", x.Name}, "a hash too long": {awkward + string(make([]byte, 2000)), x.Name},
	} {
		_, _, err := p.Pairs.Pair(t.Context(), ids[0], ids[1])
		refuses(t, what, err, access.ErrNotFound)
	}
	succeeds(t, "put key", p.Keys.Put(t.Context(), k))
	gotKey, gotTenant, err := p.Pairs.Pair(t.Context(), k.Hash, k.Tenant)
	succeeds(t, "a tenant without a record", err)
	same(t, "key", gotKey, k)
	same(t, "tenant", gotTenant, access.Tenant{})
}

func replayOfAll(t T, p PairsPorts) {
	k, own, x, b := fullKey(), someTenant(), someTenant(), fullBatch()
	succeeds(t, "put key", p.Keys.Put(t.Context(), k))
	for _, r := range []*access.Tenant{&own, &x} {
		succeeds(t, "put tenant", p.Tenants.Put(t.Context(), *r))
		r.Ver = 1
	}
	b.Tenant = x.Name
	b = begin(t, p.Batches, b)
	gotKey, gotBatch, records, err := p.Replays.Replay(t.Context(), k.Hash, b.Tenant, b.ID, own.Name, x.Name)
	succeeds(t, "replay", err)
	same(t, "key", gotKey, k)
	same(t, "batch", gotBatch, b)
	if len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
	same(t, "the key's tenant", records[own.Name], own)
	same(t, "the batch's tenant", records[x.Name], x)
	gotKey, gotBatch, records, err = p.Replays.Replay(t.Context(), "", b.Tenant, b.ID, x.Name)
	succeeds(t, "replay without a key", err)
	same(t, "no key", gotKey, access.Key{})
	same(t, "batch", gotBatch, b)
	same(t, "its tenant", records[x.Name], x)
}

func replayMissing(t T, p PairsPorts) {
	k, x, b := fullKey(), someTenant(), begin(t, p.Batches, fullBatch())
	succeeds(t, "put tenant", p.Tenants.Put(t.Context(), x))
	for what, hash := range map[string]string{"no key": k.Hash, "a hash too long": awkward + string(make([]byte, 2000))} {
		_, _, _, err := p.Replays.Replay(t.Context(), hash, b.Tenant, b.ID, x.Name)
		refuses(t, what, err, access.ErrNotFound)
	}
	succeeds(t, "put key", p.Keys.Put(t.Context(), k))
	for what, of := range map[string][2]string{"another tenant's": {x.Name, b.ID}, "no such batch": {b.Tenant, b.ID + "x"}, "an id too long": {b.Tenant, string(make([]byte, 2000))}} {
		gotKey, gotBatch, records, err := p.Replays.Replay(t.Context(), k.Hash, of[0], of[1], tenant())
		succeeds(t, what, err)
		same(t, "key", gotKey, k)
		if gotBatch.ID != "" || len(records) != 0 {
			t.Errorf("%s: batch %q, %d records", what, gotBatch.ID, len(records))
		}
	}
}

func pairInterrupted(t T, p PairsPorts) {
	interrupts(t, map[string]func(context.Context) error{
		"Pair": func(ctx context.Context) error { _, _, err := p.Pairs.Pair(ctx, "hash", tenant()); return err },
		"Replay": func(ctx context.Context) error {
			_, _, _, err := p.Replays.Replay(ctx, "hash", tenant(), "batch", tenant())
			return err
		},
	})
}
