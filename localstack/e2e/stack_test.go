// Package e2e runs batches on the deployed stack: the real template and the
// real functions, on the local AWS, over TLS, with IAM enforced. The stack is
// there already when these tests start (`make test` sees to it); each test is a
// tenant of its own.
package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/openai"
)

// env reads a variable that the stack's env file sets. A missing stack fails.
func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: these tests need the deployed stack; run them through `make test`", name)
	}
	return v
}

// client is one tenant's access to the API.
type client struct {
	base   string
	tenant string
	key    string
	http   *http.Client
}

var tenants atomic.Int64

// newTenant makes a tenant nobody else uses and a key of it with the scopes.
func newTenant(t *testing.T, scopes string) *client {
	t.Helper()
	tenant := fmt.Sprintf("e2e-%d-%d", time.Now().UnixMilli(), tenants.Add(1))
	return &client{base: env(t, "HOLDFAST_URL"), tenant: tenant, key: newKey(t, tenant, scopes), http: noRedirect()}
}

// newKey asks the command line for a key, as a person would.
func newKey(t *testing.T, tenant, scopes string) string {
	t.Helper()
	out, errOut, code := cli(t, nil, "key", "create", "--tenant", tenant, "--principal", "somebody@example.com", "--scopes", scopes, "--name", t.Name(), "--json")
	var k struct{ Secret string }
	if err := json.Unmarshal(out, &k); err != nil || code != 0 || k.Secret == "" {
		t.Fatalf("key create: exit %d, %s%s", code, out, errOut)
	}
	return k.Secret
}

// cli runs the built command line with more environment.
func cli(t *testing.T, more []string, args ...string) (stdout, stderr []byte, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "../../.local/bin/holdfast", args...) // as `make up` builds it
	cmd.Env = append(os.Environ(), more...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s: %v", cmd.Path, err)
	}
	return out.Bytes(), errOut.Bytes(), cmd.ProcessState.ExitCode()
}

// http1 is how these tests reach the stack. The local AWS ends a connection of HTTP/2
// after a thousand requests, and with it what is under way there.
var http1 = &http.Transport{TLSClientConfig: &tls.Config{}, MaxIdleConnsPerHost: 16}

func noRedirect() *http.Client {
	return &http.Client{
		Transport:     http1,
		Timeout:       60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// do makes one call and returns its status, headers and body.
func (c *client) do(t *testing.T, method, path, contentType string, body []byte) (int, http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.base+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b
}

// get reads JSON of type T and fails on any status but 200.
func get[T any](t *testing.T, c *client, path string) T {
	t.Helper()
	status, _, b := c.do(t, "GET", path, "", nil)
	return decode[T](t, status, b)
}

func decode[T any](t *testing.T, status int, b []byte) T {
	t.Helper()
	var v T
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, b)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// upload sends an input file.
func (c *client) upload(t *testing.T, name string, data []byte) openai.File {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = w.WriteField("purpose", "batch")
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	status, _, reply := c.do(t, "POST", "/v1/files", w.FormDataContentType(), b.Bytes())
	return decode[openai.File](t, status, reply)
}

// create starts a batch on an uploaded file.
func (c *client) create(t *testing.T, file, endpoint string) openai.Batch {
	t.Helper()
	body, err := json.Marshal(map[string]any{"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", "metadata": map[string]string{"test": t.Name()}})
	if err != nil {
		t.Fatal(err)
	}
	status, _, reply := c.do(t, "POST", "/v1/batches", "application/json", body)
	return decode[openai.Batch](t, status, reply)
}

// wait polls until the batch is over.
func (c *client) wait(t *testing.T, id string, atMost time.Duration) openai.Batch {
	t.Helper()
	var b openai.Batch
	poll(t, atMost, func() bool {
		b = get[openai.Batch](t, c, "/v1/batches/"+id)
		switch b.Status {
		case openai.StatusCompleted, openai.StatusFailed, openai.StatusExpired, openai.StatusCancelled:
			return true
		}
		return false
	}, func() string { return fmt.Sprintf("batch %s is %s, %+v", id, b.Status, b.RequestCounts) })
	return b
}

// poll asks done every 200 ms until it says yes, or fails with what it saw.
func poll(t *testing.T, atMost time.Duration, done func() bool, saw func() string) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.After(atMost)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %s: %s", atMost, saw())
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// content downloads a file: a redirect to the store, followed without the key.
func (c *client) content(t *testing.T, file string) []byte {
	t.Helper()
	status, h, b := c.do(t, "GET", "/v1/files/"+file+"/content", "", nil)
	if status != http.StatusFound {
		t.Fatalf("content of %s: status %d: %s", file, status, b)
	}
	resp, err := http.Get(h.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("download: status %d, %v: %.500s", resp.StatusCode, err, data)
	}
	return data
}

// account is what the simulated model counted for a batch.
type account struct {
	Requests    int `json:"requests"`
	InFlight    int `json:"in_flight"`
	MaxInFlight int `json:"max_in_flight"`
	Lines       map[string]struct {
		Tries int    `json:"tries"`
		Sum   string `json:"sha256"`
	} `json:"lines"`
	For map[string]int `json:"on_behalf_of"`
}

func modelAccount(t *testing.T, batch string) account {
	t.Helper()
	resp, err := http.Get(strings.TrimRight(env(t, "MODEL_URL"), "/") + "/sim/requests?batch=" + batch)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a account
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// awsConfig is the operator's view of the local AWS.
func awsConfig(t *testing.T) aws.Config {
	t.Helper()
	env(t, "AWS_ENDPOINT_URL")
	cfg, err := awsconf.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
