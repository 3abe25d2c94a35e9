package batch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

func TestSubject(t *testing.T) {
	if got := batch.SubjectOf(t.Context()); got != (batch.Subject{}) {
		t.Errorf("of nobody: %+v", got)
	}
	ctx := batch.WithSubject(t.Context(), "acme", "batch_a")
	if got := batch.SubjectOf(context.WithoutCancel(ctx)); got != (batch.Subject{Tenant: "acme", Batch: "batch_a"}) {
		t.Errorf("subject %+v", got)
	}
}

// Every call of a run says whom it is for, but for the look into the queue, of
// which nobody knows yet whose message it will find.
func TestRunnerNamesItsSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, 2, after(40*time.Second)) // long enough for a heartbeat and many looks
		var mu sync.Mutex
		calls := map[string]map[batch.Subject]int{}
		f := memory.NewFaults()
		f.Before("", 0, func(ctx context.Context, p memory.Point) error {
			mu.Lock()
			defer mu.Unlock()
			if calls[p.Op] == nil {
				calls[p.Op] = map[batch.Subject]int{}
			}
			calls[p.Op][batch.SubjectOf(ctx)]++
			return nil
		})
		out := r.run(f, 10*time.Minute)
		if !out.Ack || len(out.Lines) != 1 {
			t.Fatalf("outcome %+v", out)
		}
		var whose batch.Subject
		for s, n := range out.Lines {
			whose = s
			if n != out.Tally.Lines {
				t.Errorf("%d lines of %+v, %d in all", n, s, out.Tally.Lines)
			}
		}
		for op, by := range calls {
			want := whose
			if op == "Queue.Receive" {
				want = batch.Subject{}
			}
			if len(by) != 1 || by[want] == 0 {
				t.Errorf("%s is for %v", op, by)
			}
		}
		for op, least := range map[string]int{
			"Queue.Hide": 2, "Claims.Claim": 1, "Claims.Heartbeat": 1, "Batches.Get": 3, "Objects.Open": 1, "Objects.Put": 1,
			"Claims.Checkpoint": 1, "Workflow.Report": 1, "Queue.Delete": 1,
		} {
			if calls[op][whose] < least {
				t.Errorf("%d calls of %s", calls[op][whose], op)
			}
		}
	})
}
