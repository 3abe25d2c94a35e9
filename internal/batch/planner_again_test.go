package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// planned is all that planning a batch leaves behind, without what differs from
// batch to batch.
func (w *world) planned(id string) string {
	w.t.Helper()
	var s strings.Builder
	b := w.batch(id)
	why, err := json.Marshal(b.Errors)
	must(w.t, err)
	fmt.Fprintf(&s, "%s ver %d, %d parts, %d lines of %s, %s\n", b.Status, b.Ver, b.Parts, b.Lines, b.Model, why)
	for _, p := range w.truth.Table.PartsOf(wTenant, id) {
		p.Batch = ""
		fmt.Fprintf(&s, "%+v\n", p)
	}
	for _, key := range w.truth.Objects.Keys(wResults) {
		fmt.Fprintf(&s, "%s\n%s", strings.ReplaceAll(key, id, "ID"), w.truth.Objects.Bytes(wResults, key))
	}
	return s.String()
}

// Every call that planning makes goes wrong in every way, of which dying before
// and after it took effect are two; then it is planned again, twice. What is there
// is each time what one clean planning leaves: the same parts, the same list of
// them, and one start (ver says how often the batch was written).
func TestPlanAgainChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		input     []byte
		partLines int
		list      bool // of parts, in an object
	}{
		"narrow":      {requests(25), 10, false},
		"widest list": {requests(batch.InlineParts), 1, false},
		"wide":        {requests(batch.InlineParts + 1), 1, true},
		"two inserts": {requests(1001), 1, true},
		"refused":     {[]byte("{}\n"), 10, false},
	} {
		o := &batch.PlannerOptions{PartLines: c.partLines}
		clean := newWorld(t)
		id := clean.create(c.input).ID
		calls := clean.restart()
		want, err := clean.planner(o).Plan(t.Context(), wTenant, id, wNow)
		must(t, err)
		left := clean.planned(id)
		if want.Wide() != c.list || (calls.Count("Objects.Put") == 1) != c.list || strings.Contains(left, "acme/plan/ID.jsonl\n{\"part\":0}\n{\"part\":1}\n") != c.list {
			t.Fatalf("%s: wide is %t, %d objects", name, want.Wide(), calls.Count("Objects.Put"))
		}
		if n := calls.Count("Batches.Start") + calls.Count("Batches.Refuse"); n != 1 {
			t.Fatalf("%s: %d starts", name, n)
		}
		for _, p := range calls.Calls() {
			for when, arm := range timings {
				t.Run(name+" "+p.String()+" "+when, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						b := w.create(c.input)
						arm(w.restart(), p)
						_, _ = w.planner(o).Plan(t.Context(), wTenant, b.ID, wNow)
						w.restart()
						for range 2 {
							plan, err := w.planner(o).Plan(t.Context(), wTenant, b.ID, wNow)
							must(t, err)
							if plan.Status != want.Status || !slices.Equal(plan.Parts, want.Parts) || plan.Wide() && plan.Object.Key != batch.PlanKey(wTenant, b.ID) {
								t.Errorf("plan %+v, want %+v", plan, want)
							}
							if got := w.planned(b.ID); got != left {
								t.Errorf("left behind:\n%.3000s\nwant\n%.3000s", got, left)
							}
						}
					})
				})
			}
		}
	}
}

// The list is written for whoever gets the plan, however late that is, and for
// nobody else.
func TestPlanListsPartsForWhoeverAsks(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(45))
	key := batch.PlanKey(wTenant, b.ID)
	o := &batch.PlannerOptions{PartLines: 1}
	_, err := w.planner(o).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	list := w.truth.Objects.Bytes(wResults, key)

	// The lifecycle rule took it; the batch has not ended.
	must(t, w.truth.Objects.Delete(t.Context(), wResults, []string{key}))
	plan, err := w.planner(o).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if got := w.truth.Objects.Bytes(wResults, key); string(got) != string(list) || !plan.Wide() || plan.Object.Bucket != wResults || plan.Object.Key != key {
		t.Errorf("plan %v, list\n%s", plan.Object, got)
	}

	// Not written is not planned: the workflow would find nothing to read.
	w.restart().Before("Objects.Put", 0, memory.Fail(nil))
	if _, err := w.planner(o).Plan(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, memory.ErrInjected) {
		t.Errorf("got %v", err)
	}

	// Whose numbers stand, by those it is.
	other := w.create(requests(45))
	w.restart().Before("Batches.Start", 1, func(context.Context, memory.Point) error {
		other.Status, other.Parts, other.Lines = batch.InProgress, 50, 45
		w.truth.Table.SeedBatch(other)
		return nil
	})
	plan, err = w.planner(o).Plan(t.Context(), wTenant, other.ID, wNow)
	must(t, err)
	if got := strings.Count(string(w.truth.Objects.Bytes(wResults, batch.PlanKey(wTenant, other.ID))), "\n"); got != 50 || len(plan.Parts) != 50 {
		t.Errorf("%d parts, %d listed; somebody else's plan has 50", len(plan.Parts), got)
	}

	// There is nothing to run, so nothing to list.
	ended := w.create(requests(45))
	_, err = w.truth.Table.Endings.End(t.Context(), wTenant, ended.ID, batch.Cancelled, wNow)
	must(t, err)
	f := w.restart()
	plan, err = w.planner(o).Plan(t.Context(), wTenant, ended.ID, wNow)
	must(t, err)
	if plan.Status != batch.NotToRun || plan.Wide() || f.Count("Objects.Put") != 0 {
		t.Errorf("plan %+v", plan)
	}
}

// A planning that died between its inserts is resumed by planning again; but not
// with parts of another size, which would mix two cuts (Planner.compare).
func TestPlanAfterADeathBetweenInserts(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(1500))
	f := w.restart()
	f.Before("Parts.Insert", 2, f.Crash)
	if _, err := w.planner(&batch.PlannerOptions{PartLines: 1}).Plan(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, memory.ErrCrashed) {
		t.Fatalf("got %v", err)
	}
	if n := len(w.truth.Table.PartsOf(wTenant, b.ID)); n != 1000 {
		t.Fatalf("%d parts are there", n)
	}
	w.restart()
	if _, err := w.planner(&batch.PlannerOptions{PartLines: 2}).Plan(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, batch.ErrCut) {
		t.Errorf("parts of another size: %v", err)
	}
	if got := w.batch(b.ID).Status; got != batch.Validating {
		t.Errorf("batch is %s", got)
	}
	plan, err := w.planner(&batch.PlannerOptions{PartLines: 1}).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if len(plan.Parts) != 1500 || w.batch(b.ID).Parts != 1500 {
		t.Errorf("%d parts", len(plan.Parts))
	}
}

// As many parts, cut elsewhere: 10 lines in parts of 6 are two parts, and in
// parts of 5 too. Taken for equal, line 5 would belong to both, or to neither.
func TestPlanDoesNotMixTwoCutsOfEqualCount(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(10))
	f := w.restart()
	f.Before("Batches.Start", 1, f.Crash)
	if _, err := w.planner(&batch.PlannerOptions{PartLines: 6}).Plan(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, memory.ErrCrashed) {
		t.Fatalf("got %v", err)
	}
	w.restart()
	if _, err := w.planner(&batch.PlannerOptions{PartLines: 5}).Plan(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, batch.ErrCut) {
		t.Errorf("another cut: %v", err)
	}
	if got := w.batch(b.ID).Status; got != batch.Validating {
		t.Errorf("batch is %s", got)
	}
}
