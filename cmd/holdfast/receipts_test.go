package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

const receiptsBatch = "batch_ended0000000000000001"

// story is a batch of three lines: one that succeeded, one that failed, one that was
// cancelled before it was sent.
type story struct {
	input, output, errors, receipts string
	lines                           int64
}

func newStory() story {
	var s story
	s.line(1, `"a"`, &openai.Response{StatusCode: 200, Body: []byte(`{"answer":42}`)}, "", true)
	s.line(2, `"b\u001b[2J"`, nil, openai.CodeRequestTimeout, true)
	s.line(3, `"c"`, nil, openai.CodeBatchCancelled, false)
	return s
}

// line adds the batch's next line, which is on a physical line of the input.
func (s *story) line(physical int, custom string, response *openai.Response, code string, receipt bool) {
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	body := fmt.Sprintf(`{"model":"m","n":%d}`, s.lines)
	s.input += strings.Repeat("\n", physical-1-strings.Count(s.input, "\n")) + `{"custom_id":` + custom + `,"method":"POST","url":"/v1/embeddings","body":` + body + "}\n"
	id := openai.RequestResultID(receiptsBatch, physical)
	l := openai.NoReply(id, []byte(custom), code)
	r := batch.Receipt{
		Time: time.Now(), Tenant: "acme", Batch: receiptsBatch, Line: s.lines, ID: id, CustomID: json.RawMessage(custom), OnBehalfOf: "ann",
		Worker: "w", Attempt: 1, Model: "m", RequestHash: sum(body),
	}
	s.lines++
	if response != nil {
		l = openai.Reply(id, []byte(custom), *response)
		r.Status, r.ReplyHash = response.StatusCode, sum(string(response.Body))
	}
	if l.OK() {
		s.output += string(l.Append(nil))
	} else {
		s.errors += string(l.Append(nil))
	}
	if receipt {
		b, _ := json.Marshal(r)
		s.receipts += string(b) + "\n"
	}
}

// tell puts the story's files where a batch has them that was cancelled.
func (h *house) tell(s story) string {
	h.t.Helper()
	b := batch.Batch{
		Tenant: "acme", ID: receiptsBatch, Endpoint: "/v1/embeddings", CreatedAt: time.Now(), Status: batch.Cancelled, Lines: 3,
		Counts:       batch.Counts{Total: 3, Completed: 1, Failed: 2},
		OutputFileID: h.result("file-out", s.output), ErrorFileID: h.result("file-err", s.errors),
	}
	b.Input.FileID = h.result("file-in", s.input)
	h.mem.Table.SeedBatch(b)
	if s.receipts != "" {
		if _, err := h.mem.Objects.Put(h.t.Context(), batch.Object{Bucket: "results", Key: batch.ResultKey("acme", b.ID, batch.ReceiptsFile)}, []byte(s.receipts)); err != nil {
			h.t.Fatal(err)
		}
	}
	return b.ID
}

func TestReceipts(t *testing.T) {
	h := newHouse(t)
	s := newStory()
	id := h.tell(s)
	if r := h.run("receipts", id).is(0); r.stdout != s.receipts || r.stderr != "" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	to := filepath.Join(t.TempDir(), "receipts.jsonl")
	var out struct {
		Batch string `json:"batch_id"`
		File  string
		Bytes int
	}
	h.run("receipts", id, "--output", to, "--json").is(0, "receipts.jsonl: ", "holdfast receipts verify "+id).object(&out)
	if read(t, to) != s.receipts || out.Batch != id || out.File != to || out.Bytes != len(s.receipts) {
		t.Errorf("%+v, %q", out, read(t, to))
	}
}

