package batch_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

func goodRequest(file string) batch.Request {
	return batch.Request{Tenant: wTenant, Submitter: "ann", RequestID: "req-1", FileID: file, Endpoint: wEndpoint, Window: "24h",
		Metadata: map[string]string{"k": "v"}, OutputExpiry: 2 * time.Hour}
}

func TestCreateRecordsThenStarts(t *testing.T) {
	w := newWorld(t)
	f := w.upload("file-1", requests(3))
	r := goodRequest(f.ID)
	b, err := w.creator(nil).Create(t.Context(), r, wNow.Add(123_456*time.Nanosecond))
	must(t, err)
	stored := w.batch(b.ID)
	if !batch.ValidID(b.ID) || len(b.ID) < 24 {
		t.Errorf("id %q", b.ID)
	}
	if stored.Status != batch.Validating || stored.Input != (batch.Input{FileID: f.ID, Object: f.Object}) || stored.Submitter != "ann" ||
		stored.RequestID != "req-1" || stored.Endpoint != wEndpoint || stored.Window != "24h" || stored.OutputExpiry != 2*time.Hour || !maps.Equal(stored.Metadata, r.Metadata) {
		t.Errorf("stored %+v", stored)
	}
	if !stored.CreatedAt.Equal(wNow) || !stored.Deadline.Equal(wNow.Add(24*time.Hour)) {
		t.Errorf("created %s (whole milliseconds?), deadline %s", stored.CreatedAt, stored.Deadline)
	}
	if got := w.truth.Workflow.Executions(); len(got) != 1 || got[0] != (memory.Execution{Name: b.ID, Tenant: wTenant, Batch: b.ID}) {
		t.Errorf("executions %+v", got)
	}
	calls := w.faults.Calls()
	if last := calls[len(calls)-1].Op; last != "Workflow.Start" {
		t.Errorf("the last call was %s: nothing may be started before it is recorded", last)
	}
}

func TestCreateRefuses(t *testing.T) {
	for _, c := range []struct {
		name, code, param string
		change            func(*batch.Request)
	}{
		{"no file named", "missing_required_parameter", "input_file_id", func(r *batch.Request) { r.FileID = "" }},
		{"unknown file", "file_not_found", "input_file_id", func(r *batch.Request) { r.FileID = "file-none" }},
		{"another tenant's file", "file_not_found", "input_file_id", func(r *batch.Request) { r.Tenant = "other" }},
		{"expired file", "file_not_found", "input_file_id", func(r *batch.Request) { r.FileID = "file-old" }},
		{"a result as input", "invalid_purpose", "input_file_id", func(r *batch.Request) { r.FileID = "file-out" }},
		{"endpoint", "invalid_endpoint", "endpoint", func(r *batch.Request) { r.Endpoint = "/v1/none" }},
		{"window", "invalid_completion_window", "completion_window", func(r *batch.Request) { r.Window = "24H" }},
		{"metadata", "invalid_metadata", "metadata", func(r *batch.Request) { r.Metadata = map[string]string{strings.Repeat("k", 65): ""} }},
		{"negative expiry", "invalid_expires_after", "output_expires_after", func(r *batch.Request) { r.OutputExpiry = -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.upload("file-1", requests(1))
			old, out := f, f
			old.ID, old.ExpiresAt = "file-old", wNow
			out.ID, out.Purpose = "file-out", openai.PurposeBatchOutput
			must(t, w.truth.Table.Files.Put(t.Context(), old))
			must(t, w.truth.Table.Files.Put(t.Context(), out))
			r := goodRequest(f.ID)
			r.ID = "batch_aaaaaaaaaaaaaaaaaaaaaaaa"
			c.change(&r)
			_, err := w.creator(nil).Create(t.Context(), r, wNow)
			e, ok := errors.AsType[*openai.Error](err)
			if !ok || e.Status != 400 || e.Code != c.code || e.Param != c.param {
				t.Errorf("got %v, want 400 %s of %s", err, c.code, c.param)
			}
			if n := w.faults.Count("Files.Get"); n > 1 {
				t.Errorf("an answer was asked for %d times", n)
			}
			if _, there := w.truth.Table.Batch(r.Tenant, r.ID); there || len(w.truth.Workflow.Executions()) > 0 {
				t.Error("a refusal left something behind")
			}
		})
	}
}

