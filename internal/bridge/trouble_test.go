package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// counted is a bridge that counts whom it takes claims from.
func (r *rig) counted(stolen, retaken *int) *bridge.Bridge {
	r.Helper()
	b, err := bridge.New(r.table.Bridge, r.jobs, &bridge.Options{
		Wait: -1, Stolen: func() { *stolen++ }, Retaken: func() { *retaken++ },
	})
	if err != nil {
		r.Fatal(err)
	}
	return b
}

func torn(context.Context, int) error { return errors.New("torn") }

// An owner whose submit ends in trouble lives, and says that it submits no more. What
// it started may land yet: so the id stays reserved, nobody submits for some seconds,
// and then the next delivery goes on. Nobody died, and no theft is counted.
func TestTroubleGivesTheClaimBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stolen, retaken := newRig(t), 0, 0
		b := r.counted(&stolen, &retaken)
		r.jobs.submit = torn
		if _, err := b.Submit(t.Context(), request("k"), start); err == nil || errors.Is(err, bridge.ErrRefused) {
			t.Fatalf("%v", err)
		}
		row, _ := r.table.Row("acme", "k")
		if row.State != bridge.Reserved || !row.GivenBack || !row.Due.Equal(start.Add(bridge.DefaultClaimStale)) || !row.ExpiresAt.IsZero() {
			t.Errorf("%+v", row)
		}
		for _, after := range []time.Duration{0, 10 * time.Second} {
			_, err := b.Submit(t.Context(), request("k"), start.Add(after))
			if held, ok := errors.AsType[*bridge.HeldError](err); !ok || !held.Stale.Equal(start.Add(10*time.Second)) || held.RetryAfter > 10*time.Second {
				t.Errorf("after %s: %v, %+v", after, err, held)
			}
		}
		if r.jobs.submits != 1 {
			t.Errorf("%d submits while it rests", r.jobs.submits)
		}
		r.jobs.submit = nil
		if _, err := b.Submit(t.Context(), request("k"), start.Add(10*time.Second+time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		row, _ = r.table.Row("acme", "k")
		if r.jobs.submits != 2 || row.State != bridge.Confirmed || row.GivenBack || stolen != 0 || retaken != 1 {
			t.Errorf("%d submits, %+v; %d thefts, %d taken up", r.jobs.submits, row, stolen, retaken)
		}
	})
}

// Who takes up a claim and dies is silent like any other.
func TestDeathAfterTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stolen, retaken := newRig(t), 0, 0
		b, f := r.counted(&stolen, &retaken), memory.NewFaults()
		r.jobs.submit = torn
		_, _ = b.Submit(t.Context(), request("k"), start)
		f.After("Bridge.Steal", 1, f.Crash)
		again := start.Add(time.Minute)
		if _, err := r.bridge(f).Submit(t.Context(), request("k"), again); err == nil {
			t.Fatal("it lives")
		}
		r.jobs.submit = nil
		if _, err := b.Submit(t.Context(), request("k"), again.Add(time.Minute)); err == nil || r.jobs.submits != 1 {
			t.Errorf("%v, %d submits: a thief's claim is as good as any", err, r.jobs.submits)
		}
		if _, err := b.Submit(t.Context(), request("k"), again.Add(bridge.DefaultClaimStale+time.Millisecond)); err != nil || stolen != 1 || retaken != 0 {
			t.Errorf("%v; %d thefts, %d taken up", err, stolen, retaken)
		}
	})
}

// A claim whose return fails is as it was.
func TestClaimThatIsNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t), memory.NewFaults()
		f.Before("Bridge.GiveBack", 1, memory.Fail(nil))
		r.jobs.submit = torn
		if _, err := r.bridge(f).Submit(t.Context(), request("k"), start); err == nil || errors.Is(err, memory.ErrInjected) {
			t.Errorf("%v", err)
		}
		if row, _ := r.table.Row("acme", "k"); row.GivenBack || !row.ClaimedAt.Equal(start) || !strings.Contains(r.log.String(), "claim not given back") {
			t.Errorf("%+v, log %s", row, &r.log)
		}
	})
}

// With the shortest claim and the longest submit a claim is never younger for having
// been given back.
func TestGivenBackIsNeverFresher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.jobs.submit = func(context.Context, int) error { time.Sleep(25 * time.Second); return errors.New("torn") }
		b, err := bridge.New(r.table.Bridge, r.jobs, &bridge.Options{ClaimStale: bridge.MinClaimStale})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = b.Submit(t.Context(), request("k"), start)
		if row, _ := r.table.Row("acme", "k"); !row.GivenBack || row.ClaimedAt.After(start) {
			t.Errorf("%+v", row)
		}
	})
}

