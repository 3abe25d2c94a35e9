package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/functions/api/server"
	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
	"holdfast/internal/reap"
	"holdfast/internal/upload"
)

// house is a command line in front of the real API handler over memory, which
// shares its host with the objects, as a local stack does.
type house struct {
	t    *testing.T
	mem  *memory.Memory
	url  string
	env  map[string]string
	term bool

	stdin string
	now   func() time.Time // nil: the real one

	account account // whose bills are read

	folder string // the user's cache

	mu     sync.Mutex
	look   func(n int)                                       // before the n-th look at a batch is answered, from 1
	before func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	looks  int
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, mem: memory.New(memory.Options{}), folder: t.TempDir()}
	key, secret, err := access.New(access.Key{Tenant: "acme", Principal: "ann", Name: "cli", Scopes: []access.Scope{access.Submit, access.Read, access.Admin}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.mem.Table.Keys.Put(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	settings := config.Default()
	creator, err := batch.NewCreator(h.mem.Table.Batches, h.mem.Table.Files, h.mem.Workflow, &batch.CreatorOptions{Endpoints: settings.Endpoints, Windows: settings.Windows})
	if err != nil {
		t.Fatal(err)
	}
	jobs := batches.New(creator, h.mem.Table.Batches, h.mem.Table.Files, 30*24*time.Hour)
	claims, err := bridge.New(h.mem.Table.Bridge, jobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	uploads, err := upload.New(upload.Ports{
		Store: h.mem.Table.Uploads, Completions: h.mem.Table.Uploads, Files: h.mem.Table.Files,
		Objects: h.mem.Objects, Multiparts: h.mem.Objects, Pieces: pieces{h.mem.Objects, h},
	}, "inputs", nil)
	if err != nil {
		t.Fatal(err)
	}
	ender := batch.NewEnder(h.mem.Table.Batches, h.mem.Table.Endings, h.mem.Workflow)
	reaper, err := reap.New(reap.Ports{
		Batches: h.mem.Table.Batches, Parts: h.mem.Table.Parts, Reaps: h.mem.Table.Reaps, Deaths: h.mem.Table.Deaths, Seals: h.mem.Table.Seals,
		Events: h.mem.Table.Events, Queue: h.mem.Queue, Workflow: h.mem.Workflow, Ender: ender,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	api := server.New(server.Ports{
		Keys: access.NewCache(h.mem.Table.Keys, nil), KeyBook: h.mem.Table.Keys, Tenants: access.NewTenantCache(h.mem.Table.Tenants, nil), Batches: h.mem.Table.Batches, Parts: h.mem.Table.Parts, Files: h.mem.Table.Files,
		Objects: h.mem.Objects, Links: h, Uploads: uploads,
		Ender: ender, Events: h.mem.Table.Events, Reaper: reaper, Receipts: server.Receipts{Bucket: "results", Objects: h.mem.Objects}, Calls: h.mem.Table.Receipts,
		Jobs: jobs, Bridge: claims, Resends: bridge.NewResends(h.mem.Table.Sends, batch.NewID),
	}, settings, "inputs", nil)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.answered(w, r) {
			return
		}
		if r.URL.Path == "/pieces" {
			h.putPiece(w, r)
			return
		}
		if key, ok := strings.CutPrefix(r.URL.Path, "/objects/"); ok {
			// S3 refuses a signed URL that comes with another credential.
			if r.Header.Get("Authorization") != "" || r.URL.Query().Get("signature") != "S1GNATURE" {
				http.Error(w, "<Error/>", http.StatusBadRequest)
				return
			}
			for _, bucket := range []string{"results", "inputs"} {
				w.Write(h.mem.Objects.Bytes(bucket, key)) // in one of them
			}
			return
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	h.url = ts.URL
	h.env = map[string]string{envURL: ts.URL, envKey: secret}
	return h
}

func (h *house) answered(w http.ResponseWriter, r *http.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.look != nil && r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/batches/") {
		h.looks++
		h.look(h.looks)
	}
	return h.before != nil && h.before(w, r)
}

// refuse has the API answer requests for the path so from now on.
func (h *house) refuse(path string, status int, body string) {
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		w.Header().Set("X-Request-Id", "r")
		w.WriteHeader(status)
		io.WriteString(w, body)
		return true
	}
}

func (h *house) Presign(_ context.Context, o batch.Object, _, _ string, _ time.Duration) (string, error) {
	return h.url + "/objects/" + url.PathEscape(o.Key) + "?signature=S1GNATURE", nil
}

type ran struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

// run is one call of the command line, in process.
func (h *house) run(args ...string) ran { return h.runIn(h.t.Context(), args...) }

func (h *house) runIn(ctx context.Context, args ...string) ran {
	h.t.Helper()
	var out, errs bytes.Buffer
	now := h.now
	if now == nil {
		now = time.Now
	}
	code := run(ctx, args, &app{
		stdin: strings.NewReader(h.stdin), stdout: &out, stderr: &errs, terminal: h.term,
		getenv: func(name string) string { return h.env[name] },
		environ: func() (all []string) {
			for name, value := range h.env {
				all = append(all, name+"="+value)
			}
			return all
		},
		now:      now,
		http:     &http.Client{},
		keys:     func(context.Context, string) (access.Store, error) { return h.mem.Table.Keys, nil },
		tenants:  func(context.Context, string) (access.Tenants, error) { return h.mem.Table.Tenants, nil },
		accounts: func(context.Context, config.Resources) (account, error) { return h.account, nil },
		look:     time.Millisecond,
		pause:    time.Millisecond,
		cache:    func() (string, error) { return h.folder, nil },
	})
	if key := h.env[envKey]; key != "" && strings.Contains(out.String()+errs.String(), key) {
		h.t.Error("the key was printed")
	}
	if strings.Contains(out.String()+errs.String(), "S1GNATURE") {
		h.t.Error("a signed URL was printed")
	}
	r := ran{h.t, code, out.String(), errs.String()}
	if slices.Contains(args, "--json") {
		r.object(new(map[string]any)) // whatever became of it
	}
	return r
}

// is checks the exit status and what was said.
func (r ran) is(code int, stderr ...string) ran {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("exit status %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, want := range stderr {
		if !strings.Contains(r.stderr, want) {
			r.t.Errorf("stderr lacks %q: %s", want, r.stderr)
		}
	}
	return r
}

// object decodes the one JSON object on stdout.
func (r ran) object(v any) {
	r.t.Helper()
	d := json.NewDecoder(strings.NewReader(r.stdout))
	if err := d.Decode(v); err != nil {
		r.t.Fatalf("stdout is no JSON: %v: %s", err, r.stdout)
	}
	if d.More() {
		r.t.Errorf("more than one object on stdout: %s", r.stdout)
	}
}

const line = `{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"m"}}` + "\n"

// file writes an input.
func (h *house) file(content string) string {
	h.t.Helper()
	name := filepath.Join(h.t.TempDir(), "requests.jsonl")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return name
}

// only is the one batch there is.
func (h *house) only() batch.Batch {
	h.t.Helper()
	page, _, err := h.mem.Table.Batches.List(h.t.Context(), "acme", "", 10)
	if err != nil || len(page) != 1 {
		h.t.Fatalf("%d batches, %v", len(page), err)
	}
	return page[0]
}

// result stores a result file and gives its id.
func (h *house) result(id, content string) string {
	h.t.Helper()
	o, err := h.mem.Objects.Put(h.t.Context(), batch.Object{Bucket: "results", Key: id}, []byte(content))
	if err != nil {
		h.t.Fatal(err)
	}
	f := batch.File{Tenant: "acme", ID: id, Purpose: openai.PurposeBatchOutput, Filename: id, Object: o}
	if err := h.mem.Table.Files.Put(h.t.Context(), f); err != nil {
		h.t.Fatal(err)
	}
	return id
}

const (
	okLines  = `{"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"request_id":"r","body":{"answer":42}},"error":null}` + "\n"
	errLines = `{"id":"batch_req_2","custom_id":"b\u001b[2J","response":null,"error":{"code":"request_timeout","message":"too slow"}}` + "\n"
)

// end is b after it has ended with two lines, one of each kind.
func (h *house) end(b batch.Batch, status batch.Status) batch.Batch {
	b.Status, b.Lines = status, 2
	b.Counts = batch.Counts{Total: 2, Completed: 1, Failed: 1}
	b.CompletedAt = b.CreatedAt.Add(time.Minute)
	b.OutputFileID, b.ErrorFileID = h.result("file-out", okLines), h.result("file-err", errLines)
	h.mem.Table.SeedBatch(b)
	return b
}

// ended is a batch that has.
func (h *house) ended(status batch.Status) batch.Batch {
	return h.end(batch.Batch{Tenant: "acme", ID: "batch_ended0000000000000001", Endpoint: "/v1/embeddings", CreatedAt: time.Now()}, status)
}
