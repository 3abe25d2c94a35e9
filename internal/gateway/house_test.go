package gateway_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/gateway"
	"holdfast/internal/memory"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

const (
	chat   = "/v1/chat/completions"
	secret = "sk-upstream-SECRET"
	acmes  = "batch_acme00000000000000000"
	others = "batch_other0000000000000000"
)

// house is the gateway over memory, in front of a model server that h.model plays, as
// clients see it: over a listener.
type house struct {
	t        *testing.T
	mem      *memory.Memory
	faults   *memory.Faults
	settings config.Settings
	upstream gateway.Upstream
	url      string
	key      map[string]string // name to secret

	mu    sync.Mutex
	now   time.Time
	log   bytes.Buffer
	calls []*http.Request // what the model server was sent, its body read
	model http.HandlerFunc
	told  map[batch.Metric]float64

	counted map[string]int // reads that were looked at; see read
}

func (h *house) observe(m batch.Metric, n float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told[m] += n
}

// refused is how many replays were counted as refused.
func (h *house) refused() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told[batch.MetricReplayRefused]
}

// looks is how often a batch was looked at: alone, or with a key.
func (h *house) looks() int { return h.faults.Count("Batches.Get") + h.faults.Count("Keys.Replay") }

// newHouse has the keys "ann" (acme: submit, read), "reader" (acme: read), "bob" (other: submit), "fleet"
// (fleet: batch_replay), "depot" (depot: batch_replay), "all" (fleet: every scope), and one running batch each of acme and other.
func newHouse(t *testing.T) *house {
	h := &house{t: t, mem: memory.New(memory.Options{}), faults: memory.NewFaults(), settings: config.Default(), now: start, key: map[string]string{}, told: map[batch.Metric]float64{}, counted: map[string]int{}}
	h.settings.Models = []string{"sim"}
	for name, k := range map[string]access.Key{
		"ann":    {Tenant: "acme", Principal: "ann@acme", Scopes: []access.Scope{access.Submit, access.Read}},
		"reader": {Tenant: "acme", Principal: "reader@acme", Scopes: []access.Scope{access.Read, access.Admin, access.Work}},
		"bob":    {Tenant: "other", Principal: "bob@other", Scopes: []access.Scope{access.Submit}},
		"fleet":  {Tenant: "fleet", Principal: "worker-7", Scopes: []access.Scope{access.BatchReplay}},
		"depot":  {Tenant: "depot", Principal: "worker-9", Scopes: []access.Scope{access.BatchReplay}},
		"all":    {Tenant: "fleet", Principal: "worker-8", Scopes: access.Scopes},
	} {
		k.Name = name
		scopes := k.Scopes
		if name == "all" { // as older releases made them
			k.Scopes = []access.Scope{access.BatchReplay}
		}
		made, secret, err := access.New(k, start)
		if err != nil {
			t.Fatal(err)
		}
		made.Scopes = scopes
		if err := h.mem.Table.Keys.Put(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		h.key[name] = secret
	}
	h.batch(func(*batch.Batch) {})
	h.mem.Table.SeedBatch(batch.Batch{Tenant: "other", ID: others, Status: batch.InProgress, Submitter: "bob@other", Endpoint: chat, Lines: 12})

	h.model = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen := r.Clone(context.Background())
		seen.Body = io.NopCloser(bytes.NewReader(body))
		h.mu.Lock()
		h.calls = append(h.calls, seen)
		model := h.model
		h.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		model(w, r)
	}))
	t.Cleanup(server.Close)
	services, err := upstream.Open([]upstream.Service{{Models: []string{"*"}, URL: server.URL, Key: secret}}, nil,
		&upstream.Options{Guard: outbound.Guard{Allow: outbound.Loopback}})
	if err != nil {
		t.Fatal(err)
	}
	h.upstream = services
	h.open()
	return h
}

const reply = `{"id":"chatcmpl-1","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`

