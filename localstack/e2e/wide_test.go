package e2e

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// More parts than a list in the workflow may have: they are read from an object,
// each has an execution of its own, and what comes back is what a narrow batch's
// promises say. A narrow one has no such run.
func TestWideBatch(t *testing.T) {
	t.Parallel()
	const parts = 60 // of the 500 lines that a part has unless told otherwise
	reqs := slow(parts*500, "sim")
	c := newTenant(t, "submit,read")
	id := c.create(t, c.upload(t, "wide.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	b := c.wait(t, id, 3*time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: len(reqs), Completed: len(reqs)}) || b.OutputFileID == nil || b.ErrorFileID != nil {
		t.Fatalf("%s, counts %+v, errors %+v", b.Status, b.RequestCounts, b.Errors)
	}
	all := make([]int, len(reqs))
	for i := range all {
		all[i] = i
	}
	checkFile(t, reqs, all, results(t, c, *b.OutputFileID), map[string]bool{})
	checkModel(t, reqs, id)
	checkReceipts(t, c, id, reqs)
	if states := partStates(t, c, id); len(states) != parts {
		t.Errorf("%d parts", len(states))
	}

	if got := executionStatus(t, id); got != "SUCCEEDED" {
		t.Errorf("the execution is %s", got)
	}
	runs := mapRuns(t, id)
	if len(runs) != 1 {
		t.Fatalf("%d map runs", len(runs))
	}
	if n := runs[0].ItemCounts; n.Total != parts || n.Succeeded != parts || runs[0].ExecutionCounts.Succeeded != parts {
		t.Errorf("items %+v, executions %+v", n, runs[0].ExecutionCounts)
	}
	if arn := *runs[0].MapRunArn; !strings.Contains(arn, "/parts:") {
		t.Errorf("the run is %s: its children's names are granted by its label", arn)
	}

	plan := batch.PlanKey(c.tenant, id)
	if got, want := stored(t, c), []string{c.tenant + "/out/" + id + "_output.jsonl", c.tenant + "/out/" + id + "_receipts.jsonl", plan}; !slices.Equal(got, want) {
		t.Errorf("objects %q, want %q", got, want)
	}
	checkPlan(t, plan, parts)

	narrow := c.create(t, c.upload(t, "narrow.jsonl", file(reqs[:3])).ID, "/v1/chat/completions").ID
	c.wait(t, narrow, time.Minute)
	if runs := mapRuns(t, narrow); executionStatus(t, narrow) != "SUCCEEDED" || len(runs) != 0 {
		t.Errorf("a batch of one part has %d map runs", len(runs))
	}
}

// A cancel reaches the parts of a wide batch as those of any other: what waits in
// the queue, or for its turn in the map run, is sealed, and whatever the run
// still starts finds it so.
func TestCancelOfAWideBatch(t *testing.T) {
	t.Parallel()
	const parts = 42
	reqs := slow(parts*500, "sim-slow-2000")
	c := newTenant(t, "submit,read")
	id := c.create(t, c.upload(t, "wide.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	var b openai.Batch
	poll(t, time.Minute, func() bool {
		b = get[openai.Batch](t, c, "/v1/batches/"+id)
		return b.Status == openai.StatusInProgress && modelAccount(t, id).Requests > 0
	}, func() string { return b.Status })
	c.cancel(t, id)
	b = c.ended(t, id, "wide")
	replied := checkCancelled(t, c, b, reqs)
	if a := modelAccount(t, id); len(a.Lines) != replied || a.InFlight != 0 {
		t.Errorf("the model was sent %d lines, and %d have a reply", len(a.Lines), replied)
	}
	if got := executionStatus(t, id); got != "ABORTED" {
		t.Errorf("the execution that waited for parts is %s", got)
	}
	sealed := 0
	states := partStates(t, c, id)
	for _, s := range states {
		switch s {
		case "sealed":
			sealed++
		case "done":
		default:
			t.Errorf("a part is %s", s)
		}
	}
	if len(states) != parts || sealed == 0 {
		t.Errorf("%d parts, %d sealed", len(states), sealed)
	}
	for _, key := range stored(t, c) {
		if !strings.HasPrefix(key, c.tenant+"/out/"+id+"_") && key != batch.PlanKey(c.tenant, id) {
			t.Errorf("left behind: %s", key)
		}
	}
}

// mapRuns are the runs of an execution's Distributed Map.
func mapRuns(t *testing.T, execution string) (runs []*sfn.DescribeMapRunOutput) {
	t.Helper()
	client := sfn.NewFromConfig(awsConfig(t))
	arn := strings.Replace(env(t, "HOLDFAST_STATE_MACHINE_ARN"), ":stateMachine:", ":execution:", 1) + ":" + execution
	list, err := client.ListMapRuns(t.Context(), &sfn.ListMapRunsInput{ExecutionArn: &arn})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.MapRuns {
		run, err := client.DescribeMapRun(t.Context(), &sfn.DescribeMapRunInput{MapRunArn: r.MapRunArn})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	return runs
}

// stored are the keys of a tenant's objects in the results bucket.
func stored(t *testing.T, c *client) (keys []string) {
	t.Helper()
	pages := s3.NewListObjectsV2Paginator(s3client(t), &s3.ListObjectsV2Input{Bucket: aws.String(env(t, "HOLDFAST_RESULTS_BUCKET")), Prefix: aws.String(c.tenant + "/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Contents {
			keys = append(keys, *o.Key)
		}
	}
	return keys
}

// checkPlan: the list names every part once, and carries the tag by which it goes.
func checkPlan(t *testing.T, key string, parts int) {
	t.Helper()
	bucket := aws.String(env(t, "HOLDFAST_RESULTS_BUCKET"))
	obj, err := s3client(t).GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Body.Close()
	got, err := io.ReadAll(obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for n := range parts {
		want = fmt.Appendf(want, `{"part":%d}`+"\n", n)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the plan is %s", got)
	}
	tags, err := s3client(t).GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	if len(tags.TagSet) != 1 || *tags.TagSet[0].Key != "keep" || *tags.TagSet[0].Value != "plan" {
		t.Errorf("tags %+v", tags.TagSet)
	}
}
