package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// newGateway is a client of the deployed gateway. Its host name leads to AWS: the
// emulator is asked for it by name, at its own address.
func newGateway(t *testing.T, key string) *client {
	t.Helper()
	emulator, err := url.Parse(env(t, "AWS_ENDPOINT_URL"))
	if err != nil {
		t.Fatal(err)
	}
	c := &client{base: strings.TrimSuffix(env(t, "HOLDFAST_GATEWAY_URL"), "/"), key: key, http: noRedirect()}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, emulator.Host)
		},
		TLSClientConfig: &tls.Config{ServerName: "localhost"}, // whose certificate it is
	}
	return c
}

// call sends a request to the chat endpoint, with more headers, as a line of the
// batch where there are some.
func (c *client) call(t *testing.T, body string, header http.Header) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func asserting(tenant, id string) http.Header {
	return http.Header{"X-Tenant-Id": {tenant}, "X-Batch-Id": {id}}
}

const hello = `{"model":"sim","messages":[{"role":"user","content":"hello"}]}`

// A person's call, by a key of their own: answered, and on record.
func TestGatewayCall(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	g := newGateway(t, c.key)
	began := time.Now()
	status, head, body := g.call(t, hello, nil)
	if status != 200 || !strings.Contains(body, `"usage"`) || head.Get("X-Request-Id") == "" || head.Get("X-Upstream-Request-Id") == "" {
		t.Fatalf("%d %v %s", status, head, body)
	}
	table := dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))
	var receipts []access.Receipt
	for _, at := range []time.Time{began, time.Now()} { // midnight may have passed
		if page, _, err := table.Receipts.List(t.Context(), c.tenant, access.DayShelf(at), "", 10); err != nil {
			t.Fatal(err)
		} else if len(page) > 0 {
			receipts = page
		}
	}
	sum := sha256.Sum256([]byte(body))
	if len(receipts) != 1 || receipts[0].Completion == nil {
		t.Fatalf("receipts %+v", receipts)
	}
	if r := receipts[0]; r.Outcome != access.Replied || r.Status != 200 || r.ReplyHash != hex.EncodeToString(sum[:]) || r.Usage == nil ||
		r.OnBehalfOf != "somebody@example.com" || r.RequestID != head.Get("X-Request-Id") || r.Model != "sim" {
		t.Errorf("receipt %+v %+v", r, r.Completion)
	}
	if models := get[openai.Models](t, g, "/v1/models"); len(models.Data) == 0 && models.Object != "list" {
		t.Errorf("models %+v", models)
	}
	for what, other := range map[string]*client{
		"no key": newGateway(t, ""), "read alone": newGateway(t, newKey(t, c.tenant, "read")), "work and admin": newGateway(t, newKey(t, c.tenant, "work,admin")),
	} {
		want := 403
		if what == "no key" {
			want = 401
		}
		if status, _, body := other.call(t, hello, nil); status != want {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	if status, _, body := g.call(t, hello, asserting("another-tenant", batch.NewID())); status != 403 || !strings.Contains(body, "tenant_not_authorized") {
		t.Errorf("another tenant: %d %s", status, body)
	}
}

// A replay key that leaked, through the lives of two batches: it gets what a worker
// would, while it would, and every use is on record.
func TestGatewayLeakedReplayKey(t *testing.T) {
	t.Parallel()
	c, other := newTenant(t, "submit,read"), newTenant(t, "submit,read")
	g := newGateway(t, newKey(t, c.tenant+"-fleet", "batch_replay"))
	table := dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))
	uses := map[string]int{}
	// try polls: what the gateway knows of a batch is 5 s old at most.
	try := func(what, tenant, id string, want int) {
		t.Helper()
		header := asserting(tenant, id)
		header.Set("X-Batch-Line", "0")
		for end := time.Now().Add(15 * time.Second); ; {
			status, _, body := g.call(t, hello, header)
			if status == 200 {
				uses[id]++
			}
			if status == want {
				if want == 403 && !strings.Contains(body, `"code":"batch_replay_not_authorized"`) {
					t.Errorf("%s: %s", what, body)
				}
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d %s, want %d", what, status, body, want)
			}
			<-time.After(200 * time.Millisecond)
		}
	}
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	create := func(tenant string) batch.Batch {
		t.Helper()
		now := time.Now()
		b := batch.Batch{Tenant: tenant, ID: batch.NewID(), Status: batch.Validating, Submitter: "somebody@example.com", Endpoint: "/v1/chat/completions", Window: "24h", CreatedAt: now, Deadline: now.Add(24 * time.Hour)}
		later(&b)
		ok("create", table.Batches.Create(t.Context(), b))
		return b
	}
	start := func(b batch.Batch) {
		t.Helper()
		_, err := table.Batches.Start(t.Context(), b.Tenant, b.ID, batch.Started{Parts: 1, Lines: 1}, time.Now())
		ok("start", err)
	}
	foreign := create(other.tenant)
	start(foreign)

	for _, ending := range []batch.Status{batch.Cancelled, batch.Expired, batch.Completed} {
		b := create(c.tenant)
		try("before it starts", c.tenant, b.ID, 403)
		start(b)
		try("while it runs", c.tenant, b.ID, 200)
		try("for another tenant", other.tenant, b.ID, 403)
		try("another's batch", c.tenant, foreign.ID, 403)
		try("no such batch", c.tenant, batch.NewID(), 403)
		if status, _, _ := g.call(t, hello, http.Header{"X-Tenant-Id": {c.tenant}}); status != 403 {
			t.Errorf("without a batch: %d", status)
		}
		if status, _, _ := g.call(t, hello, nil); status != 403 {
			t.Errorf("without headers: %d", status)
		}
		_, err := table.Endings.End(t.Context(), c.tenant, b.ID, ending, time.Now())
		ok("end", err)
		if ending != batch.Completed {
			try("while it drains", c.tenant, b.ID, 200)
		} else {
			try("when every line has its result", c.tenant, b.ID, 403)
		}
		tok := lease.NewToken()
		_, err = table.Endings.Finalize(t.Context(), c.tenant, b.ID, tok, time.Now().Add(time.Hour), time.Now(), time.Now())
		ok("finalize", err)
		try("while it is finalizing", c.tenant, b.ID, 403)
		_, err = table.Endings.Close(t.Context(), c.tenant, b.ID, tok, batch.Closed{Counts: batch.Counts{Total: 1, Failed: 1}}, time.Now())
		ok("close", err)
		try("after it is "+string(ending), c.tenant, b.ID, 403)

		receipts, _, err := table.Receipts.List(t.Context(), c.tenant, b.ID, "", access.MaxReceipts)
		ok("receipts", err)
		if len(receipts) != uses[b.ID] || len(receipts) == 0 {
			t.Errorf("%d receipts of %d uses", len(receipts), uses[b.ID])
		}
		for _, r := range receipts {
			text, err := json.Marshal(r)
			ok("receipt", err)
			if r.OnBehalfOf != "somebody@example.com" || r.Batch != b.ID || r.Line == nil || *r.Line != 0 || r.Completion == nil || r.Status != 200 ||
				bytes.Contains(text, []byte("hello")) || bytes.Contains(text, []byte(g.key)) {
				t.Errorf("receipt %s", text)
			}
		}
	}
	if receipts, _, err := table.Receipts.List(t.Context(), other.tenant, foreign.ID, "", 10); err != nil || len(receipts) != 0 {
		t.Errorf("%d receipts of another tenant's batch, %v", len(receipts), err)
	}
	// Nothing is left for others to find.
	_, err := table.Endings.End(t.Context(), other.tenant, foreign.ID, batch.Cancelled, time.Now())
	ok("end the other", err)
	_, err = table.Endings.Finalize(t.Context(), other.tenant, foreign.ID, "e2e", time.Now().Add(time.Hour), time.Now(), time.Now())
	ok("finalize the other", err)
	_, err = table.Endings.Close(t.Context(), other.tenant, foreign.ID, "e2e", batch.Closed{}, time.Now())
	ok("close the other", err)
}
