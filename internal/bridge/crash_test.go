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
	"holdfast/internal/memory"
)

// The owner that was robbed in its sleep wakes: it starts the same job, and its
// confirm and its release do nothing to the thief's.
func TestSlowOwner(t *testing.T) {
	for name, end := range map[string]error{"starts it": nil, "is refused": fmt.Errorf("%w: late", bridge.ErrRefused), "fails": errors.New("torn")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				gate := make(chan struct{})
				r.jobs.submit = func(_ context.Context, n int) error {
					if n == 1 {
						<-gate
						return end
					}
					return nil
				}
				done := make(chan error)
				go func() {
					_, err := r.bridge(nil).Submit(t.Context(), request("k"), start)
					done <- err
				}()
				synctest.Wait()
				late := start.Add(time.Hour)
				if _, err := r.bridge(nil).Submit(t.Context(), request("k"), late); err != nil {
					t.Fatal(err)
				}
				before, _ := r.table.Row("acme", "k")
				close(gate)
				if err := <-done; !errors.Is(err, end) {
					t.Errorf("the owner: %v", err)
				}
				after, _ := r.table.Row("acme", "k")
				if len(r.jobs.started) != 1 || after.Token != before.Token || after.Ver != before.Ver || after.State != bridge.Confirmed {
					t.Errorf("%d jobs, row %+v, was %+v", len(r.jobs.started), after, before)
				}
				if strings.Contains(r.log.String(), "WARN") {
					t.Errorf("being robbed is a warning: %s", &r.log)
				}
			})
		})
	}
}

func TestSubmitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.jobs.submit = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		if _, err := r.bridge(nil).Submit(t.Context(), request("k"), start); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if d := time.Since(began); d != 20*time.Second || r.state("k") != bridge.Reserved {
			t.Errorf("after %s it is %s", d, r.state("k"))
		}
	})
}

// A client that hangs up when the job has started, or was refused, changes nothing
// about the row that is due.
func TestCallerGoesAway(t *testing.T) {
	for want, end := range map[bridge.State]error{bridge.Confirmed: nil, "": bridge.ErrRefused} {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		r.jobs.submit = func(context.Context, int) error { cancel(); return end }
		_, _ = r.bridge(nil).Submit(ctx, request("k"), start)
		if got := r.state("k"); got != want {
			t.Errorf("%v: the row is %q, want %q", end, got, want)
		}
	}
}

// A table that hangs after a submit keeps nobody waiting for long: what was started is
// told, and what was refused.
func TestTableHangsAfterASubmit(t *testing.T) {
	for op, end := range map[string]error{"Bridge.Confirm": nil, "Bridge.Release": bridge.ErrRefused, "Bridge.GiveBack": errTrouble} {
		synctest.Test(t, func(t *testing.T) {
			r, f, began := newRig(t), memory.NewFaults(), time.Now()
			r.jobs.submit = func(context.Context, int) error { return end }
			f.Before(op, 1, func(ctx context.Context, _ memory.Point) error { <-ctx.Done(); return ctx.Err() })
			_, err := r.bridge(f).Submit(t.Context(), request("k"), start)
			if took := time.Since(began); !errors.Is(err, end) || took != 5*time.Second {
				t.Errorf("%s: %v after %s", op, err, took)
			}
		})
	}
}

// leaving is a service whose caller hangs up as it finds a job.
type leaving struct {
	*jobs
	hangUp context.CancelFunc
}

func (l leaving) Find(ctx context.Context, id string, r bridge.Request) (string, error) {
	l.hangUp()
	return l.jobs.Find(ctx, id, r)
}

// Nor does one that hangs up when the job was found under another's claim.
func TestFinderGoesAway(t *testing.T) {
	r, f := newRig(t), memory.NewFaults()
	f.Before("Bridge.Confirm", 1, f.Crash)
	_, _ = r.bridge(f).Submit(t.Context(), request("k"), start)
	ctx, cancel := context.WithCancel(t.Context())
	b, err := bridge.New(r.table.Bridge, leaving{r.jobs, cancel}, &bridge.Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	if job, err := b.Submit(ctx, request("k"), start); err != nil || job != "job of "+idOfK || r.state("k") != bridge.Confirmed {
		t.Errorf("%q, %v, the row is %q", job, err, r.state("k"))
	}
}

// Every call fails, loses its answer, or is the process's last; then the same
// comes again, at once and once the claim is stale. One job, confirmed.
func TestCrashes(t *testing.T) {
	ways := map[string]func(*memory.Faults, memory.Point){
		"fails":            func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, memory.Fail(nil)) },
		"loses its answer": func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, memory.Fail(nil)) },
		"dies before":      func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, f.Crash) },
		"dies after":       func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, f.Crash) },
	}
	clean := memory.NewFaults()
	if _, err := newRig(t).bridge(clean).Submit(t.Context(), request("k"), start); err != nil || len(clean.Calls()) != 2 {
		t.Fatalf("%v, calls %v: claim and confirm are all there is to pay", err, clean.Calls())
	}
	for _, p := range clean.Calls() {
		for way, arm := range ways {
			t.Run(p.String()+" "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, f := newRig(t), memory.NewFaults()
					arm(f, p)
					first, firstErr := r.bridge(f).Submit(t.Context(), request("k"), start)
					second, secondErr := r.bridge(nil).Submit(t.Context(), request("k"), start.Add(time.Second))
					third, err := r.bridge(nil).Submit(t.Context(), request("k"), start.Add(time.Hour))
					if err != nil || third != "job of "+bridge.BatchID("acme", "k") || len(r.jobs.started) != 1 || r.state("k") != bridge.Confirmed {
						t.Errorf("%q, %v; %d jobs; %s", third, err, len(r.jobs.started), r.state("k"))
					}
					if firstErr == nil && first != third || secondErr == nil && second != third {
						t.Errorf("answers %q, %q, %q", first, second, third)
					}
					// Once there is a job, the next delivery finds it, stale or not.
					if p.Op == "Bridge.Confirm" && (firstErr != nil || secondErr != nil) {
						t.Errorf("%v, %v", firstErr, secondErr)
					}
				})
			})
		}
	}
}
