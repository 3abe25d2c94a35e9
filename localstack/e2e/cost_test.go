package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"holdfast/internal/cost"
	"holdfast/internal/openai"
)

// bill is what holdfast cost --json says, as far as it is looked at here.
type bill struct {
	Batch     string
	Tenant    string
	Status    string
	Lines     int64
	Parts     int
	Kinds     []cost.Line
	Total     float64
	Floor     float64
	Committed int            `json:"lines_committed"`
	Requests  int64          `json:"upstream_requests"`
	WaitedMS  int64          `json:"upstream_ms"`
	Runs      map[string]int `json:"invocations"`
	Calls     map[string]cost.Calls
	Workflow  struct{ Transitions, Messages, Children int }
}

// line is the bill's row of a kind.
func (b bill) line(k cost.Kind) cost.Line {
	for _, l := range b.Kinds {
		if l.Kind == k {
			return l
		}
	}
	return cost.Line{}
}

// What a batch used adds up with what it was: every line, part and chunk is found
// in the calls that were counted.
func TestCostAddsUpWithTheBatch(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	reqs := mixed(1200) // three parts, chunks of a hundred
	b := c.create(t, c.upload(t, "in.jsonl", file(reqs)).ID, "/v1/chat/completions")
	done := c.wait(t, b.ID, 2*time.Minute)
	if done.Status != openai.StatusCompleted {
		t.Fatalf("the batch is %s: %+v", done.Status, done.Errors)
	}
	var got bill
	poll(t, 2*time.Minute, func() bool {
		out, said, code := cli(t, nil, "cost", b.ID, "--json")
		if code != 0 {
			if !strings.Contains(string(said), "no usage") {
				t.Fatalf("cost: exit %d, %s%s", code, out, said)
			}
			return false
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("cost: %v in %s", err, out)
		}
		// A worker logs at the end of its run, which goes on with other tests' batches;
		// the others' lines come as the local AWS finds them.
		return got.Runs["finish"] > 0 && got.Runs["plan"] > 0 && got.Runs["api"] > 1 && got.Committed == 1200
	}, func() string {
		return fmt.Sprintf("no usage lines of all who worked: %+v, %d lines", got.Runs, got.Committed)
	})

	if got.Tenant != c.tenant || got.Lines != 1200 || got.Parts != 3 || got.Status != "completed" {
		t.Errorf("the bill is of %+v", got)
	}
	if got.Committed != 1200 {
		t.Errorf("%d lines were committed", got.Committed)
	}
	if tries := int64(modelAccount(t, b.ID).Requests); got.Requests != tries {
		t.Errorf("%d requests were counted, the model had %d", got.Requests, tries)
	}
	chunks := got.Calls["S3.PutObject"].Answered
	checkpoints := int64(3 * 4) // 500+500+200 in hundreds
	if chunks < checkpoints || chunks > 1200/10 {
		t.Errorf("%d objects were put", chunks)
	}
	if got.Calls["S3.PutObject"].Sent == 0 || got.Calls["S3.GetObject"].Received == 0 {
		t.Errorf("no bytes: %+v", got.Calls)
	}
	// Every part is claimed and checkpointed for each chunk, the last of which makes it
	// done; its batch is started, ended, finalized and closed. The table says what that
	// took, an index entry moved with it.
	updates := got.Calls["DynamoDB.UpdateItem"]
	if updates.Answered < 3+checkpoints+4 || updates.Writes < float64(3*2+3*checkpoints) {
		t.Errorf("updates %+v", updates)
	}
	if puts := got.Calls["DynamoDB.PutItem"]; puts.Answered < 3 || puts.Writes < 3*2 {
		t.Errorf("puts %+v", puts)
	}
	if got.Workflow.Messages != 3 || got.Workflow.Children != 0 || got.Workflow.Transitions < 3+4 {
		t.Errorf("workflow %+v", got.Workflow)
	}
	if got.Runs["plan"] != 1 || got.Runs["work"] < 1 || got.Runs["api"] < 2 {
		t.Errorf("invocations %+v", got.Runs)
	}
	var sum float64
	for _, l := range got.Kinds {
		sum += l.Dollars
		if l.Quantity < 0 || math.Abs(l.Quantity*l.Price-l.Dollars) > 1e-12 {
			t.Errorf("line %+v", l)
		}
	}
	if math.Abs(sum-got.Total) > 1e-12 || got.Floor <= 0 || got.Floor >= got.Total {
		t.Errorf("lines sum to %v, total %v, floor %v", sum, got.Total, got.Floor)
	}
	if l := got.line(cost.Compute); l.Quantity <= 0 || l.Floor > l.Dollars {
		t.Errorf("compute %+v", l)
	}
	out, said, code := cli(t, nil, "cost", b.ID)
	if code != 0 || !strings.Contains(string(out), "table writes") || !strings.Contains(string(out), "per million lines") {
		t.Errorf("the table: exit %d, %s%s", code, out, said)
	}
}

// What can't be billed is said in words.
func TestCostRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more []string
		args []string
		code int
		want string
	}{
		"no id":          {nil, []string{"cost", "4711"}, 2, "not the id of a batch"},
		"unknown":        {nil, []string{"cost", "batch_0000000000000000000000000000dead"}, 1, "no workflow of"},
		"no credentials": {[]string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_EC2_METADATA_DISABLED=true", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_CONFIG_FILE=/dev/null"}, []string{"cost", "batch_0000000000000000000000000000dead"}, 1, "no AWS credentials that serve"},
		"no machine":     {[]string{"HOLDFAST_STATE_MACHINE_ARN="}, []string{"cost", "batch_0000000000000000000000000000dead"}, 2, "HOLDFAST_STATE_MACHINE_ARN"},
	} {
		t.Run(name, func(t *testing.T) {
			out, said, code := cli(t, c.more, c.args...)
			if code != c.code || !strings.Contains(string(said), c.want) {
				t.Errorf("exit %d, want %d with %q: %s%s", code, c.code, c.want, out, said)
			}
		})
	}
}
