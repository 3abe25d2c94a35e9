package batch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// callTime is what a caller gives a planning, as a function has it.
const callTime = 15 * time.Minute

// planSlowly plans in a call of callTime during which each op takes forever. The
// error is the call's; it must have answered before its time was over.
func planSlowly(t *testing.T, w *world, id, op string, now time.Time) (batch.Plan, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	defer cancel()
	w.restart().Before(op, 0, func(ctx context.Context, _ memory.Point) error {
		<-ctx.Done()
		return ctx.Err()
	})
	began := time.Now()
	plan, err := w.planner(nil).Plan(ctx, wTenant, id, now)
	if took := time.Since(began); ctx.Err() != nil || took < callTime-time.Minute {
		t.Errorf("answered after %s", took)
	}
	return plan, err
}

// The first planning that its time is too short for fails, for another to try; the
// next says no, in the batch, and that stands.
func TestPlanOutOfTime(t *testing.T) {
	for _, op := range []string{"Objects.Open", "Objects.Read", "Parts.Insert"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				b := w.create(requests(10))
				if plan, err := planSlowly(t, w, b.ID, op, wNow.Add(time.Second)); !errors.Is(err, batch.ErrOutOfTime) {
					t.Errorf("first: %+v, %v", plan, err)
				}
				if got := w.batch(b.ID); got.Status != batch.Validating {
					t.Errorf("batch is %s", got.Status)
				}
				plan, err := planSlowly(t, w, b.ID, op, wNow.Add(callTime))
				must(t, err)
				got := w.batch(b.ID)
				if plan.Status != batch.Refused || got.Status != batch.Failed || len(got.Errors) != 1 ||
					got.Errors[0].Code != "validation_timed_out" || !strings.Contains(got.Errors[0].Message, "within 14m50s, twice") {
					t.Errorf("second: %+v, batch %s, %+v", plan, got.Status, got.Errors)
				}
				w.restart()
				if plan, err = w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow.Add(2*callTime)); err != nil || plan.Status != batch.Refused {
					t.Errorf("again: %+v, %v", plan, err)
				}
			})
		})
	}
}

// A batch may have waited for its first planning, or the one before may have died
// or met other trouble: what counts is how often time was too short.
func TestPlanThatBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.create(requests(10))
		w.restart().Before("Objects.Open", 0, memory.Fail(errors.New("throttled")))
		if _, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow.Add(time.Minute)); err == nil || errors.Is(err, batch.ErrOutOfTime) {
			t.Errorf("throttled: %v", err)
		}
		late := wNow.Add(6 * time.Hour)
		if plan, err := planSlowly(t, w, b.ID, "Objects.Read", late); !errors.Is(err, batch.ErrOutOfTime) {
			t.Errorf("first: %+v, %v", plan, err)
		}
		if got := w.batch(b.ID); got.Status != batch.Validating || got.Overruns != 1 {
			t.Errorf("batch is %s, %d overruns", got.Status, got.Overruns)
		}
		plan, err := planSlowly(t, w, b.ID, "Objects.Read", late.Add(time.Second))
		must(t, err)
		if got := w.batch(b.ID); plan.Status != batch.Refused || got.Errors[0].Code != "validation_timed_out" {
			t.Errorf("second: %+v, batch %s", plan, got.Status)
		}
	})
}

// A second call that is fast enough plans as ever.
func TestPlanAfterOneThatRanOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.create(requests(10))
		if _, err := planSlowly(t, w, b.ID, "Objects.Read", wNow); !errors.Is(err, batch.ErrOutOfTime) {
			t.Errorf("first: %v", err)
		}
		w.restart()
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		defer cancel()
		plan, err := w.planner(nil).Plan(ctx, wTenant, b.ID, wNow.Add(callTime))
		must(t, err)
		if got := w.batch(b.ID); plan.Status != batch.Planned || got.Lines != 10 {
			t.Errorf("plan %+v, %d lines", plan, got.Lines)
		}
	})
}

// Trouble is trouble while there is time; and whoever decided meanwhile is right.
func TestPlanOutOfTimeDecidesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.create(requests(10))
		throttled := errors.New("throttled")
		w.restart().Before("Parts.Insert", 0, memory.Fail(throttled))
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		defer cancel()
		if _, err := w.planner(nil).Plan(ctx, wTenant, b.ID, wNow.Add(time.Hour)); !errors.Is(err, throttled) || errors.Is(err, batch.ErrOutOfTime) {
			t.Errorf("got %v", err)
		}
		f := w.restart()
		f.Before("Parts.Insert", 0, func(ctx context.Context, _ memory.Point) error {
			<-ctx.Done()
			return throttled // as an adapter that kept trying would say
		})
		f.Before("Batches.Overrun", 1, func(context.Context, memory.Point) error {
			b.Status = batch.Cancelled
			w.truth.Table.SeedBatch(b)
			return nil
		})
		plan, err := w.planner(nil).Plan(ctx, wTenant, b.ID, wNow.Add(time.Hour))
		must(t, err)
		if got := w.batch(b.ID).Status; plan.Status != batch.NotToRun || got != batch.Cancelled {
			t.Errorf("plan %+v, batch %s", plan, got)
		}
	})
}

// An answer that comes at the last moment is an answer all the same.
func TestPlanOutOfTimeHidesNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.create(requests(10))
		w.truth.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: wTenant, Batch: b.ID}, State: batch.Pending, Lines: 3})
		w.restart().Before("Parts.All", 0, func(ctx context.Context, _ memory.Point) error {
			<-ctx.Done()
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		defer cancel()
		if _, err := w.planner(nil).Plan(ctx, wTenant, b.ID, wNow.Add(time.Hour)); !errors.Is(err, batch.ErrCut) {
			t.Errorf("got %v", err)
		}
	})
}
