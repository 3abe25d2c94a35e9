package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"holdfast/internal/aws/logs"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// dropper is in whose name what is dropped runs, where a test doesn't say.
const dropper = "nightly@example.com"

// enable switches a tenant's S3 door on, as an operator does.
func (c *client) enable(t *testing.T, principal string, more ...string) {
	t.Helper()
	out, said, code := cli(t, nil, append([]string{"tenant", "drop", "enable", c.tenant, "--principal", principal}, more...)...)
	if code != 0 {
		t.Fatalf("tenant drop enable: exit %d, %s%s", code, out, said)
	}
}

// put puts an object at the S3 door, under the name within the tenant's folder.
func (c *client) put(t *testing.T, name string, data []byte, metadata map[string]string) bridge.Object {
	t.Helper()
	bucket, key := env(t, "HOLDFAST_INPUTS_BUCKET"), "in/"+c.tenant+"/"+name
	out, err := s3client(t).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data), Metadata: metadata})
	if err != nil || aws.ToString(out.VersionId) == "" {
		t.Fatalf("put %q: %v, %+v", key, err, out)
	}
	return bridge.Object{Bucket: bucket, Key: key, Version: *out.VersionId, ETag: aws.ToString(out.ETag), Bytes: int64(len(data))}
}

// idOf is the one batch that an object can become by itself.
func (c *client) idOf(o bridge.Object) string { return bridge.BatchID(c.tenant, o.CorrelationID()) }

// appears waits until there is a batch of this id.
func (c *client) appears(t *testing.T, id string) (b openai.Batch) {
	t.Helper()
	var status int
	var body []byte
	poll(t, 30*time.Second, func() bool {
		if status, _, body = c.do(t, "GET", "/v1/batches/"+id, "", nil); status == http.StatusNotFound {
			return false
		}
		b = decode[openai.Batch](t, status, body)
		return true
	}, func() string { return fmt.Sprintf("%d, %s", status, body) })
	return b
}

