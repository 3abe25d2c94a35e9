package batches_test

import (
	"context"
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
	return batches.New(c, view.Table.Batches, view.Table.Files, 24*time.Hour)
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
		"endpoint":  func(r *bridge.Request) { r.Endpoint = "/v1/embeddings" },
		"window":    func(r *bridge.Request) { r.Window = "1h" },
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

func dropped() bridge.Request {
	r := request()
	r.Object = &bridge.Object{Bucket: "inputs", Key: "in/acme/a b/ü.jsonl", Version: "v1", ETag: `"0123"`, Bytes: 7, StoredAt: start.Add(-time.Hour)}
	r.FileID = r.Object.FileID("acme")
	return r
}

// An object becomes the file of its own id, and the batch reads that version of it.
func TestObjectIsRecordedAsAFile(t *testing.T) {
	r, q := newRig(t), dropped()
	for range 2 {
		if job, err := r.submitter(nil).Submit(t.Context(), id, q, start); err != nil || job != id {
			t.Fatalf("%q, %v", job, err)
		}
	}
	object := batch.Object{Bucket: "inputs", Key: "in/acme/a b/ü.jsonl", Version: "v1", ETag: `"0123"`, Bytes: 7}
	f, err := r.mem.Table.Files.Get(t.Context(), "acme", q.FileID)
	want := batch.File{Tenant: "acme", ID: q.FileID, Purpose: "batch", Filename: "ü.jsonl", Object: object, CreatedAt: start.Add(-time.Hour), ExpiresAt: start.Add(23 * time.Hour)}
	if err != nil || f != want {
		t.Errorf("%+v, %v\nwant %+v", f, err, want)
	}
	if b, _ := r.mem.Table.Batch("acme", id); b.Input != (batch.Input{FileID: q.FileID, Object: object}) {
		t.Errorf("%+v", b.Input)
	}
	// By the file's id alone it is the same request: another door may have that.
	q.Object = nil
	if job, err := r.submitter(nil).Submit(t.Context(), id, q, start); err != nil || job != id {
		t.Errorf("by the file's id: %q, %v", job, err)
	}
}

// The setting that says how long files live may change while a drop is delivered again.
func TestFileOfAnObjectThatIsThere(t *testing.T) {
	r, q := newRig(t), dropped()
	earlier := batch.File{Tenant: "acme", ID: q.FileID, Purpose: "batch", CreatedAt: start, ExpiresAt: start.Add(time.Hour)}
	if err := r.mem.Table.Files.Put(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	if _, err := r.submitter(nil).Submit(t.Context(), id, q, start); err != nil {
		t.Fatal(err)
	}
	if f, _ := r.mem.Table.Files.Get(t.Context(), "acme", q.FileID); f != earlier {
		t.Errorf("%+v", f)
	}
}

// Deleted is deleted, and expired is expired: the object doesn't bring the file back.
func TestFileOfAnObjectThatIsGone(t *testing.T) {
	r, q := newRig(t), dropped()
	if _, err := r.submitter(nil).Submit(t.Context(), id, q, start.Add(24*time.Hour)); !errors.Is(err, bridge.ErrRefused) {
		t.Errorf("expired: %v", err)
	}
	if err := r.mem.Table.Files.Delete(t.Context(), "acme", q.FileID, start); err != nil {
		t.Fatal(err)
	}
	_, err := r.submitter(nil).Submit(t.Context(), id, q, start)
	if e, ok := errors.AsType[*openai.Error](err); !errors.Is(err, bridge.ErrRefused) || !ok || e.Code != "file_not_found" {
		t.Errorf("deleted: %v", err)
	}
	if n := len(r.mem.Workflow.Executions()); n != 0 {
		t.Errorf("%d executions", n)
	}
}

// What an object costs is one write: what a drain adds to a submit is the claim.
func TestCallsOfASubmit(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		q    bridge.Request
		id   string
		want string
	}{
		"a file":    {request(), id, "Files.Get Batches.Create Workflow.Start"},
		"an object": {dropped(), "batch_" + strings.Repeat("b", 32), "Files.Put Files.Get Batches.Create Workflow.Start"},
	} {
		f := memory.NewFaults()
		if _, err := r.submitter(f).Submit(t.Context(), c.id, c.q, start); err != nil {
			t.Fatal(err)
		}
		var ops []string
		for _, p := range f.Calls() {
			ops = append(ops, p.Op)
		}
		if got := strings.Join(ops, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestTroubleWithAnObject(t *testing.T) {
	r, f := newRig(t), memory.NewFaults()
	f.Before("Files.Put", 0, memory.Fail(nil))
	if _, err := r.submitter(f).Submit(t.Context(), id, dropped(), start); !errors.Is(err, memory.ErrInjected) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%v", err)
	}
	if _, there := r.mem.Table.Batch("acme", id); there {
		t.Error("a batch without the record of its input")
	}
}

// Too much running is for now, and only until the batch is there.
func TestRefusedForNow(t *testing.T) {
	r := newRig(t)
	submitter := func(refusal error) *batches.Submitter {
		c, err := batch.NewCreator(r.mem.Table.Batches, r.mem.Table.Files, r.mem.Workflow, &batch.CreatorOptions{
			Admit: func(context.Context, batch.Request, batch.File, time.Time) error { return refusal },
		})
		if err != nil {
			t.Fatal(err)
		}
		return batches.New(c, r.mem.Table.Batches, r.mem.Table.Files, 24*time.Hour)
	}
	_, err := submitter(openai.RunningLimit(3, time.Minute)).Submit(t.Context(), id, request(), start)
	e, ok := errors.AsType[*openai.Error](err)
	if !errors.Is(err, bridge.ErrRefused) || !errors.Is(err, bridge.ErrLater) || !ok || e.Status != 429 || e.RetryAfter != time.Minute {
		t.Errorf("too much runs: %v", err)
	}
	if _, err := submitter(openai.FileTooLarge(3)).Submit(t.Context(), id, request(), start); !errors.Is(err, bridge.ErrRefused) || errors.Is(err, bridge.ErrLater) {
		t.Errorf("too large a file: %v", err)
	}
	trouble := &openai.Error{Status: 503, Code: "unavailable", Message: "Try again."}
	if _, err := submitter(trouble).Submit(t.Context(), id, request(), start); errors.Is(err, bridge.ErrRefused) || !errors.Is(err, trouble) {
		t.Errorf("trouble in an error's clothes: %v", err)
	}
	if _, there := r.mem.Table.Batch("acme", id); there || len(r.mem.Workflow.Executions()) != 0 {
		t.Error("a refusal left something behind")
	}
	if _, err := submitter(nil).Submit(t.Context(), id, request(), start); err != nil {
		t.Fatal(err)
	}
	if job, err := submitter(openai.RunningLimit(3, time.Minute)).Submit(t.Context(), id, request(), start); err != nil || job != id {
		t.Errorf("created before: %q, %v", job, err)
	}
}
