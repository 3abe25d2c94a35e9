package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	h.run("submit", h.file("{}\nno JSON\n"), "--endpoint", "/v1/completions").is(0)
	if b := h.only(); b.Endpoint != "/v1/completions" {
		t.Errorf("endpoint %s", b.Endpoint)
	}
}

// A file that isn't of requests is told apart from one without an endpoint,
// before anything is sent.
func TestSubmitOfSomethingElse(t *testing.T) {
	h := newHouse(t)
	h.before = func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("%s %s", r.Method, r.URL)
		return false
	}
	for name, content := range map[string]string{
		"text":          "Hello\nthere\n",
		"CSV":           "custom_id,url\na,/v1/embeddings\n",
		"binary":        "\x89PNG\r\n\x1a\n\x00",
		"no line end":   strings.Repeat("\x00", 1<<20),
		"UTF-16":        "\xff\xfe{\x00}\x00",
		"half a mark":   "\xef\xbb{}",
		"array":         "[" + strings.TrimSpace(line) + "]\n",
		"number":        "17\n",
		"pretty":        "{\n  \"url\": \"/v1/embeddings\"\n}\n",
		"not JSON":      "{'url': '/v1/embeddings'}\n",
		"more than one": "{} {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{nil, {"--endpoint", "/v1/embeddings"}} {
				r := h.run(append([]string{"submit", h.file("\n \t\r\n" + content)}, args...)...)
				r.is(1, "not JSONL of requests: line 3 is", rightLine)
				if strings.Contains(r.stderr, "--endpoint") {
					t.Errorf("wrong advice: %s", r.stderr)
				}
			}
		})
	}
	for _, content := range []string{`{"body":{}}`, `{"url":7}`} {
		h.run("submit", h.file("\n"+content+"\n")).is(1, "can't tell the endpoint", "line 2 has no url", "--endpoint /v1/")
	}
}

// The line that is shown as right is.
func TestRightLine(t *testing.T) {
	h := newHouse(t)
	h.run("submit", h.file(rightLine)).is(0)
	if b := h.only(); b.Endpoint != "/v1/chat/completions" {
		t.Errorf("endpoint %s", b.Endpoint)
	}
}

// Something without line ends doesn't fill the memory.
func TestSubmitLongFirstLine(t *testing.T) {
	h := newHouse(t)
	long := `{"url":"/v1/embeddings","x":"` + strings.Repeat("x", firstLineBytes) + `"}`
	h.run("submit", h.file(long)).is(1, "longer than 16 MiB", "--endpoint")
}

// What a refused flag leaves behind is said.
func TestSubmitNotAllowed(t *testing.T) {
	h := newHouse(t)
	for flag, value := range map[string]string{"--window": "3h", "--endpoint": "/v1/nothing"} {
		r := h.run("submit", h.file(line), flag, value).is(1, value, "the uploaded file remains as file-", "will expire", "another "+flag+"; allowed: ")
		if strings.Contains(r.stderr, "%!") {
			t.Error(r.stderr)
		}
	}
	// Other refusals say nothing of it.
	h.refuse("/v1/batches", http.StatusBadRequest, `{"error":{"message":"No.","param":"metadata"}}`)
	if r := h.run("submit", h.file(line)).is(1, "400: No."); strings.Contains(r.stderr, "remains") {
		t.Error(r.stderr)
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
	if !strings.Contains(r.stdout, "took        1m from created to ended, ") || !strings.Contains(r.stdout, " with the upload and the waiting\n") {
		t.Errorf("what took means isn't said: %s", r.stdout)
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
	if strings.Contains(r.stdout, "There may be more") {
		t.Error("there aren't more")
	}
	b := h.only()
	h.run("results", b.ID).is(1, "refused before a line was run, so there are no results: Line 7 is not JSON.", "holdfast status "+b.ID)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	h.run("results", b.ID, "--output", out).is(1, "there are no results")
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a file of nothing: %v", err)
	}
	h.look = nil
	for len(b.Errors) < batch.MaxErrors {
		b.Errors = append(b.Errors, b.Errors[0])
	}
	h.mem.Table.SeedBatch(b)
	if r := h.run("status", b.ID).is(1); !strings.Contains(r.stdout, "There may be more: the list stops at 100.\n") {
		t.Errorf("stdout %s", r.stdout)
	}
}

func TestLasted(t *testing.T) {
	end := int64(3700)
	for want, b := range map[string]openai.Batch{
		"2.63s with the upload and the waiting":                           {CreatedAt: 100},
		"1h from created to ended, 2.63s with the upload and the waiting": {CreatedAt: 100, CancelledAt: &end},
	} {
		if got := lasted(b, 2631*time.Millisecond); got != want {
			t.Errorf("%q, want %q", got, want)
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
		{"no file named", []string{"submit"}, nil, 2, "name a FILE: holdfast submit FILE [flags]\n  See holdfast submit --help."},
		{"no such file", []string{"submit", filepath.Join(t.TempDir(), "none")}, nil, 1, "no such file"},
		{"a folder", []string{"submit", t.TempDir()}, nil, 1, "not a regular file"},
		{"empty", []string{"submit", h.file("")}, nil, 1, "empty"},
		{"blank", []string{"submit", h.file("\n \n")}, nil, 1, "blank lines only"},
		{"no endpoint", []string{"submit", h.file("{}\n")}, nil, 1, "--endpoint"},
		{"metadata", []string{"submit", good, "--metadata", "x"}, nil, 2, "key=value"},
		{"flag", []string{"submit", good, "--bogus"}, nil, 2, "--bogus\n  See holdfast submit --help."},
		{"window", []string{"submit", good, "--window", "3h"}, nil, 1, "invalid_completion_window"},
		{"no URL", []string{"submit", good}, map[string]string{envURL: ""}, 2, "On AWS it is the stack's output ApiUrl."},
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
