package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/upload"
)

// pieces are memory's, with URLs that lead to the house.
type pieces struct {
	*memory.Objects
	h *house
}

func (p pieces) PieceURL(ctx context.Context, o batch.Object, id string, n int, ttl time.Duration) (string, error) {
	to, err := p.Objects.PieceURL(ctx, o, id, n, ttl)
	return p.h.url + "/pieces?signature=S1GNATURE&to=" + url.QueryEscape(to), err
}

// putPiece is the store that the URLs lead to.
func (h *house) putPiece(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	sum := md5.Sum(data)
	switch {
	case err != nil:
		return
	case r.Method != http.MethodPut || r.Header.Get("Authorization") != "" || r.URL.Query().Get("signature") != "S1GNATURE" ||
		r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]):
		http.Error(w, "<Error/>", http.StatusBadRequest)
	default:
		if err := h.mem.Objects.PutURL(r.Context(), r.URL.Query().Get("to"), data); err != nil {
			http.Error(w, "<Error/>", http.StatusNotFound)
		}
	}
}

// large is an input of n parts, the last of them small.
func large(n int) string {
	return line + strings.Repeat(" ", (n-1)*leastPart) + "\n"
}

// stored is the only input that there is.
func (h *house) stored() []byte {
	h.t.Helper()
	f, err := h.mem.Table.Files.Get(h.t.Context(), "acme", h.only().Input.FileID)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.mem.Objects.Bytes("inputs", f.Object.Key)
}

// left is what the command keeps in the user's cache folder.
func (h *house) left() []string {
	h.t.Helper()
	names, err := filepath.Glob(filepath.Join(h.folder, "holdfast", "uploads", "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	return names
}

// puts counts the parts that are sent, and lets do answer instead.
func (h *house) puts(do func(n int, w http.ResponseWriter) bool) *atomic.Int64 {
	var n atomic.Int64
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodPut && do(int(n.Add(1)), w)
	}
	return &n
}

func TestSubmitLarge(t *testing.T) {
	for _, term := range []bool{false, true} {
		h := newHouse(t)
		h.term = term
		input := large(6)
		n := h.puts(func(int, http.ResponseWriter) bool { return false })
		h.run("submit", h.file(input)).is(0, "uploading")
		if !bytes.Equal(h.stored(), []byte(input)) {
			t.Error("other bytes arrived")
		}
		if n.Load() != 6 || len(h.left()) != 0 {
			t.Errorf("%d parts sent; left %v", n.Load(), h.left())
		}
	}
}

// At the direct way's limit, and one byte above.
func TestSubmitPicksTheWay(t *testing.T) {
	for _, c := range []struct{ bytes, parts int }{{4 << 20, 0}, {4<<20 + 1, 1}} {
		h := newHouse(t)
		n := h.puts(func(int, http.ResponseWriter) bool { return false })
		h.run("submit", h.file(line+strings.Repeat("\n", c.bytes-len(line)))).is(0)
		if int(n.Load()) != c.parts || len(h.stored()) != c.bytes {
			t.Errorf("%d bytes: %d parts, %d arrived", c.bytes, n.Load(), len(h.stored()))
		}
	}
	// Where the server takes less in one request it says so, and parts it is.
	h := newHouse(t)
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/files" {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		fmt.Fprint(w, `{"error":{"code":"file_too_large_for_direct_upload","message":"too large"}}`)
		return true
	}
	h.run("submit", h.file(line)).is(0)
	if string(h.stored()) != line {
		t.Errorf("stored %q", h.stored())
	}
}

// Interrupted in the middle, the same command sends what is missing and no more.
func TestSubmitResumes(t *testing.T) {
	h := newHouse(t)
	input := large(9)
	name := h.file(input)
	ctx, interrupt := context.WithCancel(t.Context())
	h.puts(func(n int, w http.ResponseWriter) bool {
		if n > 5 {
			interrupt()
			return true
		}
		return false
	})
	h.runIn(ctx, "submit", name).is(1, "interrupted", "The same command goes on")
	if len(h.left()) != 1 {
		t.Fatalf("saved: %v", h.left())
	}
	if raw, err := os.ReadFile(h.left()[0]); err != nil || bytes.Contains(raw, []byte("http")) || bytes.Contains(raw, []byte(h.env[envKey])) {
		t.Errorf("saved %s, %v", raw, err)
	}
	n := h.puts(func(int, http.ResponseWriter) bool { return false })
	r := h.run("submit", name).is(0, "Resuming: ")
	// At most the four that were under way may still come in from the first run and
	// be counted here; what was kept is not sent again.
	_, rest, _ := strings.Cut(r.stderr, "Resuming: ")
	var kept int
	if _, err := fmt.Sscanf(rest, "%d of 9", &kept); err != nil || kept < 1 || kept > 5 {
		t.Errorf("kept %d, %v: %s", kept, err, r.stderr)
	}
	if sent := int(n.Load()); sent < 9-kept || sent > 9-kept+4 {
		t.Errorf("%d kept, %d parts sent again: %s", kept, sent, r.stderr)
	}
	if !bytes.Equal(h.stored(), []byte(input)) || len(h.left()) != 0 {
		t.Errorf("%d bytes, left %v", len(h.stored()), h.left())
	}
}