// A trouble that outlasts the tries must neither fail the batch nor lose it.
func TestCreateWhoseWorkflowDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := goodRequest(w.upload("file-1", requests(1)).ID)
		w.faults.Before("Workflow.Start", 0, memory.Fail(nil))
		b, err := w.creator(nil).Create(t.Context(), r, wNow)
		if !errors.Is(err, batch.ErrNotStarted) || !errors.Is(err, memory.ErrInjected) {
			t.Fatalf("got %v", err)
		}
		if got := w.batch(b.ID); got.Status != batch.Validating {
			t.Errorf("batch is %s", got.Status)
		}
		if n := w.faults.Count("Workflow.Start"); n != 3 {
			t.Errorf("tried %d times", n)
		}
		// Whoever heals it starts it under its own name.
		w.restart()
		must(t, w.creator(nil).Start(t.Context(), b))
		if got := w.truth.Workflow.Executions(); len(got) != 1 || got[0].Name != b.ID {
			t.Errorf("executions %+v", got)
		}
	})
}

func TestCreateAgainWithTheSameID(t *testing.T) {
	w := newWorld(t)
	r := goodRequest(w.upload("file-1", requests(1)).ID)
	r.ID = "batch_" + strings.Repeat("a", 24)
	first, err := w.creator(nil).Create(t.Context(), r, wNow)
	must(t, err)
	again := r
	again.RequestID = "req-2"
	second, err := w.creator(nil).Create(t.Context(), again, wNow.Add(time.Minute))
	must(t, err)
	if !second.CreatedAt.Equal(first.CreatedAt) || second.RequestID != "req-1" || len(w.truth.Workflow.Executions()) != 1 {
		t.Errorf("second %+v, executions %v", second, w.truth.Workflow.Executions())
	}
	// One that is further on is not started again: its execution may be long gone.
	later := w.batch(r.ID)
	later.Status = batch.Completed
	w.truth.Table.SeedBatch(later)
	f := w.restart()
	third, err := w.creator(nil).Create(t.Context(), r, wNow)
	must(t, err)
	if third.Status != batch.Completed || f.Count("Workflow.Start") > 0 {
		t.Errorf("%s, started %d times", third.Status, f.Count("Workflow.Start"))
	}
	for name, change := range map[string]func(*batch.Request){
		"submitter": func(r *batch.Request) { r.Submitter = "bob" },
		"metadata":  func(r *batch.Request) { r.Metadata = nil },
		"expiry":    func(r *batch.Request) { r.OutputExpiry = 0 },
		"file":      func(r *batch.Request) { r.FileID = w.upload("file-2", requests(2)).ID },
	} {
		other := r
		change(&other)
		_, err := w.creator(nil).Create(t.Context(), other, wNow)
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != "idempotency_conflict" {
			t.Errorf("another %s under the same id: %v", name, err)
		}
	}
}

// Each call fails once, or for good; then the same request comes again. One
// batch, one execution, whatever took effect.
func TestCreateSurvivesEveryCall(t *testing.T) {
	clean := newWorld(t)
	id := "batch_" + strings.Repeat("b", 24)
	request := func(w *world) batch.Request {
		r := goodRequest(w.upload("file-1", requests(1)).ID)
		r.ID = id
		return r
	}
	_, err := clean.creator(nil).Create(t.Context(), request(clean), wNow)
	must(t, err)
	for _, p := range clean.faults.Calls() {
		for when, arm := range timings {
			t.Run(p.String()+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					r := request(w)
					arm(w.faults, p)
					first, firstErr := w.creator(nil).Create(t.Context(), r, wNow)
					if firstErr == nil && first.ID != id {
						t.Errorf("success with %+v", first)
					}
					w.restart()
					_, err := w.creator(nil).Create(t.Context(), r, wNow)
					must(t, err)
					if b := w.batch(id); b.Status != batch.Validating {
						t.Errorf("batch is %s", b.Status)
					}
					if got := w.truth.Workflow.Executions(); len(got) != 1 {
						t.Errorf("executions %+v", got)
					}
				})
			})
		}
	}
}

