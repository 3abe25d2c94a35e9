package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

func request(id string) bridge.Request {
	return bridge.Request{Tenant: "acme", CorrelationID: id, RequestID: "req-1", Submitter: "ann",
		FileID: "file-1", Endpoint: "/v1/embeddings", Window: "24h", Metadata: map[string]string{"k": "v"}}
}

// jobs is a service that starts jobs, each once.
type jobs struct {
	mu      sync.Mutex
	started map[string]bridge.Request
	submits int
	submit  func(ctx context.Context, n int) error // before the n-th submit takes effect, from 1
	after   func(n int) error                      // after it did
}

func (j *jobs) Submit(ctx context.Context, id string, r bridge.Request, _ time.Time) (string, error) {
	j.mu.Lock()
	j.submits++
	n := j.submits
	j.mu.Unlock()
	if j.submit != nil {
		if err := j.submit(ctx, n); err != nil {
			return "", err
		}
	}
	j.mu.Lock()
	if j.started == nil {
		j.started = map[string]bridge.Request{}
	}
	if _, there := j.started[id]; !there {
		j.started[id] = r
	}
	j.mu.Unlock()
	if j.after != nil {
		if err := j.after(n); err != nil {
			return "", err
		}
	}
	return "job of " + id, nil
}

func (j *jobs) Find(_ context.Context, id string, _ bridge.Request) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, there := j.started[id]; !there {
		return "", bridge.ErrNotFound
	}
	return "job of " + id, nil
}

type rig struct {
	*testing.T
	table *memory.Table
	jobs  *jobs
	log   bytes.Buffer
}

func newRig(t *testing.T) *rig { return &rig{T: t, table: memory.NewTable(nil), jobs: &jobs{}} }

// bridge is a process with faults of its own.
func (r *rig) bridge(f *memory.Faults) *bridge.Bridge {
	b, err := bridge.New(r.table.With(f).Bridge, r.jobs, &bridge.Options{Log: slog.New(slog.NewJSONHandler(&r.log, nil))})
	if err != nil {
		r.Fatal(err)
	}
	return b
}

func (r *rig) state(id string) bridge.State {
	row, _ := r.table.Row("acme", id)
	return row.State
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    bridge.Options
		good bool
	}{
		{bridge.Options{}, true},
		{bridge.Options{ClaimStale: 30 * time.Second}, true},
		{bridge.Options{ClaimStale: 30*time.Second - 1}, false},
		{bridge.Options{ClaimStale: 30*time.Second - 1, SubmitTimeout: time.Second}, false}, // the floor, and nothing else
		{bridge.Options{ClaimStale: 30 * time.Second, SubmitTimeout: time.Second}, true},
		{bridge.Options{ClaimStale: -time.Hour}, false},
		{bridge.Options{ClaimStale: time.Minute, SubmitTimeout: time.Minute}, false},
		{bridge.Options{ClaimStale: time.Minute, SubmitTimeout: 50*time.Second + 1}, false}, // no room to settle, nor for two clocks
		{bridge.Options{ClaimStale: time.Minute, SubmitTimeout: 50 * time.Second}, true},
		{bridge.Options{ClaimStale: 30 * time.Second, SubmitTimeout: 20 * time.Second}, true}, // the floor, with the default
		{bridge.Options{SubmitTimeout: -1}, false},
	} {
		if _, err := bridge.New(nil, nil, &c.o); (err == nil) != c.good {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	if _, err := bridge.New(nil, nil, nil); err != nil {
		t.Error(err)
	}
}

func TestSubmitOnceConfirmsAndAnswersTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		want := "job of " + bridge.BatchID("acme", "k")
		for i := range 3 {
			again := request("k")
			again.RequestID = fmt.Sprint("req-", i)
			if job, err := r.bridge(nil).Submit(t.Context(), again, start.Add(time.Duration(i)*24*time.Hour)); err != nil || job != want {
				t.Errorf("%q, %v", job, err)
			}
		}
		row, _ := r.table.Row("acme", "k")
		if r.jobs.submits != 1 || row.State != bridge.Confirmed || row.Job != want || row.Request.RequestID != "req-0" || !row.Due.IsZero() {
			t.Errorf("%d submits, row %+v", r.jobs.submits, row)
		}
		if !row.ExpiresAt.Equal(start.Add(bridge.Kept)) {
			t.Errorf("kept until %s", row.ExpiresAt)
		}
	})
}

