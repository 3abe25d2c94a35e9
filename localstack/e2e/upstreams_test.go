package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"holdfast/internal/openai"
)

// another is the upstream that make test deploys the stack with beside the simulated
// one: this process, and a secret whose value is the token. It is configured twice:
// models that begin with denied- have a secret of their own, which is never right.
type another struct {
	secret, denied string
	manager        *secretsmanager.Client

	mu     sync.Mutex
	tokens []string // every one that was right, the last still is
	calls  []heard
	meet   func() // called before every answer, without the lock
}

// heard is a request that came.
type heard struct {
	header http.Header
	model  string
	right  bool // the token was
}

var openAnother = sync.OnceValues(func() (*another, error) {
	// What the stack was deployed with. The name is not HOLDFAST_UPSTREAMS, which the
	// tests of other packages would take for a setting of theirs.
	var configured []struct{ URL, Secret string }
	if err := json.Unmarshal([]byte(os.Getenv("E2E_UPSTREAMS")), &configured); err != nil || len(configured) != 2 {
		return nil, fmt.Errorf("E2E_UPSTREAMS must be the HOLDFAST_UPSTREAMS that the stack was deployed with; run through `make test`: %w", err)
	}
	u, err := url.Parse(configured[0].URL)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	a := &another{secret: configured[0].Secret, denied: configured[1].Secret}
	go func() { _ = http.Serve(l, a) }() // as long as the tests run
	return a, nil
})

// second gives the other upstream, with a secret that is right.
func second(t *testing.T) *another {
	t.Helper()
	a, err := openAnother()
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	first := a.manager == nil
	defer a.mu.Unlock()
	if first {
		a.manager = secretsmanager.NewFromConfig(awsConfig(t))
		a.create(t, a.denied, planted+"-deniedtoken")
		// Processes of an earlier run may be warm, and hold its token.
		was, err := a.manager.GetSecretValue(t.Context(), &secretsmanager.GetSecretValueInput{SecretId: &a.secret})
		switch _, none := errors.AsType[*types.ResourceNotFoundException](err); {
		case none:
			a.tokens = []string{planted + "-token-0"}
			a.create(t, a.secret, a.tokens[0])
		case err != nil:
			t.Fatal(err)
		default:
			a.tokens = []string{*was.SecretString}
		}
	}
	return a
}

func (a *another) create(t *testing.T, name, token string) {
	t.Helper()
	_, err := a.manager.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: &token})
	if _, there := errors.AsType[*types.ResourceExistsException](err); err != nil && !there {
		t.Fatal(err)
	}
}

// rotate puts a new token into the secret, then revokes the old one, as an operator
// does (docs/upstreams.md).
func (a *another) rotate(t *testing.T) {
	t.Helper()
	token := fmt.Sprintf("%s-token-%d", planted, time.Now().UnixNano())
	if _, err := a.manager.PutSecretValue(context.WithoutCancel(t.Context()), &secretsmanager.PutSecretValueInput{SecretId: &a.secret, SecretString: &token}); err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, token)
}

