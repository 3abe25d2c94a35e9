package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/functions/api/server"
	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/memory"
)

// CallCost is what the API itself takes for one kind of call: from the request as
// net/http or Lambda's door gives it to the last byte of the answer, on in-process
// ports, which are part of the figure. No network, no AWS.
type CallCost struct {
	Name     string
	P50, P99 time.Duration
	// Nothing is the same for a handler that reads the body and says 200.
	NothingP50, NothingP99 time.Duration
}

// APICalls measures each kind of call n times, one after the other.
func APICalls(n int) ([]CallCost, error) {
	var costs []CallCost
	for _, kind := range []struct {
		name    string
		request func(a *api) *http.Request
	}{
		{"retrieve a batch", func(a *api) *http.Request { return a.request("GET", "/v1/batches/"+a.batch, "", nil) }},
		{"list 20 batches", func(a *api) *http.Request { return a.request("GET", "/v1/batches?limit=20", "", nil) }},
		{"create a batch", func(a *api) *http.Request {
			return a.request("POST", "/v1/batches", "application/json", []byte(`{"input_file_id":"`+a.file+`","endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"team":"bench"}}`))
		}},
		{"upload 4 KB", func(a *api) *http.Request { return a.request("POST", "/v1/files", a.formType, a.form) }},
	} {
		a, err := newAPI()
		if err != nil {
			return nil, err
		}
		c := CallCost{Name: kind.name}
		if c.NothingP50, c.NothingP99, err = timed(n, a.nothing(), func() *http.Request { return kind.request(a) }); err != nil {
			return nil, err
		}
		if c.P50, c.P99, err = timed(n, a.handler, func() *http.Request { return kind.request(a) }); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		costs = append(costs, c)
	}
	return costs, nil
}

// timed makes n calls, after a few that don't count, and gives two percentiles
// of how long they took.
func timed(n int, h http.Handler, request func() *http.Request) (p50, p99 time.Duration, err error) {
	const warm = 200
	took := make([]time.Duration, 0, n)
	for i := range n + warm {
		w := &discarded{header: http.Header{}}
		r := request()
		begun := time.Now()
		h.ServeHTTP(w, r)
		d := time.Since(begun)
		if w.status != http.StatusOK {
			return 0, 0, fmt.Errorf("call %d is answered %d: %.300s", i, w.status, w.head)
		}
		if i >= warm {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	return took[n/2], took[n*99/100], nil
}

// discarded is an answer of which only the status is kept, and the beginning.
type discarded struct {
	header http.Header
	status int
	head   []byte
}

func (d *discarded) Header() http.Header { return d.header }

func (d *discarded) WriteHeader(status int) {
	if d.status == 0 {
		d.status = status
	}
}

func (d *discarded) Write(b []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if len(d.head) == 0 {
		d.head = append(d.head, b[:min(len(b), 300)]...)
	}
	return len(b), nil
}

// api is the API over memory, with one file and 25 batches, 5 of them running.
type api struct {
	handler     http.Handler
	key         string
	file, batch string
	form        []byte
	formType    string
}

func newAPI() (*api, error) {
	ctx, now := context.Background(), time.Now()
	m, settings := memory.New(memory.Options{}), config.Default()
	k, secret, err := access.New(access.Key{Tenant: tenant, Principal: "bench", Name: "bench", Scopes: []access.Scope{access.Submit, access.Read}}, now)
	if err == nil {
		err = m.Table.Keys.Put(ctx, k)
	}
	if err != nil {
		return nil, err
	}
	a := &api{key: secret, file: "file-bench"}
	if a.form, a.formType, err = UploadForm(4 << 10); err != nil {
		return nil, err
	}
	err = m.Table.Files.Put(ctx, batch.File{Tenant: tenant, ID: a.file, Purpose: "batch", Filename: "in.jsonl", CreatedAt: now})
	if err != nil {
		return nil, err
	}
	for i := range 25 {
		b := batch.Batch{
			Tenant: tenant, ID: batch.NewID(), Status: batch.Completed, Submitter: "bench", Endpoint: "/v1/chat/completions", Window: "24h",
			CreatedAt: now.Add(-time.Duration(i) * time.Minute), Deadline: now.Add(time.Hour), Lines: 2000, Counts: batch.Counts{Total: 2000, Completed: 2000},
		}
		if i < 5 {
			b.Status, b.Parts = batch.InProgress, 4
			for n := range b.Parts {
				m.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: tenant, Batch: b.ID, N: n}, State: batch.Leased, Lines: 500, Chunks: []batch.Chunk{{N: 100, OK: 99, Err: 1}}})
			}
			a.batch = b.ID
		}
		m.Table.SeedBatch(b)
	}
	creator, err := batch.NewCreator(m.Table.Batches, m.Table.Files, m.Workflow, &batch.CreatorOptions{Endpoints: settings.Endpoints, Windows: settings.Windows})
	if err != nil {
		return nil, err
	}
	jobs := batches.New(creator, m.Table.Batches, m.Table.Files, 30*24*time.Hour)
	claims, err := bridge.New(m.Table.Bridge, jobs, nil)
	if err != nil {
		return nil, err
	}
	a.handler = server.New(server.Ports{
		Keys: access.NewCache(m.Table.Keys, nil), Tenants: access.NewTenantCache(m.Table.Tenants, nil), Batches: m.Table.Batches, Parts: m.Table.Parts, Files: m.Table.Files, Objects: m.Objects,
		Ender: batch.NewEnder(m.Table.Batches, m.Table.Endings, m.Workflow),
		Jobs:  jobs, Bridge: claims, Resends: bridge.NewResends(m.Table.Sends, batch.NewID),
	}, settings, "inputs", nil)
	return a, nil
}

// UploadForm is the multipart form of an upload of size bytes, and its type.
func UploadForm(size int) (body []byte, contentType string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", "in.jsonl")
	if err == nil {
		_, err = io.WriteString(part, strings.Repeat("x", size))
	}
	if err == nil {
		err = w.WriteField("purpose", "batch")
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), w.FormDataContentType(), err
}

func (a *api) request(method, path, contentType string, body []byte) *http.Request {
	r, err := http.NewRequest(method, "https://api.example"+path, bytes.NewReader(body))
	if err != nil {
		panic(err) // constant parts only
	}
	r.Header.Set("Authorization", "Bearer "+a.key)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func (a *api) nothing() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusOK)
	})
}
