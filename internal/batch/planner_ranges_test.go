package batch_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"holdfast/internal/batch"
)

// wide is an input of several ranges in few lines, the first `bad` of them no
// requests.
func wide(ranges, bad int) []byte {
	size, _ := batch.PlanReach()
	var b bytes.Buffer
	for range bad {
		b.WriteString("[]\n")
	}
	text := bytes.Repeat([]byte("x"), 300_000)
	for n := 0; int64(b.Len()) < size*int64(ranges); n++ {
		fmt.Fprintf(&b, `{"custom_id":"%d","method":"POST","url":"%s","body":{"model":"m","input":"%s"}}`+"\n", n, wEndpoint, text)
	}
	return b.Bytes()
}

// A planning that stops early asks for nothing more and leaves nothing open.
func TestPlanStopsReadingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ranges := batch.PlanReach()
		w := newWorld(t)
		b := w.create(wide(ranges+3, batch.MaxErrors))
		store := &opens{Objects: w.m.Objects}
		p, err := batch.NewPlanner(w.m.Table.Batches, w.m.Table.Parts, store, wResults, nil)
		must(t, err)
		plan, err := p.Plan(t.Context(), wTenant, b.ID, wNow)
		must(t, err)
		if got := w.batch(b.ID); plan.Status != batch.Refused || len(got.Errors) != batch.MaxErrors {
			t.Errorf("plan %+v, %d errors", plan, len(got.Errors))
		}
		store.left(t)
		if n := len(store.seen()); n > ranges {
			t.Errorf("%d ranges were asked for", n)
		}
	})
}

// Death at every read and opening of a file of several ranges: what is planned
// afterwards is what would have been planned at once.
func TestPlanSeveralRangesAfterADeathAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a dead process's stream is tried again for seconds
		input := wide(3, 0)
		clean := newWorld(t)
		id := clean.create(input).ID
		want, err := clean.planner(nil).Plan(t.Context(), wTenant, id, wNow)
		must(t, err)
		opened, read := clean.faults.Count("Objects.Open"), clean.faults.Count("Objects.Read")
		if opened < 3 || read < 40 {
			t.Fatalf("%d opens, %d reads", opened, read)
		}
		w := newWorld(t)
		for op, calls := range map[string]int{"Objects.Open": opened, "Objects.Read": read} {
			for n := 1; n <= calls; n += max(1, calls/8) {
				b := w.create(input)
				f := w.restart()
				f.Before(op, n, f.Crash)
				if _, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow); err == nil {
					t.Errorf("%s#%d: planned by a dead process", op, n)
				}
				if left := len(w.truth.Table.PartsOf(wTenant, b.ID)); left != 0 {
					t.Errorf("%s#%d: %d parts of a file that wasn't read", op, n, left)
				}
				w.restart()
				plan, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
				must(t, err)
				if fmt.Sprint(plan) != fmt.Sprint(want) {
					t.Errorf("%s#%d: plan %+v, want %+v", op, n, plan, want)
				}
				wantParts := clean.truth.Table.PartsOf(wTenant, id)
				for i, p := range w.truth.Table.PartsOf(wTenant, b.ID) {
					p.Batch = id
					if fmt.Sprintf("%+v", p) != fmt.Sprintf("%+v", wantParts[i]) {
						t.Errorf("%s#%d: part %d: %+v, want %+v", op, n, i, p, wantParts[i])
					}
				}
			}
		}
	})
}
