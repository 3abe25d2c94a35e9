package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

// abandoned claims k for an owner that dies before it does anything else.
func (r *rig) abandoned() bridge.Row {
	r.Helper()
	f := memory.NewFaults()
	f.After("Bridge.Claim", 1, f.Crash)
	if _, err := r.bridge(f).Submit(r.Context(), request("k"), start); !errors.Is(err, memory.ErrCrashed) {
		r.Fatal(err)
	}
	row, there := r.table.Row("acme", "k")
	if !there || r.jobs.submits != 0 {
		r.Fatalf("row %+v, %d submits", row, r.jobs.submits)
	}
	r.log.Reset() // of who died
	return row
}

// stale is the first instant at which a claim made at start may be stolen.
var stale = start.Add(bridge.DefaultClaimStale + time.Millisecond)

var (
	idOfK   = bridge.BatchID("acme", "k")
	nameOfK = bridge.Key{Tenant: "acme", CorrelationID: "k"}.Name()
)

// The row holds all that it takes: what is submitted is the request as it came.
func TestResumeSubmitsWhatTheRowHolds(t *testing.T) {
	r := newRig(t)
	row := r.abandoned()
	stolen := 0
	b, err := bridge.New(r.table.Bridge, r.jobs, &bridge.Options{Stolen: func() { stolen++ }, Log: slog.New(slog.NewJSONHandler(&r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	id, err := b.Resume(t.Context(), "acme", nameOfK, stale, nil)
	if err != nil || id != idOfK {
		t.Fatalf("%q, %v", id, err)
	}
	got, want := r.jobs.started[idOfK], request("k")
	if got.Hash() != want.Hash() || got.Tenant != want.Tenant || got.RequestID != want.RequestID || got.CorrelationID != "k" {
		t.Errorf("submitted %+v", got)
	}
	after, _ := r.table.Row("acme", "k")
	if after.State != bridge.Confirmed || after.Job != "job of "+idOfK || after.Token == row.Token || after.Ver != 3 || !after.Due.IsZero() {
		t.Errorf("row %+v", after)
	}
	if log := r.log.String(); stolen != 1 || !strings.Contains(log, `"level":"INFO","msg":"stale claim stolen","tenant":"acme","batch":"`+idOfK) ||
		!strings.Contains(log, `"robbed":"`+string(row.Token)+`"`) || strings.Contains(log, "WARN") {
		t.Errorf("%d thefts are counted; log: %s", stolen, log)
	}
}

func TestResumeOfWhatNeedsNobody(t *testing.T) {
	for name, c := range map[string]struct {
		now  time.Time
		make func(*rig)
	}{
		"gone":                 {stale, func(*rig) {}},
		"claimed just now":     {start, func(r *rig) { r.abandoned() }},
		"as old as it may be":  {start.Add(bridge.DefaultClaimStale), func(r *rig) { r.abandoned() }},
		"of a clock ahead":     {start.Add(-time.Hour), func(r *rig) { r.abandoned() }},
		"confirmed":            {start.Add(time.Hour), func(r *rig) { r.done() }},
		"confirmed, years ago": {start.AddDate(5, 0, 0), func(r *rig) { r.done() }},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := newRig(t), memory.NewFaults()
			c.make(r)
			before, _ := r.table.Row("acme", "k")
			submits := r.jobs.submits
			id, err := r.bridge(f).Resume(t.Context(), "acme", nameOfK, c.now, nil)
			if err != nil || id != "" || r.jobs.submits != submits || f.Count("Bridge.Steal") != 0 {
				t.Errorf("%q, %v; calls %v", id, err, f.Calls())
			}
			if after, _ := r.table.Row("acme", "k"); after.Ver != before.Ver || after.Token != before.Token {
				t.Errorf("%+v, was %+v", after, before)
			}
		})
	}
}

// done has k's job started and confirmed.
func (r *rig) done() {
	r.Helper()
	if _, err := r.bridge(nil).Submit(r.Context(), request("k"), start); err != nil {
		r.Fatal(err)
	}
}

func TestSixtyFourResumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.abandoned()
		r.jobs.submit = func(ctx context.Context, _ int) error { return memory.Wait(ctx, time.Second) }
		ids := make([]string, 64)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				var err error
				if ids[i], err = r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		slices.Sort(ids)
		if r.jobs.submits != 1 || ids[62] != "" || ids[63] != idOfK || r.state("k") != bridge.Confirmed {
			t.Errorf("%d submits, answers %v", r.jobs.submits, slices.Compact(ids))
		}
	})
}