func TestSubmitRefusesWhatNamesNothing(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(*bridge.Request){
		"no tenant":    func(r *bridge.Request) { r.Tenant = "" },
		"no submitter": func(r *bridge.Request) { r.Submitter = "" },
		"no id":        func(r *bridge.Request) { r.CorrelationID = "" },
		"no text":      func(r *bridge.Request) { r.CorrelationID = "k\xff" },
		"long id":      func(r *bridge.Request) { r.CorrelationID = strings.Repeat("x", bridge.MaxCorrelationID+1) },
	} {
		q := request("k")
		change(&q)
		if _, err := r.bridge(nil).Submit(t.Context(), q, start); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if r.jobs.submits != 0 {
		t.Errorf("%d submits", r.jobs.submits)
	}
}

func TestConflict(t *testing.T) {
	for name, change := range map[string]func(*bridge.Request){
		"submitter": func(r *bridge.Request) { r.Submitter = "bob" },
		"file":      func(r *bridge.Request) { r.FileID = "file-2" },
		"endpoint":  func(r *bridge.Request) { r.Endpoint = "/v1/responses" },
		"window":    func(r *bridge.Request) { r.Window = "1h" },
		"value":     func(r *bridge.Request) { r.Metadata = map[string]string{"k": "w"} },
		"metadata":  func(r *bridge.Request) { r.Metadata = nil },
		"moved":     func(r *bridge.Request) { r.Metadata = map[string]string{"kv": ""} },
		"expiry":    func(r *bridge.Request) { r.OutputExpiry = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			r, other := newRig(t), request("k")
			change(&other)
			// Reserved or confirmed, fresh or stale: it is another's id.
			r.jobs.after = func(int) error { return errors.New("answer lost") }
			if _, err := r.bridge(nil).Submit(t.Context(), request("k"), start); err == nil {
				t.Fatal("no error")
			}
			for _, at := range []time.Time{start, start.Add(time.Hour)} {
				if _, err := r.bridge(nil).Submit(t.Context(), other, at); !errors.Is(err, bridge.ErrConflict) {
					t.Errorf("while it is %s: %v", r.state("k"), err)
				}
			}
			r.jobs.after = nil
			if _, err := r.bridge(nil).Submit(t.Context(), request("k"), start.Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.bridge(nil).Submit(t.Context(), other, start.Add(2*time.Hour)); !errors.Is(err, bridge.ErrConflict) {
				t.Errorf("while it is %s: %v", r.state("k"), err)
			}
		})
	}
}

func TestSixtyFourAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.jobs.submit = func(context.Context, int) error { time.Sleep(100 * time.Millisecond); return nil }
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if job, err := r.bridge(nil).Submit(t.Context(), request("k"), start); err != nil || job != "job of "+bridge.BatchID("acme", "k") {
					t.Errorf("%q, %v", job, err)
				}
			})
		}
		wg.Wait()
		if r.jobs.submits != 1 {
			t.Errorf("%d submits", r.jobs.submits)
		}
	})
}

