package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/functions/api/server"
	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/limits"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
	uploads "holdfast/internal/upload"
)

const inputs, results = "inputs", "results"

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

// links are presigned URLs that lead nowhere.
type links struct{ err error }

func (l links) Presign(_ context.Context, o batch.Object, filename, contentType string, ttl time.Duration) (string, error) {
	return fmt.Sprintf("https://objects.example/%s/%s?for=%s", o.Bucket, o.Key, ttl), l.err
}

// house is the API over memory, with two tenants' keys.
type house struct {
	t        *testing.T
	mem      *memory.Memory
	faults   *memory.Faults
	settings config.Settings
	links    links
	now      time.Time
	log      bytes.Buffer
	key      map[string]string // "acme submit", "acme read", "acme both", "other both", …
	handler  http.Handler
	refused  float64 // replays, as was told
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, mem: memory.New(memory.Options{}), faults: memory.NewFaults(), settings: config.Default(), now: start, key: map[string]string{}}
	h.settings.DirectBytes = 4096
	for _, tenant := range []string{"acme", "other"} {
		for name, scopes := range map[string][]access.Scope{
			"submit": {access.Submit}, "read": {access.Read}, "admin": {access.Admin}, "both": {access.Submit, access.Read},
		} {
			k, secret, err := access.New(access.Key{Tenant: tenant, Principal: name + "@" + tenant, Name: name, Scopes: scopes}, start)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.mem.Table.Keys.Put(t.Context(), k); err != nil {
				t.Fatal(err)
			}
			h.key[tenant+" "+name] = secret
		}
	}
	h.build()
	return h
}

func (h *house) build() {
	view := h.mem.With(h.faults)
	tenants := access.NewTenantCache(view.Table.Tenants, &access.TenantCacheOptions{Off: time.Minute})
	creator, err := batch.NewCreator(view.Table.Batches, view.Table.Files, view.Workflow,
		&batch.CreatorOptions{
			Endpoints: h.settings.Endpoints, Windows: h.settings.Windows,
			Admit: limits.New(tenants, view.Table.Batches, view.Table.Parts, h.settings.LongestWindow()).Admit,
		})
	if err != nil {
		h.t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&h.log, nil))
	jobs := batches.New(creator, view.Table.Batches, view.Table.Files, 30*24*time.Hour)
	claims, err := bridge.New(view.Table.Bridge, bridge.Services{"": jobs}, &bridge.Options{ClaimStale: h.settings.ClaimStale, Log: log})
	if err != nil {
		h.t.Fatal(err)
	}
	parts, err := uploads.New(uploads.Ports{
		Store: view.Table.Uploads, Completions: view.Table.Uploads, Files: view.Table.Files,
		Objects: view.Objects, Multiparts: view.Objects, Pieces: view.Objects,
	}, inputs, &uploads.Options{Expiry: h.settings.UploadExpiry, FileExpiry: h.settings.FileExpiry})
	if err != nil {
		h.t.Fatal(err)
	}
	ender := batch.NewEnder(view.Table.Batches, view.Table.Endings, view.Workflow)
	reaper, err := reap.New(reap.Ports{
		Batches: view.Table.Batches, Parts: view.Table.Parts, Reaps: view.Table.Reaps, Deaths: view.Table.Deaths, Seals: view.Table.Seals,
		Events: view.Table.Events, Queue: view.Queue, Workflow: view.Workflow, Ender: ender, Claims: claims,
	}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.handler = server.New(server.Ports{
		Keys: access.NewCache(view.Table.Keys, &access.CacheOptions{
			WrongKeys: h.settings.WrongKeys, Log: log, Tenants: tenants, Pairs: view.Table.Keys,
		}),
		KeyBook: view.Table.Keys,
		Tenants: tenants,
		Batches: view.Table.Batches,
		Parts:   view.Table.Parts,
		Files:   view.Table.Files,
		Objects: view.Objects,
		Links:   h.links,
		Uploads: parts,

		Ender:  ender,
		Events: view.Table.Events,
		Reaper: reaper,

		Receipts: server.Receipts{Bucket: results, Objects: view.Objects},
		Calls:    view.Table.Receipts,

		Jobs:    jobs,
		Bridge:  claims,
		Resends: bridge.NewResends(view.Table.Sends, batch.NewID),
	}, h.settings, inputs, &server.Options{
		Log: log,
		Now: func() time.Time { return h.now },
		Observer: func(m batch.Metric, n float64) {
			if m == batch.MetricReplayRefused {
				h.refused += n
			}
		},
	})
}

