package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

var id = bridge.BatchID("acme", "k")

func request() bridge.Request {
	return bridge.Request{Tenant: "acme", CorrelationID: "k", RequestID: "req-1", Submitter: "ann", FileID: "file-1",
		Endpoint: "/v1/embeddings", Window: "24h", Metadata: map[string]string{"k": "v"}, Service: Service}
}

// asking is request with a metadata member for jobsim.
func asking(sim string) bridge.Request {
	r := request()
	r.Metadata = map[string]string{"sim": sim}
	return r
}

// files are those of a tenant with one input.
func files(t *testing.T, f *memory.Faults) Files {
	table := memory.NewTable(nil)
	for _, f := range []batch.File{
		{Tenant: "acme", ID: "file-1", Purpose: "batch", CreatedAt: start, ExpiresAt: start.Add(time.Hour),
			Object: batch.Object{Bucket: "inputs", Key: "files/acme/file-1", Version: "v7", ETag: `"e"`, Bytes: 42}},
		{Tenant: "acme", ID: "file-out", Purpose: "batch_output", CreatedAt: start},
	} {
		if err := table.Files.Put(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	return table.With(f).Files
}

// inProcess is a transport to a handler in the same process, which is all that a
// synctest bubble allows. A handler that aborts is a torn connection; one that is
// given up goes on.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	served := r.Clone(r.Context())
	served.Body = io.NopCloser(strings.NewReader(string(body)))
	rec, done := httptest.NewRecorder(), make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- errors.New("torn")
			}
		}()
		p.ServeHTTP(rec, served)
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, err
		}
		return rec.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// over is a Submitter to a handler in the same process.
func over(t *testing.T, h http.Handler, o *Options) *Submitter {
	t.Helper()
	var with Options
	if o != nil {
		with = *o
	}
	with.Transport = inProcess{h}
	s, err := New("http://jobs.invalid", files(t, nil), &with)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// served is a Submitter to a handler behind a real connection.
func served(t *testing.T, h http.HandlerFunc, o *Options) *Submitter {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s, err := New(server.URL, files(t, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reply is one answer of a scripted service. Status 0 tears the connection.
type reply struct {
	status int
	body   string
	after  string // Retry-After
}

// script answers posts and reads one after the other; the last of each stays.
type script struct {
	posts, gets    []reply
	posted, gotten int
	paths          []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.paths = append(s.paths, r.Method+" "+r.URL.EscapedPath())
	list, n := s.gets, &s.gotten
	if r.Method == http.MethodPost {
		list, n = s.posts, &s.posted
	}
	a := reply{404, `{"error":{"code":"job_not_found","message":"no such job"}}`, ""}
	if len(list) > 0 {
		a = list[min(*n, len(list)-1)]
	}
	*n++
	if a.status == 0 {
		panic(http.ErrAbortHandler)
	}
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

// submit submits with as much time as the bridge gives.
func submit(t *testing.T, s *Submitter, r bridge.Request) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.Submit(ctx, bridge.BatchID(r.Tenant, r.CorrelationID), r, start)
}

// ours is a job of the service in this status.
func ours(status string) string {
	return fmt.Sprintf(`{"id":"job-1","idempotency_key":%q,"status":%q}`, id, status)
}

// hashed is ours, of a service that says what was asked for.
func hashed(status string) string {
	return fmt.Sprintf(`{"id":"job-1","idempotency_key":%q,"status":%q,"request_hash":%q}`, id, status, request().Hash())
}
