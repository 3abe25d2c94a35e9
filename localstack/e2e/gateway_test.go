package e2e

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
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
