package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/gateway"
	"holdfast/internal/memory"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

// What a call of the table takes, as functions in the table's region see it.
const (
	tableRead  = 5 * time.Millisecond
	tableWrite = 10 * time.Millisecond
)

// GatewayCost is what a call takes from a client's first byte to the last of its
// answer, in the middle: through a bare reverse proxy, through the gateway, and
// through one that has so many keys and batches, of which each call uses others.
type GatewayCost struct {
	Proxy, Gateway, Full time.Duration
	// Of the table's reads a call: with one key and one batch, and with all of them.
	Reads, FullReads float64
}

// GatewayCalls measures calls of an upstream that takes latency, side by side, so
// many by each way. Calls are replays: what asks the most of the gateway. The table is
// in process, but takes its time.
func GatewayCalls(latency time.Duration, keys, batches, calls int) (GatewayCost, error) {
	const reply = `{"id":"chatcmpl-1","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = memory.Wait(r.Context(), latency)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply)
	}))
	defer model.Close()
	base, err := url.Parse(model.URL)
	if err != nil {
		return GatewayCost{}, err
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(base) },
		Transport: outbound.NewClient(128).Transport,
	})
	defer proxy.Close()
	one, err := newFront(model.URL, 1, 1)
	if err != nil {
		return GatewayCost{}, err
	}
	defer one.Close()
	full, err := newFront(model.URL, keys, batches)
	if err != nil {
		return GatewayCost{}, err
	}
	defer full.Close()

	var took [3][]time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	slots := make(chan struct{}, 32)
	for i := range 3 * calls {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			way := i % 3
			d, err := []func(int) (time.Duration, error){
				func(int) (time.Duration, error) { return timedCall(proxy.URL, nil) }, one.call, full.call,
			}[way](i / 3)
			mu.Lock()
			defer mu.Unlock()
			took[way] = append(took[way], d)
			if failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	middle := func(d []time.Duration) time.Duration { return slices.Sorted(slices.Values(d))[len(d)/2] }
	return GatewayCost{middle(took[0]), middle(took[1]), middle(took[2]), one.reads(calls), full.reads(calls)}, failed
}

// front is a gateway with keys and running batches.
type front struct {
	*httptest.Server
	faults  *memory.Faults
	secrets []string
	batches int
}

func newFront(upstreamURL string, keys, batches int) (*front, error) {
	f := &front{faults: memory.NewFaults(), batches: batches}
	m := memory.New(memory.Options{})
	ctx := context.Background()
	for i := range keys {
		k, secret, err := access.New(access.Key{Tenant: "fleet", Principal: fmt.Sprintf("worker-%d", i), Name: "w", Scopes: []access.Scope{access.BatchReplay}}, time.Now())
		if err != nil {
			return nil, err
		}
		if err := m.Table.Keys.Put(ctx, k); err != nil {
			return nil, err
		}
		f.secrets = append(f.secrets, secret)
	}
	for i := range batches {
		m.Table.SeedBatch(batch.Batch{Tenant: tenant, ID: frontBatch(i), Status: batch.InProgress, Submitter: "ann", Endpoint: "/v1/chat/completions", Lines: 1})
	}
	for _, op := range readsOfAccess {
		f.faults.Before(op, 0, takes(tableRead))
	}
	f.faults.Before("Receipts.Intend", 0, takes(tableWrite))
	f.faults.Before("Receipts.Complete", 0, takes(tableWrite))
	services, err := upstream.Open([]upstream.Service{{URL: upstreamURL}}, nil, &upstream.Options{Guard: outbound.Guard{Allow: outbound.Loopback}})
	if err != nil {
		return nil, err
	}
	table := m.With(f.faults).Table
	tenants := access.NewTenantCache(table.Tenants, &access.TenantCacheOptions{Off: time.Minute})
	f.Server = httptest.NewServer(gateway.New(gateway.Ports{
		Keys:    access.NewCache(table.Keys, &access.CacheOptions{Tenants: tenants, Pairs: table.Keys}),
		Tenants: tenants, Batches: table.Batches, Replays: table.Keys, Receipts: table.Receipts, Upstream: services,
	}, config.Default(), nil))
	return f, nil
}

// readsOfAccess are what access and the replay rule read.
var readsOfAccess = []string{"Keys.Get", "Keys.Pair", "Keys.Replay", "Tenants.Get", "Batches.Get"}

func frontBatch(i int) string { return fmt.Sprintf("batch_%018d", i) }

func takes(d time.Duration) memory.Hook {
	return func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, d) }
}

func (f *front) reads(calls int) float64 {
	n := 0
	for _, op := range readsOfAccess {
		n += f.faults.Count(op)
	}
	return float64(n) / float64(calls)
}

// call is the i-th call: with the next key, for a batch far from the one before.
func (f *front) call(i int) (time.Duration, error) {
	return timedCall(f.URL, http.Header{
		"Authorization": {"Bearer " + f.secrets[i%len(f.secrets)]},
		"X-Tenant-Id":   {tenant}, "X-Batch-Id": {frontBatch(i * 7919 % f.batches)}, "X-Batch-Line": {"0"},
	})
}

// timedCall is one call to the endpoint below base, read to its end.
func timedCall(base string, header http.Header) (time.Duration, error) {
	r, err := http.NewRequest(http.MethodPost, base+"/v1/chat/completions", strings.NewReader(`{"model":"sim","messages":[{"role":"user","content":"Hello"}]}`))
	if err != nil {
		return 0, err
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	resp, err := gatewayClients.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d, %w", resp.StatusCode, err)
	}
	return time.Since(begun), nil
}

var gatewayClients = outbound.NewClient(64)
