package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

func TestSubmit(t *testing.T) {
	h := newHouse(t)
	input := "\ufeff\n" + line + strings.Replace(line, `"a"`, `"b"`, 1)
	r := h.run("submit", h.file(input), "--metadata", "project=eval", "--metadata", "note=a=b", "--window", "1h").is(0, "holdfast status batch_")
	b := h.only()
	if r.stdout != b.ID+"\n" {
		t.Errorf("stdout %q, want the id alone", r.stdout)
	}
	if b.Endpoint != "/v1/embeddings" || b.Window != "1h" || b.Metadata["project"] != "eval" || b.Metadata["note"] != "a=b" || b.Submitter != "ann" {
		t.Errorf("batch %+v", b)
	}
	f, err := h.mem.Table.Files.Get(t.Context(), "acme", b.Input.FileID)
	if err != nil || f.Filename != "requests.jsonl" {
		t.Errorf("file %+v, %v", f, err)
	}
	if got := h.mem.Objects.Bytes("inputs", f.Object.Key); string(got) != input {
		t.Errorf("uploaded %q", got)
	}
}

func TestSubmitEndpointIsAsked(t *testing.T) {
	h := newHouse(t)
	h.run("submit", h.file("no JSON\n"), "--endpoint", "/v1/completions").is(0)
	if b := h.only(); b.Endpoint != "/v1/completions" {
		t.Errorf("endpoint %s", b.Endpoint)
	}
}

func TestSubmitJSON(t *testing.T) {
	h := newHouse(t)
	var b openai.Batch
	h.run("submit", h.file(line), "--json").is(0).object(&b)
	if b.ID != h.only().ID || b.Status != "validating" {
		t.Errorf("printed %+v", b)
	}
}

// life lets the batch go on at each look.
func life(h *house, last batch.Status) {
	h.look = func(n int) {
		b := h.only()
		switch n {
		case 1:
		case 2:
			b.Status, b.Lines, b.Parts = batch.InProgress, 2, 1
			h.mem.Table.SeedBatch(b)
		case 3:
			h.mem.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: "acme", Batch: b.ID}, State: batch.Leased, Chunks: []batch.Chunk{{N: 1, OK: 1}}})
		case 4:
			h.end(b, last)
		}
	}
}

func TestSubmitWait(t *testing.T) {
	h := newHouse(t)
	life(h, batch.Completed)
	r := h.run("submit", h.file(line), "--wait").is(0, "validating", "in_progress 0/2", "in_progress 1/2", "completed 2/2")
	for _, want := range []string{": completed", "2: 1 completed, 1 failed", "took", "a  200  {\"answer\":42}", "request_timeout: too slow",
		"GET /v1/files/file-out/content", "holdfast results batch_"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("stdout lacks %q: %s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Error("an id steers the terminal")
	}
}

func TestSubmitWaitOnATerminal(t *testing.T) {
	h := newHouse(t)
	h.term = true
	life(h, batch.Completed)
	r := h.run("submit", h.file(line), "--wait").is(0, "uploading", "in_progress")
	if strings.Contains(r.stderr, "in_progress 1/2\n") {
		t.Errorf("plain lines beside a bar: %q", r.stderr)
	}
}

func TestSubmitWaitExitStatus(t *testing.T) {
	for status, code := range map[batch.Status]int{batch.Completed: 0, batch.Failed: 1, batch.Expired: 1, batch.Cancelled: 1} {
		t.Run(string(status), func(t *testing.T) {
			h := newHouse(t)
			life(h, status)
			var b openai.Batch
			h.run("submit", h.file(line), "--wait", "--json").is(code).object(&b)
			if b.Status != string(status) {
				t.Errorf("printed %s", b.Status)
			}
		})
	}
}

func TestSubmitWaitShowsWhatWasRefused(t *testing.T) {
	h := newHouse(t)
	h.look = func(int) {
		b, n := h.only(), 7
		b.Status = batch.Failed
		b.Errors = []openai.BatchError{{Code: "invalid_json_line", Message: "Line 7 is not JSON.", Line: &n}, {Code: "empty_file", Message: "Nothing."}}
		h.mem.Table.SeedBatch(b)
	}
	r := h.run("submit", h.file(line), "--wait").is(1)
	for _, want := range []string{": failed", "line 7: Line 7 is not JSON. (invalid_json_line)", "file: Nothing. (empty_file)", "submit it again"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("stdout lacks %q: %s", want, r.stdout)
		}
	}
}