// lines is a small input for an endpoint, of which nothing goes wrong.
func lines(n int, endpoint string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"line-%d","method":"POST","url":%q,"body":{"model":"sim","prompt":"%d"}}`+"\n", i, endpoint, i)
	}
	return b.Bytes()
}

// finished waits for a batch of lines and holds it to its results and submitter.
func (c *client) finished(t *testing.T, id, principal string, n int) openai.Batch {
	t.Helper()
	c.appears(t, id)
	b := c.wait(t, id, time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: n, Completed: n}) {
		t.Fatalf("%s with %+v, %+v", b.Status, b.RequestCounts, b.Errors)
	}
	for i, r := range results(t, c, *b.OutputFileID) {
		if string(r.CustomID) != fmt.Sprintf(`"line-%d"`, i) || r.Response == nil || r.Response.StatusCode != 200 {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if a := modelAccount(t, id); a.Requests != n || a.For[principal] != n {
		t.Errorf("the model got %d requests for %d lines, on behalf of %v", a.Requests, n, a.For)
	}
	return b
}

// only holds the tenant to these batches, and each of them to one execution.
func (c *client) only(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	var got []string
	poll(t, 10*time.Second, func() bool { got = c.batches(t); return len(got) >= len(want) }, func() string { return fmt.Sprint(got) })
	if !slices.Equal(got, want) || executions(t, want...) != len(want) {
		t.Errorf("batches %v, want %v; %d executions", got, want, executions(t, want...))
	}
}

// An object with every outcome among its lines is a batch like any other: of the
// door's principal, whole, in order, and its input is a file that can be read and
// deleted, which the object survives.
func TestDrop(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	c.enable(t, dropper)
	reqs := mixed(200)
	in := file(reqs)
	o := c.put(t, "folder/mixed.jsonl", in, map[string]string{"endpoint": "/v1/chat/completions", "completion-window": "1h", "metadata": `{"run":"7","of":"nightly"}`})
	b := c.appears(t, c.idOf(o))
	if b.InputFileID != o.FileID(c.tenant) || b.Endpoint != "/v1/chat/completions" || b.CompletionWindow != "1h" || len(b.Metadata) != 2 || b.Metadata["run"] != "7" {
		t.Errorf("created %+v", b)
	}
	b = c.wait(t, b.ID, 2*time.Minute)
	var wantOK, wantErr []int
	for i, r := range reqs {
		if r.ok() {
			wantOK = append(wantOK, i)
		} else {
			wantErr = append(wantErr, i)
		}
	}
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: len(reqs), Completed: len(wantOK), Failed: len(wantErr)}) {
		t.Fatalf("%s with %+v, %+v", b.Status, b.RequestCounts, b.Errors)
	}
	ids := map[string]bool{}
	checkFile(t, reqs, wantOK, results(t, c, *b.OutputFileID), ids)
	checkFile(t, reqs, wantErr, results(t, c, *b.ErrorFileID), ids)
	checkModel(t, reqs, b.ID)
	a := modelAccount(t, b.ID)
	if len(a.For) != 1 || a.For[dropper] != a.Requests {
		t.Errorf("%d requests on behalf of %v", a.Requests, a.For)
	}
	if f := get[openai.File](t, c, "/v1/files/"+b.InputFileID); f.Filename != "mixed.jsonl" || f.Bytes != int64(len(in)) || f.Purpose != "batch" {
		t.Errorf("file %+v", f)
	}
	if !bytes.Equal(c.content(t, b.InputFileID), in) {
		t.Error("the input isn't what was put")
	}
	if status, code := c.deleted(t, b.InputFileID); status != http.StatusOK {
		t.Errorf("DELETE: %d %s", status, code)
	}
	if status, _, _ := c.do(t, "GET", "/v1/files/"+b.InputFileID, "", nil); status != http.StatusNotFound {
		t.Errorf("a deleted file is answered with %d", status)
	}
	kept, err := s3client(t).GetObject(t.Context(), &s3.GetObjectInput{Bucket: &o.Bucket, Key: &o.Key})
	if err != nil {
		t.Fatalf("its owner's object is gone: %v", err)
	}
	defer kept.Body.Close()
	if data, err := io.ReadAll(kept.Body); err != nil || !bytes.Equal(data, in) {
		t.Errorf("its owner's object: %d bytes, %v", len(data), err)
	}
	// Results have been written. None of them is an input, and nothing that somebody
	// puts beside them: an object put later has started its batch by then.
	results := env(t, "HOLDFAST_RESULTS_BUCKET")
	if _, err := s3client(t).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &results, Key: &o.Key, Body: bytes.NewReader(in)}); err != nil {
		t.Fatal(err)
	}
	barrier := c.put(t, "barrier.jsonl", lines(1, "/v1/chat/completions"), nil)
	c.finished(t, c.idOf(barrier), dropper, 1)
	c.only(t, b.ID, c.idOf(barrier))
}

// Names that somebody, somewhere on the way, could take for others.
func TestDropKeys(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	c.enable(t, dropper)
	var ids []string
	for _, name := range []string{
		"with spaces .jsonl", "a+b.jsonl", "a b.jsonl", "a%20b.jsonl", "100%.jsonl", "é/ü 😀 日本.jsonl", "e\u0301.jsonl",
		"q?x=1&y#z=%2F.jsonl", `';,:@$!*()"<>|.jsonl`, "a//b/.jsonl", strings.Repeat("é", 400) + ".jsonl",
	} {
		o := c.put(t, name, lines(1, "/v1/chat/completions"), nil)
		b := c.appears(t, c.idOf(o))
		ids = append(ids, b.ID)
		if f := get[openai.File](t, c, "/v1/files/"+b.InputFileID); f.Filename != name[strings.LastIndexByte(name, '/')+1:] {
			t.Errorf("%q has the file name %q", name, f.Filename)
		}
	}
	for _, id := range ids {
		c.finished(t, id, dropper, 1)
	}
	c.only(t, ids...)
}

// Each setting comes from the object, else from its sidecar, else from the tenant.
func TestDropSettings(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	c.enable(t, dropper, "--endpoint", "/v1/completions", "--window", "1h")
	sidecar := []byte(`{"endpoint":"/v1/embeddings","completion_window":"24h","metadata":{"from":"the sidecar"}}`)
	c.put(t, "b.jsonl.holdfast.json", sidecar, nil)
	c.put(t, "c.jsonl.holdfast.json", sidecar, nil)
	var ids []string
	for _, tt := range []struct {
		name, endpoint, window, from string
		metadata                     map[string]string
	}{
		{"a.jsonl", "/v1/completions", "1h", "", nil},
		{"b.jsonl", "/v1/embeddings", "24h", "the sidecar", nil},
		{"c.jsonl", "/v1/responses", "24h", "the object", map[string]string{"endpoint": "/v1/responses", "metadata": `{"from":"the object"}`}},
	} {
		b := c.appears(t, c.idOf(c.put(t, tt.name, lines(2, tt.endpoint), tt.metadata)))
		if b.Endpoint != tt.endpoint || b.CompletionWindow != tt.window || b.Metadata["from"] != tt.from {
			t.Errorf("%s: %s, %s, %v", tt.name, b.Endpoint, b.CompletionWindow, b.Metadata)
		}
		ids = append(ids, b.ID)
	}
	for _, id := range ids {
		c.finished(t, id, dropper, 2)
	}
	c.only(t, ids...)
}

