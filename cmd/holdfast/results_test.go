package main

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

func TestStatus(t *testing.T) {
	for status, code := range map[batch.Status]int{
		batch.Completed: 0, batch.InProgress: 0, batch.Validating: 0, batch.Finalizing: 0, batch.Failed: 1, batch.Expired: 1, batch.Cancelled: 1,
	} {
		t.Run(string(status), func(t *testing.T) {
			h := newHouse(t)
			id := h.ended(status).ID
			if r := h.run("status", id).is(code); !strings.Contains(r.stdout, id+": "+string(status)) || r.stderr != "" {
				t.Errorf("%q, %q", r.stdout, r.stderr)
			}
			var b openai.Batch
			h.run("status", id, "--json").is(code).object(&b)
			if b.ID != id || b.Status != string(status) {
				t.Errorf("printed %+v", b)
			}
		})
	}
}

func TestStatusRefusals(t *testing.T) {
	h := newHouse(t)
	h.run("status").is(2, "name a BATCH: holdfast status BATCH")
	h.run("status", "file-1").is(2, "batch_")
	h.run("status", "batch_../files").is(2)
	var out struct {
		Error struct {
			Code      string
			RequestID string `json:"request_id"`
		}
	}
	h.run("status", "batch_unknown0000000000000001", "--json").is(1, "batch_not_found", "own tenant only. One that was refused at a door never was a batch: holdfast events batch_unknown0000000000000001\n").object(&out)
	if out.Error.Code != "batch_not_found" || out.Error.RequestID == "" {
		t.Errorf("%+v", out)
	}
}

func TestResultsToStdout(t *testing.T) {
	h := newHouse(t)
	id := h.ended(batch.Completed).ID
	r := h.run("results", id).is(0, "1 of 2 lines failed", "stdout has the output lines, then the error lines", "holdfast results "+id+" --output FILE --errors FILE")
	if r.stdout != okLines+errLines {
		t.Errorf("stdout %q", r.stdout)
	}
	if r := h.run("results", id, "--errors", "-").is(0); r.stdout != errLines || r.stderr != "" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if r := h.run("results", id, "--output", "-").is(0, "1 of 2 lines failed and were not fetched", "holdfast results "+id+" --errors FILE"); r.stdout != okLines {
		t.Errorf("stdout %q", r.stdout)
	}
}

// Whoever asks for nothing but the output hears of what failed, if anything did.
func TestResultsLeaveNoErrorOutSilently(t *testing.T) {
	h := newHouse(t)
	b := h.ended(batch.Completed)
	out, errs := filepath.Join(t.TempDir(), "out.jsonl"), filepath.Join(t.TempDir(), "errors.jsonl")
	h.run("results", b.ID, "--output", out).is(0, "1 of 2 lines failed and were not fetched", "--errors FILE")
	quiet := func(args ...string) {
		t.Helper()
		if r := h.run(append([]string{"results", b.ID}, args...)...).is(0); strings.Contains(r.stderr, "failed") {
			t.Errorf("stderr %q", r.stderr)
		}
	}
	quiet("--output", out, "--errors", errs)
	quiet("--output", out, "--errors", "-")
	b.ErrorFileID, b.Counts = "", batch.Counts{Total: 2, Completed: 2}
	h.mem.Table.SeedBatch(b)
	quiet()
	quiet("--output", out)
	b.Status, b.OutputFileID, b.Counts = batch.Cancelled, "", batch.Counts{}
	h.mem.Table.SeedBatch(b)
	h.run("results", b.ID).is(1, "is cancelled; it has no results")
}

// The store's answer isn't held against HOLDFAST_URL.
func TestResultsStoreRefuses(t *testing.T) {
	h := newHouse(t)
	b := h.ended(batch.Completed)
	n := 0
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/objects/") {
			return false
		}
		n++
		http.Error(w, "<Error/>", http.StatusForbidden)
		return true
	}
	r := h.run("results", b.ID).is(1, "the object store answered 403")
	if n != 1 || strings.Contains(r.stderr, envURL) {
		t.Errorf("%d tries, %s", n, r.stderr)
	}
}

func TestResultsToFiles(t *testing.T) {
	h := newHouse(t)
	b := h.ended(batch.Completed)
	dir := t.TempDir()
	out, errs := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "errors.jsonl")
	r := h.run("results", b.ID, "--output", out, "--errors", errs).is(0, "out.jsonl: 119 bytes")
	if r.stdout != "" || read(t, out) != okLines || read(t, errs) != errLines {
		t.Errorf("stdout %q, files %q, %q", r.stdout, read(t, out), read(t, errs))
	}
	var printed openai.Batch
	h.run("results", b.ID, "--output", out, "--json").is(0).object(&printed)
	if printed.ID != b.ID {
		t.Errorf("printed %+v", printed)
	}
	// No line failed: the file is there, and empty.
	b.ErrorFileID = ""
	h.mem.Table.SeedBatch(b)
	h.run("results", b.ID, "--errors", errs).is(0)
	if got := read(t, errs); got != "" {
		t.Errorf("errors %q", got)
	}
	leftovers(t, dir, 2)
}

// A download that breaks off leaves what was there before, and nothing else.
func TestResultsAreWholeOrNotThere(t *testing.T) {
	h := newHouse(t)
	b := h.ended(batch.Completed)
	dir := t.TempDir()
	out := filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(out, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/objects/") {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		w.Write([]byte(okLines))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	h.run("results", b.ID, "--output", out).is(1, "fetch the results of "+b.ID)
	if got := read(t, out); got != "before" {
		t.Errorf("file %q", got)
	}
	leftovers(t, dir, 1)
	h.before = nil
	h.run("results", b.ID, "--output", filepath.Join(dir, "none", "out.jsonl")).is(1, "can't write")
}

func TestResultsRefusals(t *testing.T) {
	h := newHouse(t)
	b := batch.Batch{Tenant: "acme", ID: "batch_running000000000000001", Status: batch.InProgress, Lines: 9, CreatedAt: time.Now()}
	h.mem.Table.SeedBatch(b)
	h.run("results", b.ID).is(1, "in_progress: 0 of 9")
	h.run("results", b.ID, "--json").is(2, "--output")
	h.run("results", b.ID, "--output", "-", "--json").is(2)
	h.run("results", b.ID, "--output", "x", "--errors", "x").is(2, "one file")
	h.run("results").is(2)

	// What an expired batch had finished is fetched, and said to be not all.
	out := filepath.Join(t.TempDir(), "out.jsonl")
	h.run("results", h.ended(batch.Expired).ID, "--output", out).is(1, "is expired")
	if read(t, out) != okLines {
		t.Errorf("file %q", read(t, out))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func leftovers(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil || len(entries) != want {
		t.Errorf("%d files in the folder, want %d: %v, %v", len(entries), want, entries, err)
	}
}