// open starts a gateway as the settings now are: another process.
func (h *house) open() {
	view := h.mem.With(h.faults)
	log := slog.New(slog.NewJSONHandler(locked{h}, nil))
	tenants := access.NewTenantCache(view.Table.Tenants, &access.TenantCacheOptions{Off: time.Minute})
	g := gateway.New(gateway.Ports{
		Keys:    access.NewCache(view.Table.Keys, &access.CacheOptions{Log: log, Tenants: tenants, Pairs: view.Table.Keys}),
		Tenants: tenants, Batches: view.Table.Batches, Replays: view.Table.Keys, Receipts: view.Table.Receipts, Upstream: h.upstream,
	}, h.settings, &gateway.Options{Log: log, Now: h.clock, Observer: h.observe})
	server := httptest.NewServer(g)
	h.t.Cleanup(server.Close)
	h.url = server.URL
}

// locked is the log, which the gateway's goroutines write.
type locked struct{ h *house }

func (l locked) Write(b []byte) (int, error) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.log.Write(b)
}

func (h *house) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *house) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func (h *house) plays(m http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.model = m
}

// sent is what the model server got so far.
func (h *house) sent() []*http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*http.Request(nil), h.calls...)
}

func (h *house) logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.String()
}

// says is the log, once text is in it n times: a line is written after the answer.
func (h *house) says(text string, n int) string {
	h.t.Helper()
	h.await("log", func() bool { return strings.Count(h.logged(), text) >= n })
	return h.logged()
}

// await polls until done says so, 10 s at most.
func (h *house) await(what string, done func() bool) {
	h.t.Helper()
	tick, end := time.NewTicker(time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			h.t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// batch stores acme's batch, running but for what change does to it.
func (h *house) batch(change func(*batch.Batch)) {
	b := batch.Batch{Tenant: "acme", ID: acmes, Status: batch.InProgress, Submitter: "ann@acme", Endpoint: chat, Lines: 12}
	change(&b)
	h.mem.Table.SeedBatch(b)
}

// call is one request; as is the name of a key, "" for none.
type call struct {
	as, method, path, body string
	header                 http.Header
}

// replay is a call by the name of a key for line 7 of acme's batch.
func replay(as string) call {
	return call{as: as, header: http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {acmes}, "X-Batch-Line": {"7"}}}
}

type answer struct {
	*http.Response
	body string
	torn error // of reading the body
}

func (h *house) request(ctx context.Context, c call) *http.Request {
	h.t.Helper()
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.path == "" {
		c.path = chat
	}
	if c.body == "" && c.method == http.MethodPost {
		c.body = `{"model":"sim","messages":[]}`
	}
	r, err := http.NewRequestWithContext(ctx, c.method, h.url+c.path, strings.NewReader(c.body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for name, values := range c.header {
		for _, v := range values {
			r.Header.Add(name, v)
		}
	}
	if c.as != "" {
		r.Header.Set("Authorization", "Bearer "+h.key[c.as])
	}
	return r
}

func (h *house) do(c call) answer {
	h.t.Helper()
	resp, err := http.DefaultClient.Do(h.request(h.t.Context(), c))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body), err}
}

// is demands a refusal.
func (a answer) is(t *testing.T, what string, status int, code string) {
	t.Helper()
	if a.StatusCode != status || !strings.Contains(a.body, `"code":"`+code+`"`) || !strings.Contains(a.body, `"param":`) || a.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s: %d %s, want %d %s", what, a.StatusCode, a.body, status, code)
	}
}

// receipts are those of a shelf of acme's, the oldest first.
func (h *house) receipts(tenant, shelf string) []access.Receipt {
	h.t.Helper()
	page, _, err := h.mem.Table.Receipts.List(h.t.Context(), tenant, shelf, "", access.MaxReceipts)
	if err != nil {
		h.t.Fatal(err)
	}
	return page
}

// complete are the receipts of that shelf once n are there, all of them complete: who
// has a whole reply may have it a moment before.
func (h *house) complete(tenant, shelf string, n int) []access.Receipt {
	h.t.Helper()
	var page []access.Receipt
	h.await("complete receipts", func() bool {
		page = h.receipts(tenant, shelf)
		return len(page) == n && !slices.ContainsFunc(page, func(r access.Receipt) bool { return r.Completion == nil })
	})
	return page
}

// receipt is the one receipt of that shelf, when it is complete.
func (h *house) receipt(tenant, shelf string) access.Receipt {
	h.t.Helper()
	return h.complete(tenant, shelf, 1)[0]
}

var today = access.DayShelf(start)