// timings are the ways in which a call goes wrong.
var timings = map[string]func(*memory.Faults, memory.Point){
	"fails":       func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, memory.Fail(nil)) },
	"loses reply": func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, memory.Fail(nil)) },
	"loses replies": func(f *memory.Faults, p memory.Point) {
		f.After(p.Op, 0, func(_ context.Context, at memory.Point) error {
			if at.N >= p.N {
				return memory.ErrInjected
			}
			return nil
		})
	},
	"keeps failing": func(f *memory.Faults, p memory.Point) {
		f.Before(p.Op, 0, func(_ context.Context, at memory.Point) error {
			if at.N >= p.N {
				return memory.ErrInjected
			}
			return nil
		})
	},
	"crash before": func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, f.Crash) },
	"crash after":  func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, f.Crash) },
}

func TestCreatorOptions(t *testing.T) {
	m := memory.New(memory.Options{})
	for name, o := range map[string]*batch.CreatorOptions{
		"a window that is no duration": {Windows: []string{"a day"}},
		"a window of nothing":          {Windows: []string{"0s"}},
		"an endpoint that is no path":  {Endpoints: []string{"v1/responses"}},
	} {
		if _, err := batch.NewCreator(m.Table.Batches, m.Table.Files, m.Workflow, o); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		batch.NewID():                         true,
		"batch_" + strings.Repeat("A-_9", 6):  true,
		"batch_" + strings.Repeat("a", 74):    true,
		"batch_" + strings.Repeat("a", 75):    false,
		"batch_" + strings.Repeat("a", 17):    false,
		"job_" + strings.Repeat("a", 24):      false,
		"batch_../" + strings.Repeat("a", 24): false,
		"batch_é" + strings.Repeat("a", 24):   false,
	} {
		if batch.ValidID(id) != want {
			t.Errorf("%q: want %t", id, want)
		}
	}
}

// Whether there is room is asked last, with what the batch would run on, and before
// anything is recorded.
func TestCreateAsksForRoom(t *testing.T) {
	w := newWorld(t)
	f := w.upload("file-1", requests(1))
	asked, answer := 0, error(nil)
	c, err := batch.NewCreator(w.truth.Table.Batches, w.truth.Table.Files, w.truth.Workflow, &batch.CreatorOptions{
		Admit: func(_ context.Context, r batch.Request, in batch.File, now time.Time) error {
			asked++
			if r.ID == "" || r.Tenant != f.Tenant || in != f || !now.Equal(wNow) {
				t.Errorf("asked for %+v over %+v at %v", r, in, now)
			}
			return answer
		},
	})
	must(t, err)
	wrong := goodRequest(f.ID)
	wrong.Endpoint = "/v1/other"
	if _, err := c.Create(t.Context(), wrong, wNow); err == nil || asked != 0 {
		t.Errorf("asked for what is refused anyway: %v", err)
	}
	r := goodRequest(f.ID)
	r.ID = "batch_" + strings.Repeat("a", 24)
	for _, answer = range []error{openai.EnqueuedLimit(7, time.Minute), errors.New("throttled")} {
		if _, err := c.Create(t.Context(), r, wNow); !errors.Is(err, answer) {
			t.Errorf("got %v, want %v", err, answer)
		}
		if _, there := w.truth.Table.Batch(r.Tenant, r.ID); there || len(w.truth.Workflow.Executions()) > 0 {
			t.Error("a refusal left something behind")
		}
	}
	answer = nil
	if _, err := c.Create(t.Context(), r, wNow); err != nil || asked != 3 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