// A refusal frees the id, at once and for another request too; whoever waited is
// refused as well, and told why.
func TestRefusalReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		why := errors.New("no such file")
		r.jobs.submit = func(context.Context, int) error {
			time.Sleep(10 * time.Millisecond)
			return fmt.Errorf("%w: %w", bridge.ErrRefused, why)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, err := r.bridge(nil).Submit(t.Context(), request("k"), start)
				if !errors.Is(err, bridge.ErrRefused) || !errors.Is(err, why) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		if row, there := r.table.Row("acme", "k"); there {
			t.Errorf("left %+v", row)
		}
		r.jobs.submit = nil
		fixed := request("k")
		fixed.FileID = "file-2"
		if _, err := r.bridge(nil).Submit(t.Context(), fixed, start); err != nil {
			t.Error(err)
		}
	})
}

// dies leaves a reservation whose owner died after its claim, at start.
func (r *rig) dies() {
	r.Helper()
	f := memory.NewFaults()
	f.After("Bridge.Claim", 1, f.Crash)
	if _, err := r.bridge(f).Submit(r.Context(), request("k"), start); err == nil || r.state("k") != bridge.Reserved {
		r.Fatalf("%v, the row is %q", err, r.state("k"))
	}
}

// An owner that went without a word may be at it still: the id stays reserved, nobody
// submits while the claim is fresh, and a thief goes on from there.
func TestSilentOwnersClaimStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.dies()
		began, f := time.Now(), memory.NewFaults()
		_, err := r.bridge(f).Submit(t.Context(), request("k"), start.Add(time.Second))
		held, ok := errors.AsType[*bridge.HeldError](err)
		if !ok || !errors.Is(err, lease.ErrHeld) || !held.Stale.Equal(start.Add(bridge.DefaultClaimStale)) {
			t.Fatalf("%v", err)
		}
		if waited := time.Since(began); waited != 3*time.Second || held.RetryAfter != 4*time.Second {
			t.Errorf("waited %s, to come again after %s: want 3 s and as long as the claim is old", waited, held.RetryAfter)
		}
		if n := f.Count("Bridge.Steal"); r.jobs.submits != 0 || n != 0 {
			t.Errorf("%d submits under a fresh claim, %d tries to rob", r.jobs.submits, n)
		}
		if _, err := r.bridge(nil).Submit(t.Context(), request("k"), start.Add(bridge.DefaultClaimStale+time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if r.jobs.submits != 1 || r.state("k") != bridge.Confirmed {
			t.Errorf("%d submits, %s", r.jobs.submits, r.state("k"))
		}
		if log := r.log.String(); !strings.Contains(log, `"level":"INFO","msg":"stale claim stolen","tenant":"acme"`) {
			t.Errorf("log: %s", log)
		}
	})
}

func TestRetryAfterIsWithinWhatClientsHeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.dies()
		for age, want := range map[time.Duration]time.Duration{
			-time.Minute:      time.Second, // another's clock
			0:                 3 * time.Second,
			100 * time.Second: time.Minute,
			170 * time.Second: 7 * time.Second, // then it is stale
		} {
			_, err := r.bridge(nil).Submit(t.Context(), request("k"), start.Add(age))
			if held, ok := errors.AsType[*bridge.HeldError](err); !ok || held.RetryAfter != want {
				t.Errorf("a claim of age %s: %v, after %v, want %s", age, err, held, want)
			}
		}
	})
}

func TestBatchID(t *testing.T) {
	ids := map[string]bool{}
	for _, k := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "b "}, {"ab", ""}, {"", "ab"}, {"a", strings.Repeat("é", 2000)}} {
		id := bridge.BatchID(k[0], k[1])
		if ids[id] || len(id) != len("batch_")+32 {
			t.Errorf("%q: %s", k, id)
		}
		ids[id] = true
	}
	// Stored, and handed out: it must never change.
	if got := bridge.BatchID("acme", "order 7"); got != goldenID {
		t.Errorf("%s", got)
	}
	if got := request("k").Hash(); got != goldenHash {
		t.Errorf("%s", got)
	}
}

const (
	goldenID   = "batch_fpb5x32wt2p3cblufzakowowzyudyker"
	goldenHash = "412747ccd304cc141d6fad3ca155f8c3dcd8d455280fccb3daee12a8f2584287"
)
