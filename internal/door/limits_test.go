package door_test

import (
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// limit sets what a tenant may use up.
func (w world) limit(name string, l access.Limits) {
	w.Helper()
	w.held = true
	_, err := access.ChangeTenant(w.Context(), w.mem.Table.Tenants, name, true, time.Now(), func(t *access.Tenant) error {
		t.Limits = l
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// At both doors a tenant that has enough running is no refusal: what came in waits,
// and starts when there is room. Nobody is told that it failed.
func TestDoorsOfAFullTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit("acme", access.Limits{RunningBatches: 1})
		running := batch.Batch{Tenant: "acme", ID: "batch_running0000000000000000", Status: batch.InProgress, CreatedAt: time.Now()}
		w.mem.Table.SeedBatch(running)

		o, l := w.put("k", line, nil)
		other := w.inputs.Store(inputs, "in/acme/other", []byte(line), nil, start)
		m := letter(message(with("input", map[string]any{"bucket": inputs, "key": other.Key, "version": other.Version})))
		w.letters.Post(string(l.Body))
		w.letters.Post(string(m.Body))
		if sum := w.round(nil); sum != (bridge.Drained{Later: 2}) {
			t.Errorf("%+v", sum)
		}
		if sum := w.round(nil); sum != (bridge.Drained{}) {
			t.Errorf("back at once: %+v", sum)
		}
		time.Sleep(time.Minute)
		if sum := w.round(nil); sum != (bridge.Drained{Later: 2}) || w.executions() != 0 {
			t.Errorf("%+v, %d executions", sum, w.executions())
		}
		if keys := w.mem.Objects.Keys(results); len(keys) != 0 || len(w.letters.Dead()) != 0 || w.refused != 0 {
			t.Errorf("told of a failure: %v, %v, %v", keys, w.letters.Dead(), w.refused)
		}
		for _, id := range []string{o.CorrelationID(), "orders/17"} {
			if row, there := w.mem.Table.Row("acme", id); there {
				t.Errorf("a claim keeps others waiting: %+v", row)
			}
		}

		running.Status = batch.Completed
		w.mem.Table.SeedBatch(running)
		w.limit("acme", access.Limits{RunningBatches: 2})
		w.settle()
		if w.executions() != 2 || w.refused != 0 {
			t.Errorf("%d executions, %v refused", w.executions(), w.refused)
		}
	})
}

// A file that is too large for its tenant is refused at both doors, with the
// tenant's own limit.
func TestDoorsOfALargeFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit("acme", access.Limits{FileBytes: int64(len(line)) - 1})
		o, l := w.put("k", line, nil)
		w.letters.Post(string(l.Body))
		w.letters.Post(string(letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version}))).Body))
		if sum := w.round(nil); sum != (bridge.Drained{Refused: 2}) || w.executions() != 0 {
			t.Errorf("%+v", sum)
		}
		const words = "The file is larger than the limit of 17 bytes; split it into several batches."
		if said, ok := w.errorObject(o); !ok || said.Error.Code != "file_too_large" || said.Error.Message != words {
			t.Errorf("%+v", said)
		}
		if dead := w.letters.Dead(); len(dead) != 1 || dead[0].Code != "file_too_large" || dead[0].Reason != "At '/input': "+words {
			t.Errorf("%+v", dead)
		}
		w.limit("acme", access.Limits{FileBytes: int64(len(line))})
		w.letters.Post(string(l.Body))
		if sum := w.round(nil); sum != (bridge.Drained{Started: 1}) {
			t.Errorf("of the limit: %+v", sum)
		}
	})
}