// The upload was completed, but no batch created: the file isn't sent again.
func TestSubmitResumesCompleted(t *testing.T) {
	h := newHouse(t)
	name := h.file(large(2))
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v1/batches" {
			http.Error(w, "", http.StatusServiceUnavailable)
		}
		return r.URL.Path == "/v1/batches"
	}
	h.run("submit", name).is(1, "503")
	n := h.puts(func(int, http.ResponseWriter) bool { return false })
	h.run("submit", name).is(0, "Uploaded before: file-")
	if n.Load() != 0 || len(h.left()) != 0 || len(h.mem.Table.FilesOf("acme")) != 1 {
		t.Errorf("%d parts sent, %v left, %d files", n.Load(), h.left(), len(h.mem.Table.FilesOf("acme")))
	}
}

// What can't be resumed is begun anew: the upload is gone, or the file changed.
func TestSubmitBeginsAnew(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, h *house, file string){
		"cancelled": func(t *testing.T, h *house, _ string) {
			for _, u := range h.uploads() {
				if _, err := h.mem.Table.Uploads.Cancel(t.Context(), "acme", u.ID); err != nil {
					t.Fatal(err)
				}
			}
		},
		"saved state is damaged": func(t *testing.T, h *house, _ string) {
			if err := os.WriteFile(h.left()[0], []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"another time of change": func(t *testing.T, _ *house, file string) {
			if err := os.Chtimes(file, time.Now(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			file := h.file(large(3))
			ctx, interrupt := context.WithCancel(t.Context())
			h.puts(func(n int, _ http.ResponseWriter) bool {
				if n == 3 {
					interrupt()
				}
				return n == 3
			})
			h.runIn(ctx, "submit", file).is(1)
			change(t, h, file)
			n := h.puts(func(int, http.ResponseWriter) bool { return false })
			h.run("submit", file).is(0)
			if n.Load() != 3 {
				t.Errorf("%d parts sent, want all 3", n.Load())
			}
		})
	}
}

// A part that fails is sent again: the store is busy, a URL is too old, the
// connection breaks.
func TestSubmitSendsPartsAgain(t *testing.T) {
	h := newHouse(t)
	input := large(4)
	n := h.puts(func(n int, w http.ResponseWriter) bool {
		switch n {
		case 1:
			http.Error(w, "<Error/>", http.StatusServiceUnavailable)
		case 2:
			http.Error(w, "<Error/>", http.StatusForbidden)
		case 3:
			panic(http.ErrAbortHandler)
		}
		return n <= 3
	})
	h.run("submit", h.file(input)).is(0)
	if n.Load() != 7 || !bytes.Equal(h.stored(), []byte(input)) {
		t.Errorf("%d parts sent", n.Load())
	}
}

func TestSubmitStoreRefuses(t *testing.T) {
	h := newHouse(t)
	n := h.puts(func(_ int, w http.ResponseWriter) bool { http.Error(w, "<Error/>", http.StatusForbidden); return true })
	h.run("submit", h.file(large(1)+strings.Repeat(" ", 5<<20))).is(1, "the object store answered 403")
	if n.Load() != readTries {
		t.Errorf("%d tries", n.Load())
	}
}

// A file that is written to while it is sent is told apart, and nothing stays.
func TestSubmitFileChanges(t *testing.T) {
	h := newHouse(t)
	name := h.file(large(2))
	h.puts(func(n int, _ http.ResponseWriter) bool {
		if n == 1 {
			_ = os.Chtimes(name, time.Now(), time.Now().Add(time.Hour))
		}
		return false
	})
	h.run("submit", name).is(1, "it changed while it was uploaded")
	for _, u := range h.uploads() {
		if u.Status != upload.Cancelled {
			t.Errorf("left %+v", u)
		}
	}
	if len(h.left()) != 0 || len(h.mem.Objects.OpenUploads()) != 0 {
		t.Errorf("left %v", h.left())
	}
}

// Without a place to save anything it works all the same.
func TestSubmitWithoutCache(t *testing.T) {
	h := newHouse(t)
	if err := os.WriteFile(filepath.Join(h.folder, "holdfast"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.run("submit", h.file(large(2))).is(0, "could not be resumed")
}

func TestPartBytes(t *testing.T) {
	for size, want := range map[int64]int64{1: 8 << 20, 512 << 20: 8 << 20, 10_000 * 8 << 20: 8 << 20, 10_000*8<<20 + 1: 9 << 20, 1 << 40: 105 << 20} {
		if got := partBytes(size); got != want || (size+got-1)/got > 10_000 {
			t.Errorf("%d bytes go in parts of %d, want %d", size, got, want)
		}
	}
}

// uploads are all uploads of the tenant.
func (h *house) uploads() []upload.Upload { return h.mem.Table.UploadsOf("acme") }
