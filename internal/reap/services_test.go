package reap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// claimFor is claim, of a job of this service.
func (w *world) claimFor(service, tenant, id string) {
	w.t.Helper()
	q := bridge.Request{Tenant: tenant, CorrelationID: id, Submitter: "ann", FileID: "file-1", Endpoint: "/v1/embeddings", Window: "24h", Service: service}
	since := time.Now().Add(-bridge.DefaultClaimStale - time.Second)
	if err := w.truth.Table.Bridge.Claim(context.WithoutCancel(w.t.Context()), bridge.Row{
		Key: bridge.Key{Tenant: tenant, CorrelationID: id}, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1,
		ClaimedAt: since, Due: since.Add(bridge.DefaultClaimStale), Request: q, Hash: q.Hash(),
	}); err != nil {
		w.t.Fatal(err)
	}
}

// A service that hangs holds up its own claims: of the very same tenant, those of
// another are dealt with in the first second.
func TestServiceThatHangs(t *testing.T) {
	in(t, func(w *world) {
		own := &service{}
		hangs := &service{took: func(bridge.Request) time.Duration { return 19 * time.Second }}
		w.submitter = bridge.Services{"": own, "jobs": hangs}
		w.restart()
		for n := range 40 {
			w.claimFor("jobs", acme, fmt.Sprint("j", n))
		}
		after(time.Millisecond)
		for n := range 10 {
			w.claimFor("", acme, fmt.Sprint("k", n))
		}
		began := time.Now()
		w.faults.After("Bridge.Confirm", 10, aside(func() {
			if d := time.Since(began); d > time.Second {
				t.Errorf("our own had to wait for %s", d)
			}
		}))
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		rep, err := w.reaper.Round(ctx, reap.Scope{}, time.Now())
		if want := (reap.Report{Resubmitted: 18, Failed: 4, More: true}); err != nil || rep != want || len(own.seen()) != 10 {
			t.Errorf("%+v, %v, want %+v; %d of our own", rep, err, want, len(own.seen()))
		}
	})
}

// However many tenants have claims of one service, it has 32 submits at once to bear.
func TestServiceOfManyTenants(t *testing.T) {
	in(t, func(w *world) {
		w.submitter = bridge.Services{"jobs": &service{took: func(bridge.Request) time.Duration { return time.Second }}}
		w.restart()
		for n := range 33 {
			w.claimFor("jobs", fmt.Sprint("tenant", n), "k")
		}
		began := time.Now()
		w.did(reap.Report{Resubmitted: 33})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("33 submits of a second took %s", took)
		}
	})
}

// A claim of a service that isn't configured is left as it is, due, to whoever serves
// it; and however many there are, they keep no other from its turn.
func TestServiceThatIsNotServed(t *testing.T) {
	in(t, func(w *world) {
		own, external := &service{}, &service{}
		w.submitter = bridge.Services{"": own}
		w.restart()
		for n := range 1_001 {
			w.claimFor("jobs", acme, fmt.Sprint("j", n))
		}
		after(time.Millisecond)
		w.claimFor("", acme, "k")
		for round := range 2 {
			if got := w.round(); got != (reap.Report{Left: 1_001, Resubmitted: 1 - round}) {
				t.Errorf("round %d: %+v", round, got)
			}
		}
		if row, _ := w.truth.Table.Row(acme, "j0"); row.Ver != 1 || w.metrics[batch.MetricClaimSteals] != 1 {
			t.Errorf("%+v, metrics %v", row, w.metrics)
		}
		w.submitter = bridge.Services{"": own, "jobs": external}
		w.restart()
		if rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now()); err != nil || rep != (reap.Report{Resubmitted: 1_000, More: true}) {
			t.Errorf("%+v, %v", rep, err)
		}
		w.did(reap.Report{Resubmitted: 1})
	})
}

// panics is a service that a tenant's request makes panic.
type panics struct{ service }

func (p *panics) Submit(ctx context.Context, id string, r bridge.Request, now time.Time) (string, error) {
	if r.Tenant == acme {
		panic("it says: " + r.FileID)
	}
	return p.service.Submit(ctx, id, r, now)
}

// A claim that makes the program panic fails; the round goes on, and so does the next.
func TestClaimThatPanics(t *testing.T) {
	in(t, func(w *world) {
		var log bytes.Buffer
		w.o.Log = slog.New(slog.NewJSONHandler(&log, nil))
		w.submitter = &panics{}
		w.restart()
		w.claimFor("", acme, "k")
		w.claimFor("", "other", "k")
		k := w.part(w.batch(1), 0, lapsed(1))
		rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
		if err != nil || rep != (reap.Report{Reaped: 1, Resubmitted: 1, Failed: 1}) || w.look(k).State != batch.Pending {
			t.Errorf("%+v, %v", rep, err)
		}
		if s := log.String(); !strings.Contains(s, "panic over a claim") || !strings.Contains(s, "services_test.go") || strings.Contains(s, "it says") {
			t.Errorf("log %s", s)
		}
		if row, _ := w.truth.Table.Row(acme, "k"); row.State != bridge.Reserved {
			t.Errorf("%+v", row)
		}
	})
}

// Word of a refusal is there before its claim is gone, and without it the claim stays.
func TestWordOfARefusalAndItsClaim(t *testing.T) {
	in(t, func(w *world) {
		q := w.claim(acme, "k", "file-none")
		told := func() int { return len(w.truth.Table.EventsOf(acme, bridge.BatchID(q.Tenant, q.CorrelationID))) }
		w.faults.Before("Events.Record", 1, memory.Fail(nil))
		rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
		if row, there := w.truth.Table.Row(acme, "k"); err != nil || rep != (reap.Report{Failed: 1}) || !there || row.State != bridge.Reserved || told() != 0 {
			t.Errorf("%+v, %v; %+v; %d events", rep, err, row, told())
		}
		after(bridge.DefaultClaimStale + time.Minute)
		w.faults.Before("Bridge.Release", 1, aside(func() {
			if told() != 1 {
				t.Error("released before anybody was told")
			}
		}))
		w.did(reap.Report{Refused: 1})
		if _, there := w.truth.Table.Row(acme, "k"); there || told() != 1 {
			t.Errorf("there %v, %d events", there, told())
		}
	})
}

// A claim that can't be read is a later round's.
func TestClaimThatCannotBeRead(t *testing.T) {
	in(t, func(w *world) {
		w.claim(acme, "k", w.file(acme))
		w.faults.Before("Bridge.Row", 1, memory.Fail(errors.New("throttled")))
		if rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now()); err != nil || rep != (reap.Report{Failed: 1}) {
			t.Errorf("%+v, %v", rep, err)
		}
		w.did(reap.Report{Resubmitted: 1})
	})
}
