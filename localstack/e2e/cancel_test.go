package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"holdfast/internal/openai"
)

// slow makes n requests to a model that takes its time, with the awkward ids and
// bodies of mixed.
func slow(n int, model string) []request {
	reqs := mixed(n)
	for i := range reqs {
		reqs[i].body = fmt.Sprintf(`{"model":%q,"n":%d.0}`, model, i)
		reqs[i].model = model
	}
	return reqs
}

func (c *client) cancel(t *testing.T, id string) openai.Batch {
	t.Helper()
	status, _, reply := c.do(t, "POST", "/v1/batches/"+id+"/cancel", "", nil)
	return decode[openai.Batch](t, status, reply)
}

// ended waits for the end of a cancelled batch and says how long it took.
func (c *client) ended(t *testing.T, id, when string) openai.Batch {
	t.Helper()
	began := time.Now()
	b := c.wait(t, id, 4*time.Minute)
	t.Logf("%s: from cancel to %s %.1f s, %d lines: %d completed, %d failed", when, b.Status, time.Since(began).Seconds(),
		b.RequestCounts.Total, b.RequestCounts.Completed, b.RequestCounts.Failed)
	return b
}

// checkCancelled holds a cancelled batch to its promises: every line once, in
// order, under its own id; what has a reply is what the model answered; and the
// counts are those of the files. It returns how many lines have a reply.
func checkCancelled(t *testing.T, c *client, b openai.Batch, reqs []request) int {
	t.Helper()
	n := b.RequestCounts
	if b.Status != openai.StatusCancelled || n.Total != len(reqs) || n.Completed+n.Failed != n.Total ||
		b.CancellingAt == nil || b.CancelledAt == nil || b.InProgressAt == nil || b.CompletedAt != nil || b.Usage == nil {
		t.Fatalf("batch %+v, counts %+v", b, n)
	}
	index := map[string]int{}
	for i, r := range reqs {
		index[r.rawID] = i
	}
	seen := map[int]bool{}
	ids := map[string]bool{}
	read := func(file *string, replied bool) {
		if file == nil {
			return
		}
		last := -1
		for _, r := range results(t, c, *file) {
			i, ok := index[string(r.CustomID)]
			if !ok || i <= last || seen[i] || ids[r.ID] || !strings.HasPrefix(r.ID, "batch_req_") {
				t.Fatalf("%s (line %d after %d) is unknown, out of order, or there twice", r.CustomID, i, last)
			}
			last, seen[i], ids[r.ID] = i, true, true
			if replied && (r.Response == nil || !bytes.Contains(r.Response.Body, []byte("You sent "+reqs[i].sum()))) {
				t.Errorf("line %d: %+v", i, r)
			}
			if !replied && (r.Response != nil || r.Error == nil || r.Error.Code != "batch_cancelled" || r.Error.Message == "") {
				t.Errorf("line %d: %+v", i, r)
			}
		}
	}
	read(b.OutputFileID, true)
	completed := len(seen)
	read(b.ErrorFileID, false)
	if completed != n.Completed || len(seen) != len(reqs) {
		t.Errorf("%d lines in the output file, %d in both; counts %+v", completed, len(seen), n)
	}
	return completed
}

