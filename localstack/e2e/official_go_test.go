package e2e

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	official "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// officialGo runs the scenario of clients_test.go with the official Go client,
// step for step as clients/scenario.py and clients/scenario.cjs do.
type officialGo struct {
	t      *testing.T
	ctx    context.Context
	client official.Client

	mu sync.Mutex
	observed
}

type options = []option.RequestOption

// do notes what call gives, or the client's error. T is an object of the
// client's, a text or a list of ids.
func do[T any](s *officialGo, step string, call func(o options) (T, error)) T {
	s.t.Helper()
	var id string
	v, err := call(options{option.WithHeader("X-Step", step), option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(r)
		if resp != nil {
			id = resp.Header.Get("X-Request-Id")
		}
		return resp, err
	})})
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := errors.AsType[*official.Error](err); ok {
		s.Failures[step] = failure{
			Class: "Error", Status: e.StatusCode, Code: e.Code, Param: e.Param, Type: e.Type,
			Message: e.Message, RequestID: e.Response.Header.Get("X-Request-Id"),
		}
		return v
	}
	if err != nil {
		s.t.Errorf("%s: %v", step, err)
		return v
	}
	s.RequestIDs[step] = id
	s.Results[step] = s.raw(v)
	return v
}

// need is do for a step that later ones build on.
func need[T any](s *officialGo, step string, call func(o options) (T, error)) T {
	s.t.Helper()
	v := do(s, step, call)
	if _, ok := s.Results[step]; !ok {
		s.t.Fatalf("%s: %+v", step, s.Failures[step])
	}
	return v
}

// raw is a result's JSON: as it came, if it is an object of the client's.
func (s *officialGo) raw(v any) json.RawMessage {
	if object, ok := v.(interface{ RawJSON() string }); ok {
		return json.RawMessage(object.RawJSON())
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.t.Errorf("%T: %v", v, err)
	}
	return b
}

// pager is what the client's automatic paging looks like.
type pager[T any] interface {
	Next() bool
	Current() T
	Err() error
}

func ids[T any](p pager[T], id func(T) string) ([]string, error) {
	out := []string{}
	for p.Next() {
		out = append(out, id(p.Current()))
	}
	return out, p.Err()
}

func (s *officialGo) upload(file io.Reader, purpose official.FilePurpose, seconds int64) func(o options) (*official.FileObject, error) {
	p := official.FileNewParams{File: file, Purpose: purpose}
	if seconds > 0 {
		p.ExpiresAfter.Seconds = seconds
	}
	return func(o options) (*official.FileObject, error) { return s.client.Files.New(s.ctx, p, o...) }
}

// params are those of a batch over a file, and what change makes of them.
func params(file string, change func(*official.BatchNewParams)) official.BatchNewParams {
	p := official.BatchNewParams{InputFileID: file, Endpoint: official.BatchNewParamsEndpointV1ChatCompletions, CompletionWindow: "24h"}
	if change != nil {
		change(&p)
	}
	return p
}

func (s *officialGo) create(p official.BatchNewParams, more ...option.RequestOption) func(o options) (*official.Batch, error) {
	return func(o options) (*official.Batch, error) { return s.client.Batches.New(s.ctx, p, append(o, more...)...) }
}

func (s *officialGo) complete(upload, md5 string, parts ...string) func(o options) (*official.Upload, error) {
	p := official.UploadCompleteParams{PartIDs: parts}
	if md5 != "" {
		p.Md5 = official.String(md5)
	}
	return func(o options) (*official.Upload, error) { return s.client.Uploads.Complete(s.ctx, upload, p, o...) }
}

func (s *officialGo) part(upload string, data []byte) func(o options) (*official.UploadPart, error) {
	return func(o options) (*official.UploadPart, error) {
		return s.client.Uploads.Parts.New(s.ctx, upload, official.UploadPartNewParams{Data: bytes.NewReader(data)}, o...)
	}
}