// Two versions under one key are two requests, also where they hold the same bytes.
func TestDropTwiceUnderOneKey(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	c.enable(t, dropper)
	var ids []string
	for _, n := range []int{1, 2, 2} {
		id := c.idOf(c.put(t, "same.jsonl", lines(n, "/v1/chat/completions"), nil))
		c.appears(t, id) // here events carry no version, so that of equal ones only the newest can be told
		ids = append(ids, id)
	}
	for i, id := range ids {
		c.finished(t, id, dropper, min(i+1, 2))
	}
	c.only(t, ids...)
}

// send puts messages on the ingest queue and waits until each is answered, as the
// function's log has it. One that loses to another's fresh claim isn't for minutes.
func send(t *testing.T, bodies ...string) {
	t.Helper()
	since := time.Now().Add(-time.Second)
	open := enqueue(t, bodies...)
	reader := logs.New(awsConfig(t))
	poll(t, 30*time.Second, func() bool {
		open = slices.DeleteFunc(open, func(id string) bool {
			for _, err := range reader.Find(t.Context(), "/holdfast/ingest", since, time.Now().Add(time.Minute), id) {
				if err != nil {
					t.Fatal(err)
				}
				return true
			}
			return false
		})
		if len(open) > 0 && time.Since(since) > 3*time.Second {
			flush(t)
		}
		return len(open) == 0
	}, func() string { return fmt.Sprintf("not answered: messages %v", open) })
}

// enqueue puts messages on the ingest queue and returns their ids.
func enqueue(t *testing.T, bodies ...string) (ids []string) {
	t.Helper()
	queue, url := sqs.NewFromConfig(awsConfig(t)), env(t, "HOLDFAST_INGEST_QUEUE_URL")
	for _, b := range bodies {
		out, err := queue.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &b})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, *out.MessageId)
	}
	return ids
}

// flush makes the log of ingest whole: the local AWS waits 50 ms for what an
// invocation wrote, and what comes later it shows with the next one of the same
// process, however far away that is. Several at once reach several processes.
func flush(t *testing.T) {
	t.Helper()
	functions := lambda.NewFromConfig(awsConfig(t))
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := functions.Invoke(t.Context(), &lambda.InvokeInput{
				FunctionName: aws.String(env(t, "HOLDFAST_INGEST_FUNCTION")), Payload: []byte(`{"Records":[]}`),
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// event is what EventBridge would say of an object, after a sample in events/.
func event(t *testing.T, sample string, o bridge.Object) string {
	t.Helper()
	raw, err := os.ReadFile("../../events/" + sample)
	if err != nil {
		t.Fatal(err)
	}
	var queued struct{ Records []struct{ Body string } }
	var e map[string]any
	if err := json.Unmarshal(raw, &queued); err != nil || len(queued.Records) != 1 {
		t.Fatalf("%s: %v", sample, err)
	}
	if err := json.Unmarshal([]byte(queued.Records[0].Body), &e); err != nil {
		t.Fatalf("%s: %v", sample, err)
	}
	e["time"] = time.Now().UTC().Format(time.RFC3339)
	detail := e["detail"].(map[string]any)
	detail["bucket"] = map[string]string{"name": o.Bucket}
	object := detail["object"].(map[string]any)
	object["key"], object["size"], object["etag"] = o.Key, o.Bytes, strings.Trim(o.ETag, `"`)
	if _, names := object["version-id"]; names {
		object["version-id"] = o.Version
	}
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// S3's event of one object comes five times more, as AWS words it and as it is
// worded here, during its batch and after: only the claim can tell.
func TestOneEventFiveTimes(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	c.enable(t, dropper)
	o := c.put(t, "once only.jsonl", lines(3, "/v1/chat/completions"), nil)
	id := c.idOf(o)
	c.appears(t, id)
	send(t, event(t, "ingest-s3.json", o), event(t, "ingest-s3-local.json", o), event(t, "ingest-s3.json", o))
	c.finished(t, id, dropper, 3)
	send(t, event(t, "ingest-s3-local.json", o), event(t, "ingest-s3.json", o))
	c.only(t, id)
	if a := modelAccount(t, id); a.Requests != 3 {
		t.Errorf("%d requests for 3 lines", a.Requests)
	}
}