// A service is down for 34 hours. The reaper looks each minute, the letter comes
// back: it isn't used up, its waits grow as they should, and nobody is said to have died.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stolen, retaken := newPost(t), 0, 0
		down := true
		p.jobs.submit = func(context.Context, int) error {
			if down {
				return errTrouble
			}
			return nil
		}
		b := p.counted(&stolen, &retaken)
		d := bridge.NewDrainer(b, p.slot, p.queue, nil)
		p.queue.Post("start a")
		began, receives, held := time.Now(), 0, 0
		for time.Since(began) < 34*time.Hour {
			if time.Since(began)%time.Minute == 0 {
				_, _ = b.Resume(t.Context(), "acme", bridge.Key{Tenant: "acme", CorrelationID: "a"}.Name(), time.Now(), nil)
			}
			if letters := p.queue.Receive(10); len(letters) > 0 {
				receives++
				_, sum := d.Drain(t.Context(), letters, time.Now())
				held += sum.Held
			}
			time.Sleep(time.Second)
		}
		if receives > 200 || stolen != 0 || retaken == 0 {
			t.Errorf("%d receives, %d of them for nothing; %d thefts, %d taken up", receives, held, stolen, retaken)
		}
		down = false
		p.returns()
		if p.round(d); len(p.jobs.started) != 1 || p.state("a") != bridge.Confirmed {
			t.Errorf("%d jobs, row is %q", len(p.jobs.started), p.state("a"))
		}
	})
}

// hanging is a service whose answers about jobs never come.
type hanging struct {
	*jobs
	find func(ctx context.Context) error
}

func (h hanging) Find(ctx context.Context, _ string, _ bridge.Request) (string, error) {
	return "", h.find(ctx)
}

// A claim that is somebody else's is that, whatever can't be found out about its job.
func TestFindThatFails(t *testing.T) {
	for name, find := range map[string]func(context.Context) error{
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"fails": func(context.Context) error { return errTrouble },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPost(t)
			p.dies()
			b, err := bridge.New(p.table.Bridge, hanging{p.jobs, find}, &bridge.Options{Wait: -1})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			p.queue.Post("start k")
			_, sum := bridge.NewDrainer(b, p.slot, p.queue, nil).Drain(t.Context(), p.queue.Receive(10), start)
			if took := time.Since(began); sum != (bridge.Drained{Held: 1}) || took > 5*time.Second {
				t.Errorf("%s: %+v after %v", name, sum, took)
			}
		})
	}
}

// Found under the id is another request's job: that is a conflict, now as ever.
func TestFindOfAnothers(t *testing.T) {
	r := newRig(t)
	r.dies()
	conflict := func(context.Context) error { return fmt.Errorf("%w: %w", bridge.ErrRefused, bridge.ErrConflict) }
	b, err := bridge.New(r.table.Bridge, hanging{r.jobs, conflict}, &bridge.Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Submit(t.Context(), request("k"), start); !errors.Is(err, bridge.ErrConflict) {
		t.Errorf("%v", err)
	}
}

// What a claim stands for comes with the conflict.
func TestConflictTellsOfTheRow(t *testing.T) {
	r := newRig(t)
	r.dies()
	other := request("k")
	other.FileID = "file-2"
	_, err := r.bridge(nil).Submit(t.Context(), other, start)
	if c, ok := errors.AsType[*bridge.ConflictError](err); !ok || c.Row.State != bridge.Reserved || c.Row.Request.FileID != "file-1" || !errors.Is(err, bridge.ErrConflict) {
		t.Errorf("%v", err)
	}
}

// A submit's time is counted from the instant of its claim: what the claim itself took
// is gone, or a slow table would have live owners robbed.
func TestSlowClaimLeavesLessForTheSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t), memory.NewFaults()
		f.After("Bridge.Claim", 1, func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 15*time.Second) })
		r.jobs.submit = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		if _, err := r.bridge(f).Submit(t.Context(), request("k"), start); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Whoever claims or robs and isn't answered lives, and submits nothing under what it may
