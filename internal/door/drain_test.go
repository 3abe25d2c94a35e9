package door_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/limits"
	"holdfast/internal/memory"
)

// world is a rig in which a bridge starts batches of what comes in.
type world struct{ *rig }

func newWorld(t *testing.T) world { return world{newRig(t)} }

func (w world) bridge(f *memory.Faults, wait time.Duration) *bridge.Bridge {
	w.Helper()
	mem := w.mem.With(f)
	o := &batch.CreatorOptions{Endpoints: site.Allow.Endpoints, Windows: site.Allow.Windows}
	if w.held {
		o.Admit = limits.New(access.NewTenantCache(mem.Table.Tenants, nil), mem.Table.Batches, mem.Table.Parts, 24*time.Hour).Admit
	}
	creator, err := batch.NewCreator(mem.Table.Batches, mem.Table.Files, mem.Workflow, o)
	if err != nil {
		w.Fatal(err)
	}
	b, err := bridge.New(mem.Table.Bridge, batches.New(creator, mem.Table.Batches, mem.Table.Files, 100*365*24*time.Hour), &bridge.Options{Wait: wait})
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// round is one invocation of the function, as Lambda makes it.
func (w world) round(f *memory.Faults) bridge.Drained {
	letters := w.letters.Receive(10)
	failed, sum := bridge.NewDrainer(w.bridge(f, -1), w.doors(f), w.letters.With(f), nil).Drain(w.Context(), letters, time.Now())
	w.letters.Delete(slices.DeleteFunc(letters, func(l bridge.Letter) bool {
		return slices.ContainsFunc(failed, func(f bridge.Letter) bool { return f.ID == l.ID })
	})...)
	return sum
}

// settle runs rounds until no letter is left, an hour at most.
func (w world) settle() {
	w.Helper()
	for range 3600 {
		if w.round(nil); w.letters.Waiting() == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	w.Errorf("%d letters are never done with", w.letters.Waiting())
}

func (w world) executions() int { return len(w.mem.Workflow.Executions()) }

// One event, delivered five times at once.
func TestOneEventFiveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, l := w.put("k", line, nil)
		for range 5 {
			w.letters.Post(string(l.Body))
		}
		w.settle()
		b, there := w.mem.Table.Batch("acme", bridge.BatchID("acme", o.CorrelationID()))
		if w.executions() != 1 || !there || b.Submitter != "ann@example.com" || b.Input.Object.Version != o.Version || w.refused != 0 {
			t.Errorf("%d executions, %+v, %v refused", w.executions(), b, w.refused)
		}
	})
}

// One object by all three doors at once: the event, a message, and what the API
// does with the file's id under the object's own name as its key.
func TestOneObjectByThreeDoors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, l := w.put("k", line, nil)
		m := letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version}),
			with("correlation_id", o.CorrelationID()), with("endpoint", "/v1/chat/completions")))
		for range 5 {
			w.letters.Post(string(l.Body))
			w.letters.Post(string(m.Body))
		}
		done := make(chan error)
		for range 5 {
			go func() {
				req := w.open(l)
				req.RequestID = "http"
				_, err := w.bridge(nil, time.Minute).Submit(t.Context(), req, time.Now())
				done <- err
			}()
		}
		w.settle()
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if w.executions() != 1 || w.refused != 0 {
			t.Errorf("%d executions, %v refused, %v", w.executions(), w.refused, w.letters.Dead())
		}
	})
}

// The same bytes under the same key twice are two versions, and two batches.
func TestOneKeyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		bare := func(_, object map[string]any) { delete(object, "version-id") }
		first, _ := w.put("k", line, nil)
		second := w.inputs.Store(inputs, first.Key, []byte(line), nil, start.Add(2*time.Second))
		for _, l := range []bridge.Letter{created(first), created(first, bare), created(second), created(second, bare)} {
			w.letters.Post(string(l.Body))
		}
		w.settle()
		for _, o := range []bridge.Object{first, second} {
			if b, there := w.mem.Table.Batch("acme", bridge.BatchID("acme", o.CorrelationID())); !there || b.Input.Object.Version != o.Version {
				t.Errorf("version %s: %+v", o.Version, b.Input)
			}
		}
		if w.executions() != 2 {
			t.Errorf("%d executions", w.executions())
		}
	})
}

