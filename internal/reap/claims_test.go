package reap_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// file is an input that a request may name.
func (w *world) file(tenant string) string {
	w.t.Helper()
	f := batch.File{Tenant: tenant, ID: "file-1", Purpose: "batch", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(30 * 24 * time.Hour)}
	if err := w.truth.Table.Files.Put(context.WithoutCancel(w.t.Context()), f); err != nil {
		w.t.Fatal(err)
	}
	return f.ID
}

// claim is one whose owner died before it did anything else, so long ago that it
// turned stale a second ago.
func (w *world) claim(tenant, id, file string) bridge.Request {
	w.t.Helper()
	q := bridge.Request{
		Tenant: tenant, CorrelationID: id, RequestID: "req-1", Submitter: "ann",
		FileID: file, Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"k": "v"},
	}
	since := time.Now().Add(-bridge.DefaultClaimStale - time.Second)
	err := w.truth.Table.Bridge.Claim(context.WithoutCancel(w.t.Context()), bridge.Row{
		Key: bridge.Key{Tenant: tenant, CorrelationID: id}, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1,
		ClaimedAt: since, Due: since.Add(bridge.DefaultClaimStale), Request: q, Hash: q.Hash(), ExpiresAt: since.Add(bridge.Kept),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// started demands that there is one batch of q, one execution of it, and a row that
// says so.
func (w *world) started(q bridge.Request) {
	w.t.Helper()
	id := bridge.BatchID(q.Tenant, q.CorrelationID)
	b, there := w.truth.Table.Batch(q.Tenant, id)
	if !there || b.Submitter != q.Submitter || b.Input.FileID != q.FileID || b.Metadata["k"] != "v" {
		w.t.Errorf("batch %+v", b)
	}
	w.runs(batch.Batch{ID: id}, id)
	row, _ := w.truth.Table.Row(q.Tenant, q.CorrelationID)
	if row.State != bridge.Confirmed || row.Job != id {
		w.t.Errorf("row %+v", row)
	}
}

func TestAbandonedClaim(t *testing.T) {
	in(t, func(w *world) {
		q := w.claim(acme, "k", w.file(acme))
		w.did(reap.Report{Resubmitted: 1})
		w.started(q)
		if got := w.metrics[batch.MetricClaimSteals]; got != 1 {
			t.Errorf("%v steals are counted", got)
		}
		w.idle()
		w.started(q)
	})
}

// What isn't due isn't touched, nor what was confirmed when the index hadn't heard
// of it.
func TestClaimThatNeedsNobody(t *testing.T) {
	in(t, func(w *world) {
		q := w.claim(acme, "k", w.file(acme))
		row, _ := w.truth.Table.Row(acme, "k")
		w.faults.After("Reaps.Due", 0, aside(func() {
			_ = w.truth.Table.Bridge.Confirm(context.Background(), row.Key, row.Token, "somebody's", time.Now().Add(bridge.Kept))
		}))
		w.idle()
		if row, _ := w.truth.Table.Row(acme, "k"); row.Job != "somebody's" || w.metrics[batch.MetricClaimSteals] != 0 {
			t.Errorf("%+v", row)
		}
		w.runs(batch.Batch{ID: bridge.BatchID(acme, q.CorrelationID)})
	})
}

// A refusal frees the id, and is told where its batch would be looked for.
func TestRefusedClaim(t *testing.T) {
	in(t, func(w *world) {
		q := w.claim(acme, "k", "file-none")
		w.did(reap.Report{Refused: 1})
		if row, there := w.truth.Table.Row(acme, "k"); there {
			t.Errorf("left %+v", row)
		}
		events := w.truth.Table.EventsOf(acme, bridge.BatchID(acme, q.CorrelationID))
		if len(events) != 1 || events[0].Kind != batch.EventRefused || !strings.Contains(events[0].Reason, "file-none") {
			t.Errorf("events %+v", events)
		}
		w.idle()
	})
}

// A service that is down costs one try in each ClaimStale, and nothing is lost by it.
// The first is a theft; the others take up what a reaper gave back.
func TestClaimThatFailsAgainAndAgain(t *testing.T) {
	in(t, func(w *world) {
		down := &service{err: errors.New("unreachable")}
		w.submitter = down
		w.restart()
		q := w.claim(acme, "k", "file-1")
		failed := 0
		for range 30 { // half an hour, and the first round of it
			rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			failed += rep.Failed
			after(time.Minute)
		}
		// Stale after three minutes: seen by the round of the fourth.
		if tries := len(down.seen()); tries != 8 || failed != tries || w.metrics[batch.MetricClaimSteals] != 1 || w.metrics[batch.MetricClaimRetries] != float64(tries-1) {
			t.Errorf("%d tries, %d failures, metrics %v", tries, failed, w.metrics)
		}
		row, _ := w.truth.Table.Row(acme, "k")
		if row.State != bridge.Reserved || !row.ExpiresAt.IsZero() {
			t.Errorf("it may be forgotten: %+v", row)
		}
		w.submitter = nil
		w.restart()
		w.file(acme)
		after(bridge.DefaultClaimStale)
		w.did(reap.Report{Resubmitted: 1})
		w.started(q)
	})
}

// Refused for now: nobody is told, the claim stays, and its job starts once there is room.
func TestClaimThereIsNoRoomFor(t *testing.T) {
	in(t, func(w *world) {
		full := &service{err: fmt.Errorf("%w: %w: enough runs", bridge.ErrLater, bridge.ErrRefused)}
		w.submitter = full
		w.restart()
		q := w.claim(acme, "k", "file-1")
		w.did(reap.Report{})
		if row, there := w.truth.Table.Row(acme, "k"); !there || row.State != bridge.Reserved || !row.GivenBack {
			t.Errorf("row %+v", row)
		}
		if events := w.truth.Table.EventsOf(acme, bridge.BatchID(q.Tenant, q.CorrelationID)); len(events) > 0 {
			t.Errorf("told %+v", events)
		}
		full.err = nil
		after(bridge.DefaultClaimStale + time.Second)
		w.did(reap.Report{Resubmitted: 1})
	})
}

// service starts jobs, or doesn't, after it took its time.
type service struct {
	err  error
	took func(r bridge.Request) time.Duration
	once sync.Once
	ids  chan string // buffered, made by the first
	done []string
}

func (s *service) Submit(ctx context.Context, id string, r bridge.Request, _ time.Time) (string, error) {
	if s.took != nil {
		if err := memory.Wait(ctx, s.took(r)); err != nil {
			return "", err
		}
	}
	s.note(r.Tenant)
	return "job of " + id, s.err
}

func (s *service) Find(context.Context, string, bridge.Request) (string, error) {
	return "", bridge.ErrNotFound
}

func (s *service) note(tenant string) {
	s.once.Do(func() {
		if s.ids == nil {
			s.ids = make(chan string, 10_000)
		}
	})
	s.ids <- tenant
}

// seen are the tenants of the jobs that were submitted, in their order.
func (s *service) seen() []string {
	for {
		select {
		case id := <-s.ids:
			s.done = append(s.done, id)
		default:
			return s.done
		}
	}
}

// One tenant has hundreds of stale claims, each of which hangs. Another's claim and
// another's part, due after all of them, are dealt with in the first seconds of
// the round, which ends in time; what it had no time for is the next one's.
func TestOneTenantsFloodOfClaims(t *testing.T) {
	in(t, func(w *world) {
		svc := &service{ids: make(chan string, 10_000), took: func(r bridge.Request) time.Duration {
			if r.Tenant == acme {
				return 19 * time.Second
			}
			return 0
		}}
		w.submitter = svc
		w.restart()
		for n := range 300 {
			w.claim(acme, fmt.Sprint("k", n), "file-1")
		}
		after(time.Millisecond)
		w.claim("other", "k", "file-1")
		k := w.part(w.batch(1), 0, lapsed(1))
		began := time.Now()
		w.faults.After("Bridge.Confirm", 1, aside(func() {
			if d := time.Since(began); d > time.Second {
				t.Errorf("the other's claim had to wait for %s", d)
			}
		}))
		w.faults.After("Reaps.Reap", 1, aside(func() {
			if d := time.Since(began); d > time.Second {
				t.Errorf("the part had to wait for %s", d)
			}
		}))
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		rep, err := w.reaper.Round(ctx, reap.Scope{}, time.Now())
		// Twice four at a time; a third lot is cut off at the margin.
		want := reap.Report{Reaped: 1, Resubmitted: 9, Failed: 4, More: true}
		if err != nil || rep != want {
			t.Errorf("%+v, %v, want %+v", rep, err, want)
		}
		if d := time.Since(began); d > 56*time.Second {
			t.Errorf("the round took %s", d)
		}
		if seen := svc.seen(); len(seen) != 9 || seen[0] != "other" || w.look(k).State != batch.Pending {
			t.Errorf("submitted for %v", seen)
		}
	})
}

// More claims than a round takes of one tenant: the others' all have their turn,
// and the rest is the next round's.
func TestMoreClaimsThanARoundTakes(t *testing.T) {
	in(t, func(w *world) {
		svc := &service{ids: make(chan string, 10_000)}
		w.submitter = svc
		w.restart()
		for n := range 1_100 {
			w.claim(acme, fmt.Sprint("k", n), "file-1")
		}
		after(time.Millisecond)
		for n := range 20 {
			w.claim("other", fmt.Sprint("k", n), "file-1")
		}
		rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
		if want := (reap.Report{Resubmitted: 1_020, More: true}); err != nil || rep != want {
			t.Errorf("%+v, %v, want %+v", rep, err, want)
		}
		w.did(reap.Report{Resubmitted: 100})
		w.idle()
	})
}

func TestClaimsOfATenant(t *testing.T) {
	in(t, func(w *world) {
		mine, others := w.claim(acme, "k", w.file(acme)), w.claim("other", "k", w.file("other"))
		rep, err := w.reaper.Round(w.t.Context(), reap.Scope{Tenant: acme}, time.Now())
		if err != nil || rep != (reap.Report{Resubmitted: 1}) {
			t.Errorf("%+v, %v", rep, err)
		}
		w.started(mine)
		if row, _ := w.truth.Table.Row("other", "k"); row.Ver != 1 {
			t.Errorf("another's was touched: %+v", row)
		}
		w.did(reap.Report{Resubmitted: 1})
		w.started(others)
	})
}

// Two reapers at once: one of them submits.
func TestTwoReapersAndOneClaim(t *testing.T) {
	in(t, func(w *world) {
		q := w.claim(acme, "k", w.file(acme))
		var second reap.Report
		w.faults.After("Bridge.Row", 1, aside(func() {
			var err error
			if second, err = w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now()); err != nil {
				t.Error(err)
			}
		}))
		first := w.round()
		if second.Plus(first) != (reap.Report{Resubmitted: 1}) || second.Resubmitted != 1 {
			t.Errorf("%+v and %+v", first, second)
		}
		w.started(q)
	})
}