// have written: the claim is given back, also when it was the caller who hung up, and the
// next delivery goes on after some seconds.
func TestClaimWithoutAnAnswer(t *testing.T) {
	for _, op := range []string{"Bridge.Claim", "Bridge.Steal"} {
		for how, lose := range map[string]memory.Hook{
			"lost": memory.Fail(nil),
			"slow": func(ctx context.Context, _ memory.Point) error { <-ctx.Done(); return ctx.Err() },
		} {
			t.Run(op+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, f, stolen, retaken, at := newRig(t), memory.NewFaults(), 0, 0, start
					if op == "Bridge.Steal" {
						r.dies()
						at = start.Add(time.Hour)
					}
					f.After(op, 1, lose)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if _, err := r.bridge(f).Submit(ctx, request("k"), at); err == nil || r.jobs.submits != 0 {
						t.Fatalf("%v, %d submits", err, r.jobs.submits)
					}
					if row, _ := r.table.Row("acme", "k"); row.State != bridge.Reserved || !row.GivenBack || !row.Due.Equal(at.Add(bridge.DefaultClaimStale)) {
						t.Errorf("%+v", row)
					}
					if _, err := r.counted(&stolen, &retaken).Submit(t.Context(), request("k"), at.Add(12*time.Second)); err != nil || stolen != 0 || retaken != 1 {
						t.Errorf("%v; %d thefts, %d taken up", err, stolen, retaken)
					}
				})
			})
		}
	}
	// It hangs for no longer than a submit may, whatever time its caller has.
	synctest.Test(t, func(t *testing.T) {
		for _, op := range []string{"Bridge.Claim", "Bridge.Steal"} {
			r, f, began := newRig(t), memory.NewFaults(), time.Now()
			r.dies()
			f.Before(op, 1, func(ctx context.Context, _ memory.Point) error { <-ctx.Done(); return ctx.Err() })
			if _, err := r.bridge(f).Submit(t.Context(), request("k"), stale); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 20*time.Second {
				t.Errorf("%s: %v after %s", op, err, time.Since(began))
			}
		}
	})
	// Nothing was written: there is nothing to give back, and nothing to warn of.
	r, f := newRig(t), memory.NewFaults()
	f.Before("Bridge.Claim", 1, memory.Fail(nil))
	if _, err := r.bridge(f).Submit(t.Context(), request("k"), start); err == nil || r.state("k") != "" || r.log.Len() > 0 {
		t.Errorf("%v, the row is %q, log %s", err, r.state("k"), &r.log)
	}
}

// A thief that finds the claim taken over, or confirmed, looks again, and is answered
// with the job like everybody else.
func TestThiefThatIsTooLate(t *testing.T) {
	for name, wait := range map[string]time.Duration{"waits": 3 * time.Second, "doesn't": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f, gate := newRig(t), memory.NewFaults(), memory.NewGate()
				r.dies()
				f.Before("Bridge.Steal", 1, gate.Wait)
				b, err := bridge.New(r.table.With(f).Bridge, r.jobs, &bridge.Options{Wait: wait})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error)
				var job string
				go func() {
					var err error
					job, err = b.Submit(t.Context(), request("k"), stale)
					done <- err
				}()
				<-gate.Reached()
				if _, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, nil); err != nil {
					t.Fatal(err)
				}
				gate.Open()
				if err := <-done; err != nil || job != "job of "+idOfK || r.jobs.submits != 1 {
					t.Errorf("%q, %v, %d submits", job, err, r.jobs.submits)
				}
			})
		})
	}
}

// late is a Store whose first write comes to it after its caller has given up.
type late struct {
	bridge.Store
	lands func() error
}

func (l *late) Claim(ctx context.Context, r bridge.Row) error {
	if l.lands != nil {
		return l.Store.Claim(ctx, r)
	}
	l.lands = func() error { return l.Store.Claim(context.WithoutCancel(ctx), r) }
	return errTrouble
}

// A claim that lands when it was given back already is a dead owner's: it is fresh for as
// long as any, and then somebody else's, once.
func TestClaimThatLandsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stolen, retaken := newRig(t), 0, 0
		store := &late{Store: r.table.Bridge}
		b, err := bridge.New(store, r.jobs, &bridge.Options{Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Submit(t.Context(), request("k"), start); !errors.Is(err, errTrouble) || r.state("k") != "" {
			t.Fatalf("%v, the row is %q", err, r.state("k"))
		}
		if err := store.lands(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Submit(t.Context(), request("k"), start.Add(12*time.Second)); !errors.Is(err, lease.ErrHeld) || r.jobs.submits != 0 {
			t.Errorf("fresh: %v, %d submits", err, r.jobs.submits)
		}
		for range 2 {
			if _, err := r.counted(&stolen, &retaken).Submit(t.Context(), request("k"), stale); err != nil || stolen != 1 || retaken != 0 || r.jobs.submits != 1 {
				t.Errorf("stale: %v; %d thefts, %d taken up, %d submits", err, stolen, retaken, r.jobs.submits)
			}
		}
		// And one that lands when the job is there changes nothing.
		if taken, ok := errors.AsType[*bridge.TakenError](store.lands()); !ok || taken.Row.State != bridge.Confirmed {
			t.Errorf("%+v", taken)
		}
	})
}
