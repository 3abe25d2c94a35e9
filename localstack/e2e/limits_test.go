package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/openai"
)

// limit sets limits of a tenant, as an operator does.
func (c *client) limit(t *testing.T, flags ...string) {
	t.Helper()
	if _, said, code := cli(t, nil, append([]string{"tenant", "create", c.tenant}, flags...)...); code != 0 {
		t.Fatalf("tenant create: exit %d, %s", code, said)
	}
}

// creates asks for a batch and gives the answer as it is.
func (c *client) creates(t *testing.T, file, key string) (int, http.Header, []byte) {
	t.Helper()
	body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file)
	if key == "" {
		return c.do(t, "POST", "/v1/batches", "application/json", []byte(body))
	}
	keyed := &client{c.base, c.tenant, c.key, &http.Client{Transport: withHeader{"Idempotency-Key", key}}}
	return keyed.do(t, "POST", "/v1/batches", "application/json", []byte(body))
}

type withHeader struct{ name, value string }

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return http.DefaultTransport.RoundTrip(r)
}

// full demands the 429 of a tenant that has enough running.
func full(t *testing.T, status int, head http.Header, body []byte) {
	t.Helper()
	var said struct {
		Error struct{ Type, Code string }
	}
	if err := json.Unmarshal(body, &said); err != nil || status != http.StatusTooManyRequests || said.Error.Type != "rate_limit_error" ||
		said.Error.Code != "enqueued_limit_exceeded" || head.Get("Retry-After") != "30" || head.Get("X-Should-Retry") == "false" {
		t.Errorf("status %d, %v, %s", status, head, body)
	}
}

// A tenant that has as much running as it may: HTTP says 429, what comes by the other
// doors waits; when there is room again, all of it runs.
func TestFullTenant(t *testing.T) {
	c := newTenant(t, "submit,read")
	c.limit(t, "--running-batches", "1", "--queued-lines", "1000000")
	c.enable(t, dropper)
	input := c.upload(t, "in.jsonl", file(slow(200, "sim-slow-3000")))
	status, _, body := c.creates(t, input.ID, "")
	running := decode[openai.Batch](t, status, body)

	for _, key := range []string{"", "k"} {
		status, head, body := c.creates(t, input.ID, key)
		full(t, status, head, body)
	}
	dropped := c.put(t, "waits.jsonl", []byte(oneLine), nil)
	other := newTenant(t, "submit,read") // whom it is nothing to
	status, _, body = other.creates(t, other.upload(t, "in.jsonl", []byte(oneLine)).ID, "")
	if b := other.wait(t, decode[openai.Batch](t, status, body).ID, time.Minute); b.Status != openai.StatusCompleted {
		t.Errorf("another tenant's: %+v", b)
	}
	if status, _, body := c.do(t, "GET", "/v1/batches/"+c.idOf(dropped), "", nil); status != http.StatusNotFound {
		t.Errorf("dropped beyond the limit: %d %s", status, body)
	}

	c.cancel(t, running.ID)
	c.wait(t, running.ID, 4*time.Minute)
	var b openai.Batch
	poll(t, 3*time.Minute, func() bool {
		status, _, body := c.do(t, "GET", "/v1/batches/"+c.idOf(dropped), "", nil)
		if status == http.StatusOK {
			b = decode[openai.Batch](t, status, body)
		}
		return status == http.StatusOK
	}, func() string { return "what was dropped doesn't start" })
	if b = c.wait(t, b.ID, time.Minute); b.Status != openai.StatusCompleted {
		t.Errorf("dropped: %+v", b)
	}
	poll(t, time.Minute, func() bool { // a refusal holds for some seconds
		status, _, body = c.creates(t, input.ID, "k")
		return status == http.StatusOK
	}, func() string { return fmt.Sprintf("the key that was refused isn't free: %d %s", status, body) })
	c.cancel(t, decode[openai.Batch](t, status, body).ID)
}

// Requests a minute and bytes of a file. A function may be warm more than once, and
// each counts for itself: the limit is met sooner or later, and not which request
// meets it.
func TestTenantsOwnLimits(t *testing.T) {
	c := newTenant(t, "submit,read")
	c.limit(t, "--requests-per-minute", "20", "--file-bytes", fmt.Sprint(len(oneLine)))
	if f := c.upload(t, "fits.jsonl", []byte(oneLine)); f.Bytes != int64(len(oneLine)) {
		t.Errorf("%+v", f)
	}
	status, _, body := c.do(t, "POST", "/v1/uploads", "application/json",
		fmt.Appendf(nil, `{"filename":"f","purpose":"batch","bytes":%d,"mime_type":"application/jsonl"}`, len(oneLine)+1))
	if want := fmt.Sprintf("limit of %d bytes", len(oneLine)); status != http.StatusRequestEntityTooLarge || !strings.Contains(string(body), want) || !strings.Contains(string(body), `"file_too_large"`) {
		t.Errorf("a byte more: %d %s, want %q", status, body, want)
	}
	for n := range 1000 {
		status, head, body := c.do(t, "GET", "/v1/models", "", nil)
		if status == http.StatusOK {
			continue
		}
		if status != http.StatusTooManyRequests || !strings.Contains(string(body), `"rate_limit_exceeded"`) || head.Get("Retry-After") == "" || head.Get("Retry-After-Ms") == "" {
			t.Errorf("%d, %v, %s", status, head, body)
		}
		t.Logf("refused after %d requests", n)
		return
	}
	t.Error("a thousand requests in a row at 20 a minute")
}