// A look that fails for a moment is taken again; the batch is created once.
func TestSubmitWaitIsPatient(t *testing.T) {
	h := newHouse(t)
	life(h, batch.Completed)
	n := 0
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		if n++; n%3 == 1 {
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return true
		}
		return false
	}
	h.run("submit", h.file(line), "--wait").is(0)
	h.only()
}

// Whether a create whose answer was lost made a batch is not guessed.
func TestSubmitCreatesOnce(t *testing.T) {
	h := newHouse(t)
	posts := 0
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/batches" {
			return false
		}
		posts++
		http.Error(w, "", http.StatusServiceUnavailable)
		return true
	}
	h.run("submit", h.file(line)).is(1, "create a batch of file-", "503", "Try again")
	if posts != 1 {
		t.Errorf("%d creates", posts)
	}
}

func TestSubmitInterrupted(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	h.look = func(n int) {
		if n == 3 {
			cancel(os.ErrProcessDone) // a cause of its own, as a signal has
		}
	}
	h.runIn(ctx, "submit", h.file(line), "--wait").is(1, "goes on without you", "holdfast status "+h.only().ID, "holdfast cancel "+h.only().ID)
}

func TestSubmitRefusals(t *testing.T) {
	h := newHouse(t)
	good := h.file(line)
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		code int
		say  string
	}{
		{"no file named", []string{"submit"}, nil, 2, "arg"},
		{"no such file", []string{"submit", filepath.Join(t.TempDir(), "none")}, nil, 1, "no such file"},
		{"a folder", []string{"submit", t.TempDir()}, nil, 1, "not a regular file"},
		{"empty", []string{"submit", h.file("")}, nil, 1, "empty"},
		{"blank", []string{"submit", h.file("\n \n")}, nil, 1, "blank lines only"},
		{"no endpoint", []string{"submit", h.file("{}\n")}, nil, 1, "--endpoint"},
		{"metadata", []string{"submit", good, "--metadata", "x"}, nil, 2, "key=value"},
		{"flag", []string{"submit", good, "--bogus"}, nil, 2, "--bogus"},
		{"window", []string{"submit", good, "--window", "3h"}, nil, 1, "invalid_completion_window"},
		{"no URL", []string{"submit", good}, map[string]string{envURL: ""}, 2, envURL},
		{"bad URL", []string{"submit", good}, map[string]string{envURL: "localhost:4566"}, 2, envURL},
		{"no key", []string{"submit", good}, map[string]string{envKey: ""}, 2, envKey},
		{"key with a line end", []string{"submit", good}, map[string]string{envKey: "hf_x\n"}, 2, envKey},
		{"wrong key", []string{"submit", good}, map[string]string{envKey: "hf_wrong"}, 1, "invalid_api_key"},
		{"nobody there", []string{"submit", good}, map[string]string{envURL: "http://127.0.0.1:1"}, 1, "is the stack up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := h.env
			defer func() { h.env = env }()
			h.t, h.env = t, map[string]string{}
			for k, v := range env {
				h.env[k] = v
			}
			for k, v := range c.env {
				h.env[k] = v
			}
			h.run(c.args...).is(c.code, c.say)
			var out struct {
				Error struct{ Message string }
			}
			if c.code == 1 {
				h.run(append(c.args, "--json")...).is(c.code).object(&out)
				if out.Error.Message == "" {
					t.Error("--json doesn't say what was wrong")
				}
			}
		})
	}
}

// The URL may end in /v1 or a slash, as other clients want it.
func TestURLForms(t *testing.T) {
	h := newHouse(t)
	for _, end := range []string{"/", "/v1", "/v1/"} {
		h.env[envURL] = h.url + end
		h.run("status", h.ended(batch.Completed).ID).is(0)
	}
}
