package batches_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

var id = "batch_" + strings.Repeat("a", 32)

type rig struct {
	*testing.T
	mem *memory.Memory
}

func newRig(t *testing.T) *rig {
	r := &rig{t, memory.New(memory.Options{})}
	for _, f := range []batch.File{
		{Tenant: "acme", ID: "file-1", Purpose: "batch", CreatedAt: start, ExpiresAt: start.Add(time.Hour)},
		{Tenant: "acme", ID: "file-2", Purpose: "batch", CreatedAt: start},
	} {
		if err := r.mem.Table.Files.Put(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) submitter(f *memory.Faults) *batches.Submitter {
	view := r.mem.With(f)
	c, err := batch.NewCreator(view.Table.Batches, view.Table.Files, view.Workflow, nil)
	if err != nil {
		r.Fatal(err)
	}
	return batches.New(c, view.Table.Batches)
}

func request() bridge.Request {
	return bridge.Request{Tenant: "acme", CorrelationID: "k", RequestID: "req-1", Submitter: "ann",
		FileID: "file-1", Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"k": "v"}, OutputExpiry: time.Hour}
}

func TestSubmitIsTheBatch(t *testing.T) {
	r := newRig(t)
	for range 2 {
		if job, err := r.submitter(nil).Submit(t.Context(), id, request(), start); err != nil || job != id {
			t.Fatalf("%q, %v", job, err)
		}
	}
	b, there := r.mem.Table.Batch("acme", id)
	if !there || b.Submitter != "ann" || b.RequestID != "req-1" || b.Input.FileID != "file-1" || b.Endpoint != "/v1/chat/completions" ||
		b.Window != "24h" || b.Metadata["k"] != "v" || b.OutputExpiry != time.Hour {
		t.Errorf("%+v", b)
	}
	if e := r.mem.Workflow.Executions(); len(e) != 1 || e[0].Name != id {
		t.Errorf("executions %v", e)
	}
}

func TestRefusedWithItsCause(t *testing.T) {
	r, q := newRig(t), request()
	q.FileID = "file-none"
	_, err := r.submitter(nil).Submit(t.Context(), id, q, start)
	e, ok := errors.AsType[*openai.Error](err)
	if !errors.Is(err, bridge.ErrRefused) || !ok || e.Code != "file_not_found" {
		t.Errorf("%v", err)
	}
}

// What was created once is no refusal, though it would be refused today.
func TestCreatedBeforeItsInputWasGone(t *testing.T) {
	r := newRig(t)
	if _, err := r.submitter(nil).Submit(t.Context(), id, request(), start); err != nil {
		t.Fatal(err)
	}
	if job, err := r.submitter(nil).Submit(t.Context(), id, request(), start.Add(time.Hour)); err != nil || job != id {
		t.Errorf("%q, %v", job, err)
	}
}

func TestAnotherRequestsBatch(t *testing.T) {
	r := newRig(t)
	if _, err := r.submitter(nil).Submit(t.Context(), id, request(), start); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*bridge.Request){
		"submitter": func(r *bridge.Request) { r.Submitter = "bob" },
		"file":      func(r *bridge.Request) { r.FileID = "file-2" },
		"metadata":  func(r *bridge.Request) { r.Metadata = nil },
		"expiry":    func(r *bridge.Request) { r.OutputExpiry = 0 },
		"no file":   func(r *bridge.Request) { r.FileID = "file-none" },
	} {
		q := request()
		change(&q)
		_, err := r.submitter(nil).Submit(t.Context(), id, q, start)
		_, findErr := r.submitter(nil).Find(t.Context(), id, q)
		for _, err := range []error{err, findErr} {
			if !errors.Is(err, bridge.ErrRefused) || !errors.Is(err, bridge.ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A batch whose workflow didn't start is no refusal either, and finding it starts it.
func TestFindStartsWhatWasOnlyRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newRig(t), memory.NewFaults()
		if _, err := r.submitter(nil).Find(t.Context(), id, request()); !errors.Is(err, bridge.ErrNotFound) {
			t.Errorf("%v", err)
		}
		f.Before("Workflow.Start", 0, memory.Fail(nil))
		if _, err := r.submitter(f).Submit(t.Context(), id, request(), start); !errors.Is(err, batch.ErrNotStarted) || errors.Is(err, bridge.ErrRefused) {
			t.Errorf("%v", err)
		}
		if n := len(r.mem.Workflow.Executions()); n != 0 {
			t.Fatalf("%d executions", n)
		}
		if job, err := r.submitter(nil).Find(t.Context(), id, request()); err != nil || job != id || len(r.mem.Workflow.Executions()) != 1 {
			t.Errorf("%q, %v, executions %v", job, err, r.mem.Workflow.Executions())
		}
	})
}

// Trouble decides nothing: the claim stays.
func TestTroubleIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, op := range []string{"Files.Get", "Batches.Create", "Batches.Get"} {
			r, f := newRig(t), memory.NewFaults()
			q := request()
			if op == "Batches.Get" {
				q.FileID = "file-none"
			}
			f.Before(op, 0, memory.Fail(nil))
			if _, err := r.submitter(f).Submit(t.Context(), id, q, start); !errors.Is(err, memory.ErrInjected) || errors.Is(err, bridge.ErrRefused) {
				t.Errorf("%s: %v", op, err)
			}
		}
	})
}