func TestReceiptsRefusals(t *testing.T) {
	h := newHouse(t)
	h.run("receipts").is(2)
	h.run("receipts", "file-1").is(2, "batch_")
	h.run("receipts", receiptsBatch, "--json").is(2, "--output")
	h.run("receipts", receiptsBatch).is(1, "batch_not_found")
	s := newStory()
	s.receipts = ""
	h.run("receipts", h.tell(s)).is(1, "has no receipts", "--errors FILE")
	for _, sub := range [][]string{{"receipts"}, {"receipts", "verify"}} {
		h.mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: receiptsBatch, Status: batch.InProgress, Lines: 9, CreatedAt: time.Now()})
		h.run(append(sub, receiptsBatch)...).is(1, "in_progress: 0 of 9")
		h.mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: receiptsBatch, Status: batch.Failed, CreatedAt: time.Now()})
		h.run(append(sub, receiptsBatch)...).is(1, "no line of it was run")
	}
	h.run("receipts", "verify").is(2, "name a BATCH")
	h.run("receipts", "verify", "--receipts", "x").is(2, "no results")
	h.run("receipts", "verify", "--output", "/nowhere/x").is(1, "can't read /nowhere/x")
	h.run("receipts", "verify", "--output", "x", "--input", "y", "--skip-input").is(2, "exclude")
}

type verdictOut struct {
	OK bool
	batch.ReceiptReport
	First []batch.ReceiptFault `json:"first_faults"`
}