// 64 deliveries and 64 resumers at once: whoever robs the dead owner, the job is
// started once and every delivery is answered with it.
func TestResumersAndDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.abandoned()
		r.jobs.submit = func(ctx context.Context, _ int) error { return memory.Wait(ctx, 100*time.Millisecond) }
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if _, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, nil); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if job, err := r.bridge(nil).Submit(t.Context(), request("k"), stale); err != nil || job != "job of "+idOfK {
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

// remote is the service as one process sees it, with that process's faults.
type remote struct {
	*jobs
	f *memory.Faults
}

func (s remote) Submit(ctx context.Context, id string, r bridge.Request, now time.Time) (job string, err error) {
	err = s.f.Around(ctx, "Jobs.Submit", func() (err error) { job, err = s.jobs.Submit(ctx, id, r, now); return err })
	return job, err
}

// resume is one by a process with these faults.
func (r *rig) resume(f *memory.Faults, now time.Time) (string, error) {
	r.Helper()
	b, err := bridge.New(r.table.With(f).Bridge, remote{r.jobs, f}, nil)
	if err != nil {
		r.Fatal(err)
	}
	return b.Resume(r.Context(), "acme", nameOfK, now, nil)
}

// Every call of a resume fails, loses its answer, or is the process's last. The
// next one, once that claim is stale as well, ends it.
func TestResumeSurvivesEveryCall(t *testing.T) {
	ways := map[string]func(*memory.Faults, memory.Point){
		"fails":            func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, memory.Fail(nil)) },
		"loses its answer": func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, memory.Fail(nil)) },
		"dies before":      func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, f.Crash) },
		"dies after":       func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, f.Crash) },
	}
	r, clean := newRig(t), memory.NewFaults()
	r.abandoned()
	if _, err := r.resume(clean, stale); err != nil || len(clean.Calls()) != 4 {
		t.Fatalf("%v, calls %v", err, clean.Calls())
	}
	for _, p := range clean.Calls() {
		for way, arm := range ways {
			t.Run(p.String()+" "+way, func(t *testing.T) {
				r, f := newRig(t), memory.NewFaults()
				r.abandoned()
				arm(f, p)
				// Once the job is there, it is there: a row left reserved is found so later.
				if _, err := r.resume(f, stale); (err == nil) != (p.Op == "Bridge.Confirm") {
					t.Errorf("%v", err)
				}
				if held, _ := r.table.Row("acme", "k"); held.Ver > 1 && held.State == bridge.Reserved && !held.GivenBack {
					// Not before that claim is stale in its turn.
					next := stale.Add(bridge.DefaultClaimStale)
					if id, err := r.resume(nil, next); id != "" || err != nil || !held.Due.Equal(next) {
						t.Errorf("a thief's fresh claim: %q, %v; due at %s", id, err, held.Due)
					}
				}
				if _, err := r.resume(nil, stale.Add(time.Hour)); err != nil {
					t.Error(err)
				}
				row, _ := r.table.Row("acme", "k")
				if len(r.jobs.started) != 1 || row.State != bridge.Confirmed || row.Job != "job of "+idOfK {
					t.Errorf("%d jobs, row %+v", len(r.jobs.started), row)
				}
			})
		}
	}
}

