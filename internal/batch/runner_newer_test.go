package batch_test

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// errNewItem is what a store says of an item that a newer program wrote.
var errNewItem = fmt.Errorf("item of v=2: %w", batch.ErrNewer)

// A part that a newer program wrote: the message comes back, and one try is enough
// to know.
func TestPartOfANewerProgram(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2, 2, nil)
		f := memory.NewFaults()
		f.Before("Claims.Claim", 1, memory.Fail(errNewItem))
		expect(t, r.run(f, life), false, "refused")
		if p := r.part(0); p.State != batch.Pending || p.Attempts != 0 || len(r.model.Calls()) != 0 {
			t.Errorf("part %+v after %d calls", p, len(r.model.Calls()))
		}
		r.settle()
		r.conserved()
	})
}

// A batch that a newer program wrote: each of many old workers gives the part
// back as it was, and whoever can read the batch finds every attempt there.
func TestBatchOfANewerProgram(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2, 2, nil)
		for n := range 5 {
			f := memory.NewFaults()
			f.Before("Batches.Get", 0, memory.Fail(errNewItem))
			expect(t, r.run(f, life), true, "yielded")
			if p := r.part(0); p.State != batch.Pending || p.Attempts != 0 || p.LastError != "" || len(r.model.Calls()) != 0 {
				t.Fatalf("after %d workers: part %+v, %d calls", n+1, p, len(r.model.Calls()))
			}
			if _, there := r.receive(); there {
				t.Fatal("its message is there at once: old workers would do nothing else")
			}
			r.pass(6 * time.Minute)
		}
		r.settle()
		r.conserved()
	})
}