// call is one request; as is the name of a key, "" for none.
type call struct {
	method, path, as string
	body             string
	header           map[string]string
}

type answer struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (h *house) do(c call) answer {
	h.t.Helper()
	r := httptest.NewRequest(c.method, "http://api.example"+c.path, strings.NewReader(c.body))
	if c.as != "" {
		secret, ok := h.key[c.as]
		if !ok {
			h.t.Fatalf("no key %q", c.as)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for k, v := range c.header {
		r.Header.Set(k, v)
	}
	return h.send(r)
}

func (h *house) send(r *http.Request) answer {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	if w.Header().Get("X-Request-Id") == "" {
		h.t.Errorf("%s %s: no x-request-id", r.Method, r.URL.Path)
	}
	return answer{w, h.t}
}

// ok decodes a 200 into v.
func (a answer) ok(v any) {
	a.t.Helper()
	if a.Code != http.StatusOK {
		a.t.Fatalf("status %d: %s", a.Code, a.Body)
	}
	if got := a.Header().Get("Content-Type"); got != "application/json" {
		a.t.Errorf("content-type %q", got)
	}
	if err := json.Unmarshal(a.Body.Bytes(), v); err != nil {
		a.t.Fatalf("%v: %s", err, a.Body)
	}
}

// refused checks an error answer in every respect the contract names.
func (a answer) refused(status int, code, param string) {
	a.t.Helper()
	if a.Code != status {
		a.t.Errorf("status %d, want %d: %s", a.Code, status, a.Body)
	}
	var body struct {
		Error map[string]any `json:"error"`
	}
	if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil {
		a.t.Fatalf("%v: %q", err, a.Body)
	}
	e := body.Error
	for _, k := range []string{"message", "type", "param", "code"} {
		if _, ok := e[k]; !ok {
			a.t.Errorf("error without %q: %s", k, a.Body)
		}
	}
	if e["code"] != code {
		a.t.Errorf("code %v, want %s", e["code"], code)
	}
	if got, _ := e["param"].(string); got != param {
		a.t.Errorf("param %v, want %q", e["param"], param)
	}
	want := "invalid_request_error"
	if status >= 500 {
		want = "server_error"
	}
	if e["type"] != want {
		a.t.Errorf("type %v, want %s", e["type"], want)
	}
	if got := a.Header().Get("X-Should-Retry"); status < 500 && got != "false" {
		a.t.Errorf("x-should-retry is %q: an official client would send it again", got)
	}
	if status == http.StatusUnauthorized && a.Header().Get("WWW-Authenticate") != "Bearer" {
		a.t.Error("401 without WWW-Authenticate")
	}
}

type field struct{ name, filename, value string }

// form is a multipart body and its content type.
func form(fields ...field) (body, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		var part io.Writer
		if f.filename != "" {
			part, _ = w.CreateFormFile(f.name, f.filename)
		} else {
			part, _ = w.CreateFormField(f.name)
		}
		io.WriteString(part, f.value)
	}
	w.Close()
	return b.String(), w.FormDataContentType()
}

func upload(fields ...field) call {
	body, kind := form(fields...)
	return call{method: "POST", path: "/v1/files", as: "acme submit", body: body, header: map[string]string{"Content-Type": kind}}
}

const lines = `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}` + "\n"

// file uploads one and gives its id.
func (h *house) file() string { return h.fileOf("acme submit") }

func (h *house) fileOf(key string) string {
	h.t.Helper()
	var f struct{ ID string }
	c := upload(field{"file", "in.jsonl", lines}, field{"purpose", "", "batch"})
	c.as = key
	h.do(c).ok(&f)
	return f.ID
}

func createCall(fileID string) call {
	return call{method: "POST", path: "/v1/batches", as: "acme submit",
		body: `{"input_file_id":"` + fileID + `","endpoint":"/v1/chat/completions","completion_window":"24h"}`}
}

type wireBatch struct {
	ID, Status    string
	InputFileID   string                                 `json:"input_file_id"`
	OutputFileID  *string                                `json:"output_file_id"`
	CreatedAt     int64                                  `json:"created_at"`
	ExpiresAt     int64                                  `json:"expires_at"`
	Metadata      map[string]string                      `json:"metadata"`
	RequestCounts struct{ Total, Completed, Failed int } `json:"request_counts"`
}

func (h *house) batch() wireBatch {
	h.t.Helper()
	var b wireBatch
	h.do(createCall(h.file())).ok(&b)
	return b
}