// A sidecar that changes after its object started something changes nothing, and
// is no failure.
func TestSidecarThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, l := w.put("k", line, nil)
		w.letters.Post(string(l.Body))
		w.settle()
		w.inputs.Store(inputs, o.Key+".holdfast.json", []byte(`{"completion_window":"1h"}`), nil, start)
		w.letters.Post(string(l.Body))
		w.settle()
		b, _ := w.mem.Table.Batch("acme", bridge.BatchID("acme", o.CorrelationID()))
		if w.executions() != 1 || b.Window != "24h" || w.refused != 0 || len(w.mem.Objects.Keys(results)) > 0 {
			t.Errorf("%d executions, window %s, %v refused", w.executions(), b.Window, w.refused)
		}
	})
}

// A file whose owner deleted it starts nothing: the object says so.
func TestDropOfADeletedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, l := w.put("k", line, nil)
		f := batch.File{Tenant: "acme", ID: o.FileID("acme"), Purpose: "batch"}
		if err := errors.Join(w.mem.Table.Files.Put(t.Context(), f), w.mem.Table.Files.Delete(t.Context(), f.Tenant, f.ID, time.Now())); err != nil {
			t.Fatal(err)
		}
		w.letters.Post(string(l.Body))
		w.settle()
		said, there := w.errorObject(o)
		if !there || said.Error.Code != "file_not_found" || w.executions() != 0 || w.refused != 1 {
			t.Errorf("%+v, %d executions, %v refused", said, w.executions(), w.refused)
		}
	})
}

// Wherever the process dies, a drop starts its batch once, and one that can't start
// leaves its word once.
func TestCrashesOfADrop(t *testing.T) {
	for what, c := range map[string]struct {
		data string
		job  int
	}{"a batch": {line, 1}, "a refusal": {"[]", 0}} {
		var calls []memory.Point
		synctest.Test(t, func(t *testing.T) {
			w, clean := newWorld(t), memory.NewFaults()
			_, l := w.put("k", c.data, nil)
			w.letters.Post(string(l.Body))
			w.round(clean)
			calls = clean.Calls()
		})
		if len(calls) < 5 {
			t.Fatalf("%s: only %v", what, calls)
		}
		for _, p := range calls {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprint(what, " ", p, " after ", after), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w, f := newWorld(t), memory.NewFaults()
						o, l := w.put("k", c.data, nil)
						w.letters.Post(string(l.Body))
						if after {
							f.After(p.Op, p.N, f.Crash)
						} else {
							f.Before(p.Op, p.N, f.Crash)
						}
						w.round(f)
						w.settle()
						events := w.mem.Table.EventsOf("acme", bridge.BatchID("acme", o.CorrelationID()))
						if w.executions() != c.job || len(events) != 1-c.job || len(w.mem.Objects.Keys(results)) != 1-c.job {
							t.Errorf("%d executions, events %v, %v", w.executions(), events, w.mem.Objects.Keys(results))
						}
					})
				})
			}
		}
	}
}

// What the claim adds to a submit is two calls of the table, and a duplicate makes
// one. A tenant's record is read once in a while.
func TestTableCallsOfADrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, l := w.put("k", line, nil)
		for _, want := range []string{
			"[Tenants.Get Bridge.Claim Files.Put Files.Get Batches.Create Workflow.Start Bridge.Confirm]",
			"[Tenants.Get Bridge.Claim]",
		} {
			f := memory.NewFaults()
			w.letters.Post(string(l.Body))
			w.round(f)
			var ops []string
			for _, p := range f.Calls() {
				if p.Op[:6] != "Inputs" {
					ops = append(ops, p.Op)
				}
			}
			if got := fmt.Sprint(ops); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}
