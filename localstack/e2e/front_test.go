package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// fault is what a front does to the calls of one step.
type fault int

const (
	none   fault = iota
	lost         // the first call reaches the API and its answer is lost: the client gets a 503
	refuse       // the first call gets a 503 and never reaches the API
	down         // all calls get a 503
	watch        // a redirect leads to a store that refuses a key, as S3 does
)

// hop is one request that came by, and what was answered.
type hop struct {
	Method, Path string // with the query
	Retry        string // X-Stainless-Retry-Count
	Status       int
	RequestID    string // of the answer
	Refusal      string // the body of an answer from 400 on
}

func (h hop) String() string {
	return fmt.Sprintf("%s %s (retry %q): %d %s", h.Method, h.Path, h.Retry, h.Status, h.Refusal)
}

// front stands between an official client and the API, where it is of another
// origin than the store, as on AWS. Calls name their step in X-Step; by that it
// counts them and spoils some.
type front struct {
	*httptest.Server
	store  *httptest.Server
	faults map[string]fault

	mu    sync.Mutex
	steps map[string][]hop // what the store answered is under "store"
}

func newFront(t *testing.T, faults map[string]fault) *front {
	t.Helper()
	f := &front{faults: faults, steps: map[string][]hop{}}
	f.store = httptest.NewServer(f.storeHandler(t))
	f.Server = httptest.NewServer(f.apiHandler(t))
	// Another name than the store's, because to net/http a port alone makes no other host.
	f.URL = strings.Replace(f.URL, "127.0.0.1", "localhost", 1)
	t.Cleanup(f.store.Close)
	t.Cleanup(f.Close)
	return f
}

// of lists what came by for a step.
func (f *front) of(step string) []hop {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps[step]
}

func (f *front) note(step string, h hop) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps[step] = append(f.steps[step], h)
}

func (f *front) apiHandler(t *testing.T) http.Handler {
	api := proxyTo(t, env(t, "HOLDFAST_URL"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		step := r.Header.Get("X-Step")
		r.Header.Del("X-Step")
		h := hop{Method: r.Method, Path: r.URL.RequestURI(), Retry: r.Header.Get("X-Stainless-Retry-Count")}
		does, first := f.faults[step], len(f.of(step)) == 0
		answer := httptest.NewRecorder()
		if does == down || does == refuse && first {
			io.Copy(io.Discard, r.Body) // a client that can't send all of it sees another error
			unavailable(answer)
		} else {
			api.ServeHTTP(answer, r)
			if does == lost && first {
				answer = httptest.NewRecorder()
				unavailable(answer)
			}
		}
		header := answer.Result().Header
		if does == watch {
			header.Set("Location", strings.Replace(header.Get("Location"), env(t, "AWS_ENDPOINT_URL_S3"), f.store.URL, 1))
		}
		h.Status, h.RequestID = answer.Code, header.Get("X-Request-Id")
		if h.Status >= 400 {
			h.Refusal = answer.Body.String()
		}
		f.note(step, h)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		io.Copy(w, answer.Body)
	})
}

// unavailable is the API's own 503, in the words of a front.
func unavailable(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Retry-After-Ms", "10")
	h.Set("X-Request-Id", "req_front")
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `{"error":{"message":"The front says no.","type":"server_error","param":null,"code":"service_unavailable"}}`)
}

// storeHandler is the store at an origin of its own: it notes who comes, and
// refuses a presigned URL that an Authorization came along with.
func (f *front) storeHandler(t *testing.T) http.Handler {
	s3 := proxyTo(t, env(t, "AWS_ENDPOINT_URL_S3"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := hop{Method: r.Method, Path: r.URL.Path, Status: http.StatusOK}
		if r.Header.Get("Authorization") != "" {
			h.Status = http.StatusBadRequest
			http.Error(w, "Only one auth mechanism allowed", h.Status)
		} else {
			s3.ServeHTTP(w, r)
		}
		f.note("store", h)
	})
}

// proxyTo hands requests on to base, under base's own name.
func proxyTo(t *testing.T, base string) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	// A connection for each request: one that the emulator has closed meanwhile would
	// be a 502 that nobody but the front is to blame for.
	once := http.DefaultTransport.(*http.Transport).Clone()
	once.DisableKeepAlives = true
	return &httputil.ReverseProxy{Transport: once, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
}

// dump lists all that came by, for a scenario that broke.
func (f *front) dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b bytes.Buffer
	for step, hops := range f.steps {
		for _, h := range hops {
			fmt.Fprintf(&b, "%s: %s\n", step, h)
		}
	}
	return b.String()
}
