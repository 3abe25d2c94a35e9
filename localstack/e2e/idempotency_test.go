package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"holdfast/internal/openai"
)

// post creates a batch with more headers, once.
func (c *client) post(t *testing.T, body string, header map[string]string) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(t.Context(), "POST", c.base+"/v1/batches", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Content-Type", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, b, err
}

// created is post, of which a batch must come; id "" if none did.
func (c *client) created(t *testing.T, body string, header map[string]string) string {
	t.Helper()
	status, _, b, err := c.post(t, body, header)
	var got openai.Batch
	if err != nil || status != http.StatusOK || json.Unmarshal(b, &got) != nil {
		t.Errorf("%v: %d, %v, %s", header, status, err, b)
	}
	return got.ID
}

func createBody(file, test string) string {
	return fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"test":%q}}`, file, test)
}

func retryCount(n int) map[string]string {
	return map[string]string{"X-Stainless-Retry-Count": strconv.Itoa(n)}
}

func idempotencyKey(key string) map[string]string { return map[string]string{"Idempotency-Key": key} }

// batches are the ids of a tenant's batches.
func (c *client) batches(t *testing.T) (ids []string) {
	t.Helper()
	for _, b := range get[openai.List[openai.Batch]](t, c, "/v1/batches?limit=100").Data {
		ids = append(ids, b.ID)
	}
	slices.Sort(ids)
	return ids
}

// executions counts those whose name begins with a batch's id.
func executions(t *testing.T, ids ...string) (n int) {
	t.Helper()
	arn := env(t, "HOLDFAST_STATE_MACHINE_ARN")
	pages := sfn.NewListExecutionsPaginator(sfn.NewFromConfig(awsConfig(t)), &sfn.ListExecutionsInput{StateMachineArn: &arn})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Executions {
			for _, id := range ids {
				if *e.Name == id {
					n++
				}
			}
		}
	}
	return n
}

// The same request under one key, fifty times at once: one batch, one execution,
// and no line sent twice. Who is told to come again comes again, as official
// clients do.
func TestOneKeyFiftyTimes(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	reqs := mixed(40)
	body := createBody(c.upload(t, "in.jsonl", file(reqs)).ID, t.Name())
	began := time.Now()
	var (
		mu   sync.Mutex
		ids  = map[string]int{}
		held int
		wg   sync.WaitGroup
	)
	for range 50 {
		wg.Go(func() {
			for time.Since(began) < 2*time.Minute {
				status, h, b, err := c.post(t, body, idempotencyKey("order 7"))
				var got openai.Batch
				switch {
				case err == nil && status == http.StatusOK && json.Unmarshal(b, &got) == nil:
					mu.Lock()
					ids[got.ID]++
					mu.Unlock()
					return
				case err == nil && h.Get("X-Should-Retry") != "false" && (status == http.StatusConflict || status >= 500):
					mu.Lock()
					held++
					mu.Unlock()
					ms, _ := strconv.Atoi(h.Get("Retry-After-Ms"))
					select {
					case <-time.After(time.Duration(max(ms, 100)) * time.Millisecond):
					case <-t.Context().Done():
					}
				default:
					t.Errorf("%d, %v, %s", status, err, b)
					return
				}
			}
			t.Error("never answered")
		})
	}
	wg.Wait()
	took := time.Since(began)
	if len(ids) != 1 {
		t.Fatalf("batches %v", ids)
	}
	id := slices.Collect(maps.Keys(ids))[0]
	poll(t, 10*time.Second, func() bool { return len(c.batches(t)) > 0 }, func() string { return "no batch is listed" })
	if got := c.batches(t); len(got) != 1 || got[0] != id || executions(t, id) != 1 {
		t.Errorf("batches %v, %d executions of %s", got, executions(t, id), id)
	}
	t.Logf("50 creates under one key in %s (%d told to come again): one batch, one execution", took.Round(time.Millisecond), held)
	if b := c.wait(t, id, 2*time.Minute); b.Status != openai.StatusCompleted {
		t.Fatalf("%+v", b)
	}
	for i, r := range reqs {
		if got := modelAccount(t, id).Lines[strconv.Itoa(i)]; got.Tries > r.wantTries() {
			t.Errorf("line %d was sent %d times, want %d", i, got.Tries, r.wantTries())
		}
	}
	// Over, it is still what the key stands for; another request is not.
	if again := c.created(t, body, idempotencyKey("order 7")); again != id {
		t.Errorf("%s, not %s", again, id)
	}
	status, h, b, err := c.post(t, createBody("file-other", t.Name()), idempotencyKey("order 7"))
	if err != nil || status != http.StatusBadRequest || !bytes.Contains(b, []byte(`"idempotency_conflict"`)) || h.Get("X-Should-Retry") != "false" {
		t.Errorf("%d, %v, %s", status, err, b)
	}
}

func TestRefusedKeyIsFree(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	status, _, b, err := c.post(t, createBody("file-aaaaaaaaaaaaaaaaaaaaaaaaaa", t.Name()), idempotencyKey("k"))
	if err != nil || status != http.StatusBadRequest || !bytes.Contains(b, []byte(`"param":"input_file_id"`)) {
		t.Errorf("%d, %v, %s", status, err, b)
	}
	body := createBody(c.upload(t, "in.jsonl", file(mixed(1))).ID, t.Name())
	if a, b := c.created(t, body, idempotencyKey("k")), c.created(t, body, idempotencyKey("k")); a != b || a == "" {
		t.Errorf("%q, %q", a, b)
	}
}

// A client that saw no answer sends its create again, and counts.
func TestResentCreates(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	body := createBody(c.upload(t, "in.jsonl", file(mixed(2))).ID, t.Name())
	first := c.created(t, body, retryCount(0))
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			if got := c.created(t, body, retryCount(n%2+1)); got != first {
				t.Errorf("sent again it is %s, not %s", got, first)
			}
		})
	}
	wg.Wait()
	second := c.created(t, body, retryCount(0))
	if third := c.created(t, body, retryCount(1)); second == first || third != second {
		t.Errorf("sent anew it is %s, then %s; the first was %s", second, third, first)
	}
	other := c.created(t, createBody(c.upload(t, "in.jsonl", file(mixed(2))).ID, t.Name()), retryCount(1))
	want := []string{first, second, other}
	slices.Sort(want)
	poll(t, 10*time.Second, func() bool { return len(c.batches(t)) >= len(want) }, func() string { return "fewer batches are listed" })
	if got := c.batches(t); !slices.Equal(got, want) || executions(t, want...) != len(want) {
		t.Errorf("batches %v, want %v; %d executions", got, want, executions(t, want...))
	}
	for _, id := range want {
		c.wait(t, id, 2*time.Minute)
	}
}