func TestVerify(t *testing.T) {
	h := newHouse(t)
	s := newStory()
	id := h.tell(s)
	r := h.run("receipts", "verify", id).is(0)
	if want := id + ": 3 lines, each accounted for once: 2 with a receipt on behalf of ann, 1 not sent\n"; r.stdout != want || strings.Contains(r.stderr, "not checked") {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	var out verdictOut
	h.run("receipts", "verify", id, "--json").is(0).object(&out)
	if !out.OK || out.Lines != 3 || out.Receipts != 2 || out.Unsent != 1 || !out.Requests || out.Tenant != "acme" {
		t.Errorf("%+v", out)
	}
	h.run("receipts", "verify", id, "--skip-input").is(0, "The hashes of requests were not checked: you left the input out.")

	// An input that is gone is said, and the rest is checked.
	if err := h.mem.Table.Files.Delete(t.Context(), "acme", "file-in", time.Now()); err != nil {
		t.Fatal(err)
	}
	h.run("receipts", "verify", id).is(0, "The hashes of requests were not checked: there was no input.")
	// A batch of which nothing was sent has no receipts, and that is in order.
	all := story{input: s.input}
	for i, custom := range []string{`"a"`, `"b"`, `"c"`} {
		all.errors += string(openai.NoReply(openai.RequestResultID(receiptsBatch, i+1), []byte(custom), openai.CodeBatchExpired).Append(nil))
	}
	quiet := newHouse(t)
	id = quiet.tell(all)
	b, _ := quiet.mem.Table.Batch("acme", id)
	b.OutputFileID, b.Counts = "", batch.Counts{Total: 3, Failed: 3}
	quiet.mem.Table.SeedBatch(b)
	if r := quiet.run("receipts", "verify", id, "--skip-input").is(0); !strings.Contains(r.stdout, "0 with a receipt, 3 not sent") {
		t.Errorf("%q", r.stdout)
	}
}

func TestVerifyFinds(t *testing.T) {
	h := newHouse(t)
	s := newStory()
	s.output = strings.Replace(s.output, "42", "43", 1)
	id := h.tell(s)
	r := h.run("receipts", "verify", id).is(1, "output, line 1: the SHA-256 of the reply is")
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if last := lines[len(lines)-1]; last != id+": the receipts do NOT agree with the results: 1 fault in 3 lines" || r.stdout != "" {
		t.Errorf("last line %q, stdout %q", last, r.stdout)
	}
	var out verdictOut
	h.run("receipts", "verify", id, "--json").is(1).object(&out)
	if out.OK || out.Faults != 1 || len(out.First) != 1 || out.First[0].File != "output" || out.First[0].Line != 1 {
		t.Errorf("%+v", out)
	}
	// What others wrote doesn't steer the terminal.
	h = newHouse(t)
	s = newStory()
	s.receipts = s.receipts[:strings.IndexByte(s.receipts, '\n')+1]
	s.errors = strings.ReplaceAll(s.errors, `\u001b`, "\u009b")
	if r := h.run("receipts", "verify", h.tell(s)).is(1, "has no receipt", "what is behind the last one was not checked"); strings.Contains(r.stderr, "\u009b") {
		t.Errorf("stderr %q", r.stderr)
	}
	// The batch's own numbers count.
	h = newHouse(t)
	id = h.tell(newStory())
	b, _ := h.mem.Table.Batch("acme", id)
	b.Counts.Completed, b.Counts.Failed = 2, 1
	h.mem.Table.SeedBatch(b)
	h.run("receipts", "verify", id).is(1, "batch: it says 3 = 2 completed + 1 failed")
}

// All from disk: neither a batch nor an API is needed; some from disk: those are used.
func TestVerifyFromDisk(t *testing.T) {
	h := newHouse(t)
	s := newStory()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := []string{"--receipts", file("r", s.receipts), "--output", file("o", s.output), "--errors", file("e", s.errors)}
	key, base := h.env[envKey], h.env[envURL]
	delete(h.env, envKey)
	delete(h.env, envURL)
	h.run(append([]string{"receipts", "verify"}, files...)...).is(0, "hashes of requests were not checked")
	withInput := append(files, "--input", file("i", s.input))
	if r := h.run(append([]string{"receipts", "verify"}, withInput...)...).is(0); !strings.HasPrefix(r.stdout, receiptsBatch+": 3 lines") || r.stderr != "" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	h.env[envKey], h.env[envURL] = key, base
	id := h.tell(s)
	bad := file("bad", strings.Replace(s.input, `"n":0`, `"n":9`, 1))
	h.run("receipts", "verify", id, "--input", bad).is(1, bad+", line 1: the SHA-256 of the body")
}

// A receipt that is missing is said of its own line, whatever else is at hand: the
// next error is of a line that was not sent, and would do.
func TestVerifyNamesTheLineWithoutReceipt(t *testing.T) {
	for _, blank := range []int{0, 3} { // lines in the input, before the line
		var s story
		ok := &openai.Response{StatusCode: 200, Body: []byte(`{}`)}
		s.line(1, `"0"`, ok, "", true)
		s.line(2+blank, `"1"`, ok, "", false)
		s.line(3+blank, `"2"`, ok, "", true)
		s.line(4+blank, `"99"`, nil, openai.CodeBatchExpired, false)
		h := newHouse(t)
		dir := t.TempDir()
		args := []string{"receipts", "verify"}
		for name, content := range map[string]string{"receipts": s.receipts, "output": s.output, "errors": s.errors, "input": s.input} {
			args = append(args, "--"+name, filepath.Join(dir, name))
			if err := os.WriteFile(args[len(args)-1], []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h.run(args...).is(1, filepath.Join(dir, "output")+`, line 2: custom_id "1": line 1 has no receipt`)
	}
}

// Files in each other's place are told from such that disagree.
func TestVerifyOfSwappedFiles(t *testing.T) {
	h := newHouse(t)
	s := newStory()
	s.receipts, s.output = s.output, s.receipts
	if r := h.run("receipts", "verify", h.tell(s)).is(1, "receipts, line 1: it is no receipt"); strings.Contains(r.stderr, `not ""`) {
		t.Error(r.stderr)
	}
}

// A download that is torn goes on where it was, with another link; one that is torn
// for ever ends, and is no fault of the files.
func TestVerifyGoesOnWhenTorn(t *testing.T) {
	h := newHouse(t)
	s := newStory()
	id := h.tell(s)
	served, torn := map[string]int{}, true
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		key, ok := strings.CutPrefix(r.URL.Path, "/objects/")
		if !ok {
			return false
		}
		content := h.mem.Objects.Bytes("results", key)
		served[key]++
		if served[key] == 1 || !torn {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:len(content)/3])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		if r.Header.Get("Range") != fmt.Sprintf("bytes=%d-", len(content)/3) {
			t.Errorf("%s: range %q", key, r.Header.Get("Range"))
		}
		if key == "file-err" { // a store that ignores it
			w.Write(content)
			return true
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		return true
	}
	h.run("receipts", "verify", id).is(0)
	if len(served) != 4 {
		t.Errorf("served %v", served)
	}
	torn = false
	h.run("receipts", "verify", id).is(1, "torn")
}
