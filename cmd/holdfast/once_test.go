package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/config"
)

// inputs are the files that were uploaded and are there.
func (h *house) inputs() int {
	h.t.Helper()
	files, _, err := h.mem.Table.Files.List(h.t.Context(), "acme", batch.FileQuery{Limit: 100}, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	return len(files)
}

// The same file under the same key is one batch, and what was uploaded twice is
// deleted; everything else under it is refused, and nothing more is started.
func TestSubmitUnderAKey(t *testing.T) {
	h := newHouse(t)
	const key = "order 7 of batch_22222222222222222222222222222222"
	first := h.run("submit", h.file(line), "--idempotency-key", key, "--metadata", "a=b").is(0)
	again := h.run("submit", h.file(line), "--idempotency-key", key, "--metadata", "a=b").is(0, "submitted before under that key, as file-")
	if first.stdout != again.stdout || first.stdout != h.only().ID+"\n" {
		t.Errorf("%q, then %q", first.stdout, again.stdout)
	}
	if n := h.inputs(); n != 1 {
		t.Errorf("%d files are left", n)
	}
	other := strings.Replace(line, `"a"`, `"b"`, 1)
	for _, args := range [][]string{
		{h.file(other), "--metadata", "a=b"}, {h.file(line + line), "--metadata", "a=b"},
		{h.file(line), "--metadata", "a=c"}, {h.file(line), "--metadata", "a=b", "--window", "1h"},
	} {
		h.run(append([]string{"submit", "--idempotency-key", key}, args...)...).is(1, "idempotency_conflict", key, h.only().ID, "another --idempotency-key", "remains as file-")
	}
	h.run("submit", h.file(line), "--idempotency-key", "order 8").is(0)
	h.run("submit", h.file(line)).is(0)
	page, _, err := h.mem.Table.Batches.List(t.Context(), "acme", "", 10)
	if err != nil || len(page) != 3 {
		t.Errorf("%d batches, %v", len(page), err)
	}
}

// Somebody else's request is another one, though every byte is the same; and who may
// not look is told what can't be told.
func TestSubmitUnderAKeyOfAnother(t *testing.T) {
	h := newHouse(t)
	h.run("submit", h.file(line), "--idempotency-key", "7").is(0)
	for _, c := range []struct {
		who    string
		scopes []access.Scope
		say    string
	}{{"bob", []access.Scope{access.Submit, access.Read}, "the submitter counts, too"}, {"ann", []access.Scope{access.Submit}, "of this very file can't be told"}} {
		k, secret, err := access.New(access.Key{Tenant: "acme", Principal: c.who, Name: "cli", Scopes: c.scopes}, time.Now())
		if err == nil {
			err = h.mem.Table.Keys.Put(t.Context(), k)
		}
		if err != nil {
			t.Fatal(err)
		}
		h.env[envKey] = secret
		h.run("submit", h.file(line), "--idempotency-key", "7").is(1, "idempotency_conflict", c.say)
	}
	h.only()
}

// A lost answer is asked for again, and so is one that another copy of the request is
// about to have.
func TestSubmitUnderAKeyIsPatient(t *testing.T) {
	h := newHouse(t)
	posts := 0
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/batches" {
			return false
		}
		posts++
		if r.Header.Get("Idempotency-Key") != "~!#" {
			t.Errorf("key %q", r.Header.Get("Idempotency-Key"))
		}
		switch posts {
		case 1:
			http.Error(w, "", http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("X-Request-Id", "r")
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"error":{"message":"Wait.","code":"idempotency_in_progress"}}`)
		}
		return posts < 3
	}
	h.run("submit", h.file(line), "--idempotency-key", "~!#").is(0)
	h.only()
}

// A file that goes in parts is found where it is, and isn't sent again.
func TestSubmitUnderAKeyInParts(t *testing.T) {
	h := newHouse(t)
	name := h.file(line + strings.Repeat(" ", int(config.Default().DirectBytes)) + "\n")
	first := h.run("submit", name, "--idempotency-key", "7").is(0)
	if again := h.run("submit", name, "--idempotency-key", "7").is(0, "Uploaded before"); again.stdout != first.stdout {
		t.Errorf("%q, then %q", first.stdout, again.stdout)
	}
	// From another place nothing is known of that, and it is the same file all the same.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(name, moved); err != nil {
		t.Fatal(err)
	}
	if again := h.run("submit", moved, "--idempotency-key", "7").is(0, "submitted before"); again.stdout != first.stdout {
		t.Errorf("%q, then %q", first.stdout, again.stdout)
	}
	if n := h.inputs(); n != 1 {
		t.Errorf("%d files are left", n)
	}
	h.only()
}

// What was uploaded before for another batch is still that one's when it turns out that
// the key has a file of its own.
func TestSubmitUnderAKeyLeavesTheFileOfAnother(t *testing.T) {
	h := newHouse(t)
	name := h.file(line + strings.Repeat(" ", int(config.Default().DirectBytes)) + "\n")
	first := h.run("submit", name, "--idempotency-key", "7").is(0)
	copied := h.file(line + strings.Repeat(" ", int(config.Default().DirectBytes)) + "\n")
	h.run("submit", copied, "--idempotency-key", "8").is(0)
	for range 2 {
		again := h.run("submit", copied, "--idempotency-key", "7").is(0, "Uploaded before", "submitted before")
		if again.stdout != first.stdout {
			t.Errorf("%q, then %q", first.stdout, again.stdout)
		}
	}
	h.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		return false
	}
	h.run("submit", copied, "--idempotency-key", "7").is(0)
	if n := h.inputs(); n != 2 {
		t.Errorf("%d files are left", n)
	}
}

// Where nobody can see whether it is the same file, another key is not what to try; and
// the link to a file stays between us and the store.
func TestSubmitUnderAKeyThatCannotBeCompared(t *testing.T) {
	h := newHouse(t)
	h.run("submit", h.file(line), "--idempotency-key", "7").is(0)
	const signature = "X-Amz-Signature=0123"
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/content") {
			return false
		}
		w.Header().Set("Location", "http://127.0.0.1:1/object?"+signature)
		w.WriteHeader(http.StatusFound)
		return true
	}
	got := h.run("submit", h.file(line), "--idempotency-key", "7", "--json").is(1, "can't be told", h.only().ID, "would be run again", "remains as file-")
	if strings.Contains(got.stdout+got.stderr, signature) || strings.Contains(got.stdout, "Submit it again") || !strings.Contains(got.stdout, `"code": "idempotency_conflict"`) {
		t.Errorf("%s\n%s", got.stdout, got.stderr)
	}
}

// Whoever doesn't know whether a batch was made is told so, and never just to try again.
func TestSubmitThatMayBeDone(t *testing.T) {
	h := newHouse(t)
	lost := map[string]func(http.ResponseWriter){
		"503": func(w http.ResponseWriter) { http.Error(w, "", http.StatusServiceUnavailable) },
		"EOF": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	}
	for name, answer := range lost {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v1/batches" {
				answer(w)
			}
			return r.URL.Path == "/v1/batches"
		}
		h.run("submit", h.file(line)).is(1, name, "may be there all the same", "would make another")
		if r := h.run("submit", h.file(line), "--idempotency-key", "7").is(1, name, "the same command finds it"); strings.Contains(r.stderr, "another") {
			t.Error(r.stderr)
		}
	}
	h.refuse("/v1/batches", http.StatusTooManyRequests, `{"error":{"message":"Wait.","code":"enqueued_limit_exceeded"}}`)
	if r := h.run("submit", h.file(line)).is(1, "Try again"); strings.Contains(r.stderr, "may be there") {
		t.Error(r.stderr)
	}
}

// A key that won't do is refused before anything is sent.
func TestSubmitUnderABadKey(t *testing.T) {
	h := newHouse(t)
	h.before = func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("%s %s", r.Method, r.URL)
		return false
	}
	for _, key := range []string{"", " ", " k", "k ", "a\tb", "a\nb", "é", "\xff", strings.Repeat("k", 256)} {
		h.run("submit", h.file(line), "--idempotency-key", key, "--json").is(2, "1 to 255 printable ASCII characters")
	}
	h.before = nil
	h.run("submit", h.file(line), "--idempotency-key", strings.Repeat("k", 255)).is(0)
}

func TestSameBytes(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct {
		a, b string
		same bool
	}{{"", "", true}, {long, long, true}, {long[:64<<10], long[:64<<10], true}, {long, long + "y", false}, {long, long[1:], false}, {long + "y", long + "z", false}, {"", "x", false}} {
		if same, err := sameBytes(iotest.HalfReader(strings.NewReader(c.a)), strings.NewReader(c.b)); same != c.same || err != nil {
			t.Errorf("%d and %d bytes: %v, %v", len(c.a), len(c.b), same, err)
		}
	}
	if _, err := sameBytes(iotest.ErrReader(io.ErrNoProgress), strings.NewReader("x")); err == nil {
		t.Error("trouble is an answer")
	}
}
