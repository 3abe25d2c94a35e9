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
	h.run("status").is(2)
	h.run("status", "file-1").is(2, "batch_")
	h.run("status", "batch_../files").is(2)
	var out struct {
		Error struct {
			Code      string
			RequestID string `json:"request_id"`
		}
	}
	h.run("status", "batch_unknown0000000000000001", "--json").is(1, "batch_not_found", "own tenant").object(&out)
	if out.Error.Code != "batch_not_found" || out.Error.RequestID == "" {
		t.Errorf("%+v", out)
	}
}

func TestResultsToStdout(t *testing.T) {
	h := newHouse(t)
	id := h.ended(batch.Completed).ID
	if r := h.run("results", id).is(0); r.stdout != okLines+errLines {
		t.Errorf("stdout %q", r.stdout)
	}
	if r := h.run("results", id, "--errors", "-").is(0); r.stdout != errLines {
		t.Errorf("stdout %q", r.stdout)
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