func (s *officialGo) content(c official.Client, file string) func(o options) (string, error) {
	return func(o options) (string, error) {
		resp, err := c.Files.Content(s.ctx, file, o...)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
}

// wait polls until the batch has one of the statuses, or is over, and notes it
// as the step's result.
func (s *officialGo) wait(step, id string, until ...official.BatchStatus) *official.Batch {
	s.t.Helper()
	if until == nil {
		until = []official.BatchStatus{official.BatchStatusCompleted, official.BatchStatusFailed, official.BatchStatusExpired, official.BatchStatusCancelled}
	}
	var b *official.Batch
	poll(s.t, time.Minute, func() bool {
		var err error
		if b, err = s.client.Batches.Get(s.ctx, id, option.WithHeader("X-Step", "poll")); err != nil {
			s.t.Fatalf("%s: %v", step, err)
		}
		return slices.Contains(until, b.Status)
	}, func() string { return step + ": " + b.RawJSON() })
	s.Results[step] = s.raw(b)
	return b
}

func (s *officialGo) read(dir, name string) []byte {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// The client refuses to leave the API for a store at another origin. What one
// reply can carry it is given there; a larger file it can't download, and says
// why. Once the last part fails, the API need make no difference any more.
func TestOfficialGoClientDownloads(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	f := newFront(t, nil)
	client := official.NewClient(option.WithAPIKey(c.key), option.WithBaseURL(f.URL+"/v1"), option.WithMaxRetries(0))
	text := bytes.Repeat([]byte("{\"a\":\"<é>\"}\n"), 200_000) // 3 MB, of which each character takes more in JSON
	resp, err := client.Files.Content(t.Context(), c.upload(t, "f.jsonl", text).ID)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, text) {
		t.Errorf("content: %d bytes, %v, want %d", len(got), err, len(text))
	}
	other := httptest.NewServer(http.RedirectHandler(f.store.URL, http.StatusFound)) // as the API answers for a larger one
	t.Cleanup(other.Close)
	away := official.NewClient(option.WithAPIKey(c.key), option.WithBaseURL(other.URL+"/v1"), option.WithMaxRetries(0))
	if _, err := away.Files.Content(t.Context(), "file-large"); err == nil || !strings.Contains(err.Error(), "origin must match") || len(f.of("store")) > 0 {
		t.Errorf("a redirect away: %v, want the client's refusal to follow", err)
	}
}

func runOfficialGo(t *testing.T, f *front, key, dir string) observed {
	base := options{option.WithAPIKey(key), option.WithRequestTimeout(time.Minute)}
	s := &officialGo{
		t: t, ctx: t.Context(),
		client:   official.NewClient(slices.Concat(base, options{option.WithBaseURL(f.URL + "/v1")})...),
		observed: observed{Client: "openai-go", Results: map[string]json.RawMessage{}, Failures: map[string]failure{}, RequestIDs: map[string]string{}},
	}
	direct := official.NewClient(slices.Concat(base, options{option.WithBaseURL(env(t, "HOLDFAST_URL") + "/v1")})...)
	data := s.read(dir, "input.jsonl")
	buffer := func(name string, data []byte) io.Reader {
		return official.File(bytes.NewReader(data), name, "application/jsonl")
	}

	// Files in, by stream and by buffer.
	stream, err := os.Open(filepath.Join(dir, "input.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	streamed := need(s, "upload stream", s.upload(stream, "batch", 3600))
	buffered := need(s, "upload buffer", s.upload(buffer("buffer é.jsonl", data), "batch", 0))
	failing := need(s, "upload failing", s.upload(buffer("failing.jsonl", s.read(dir, "failing.jsonl")), "batch", 0))
	slow := need(s, "upload slow", s.upload(buffer("slow.jsonl", s.read(dir, "slow.jsonl")), "batch", 0))
	do(s, "upload wrong purpose", s.upload(buffer("x.jsonl", data), "assistants", 0))
	do(s, "upload wrong expiry", s.upload(buffer("x.jsonl", data), "batch", 60))
	file := func(id string) func(o options) (*official.FileObject, error) {
		return func(o options) (*official.FileObject, error) { return s.client.Files.Get(s.ctx, id, o...) }
	}
	do(s, "file", file(streamed.ID))
	do(s, "file missing", file("file-none"))
	do(s, "content missing", s.content(s.client, "file-none"))
	do(s, "content", s.content(s.client, streamed.ID))
	do(s, "content watched", s.content(s.client, streamed.ID))
	do(s, "content direct", s.content(direct, streamed.ID))

	// Uploads: parts side by side and out of order; then every refusal.
	about := official.UploadNewParams{Filename: "parts.jsonl", Purpose: "batch", Bytes: int64(len(data)), MimeType: "application/jsonl"}
	begin := func(o options) (*official.Upload, error) { return s.client.Uploads.New(s.ctx, about, o...) }
	whole := need(s, "parts create", begin)
	thirds := [][]byte{data[:len(data)/3], data[len(data)/3 : 2*len(data)/3], data[2*len(data)/3:]}
	order := make([]string, 3)
	var group sync.WaitGroup
	for _, n := range []int{2, 0, 1} {
		group.Go(func() {
			if p := do(s, "part "+strconv.Itoa(n), s.part(whole.ID, thirds[n])); p != nil {
				order[n] = p.ID
			}
		})
	}
	group.Wait()
	sum := md5.Sum(data)
	joined := need(s, "complete", s.complete(whole.ID, hex.EncodeToString(sum[:]), order...))
	do(s, "complete again", s.complete(whole.ID, hex.EncodeToString(sum[:]), order...))
	do(s, "complete otherwise", s.complete(whole.ID, "", order[2], order[1], order[0]))
	do(s, "part after complete", s.part(whole.ID, []byte("more")))
	do(s, "content of parts", s.content(s.client, joined.File.ID))

	spoilt := need(s, "spoilt create", begin)
	one := need(s, "spoilt part", s.part(spoilt.ID, data))
	do(s, "complete wrong md5", s.complete(spoilt.ID, strings.Repeat("0", 32), one.ID))
	do(s, "complete unknown part", s.complete(spoilt.ID, "", "part_none"))
	half := need(s, "spoilt second part", s.part(spoilt.ID, []byte("too much")))
	do(s, "complete wrong bytes", s.complete(spoilt.ID, "", one.ID, half.ID))
	cancelUpload := func(o options) (*official.Upload, error) { return s.client.Uploads.Cancel(s.ctx, spoilt.ID, o...) }
	do(s, "cancel upload", cancelUpload)
	do(s, "cancel upload again", cancelUpload)
	do(s, "part after cancel", s.part(spoilt.ID, []byte("more")))
	do(s, "complete after cancel", s.complete(spoilt.ID, "", one.ID))
	do(s, "part of nothing", s.part("upload_none", []byte("more")))

	// Batches in; two of them through a front that fails.
	named := func(name string) func(*official.BatchNewParams) {
		return func(p *official.BatchNewParams) { p.Metadata = shared.Metadata{"name": name} }
	}
	expiring := params(buffered.ID, named("é"))
	expiring.OutputExpiresAfter.Seconds = 3600
	idempotent := option.WithHeader("Idempotency-Key", "one")
	main := need(s, "create", s.create(expiring))
	failed := need(s, "create failing", s.create(params(failing.ID, nil)))
	hung := need(s, "create slow", s.create(params(slow.ID, nil)))
	lost := need(s, "create lost", s.create(params(buffered.ID, named("lost"))))
	do(s, "create refused", s.create(params(buffered.ID, named("refused"))))
	keyed := need(s, "create keyed", s.create(params(joined.File.ID, nil), idempotent))
	do(s, "create keyed again", s.create(params(joined.File.ID, nil), idempotent))
	do(s, "create keyed otherwise", s.create(params(buffered.ID, nil), idempotent))
	do(s, "create without window", s.create(params(buffered.ID, func(p *official.BatchNewParams) { p.CompletionWindow = "" })))
	do(s, "create wrong endpoint", s.create(params(buffered.ID, func(p *official.BatchNewParams) { p.Endpoint = "/v1/nothing" })))
	do(s, "create wrong window", s.create(params(buffered.ID, func(p *official.BatchNewParams) { p.CompletionWindow = "25h" })))
	do(s, "create wrong metadata", s.create(params(buffered.ID, func(p *official.BatchNewParams) {
		p.Metadata = shared.Metadata{strings.Repeat("k", 65): "v"}
	})))
	do(s, "create missing file", s.create(params("file-none", nil)))

	// Lists: six batches are three full pages of two.
	list := func(c official.Client, p official.BatchListParams) func(o options) ([]string, error) {
		return func(o options) ([]string, error) {
			return ids(c.Batches.ListAutoPaging(s.ctx, p, o...), func(b official.Batch) string { return b.ID })
		}
	}
	do(s, "list", list(s.client, official.BatchListParams{Limit: official.Int(2)}))
	do(s, "list unknown cursor", list(s.client, official.BatchListParams{After: official.String("batch_none")}))
	do(s, "create twin", s.create(expiring))

	// Cancel: while it runs, again, and when it is over.
	remove := func(id string) func(o options) (*official.FileDeleted, error) {
		return func(o options) (*official.FileDeleted, error) { return s.client.Files.Delete(s.ctx, id, o...) }
	}
	cancel := func(id string) func(o options) (*official.Batch, error) {
		return func(o options) (*official.Batch, error) { return s.client.Batches.Cancel(s.ctx, id, o...) }
	}
	s.wait("slow started", hung.ID, official.BatchStatusInProgress)
	do(s, "delete in use", remove(slow.ID))
	do(s, "cancel", cancel(hung.ID))
	do(s, "cancel again", cancel(hung.ID))
	done := s.wait("completed", main.ID)
	do(s, "cancel over", cancel(main.ID))
	do(s, "cancel missing", cancel("batch_none"))
	do(s, "batch missing", func(o options) (*official.Batch, error) { return s.client.Batches.Get(s.ctx, "batch_none", o...) })
	do(s, "output", s.content(s.client, done.OutputFileID))
	do(s, "errors", s.content(s.client, done.ErrorFileID))
	do(s, "all errors", s.content(s.client, s.wait("all failed", failed.ID).ErrorFileID))
	s.wait("lost over", lost.ID)
	s.wait("keyed over", keyed.ID)
	do(s, "cancelled errors", s.content(s.client, s.wait("cancelled", hung.ID).ErrorFileID))

	// Files out.
	files := func(p official.FileListParams) func(o options) ([]string, error) {
		return func(o options) ([]string, error) {
			return ids(s.client.Files.ListAutoPaging(s.ctx, p, o...), func(f official.FileObject) string { return f.ID })
		}
	}
	in := official.String("batch")
	do(s, "files", files(official.FileListParams{Purpose: in}))
	do(s, "files ascending", files(official.FileListParams{Purpose: in, Order: "asc", Limit: official.Int(2)}))
	do(s, "files after", files(official.FileListParams{Purpose: in, Order: "asc", After: official.String(buffered.ID)}))
	do(s, "files of results", files(official.FileListParams{Purpose: official.String("batch_output")}))
	do(s, "files unknown cursor", files(official.FileListParams{After: official.String("file-none")}))
	do(s, "delete", remove(streamed.ID))
	do(s, "delete again", remove(streamed.ID))
	do(s, "file deleted", file(streamed.ID))

	// Models; no entry; a server that is down.
	models := func(o options) ([]string, error) {
		return ids(s.client.Models.ListAutoPaging(s.ctx, o...), func(m official.Model) string { return m.ID })
	}
	model := func(id string) func(o options) (*official.Model, error) {
		return func(o options) (*official.Model, error) { return s.client.Models.Get(s.ctx, id, o...) }
	}
	do(s, "models", models)
	do(s, "model", model("sim"))
	do(s, "model missing", model("none"))
	do(s, "wrong key", list(official.NewClient(option.WithBaseURL(f.URL+"/v1"), option.WithAPIKey("hf_wrong")), official.BatchListParams{}))
	do(s, "down", models)
	return s.observed
}