// leftovers of a cancelled batch: its files, and no part that anybody may still
// run.
func checkNothingRuns(t *testing.T, c *client, b openai.Batch, receipts int) {
	t.Helper()
	list, err := s3client(t).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(env(t, "HOLDFAST_RESULTS_BUCKET")), Prefix: aws.String(c.tenant + "/")})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Contents {
		if !strings.HasPrefix(*o.Key, c.tenant+"/out/"+b.ID+"_") {
			t.Errorf("left behind: %s", *o.Key)
		}
	}
	if receipts > 0 {
		obj, err := s3client(t).GetObject(t.Context(), &s3.GetObjectInput{
			Bucket: aws.String(env(t, "HOLDFAST_RESULTS_BUCKET")), Key: aws.String(fmt.Sprintf("%s/out/%s_receipts.jsonl", c.tenant, b.ID)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Body.Close()
		var data bytes.Buffer
		if _, err := data.ReadFrom(obj.Body); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(data.Bytes(), []byte("\n")); got != receipts {
			t.Errorf("%d receipts for %d replies", got, receipts)
		}
	}
	states := map[string]int{}
	for _, s := range partStates(t, c, b.ID) {
		states[s]++
	}
	for s := range states {
		if s != "done" && s != "sealed" {
			t.Errorf("parts %v", states)
		}
	}
	t.Logf("parts: %v", states)
}

// partStates reads the parts as the table has them.
func partStates(t *testing.T, c *client, id string) (states []string) {
	t.Helper()
	pages := dynamodb.NewQueryPaginator(dynamodb.NewFromConfig(awsConfig(t)), &dynamodb.QueryInput{
		TableName: aws.String(env(t, "HOLDFAST_TABLE")), KeyConditionExpression: aws.String("pk = :p AND begins_with(sk, :s)"),
		ExpressionAttributeValues: map[string]dynamotypes.AttributeValue{
			":p": &dynamotypes.AttributeValueMemberS{Value: "T#" + c.tenant + "#B#" + id}, ":s": &dynamotypes.AttributeValueMemberS{Value: "PART#"},
		},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Items {
			states = append(states, i["state"].(*dynamotypes.AttributeValueMemberS).Value)
		}
	}
	return states
}

// executionStatus waits for the end of an execution; "" if there is none.
func executionStatus(t *testing.T, name string) (status string) {
	t.Helper()
	execution := strings.Replace(env(t, "HOLDFAST_STATE_MACHINE_ARN"), ":stateMachine:", ":execution:", 1) + ":" + name
	poll(t, 20*time.Second, func() bool {
		out, err := sfn.NewFromConfig(awsConfig(t)).DescribeExecution(t.Context(), &sfn.DescribeExecutionInput{ExecutionArn: &execution})
		if err != nil {
			status = ""
			return true
		}
		status = string(out.Status)
		return status != "RUNNING"
	}, func() string { return name + " is " + status })
	return status
}

// A cancel while the model is at work: what was under way is kept, for it was
// paid for; nothing is sent that was not; the rest is answered at once.
func TestCancelWhileRunning(t *testing.T) {
	t.Parallel()
	reqs := slow(1500, "sim-slow-500")
	c := newTenant(t, "submit,read")
	id := c.create(t, c.upload(t, "slow.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	var before openai.Batch
	poll(t, time.Minute, func() bool {
		before = get[openai.Batch](t, c, "/v1/batches/"+id)
		return before.RequestCounts.Completed > 0
	}, func() string { return fmt.Sprintf("%s %+v", before.Status, before.RequestCounts) })
	first, again := c.cancel(t, id), c.cancel(t, id)
	for _, b := range []openai.Batch{first, again} {
		if b.Status != openai.StatusCancelling || b.CancellingAt == nil || *b.CancellingAt != *first.CancellingAt || b.RequestCounts.Total != 1500 {
			t.Errorf("cancel answered %+v", b)
		}
	}
	b := c.ended(t, id, "running")
	replied := checkCancelled(t, c, b, reqs)
	if replied < before.RequestCounts.Completed || replied == len(reqs) {
		t.Errorf("%d lines have a reply, %d had one before the cancel", replied, before.RequestCounts.Completed)
	}
	a := modelAccount(t, id)
	if len(a.Lines) != replied || a.Requests != replied || a.InFlight != 0 {
		t.Errorf("the model was sent %d lines in %d requests, and %d have a reply", len(a.Lines), a.Requests, replied)
	}
	for i, l := range a.Lines {
		if n, err := strconv.Atoi(i); err != nil || l.Sum != reqs[n].sum() {
			t.Errorf("line %s: its body arrived changed", i)
		}
	}
	checkNothingRuns(t, c, b, replied)
	if over := c.cancel(t, id); over.Status != openai.StatusCancelled || *over.CancelledAt != *b.CancelledAt || over.RequestCounts != b.RequestCounts {
		t.Errorf("cancelled again when over: %+v", over)
	}
	if got := executionStatus(t, id); got != "ABORTED" {
		t.Errorf("the execution that waited for parts is %s", got)
	}
}

// A cancel while the file is read: the batch is still planned, nothing is sent,
// and every line is answered.
func TestCancelWhileValidating(t *testing.T) {
	t.Parallel()
	reqs := slow(20_000, "sim")
	c := newTenant(t, "submit,read")
	up := c.upload(t, "long.jsonl", file(reqs))
	for try := 1; ; try++ {
		id := c.create(t, up.ID, "/v1/chat/completions").ID
		told := c.cancel(t, id)
		if told.Status != openai.StatusCancelling {
			t.Fatalf("cancel answered %+v", told)
		}
		validating := told.InProgressAt == nil
		b := c.ended(t, id, map[bool]string{true: "validating", false: "just planned"}[validating])
		replied := checkCancelled(t, c, b, reqs)
		checkNothingRuns(t, c, b, replied)
		if !validating && try < 5 {
			continue
		}
		if !validating {
			t.Fatal("the plan was faster than the cancel, five times")
		}
		if a := modelAccount(t, id); replied != 0 || a.Requests != 0 || b.OutputFileID != nil {
			t.Errorf("%d replies, %d requests of a batch that never ran", replied, a.Requests)
		}
		if got := executionStatus(t, id); got != "SUCCEEDED" {
			t.Errorf("the batch's execution is %s", got)
		}
		return
	}
}

// More parts than workers: those that wait in the queue are sealed at once, and
// do not wait for their turn.
func TestCancelOfQueuedParts(t *testing.T) {
	t.Parallel()
	reqs := slow(15_000, "sim-slow-3000")
	c := newTenant(t, "submit,read")
	id := c.create(t, c.upload(t, "many.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	var b openai.Batch
	poll(t, time.Minute, func() bool {
		b = get[openai.Batch](t, c, "/v1/batches/"+id)
		return b.Status == openai.StatusInProgress && modelAccount(t, id).Requests > 0
	}, func() string { return b.Status })
	c.cancel(t, id)
	b = c.ended(t, id, "queued")
	replied := checkCancelled(t, c, b, reqs)
	if a := modelAccount(t, id); len(a.Lines) != replied {
		t.Errorf("the model was sent %d lines, and %d have a reply", len(a.Lines), replied)
	}
	checkNothingRuns(t, c, b, replied)
}

// A cancel of a batch that is over changes nothing; one by somebody else is a 404
// as if the batch did not exist.
func TestCancelWhenOver(t *testing.T) {
	t.Parallel()
	c, other, reader := newTenant(t, "submit,read"), newTenant(t, "submit,read"), newTenant(t, "read")
	reqs := slow(3, "sim")
	id := c.create(t, c.upload(t, "f.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	c.wait(t, id, time.Minute)
	_, _, before := c.do(t, "GET", "/v1/batches/"+id, "", nil)
	for range 2 {
		status, _, reply := c.do(t, "POST", "/v1/batches/"+id+"/cancel", "", nil)
		if status != http.StatusOK || !bytes.Equal(reply, before) {
			t.Errorf("%d %s\nwant the batch unchanged: %s", status, reply, before)
		}
	}
	reader.key = newKey(t, c.tenant, "read")
	for name, tt := range map[string]struct {
		as     *client
		id     string
		status int
		code   string
	}{
		"another tenant": {other, id, 404, "batch_not_found"},
		"unknown":        {c, "batch_none", 404, "batch_not_found"},
		"no scope":       {reader, id, 403, "insufficient_permissions"},
	} {
		status, _, reply := tt.as.do(t, "POST", "/v1/batches/"+tt.id+"/cancel", "", nil)
		var e struct{ Error struct{ Code string } }
		if err := json.Unmarshal(reply, &e); err != nil || status != tt.status || e.Error.Code != tt.code {
			t.Errorf("%s: %d %s", name, status, reply)
		}
	}
}

// The command line cancels too.
func TestCancelByCommandLine(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	as := []string{"HOLDFAST_API_KEY=" + c.key}
	in := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(in, file(slow(500, "sim-slow-2000")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, code := cli(t, as, "submit", in)
	if code != 0 {
		t.Fatalf("submit: exit %d, %s%s", code, out, said)
	}
	id := strings.TrimSpace(string(out))
	if out, said, code = cli(t, as, "cancel", id); code != 0 || strings.TrimSpace(string(out)) != "cancelling" {
		t.Errorf("cancel: exit %d, %s%s", code, out, said)
	}
	b := c.ended(t, id, "by command line")
	if b.Status != openai.StatusCancelled {
		t.Errorf("batch is %s", b.Status)
	}
	if out, said, code = cli(t, as, "cancel", id); code != 0 || !bytes.Contains(said, []byte("over already")) {
		t.Errorf("cancel again: exit %d, %s%s", code, out, said)
	}
}