// ServeHTTP answers what the name of the model asks for.
func (a *another) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var in struct{ Model string }
	_ = json.Unmarshal(body, &in)
	a.mu.Lock()
	token := a.tokens[len(a.tokens)-1]
	right := r.Header.Get("Authorization") == "Bearer "+token
	a.calls = append(a.calls, heard{r.Header.Clone(), in.Model, right})
	meet := a.meet
	a.mu.Unlock()
	if meet != nil && strings.HasPrefix(in.Model, "second-rotated") {
		meet()
	}
	h := w.Header()
	h.Set("X-Request-Id", planted+"-upstream")
	h.Set("Set-Cookie", "session="+planted+"-cookie")
	h.Set("X-Ratelimit-Remaining", planted+"-rate")
	h.Set("Content-Type", "application/json")
	switch {
	case !right:
		w.WriteHeader(map[bool]int{true: http.StatusForbidden, false: http.StatusUnauthorized}[in.Model == "denied-403"])
		fmt.Fprintf(w, `{"error":{"message":"%s-denial: incorrect API key: %s"}}`, planted, r.Header.Get("Authorization"))
		return
	case in.Model == "second-400":
		w.WriteHeader(http.StatusBadRequest)
	case in.Model == "second-500":
		w.WriteHeader(http.StatusInternalServerError)
	case in.Model == "second-echo": // as servers do that are being debugged
		fmt.Fprintf(w, `{"you":%q}`, r.Header.Get("Authorization"))
		return
	case in.Model == "second-torn":
		h.Set("Content-Length", "1000")
	case in.Model == "second-more": // goes on behind its end, of which net/http tells the log
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}%s-reply %s", planted, r.Header.Get("Authorization"))
		_, _ = io.Copy(io.Discard, conn) // until the other side has had enough
		return
	}
	fmt.Fprintf(w, `{"text":"%s-reply","usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, planted)
}

// of counts the calls for a batch.
func (a *another) of(batch string) (right, wrong int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		switch {
		case c.header.Get("X-Batch-ID") != batch:
		case c.right:
			right++
		default:
			wrong++
		}
	}
	return right, wrong
}

// A batch of models of two services, and while it runs the secret of one of them is
// rotated, without a deploy: each line goes to its service with that one's token, and
// none fails of it, by the worker nor by the gateway.
func TestTwoUpstreamsAndARotation(t *testing.T) {
	t.Parallel()
	two := second(t)
	c := newTenant(t, "submit,read")
	const each = 300
	var reqs []request
	for i := range 2 * each {
		model := []string{"sim", "second-rotated"}[i%2]
		reqs = append(reqs, request{rawID: fmt.Sprintf(`"%d"`, i), model: model, body: fmt.Sprintf(`{"model":%q,"n":%d}`, model, i)})
	}
	// The gateway has the token that is going to be the old one.
	if a := c.gate(t, "/v1/embeddings", `{"model":"second-before"}`, nil); a.status != 200 {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	// The first third is answered; what came by then with it waits for the rotation, so
	// that the rest comes behind that, with the old token.
	var answered atomic.Int64
	rotated := make(chan struct{})
	two.mu.Lock()
	two.meet = func() {
		switch n := answered.Add(1); {
		case n == each/3:
			two.rotate(t)
			close(rotated)
		case n > each/3:
			<-rotated
		}
	}
	two.mu.Unlock()
	id := c.create(t, c.upload(t, "in.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	b := c.wait(t, id, time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: 2 * each, Completed: 2 * each}) {
		t.Fatalf("%s, %+v", b.Status, b.RequestCounts)
	}
	if a := c.gate(t, "/v1/embeddings", `{"model":"second-after"}`, nil); a.status != 200 {
		t.Errorf("after: %d %s", a.status, a.body)
	}
	right, wrong := two.of(id)
	if right != each || wrong == 0 {
		t.Errorf("the second service answered %d lines, and refused %d requests; want %d and some", right, wrong, each)
	}
	t.Logf("%d requests came with the old token", wrong)
	first := modelAccount(t, id)
	if first.Requests != each {
		t.Errorf("the first service got %d requests, want %d", first.Requests, each)
	}
	for line := range first.Lines {
		if strings.Contains("13579", line[len(line)-1:]) {
			t.Errorf("line %s is the second's", line)
		}
	}
	two.mu.Lock()
	defer two.mu.Unlock()
	if len(two.tokens) < 2 {
		t.Error("nothing was rotated")
	}
	for _, h := range two.calls { // each entry is shown the token of its own secret, be it an old one
		want := map[bool]string{true: "-deniedtoken", false: "-token-"}[strings.HasPrefix(h.model, "denied-")]
		if got := h.header.Get("Authorization"); !strings.HasPrefix(got, "Bearer "+planted+want) {
			t.Errorf("%s: %q", h.model, got)
		}
	}
}