// A refusal frees the id, and says why to whoever resumed it; the next who asks is
// the first again.
func TestResumeOfWhatIsRefused(t *testing.T) {
	r := newRig(t)
	r.abandoned()
	why := errors.New("no such file")
	r.jobs.submit = func(context.Context, int) error { return fmt.Errorf("%w: %w", bridge.ErrRefused, why) }
	id, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, nil)
	if id != idOfK || !errors.Is(err, bridge.ErrRefused) || !errors.Is(err, why) {
		t.Errorf("%q, %v", id, err)
	}
	if row, there := r.table.Row("acme", "k"); there {
		t.Errorf("left %+v", row)
	}
	r.jobs.submit = nil
	other := request("k")
	other.FileID = "file-2"
	if _, err := r.bridge(nil).Submit(t.Context(), other, stale); err != nil {
		t.Error(err)
	}
}

// A refused one whose release fails stays, and is refused again by the next.
func TestResumeOfWhatIsRefusedAndNotReleased(t *testing.T) {
	r, f := newRig(t), memory.NewFaults()
	r.abandoned()
	r.jobs.submit = func(context.Context, int) error { return bridge.ErrRefused }
	f.Before("Bridge.Release", 1, memory.Fail(nil))
	if _, err := r.bridge(f).Resume(t.Context(), "acme", nameOfK, stale, nil); !errors.Is(err, bridge.ErrRefused) {
		t.Error(err)
	}
	if r.state("k") != bridge.Reserved || !strings.Contains(r.log.String(), "claim not released") {
		t.Errorf("%s, log %s", r.state("k"), &r.log)
	}
	if _, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale.Add(time.Hour), nil); !errors.Is(err, bridge.ErrRefused) {
		t.Error(err)
	}
	if _, there := r.table.Row("acme", "k"); there {
		t.Error("it is still there")
	}
}

// Word of a refusal is left while the claim still says that something was asked for:
// one that can't be left, or whose teller dies, is left by the next.
func TestWordOfARefusalComesFirst(t *testing.T) {
	r := newRig(t)
	r.abandoned()
	r.jobs.submit = func(context.Context, int) error { return fmt.Errorf("%w: no such file", bridge.ErrRefused) }
	var told []string
	tell := func(fail error) func(context.Context, string, error) error {
		return func(_ context.Context, id string, why error) error {
			if r.state("k") != bridge.Reserved || !errors.Is(why, bridge.ErrRefused) {
				t.Errorf("told of %v with the row %q", why, r.state("k"))
			}
			told = append(told, id)
			return fail
		}
	}
	lost := errors.New("lost")
	if _, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, tell(lost)); !errors.Is(err, lost) || errors.Is(err, bridge.ErrRefused) || r.state("k") != bridge.Reserved {
		t.Errorf("%v, the row is %q", err, r.state("k"))
	}
	f := memory.NewFaults()
	f.Before("Bridge.Release", 1, f.Crash)
	if _, err := r.bridge(f).Resume(t.Context(), "acme", nameOfK, stale.Add(time.Hour), tell(nil)); !errors.Is(err, bridge.ErrRefused) || r.state("k") != bridge.Reserved {
		t.Errorf("%v, the row is %q", err, r.state("k"))
	}
	if _, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale.Add(2*time.Hour), tell(nil)); !errors.Is(err, bridge.ErrRefused) {
		t.Error(err)
	}
	if _, there := r.table.Row("acme", "k"); there || !slices.Equal(told, []string{idOfK, idOfK, idOfK}) {
		t.Errorf("there %v, told %v", there, told)
	}
	// Refused for now is no refusal.
	r.dies()
	r.jobs.submit = func(context.Context, int) error { return errFull }
	if _, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, tell(nil)); !errors.Is(err, bridge.ErrLater) || len(told) != 3 {
		t.Errorf("%v, told %v", err, told)
	}
}
