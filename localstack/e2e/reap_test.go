package e2e

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/objects"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
	"holdfast/internal/reap"
)

// reapNow has the deployed reaper do a round, as EventBridge does each minute
// here, too: what one of the two doesn't do the other has done.
func reapNow(t *testing.T) (r reap.Report) {
	t.Helper()
	tick, err := os.ReadFile("../../events/reap.json")
	if err != nil {
		t.Fatal(err)
	}
	out, err := lambda.NewFromConfig(awsConfig(t)).Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String(env(t, "HOLDFAST_REAP_FUNCTION")), Payload: tick})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Payload, &r); err != nil || out.FunctionError != nil {
		t.Fatalf("reap: %v, %s", err, out.Payload)
	}
	return r
}

// left is a batch as those who worked on it left it: its file is validated, its
// parts are there, five lines each, and nobody is at it.
type left struct {
	batch.Batch
	t     *testing.T
	c     *client
	table *dynamo.Store
	reqs  []request
}

// later has nobody look at the batch before the test says so.
func later(b *batch.Batch) { b.Due = time.Now().Add(20 * time.Hour) }

// leave makes one that is as change makes it.
func leave(t *testing.T, c *client, parts int, change func(*batch.Batch)) *left {
	t.Helper()
	cfg := awsConfig(t)
	l := &left{t: t, c: c, table: dynamo.Open(cfg, env(t, "HOLDFAST_TABLE")), reqs: slow(5*parts, "sim")}
	f, err := l.table.Files.Get(t.Context(), c.tenant, c.upload(t, "left.jsonl", file(l.reqs)).ID)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l.Batch = batch.Batch{
		Tenant: c.tenant, ID: batch.NewID(), Submitter: "somebody@example.com", Endpoint: "/v1/chat/completions", Window: "24h",
		Input: batch.Input{FileID: f.ID, Object: f.Object}, CreatedAt: now.Add(-time.Hour), Deadline: now.Add(23 * time.Hour),
	}
	l.Workflow = l.ID
	change(&l.Batch)
	if err := l.table.Batches.Create(t.Context(), l.Batch); err != nil {
		t.Fatal(err)
	}
	results := env(t, "HOLDFAST_RESULTS_BUCKET")
	planner, err := batch.NewPlanner(l.table.Batches, l.table.Parts, objects.New(cfg, &objects.Options{ResultsBucket: results}), results, &batch.PlannerOptions{PartLines: 5})
	if err != nil {
		t.Fatal(err)
	}
	if plan, err := planner.Plan(t.Context(), c.tenant, l.ID, now); err != nil || len(plan.Parts) != parts {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	return l
}

func (l *left) part(n int) batch.Part {
	l.t.Helper()
	p, err := l.table.Parts.Get(l.t.Context(), batch.PartKey{Tenant: l.Tenant, Batch: l.ID, N: n})
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// try is a worker that claims part n and gives it back without having done a line,
// so many times.
func (l *left) try(n, times int) {
	l.t.Helper()
	for range times {
		c := batch.Claim{PartKey: l.part(n).PartKey, Token: lease.NewToken()}
		if _, err := l.table.Claims.Claim(l.t.Context(), c, "", 99, time.Now().Add(time.Minute), time.Now()); err != nil {
			l.t.Fatal(err)
		}
		if err := l.table.Claims.Fail(l.t.Context(), c, "so the test says", time.Now().Add(time.Hour), time.Now()); err != nil {
			l.t.Fatal(err)
		}
	}
}

// die is one that claimed part n an hour ago and went without a word. The minute's
// tick may find that before the test goes on.
func (l *left) die(n int) {
	l.t.Helper()
	ago := time.Now().Add(-time.Hour)
	if _, err := l.table.Claims.Claim(l.t.Context(), batch.Claim{PartKey: l.part(n).PartKey, Token: lease.NewToken()}, "", 99, ago, ago); err != nil {
		l.t.Fatal(err)
	}
}

// lose makes part n's message one that is overdue.
func (l *left) lose(n int) {
	l.t.Helper()
	if _, err := l.table.Reaps.Postpone(l.t.Context(), l.part(n), time.Now().Add(-time.Minute), time.Now()); err != nil {
		l.t.Fatal(err)
	}
}

// nudge has the batch looked at now, as it would be in ten minutes.
func (l *left) nudge() {
	l.t.Helper()
	if err := l.table.Reaps.Defer(l.t.Context(), l.Tenant, l.ID, time.Now().Add(-time.Minute), time.Now()); err != nil {
		l.t.Fatal(err)
	}
	reapNow(l.t)
}

// states waits until the parts are in these states.
func (l *left) states(want ...batch.State) {
	l.t.Helper()
	var got []string
	poll(l.t, 90*time.Second, func() bool {
		got = nil
		for n := range want {
			got = append(got, string(l.part(n).State))
		}
		for n, s := range want {
			if got[n] != string(s) {
				return false
			}
		}
		return true
	}, func() string { return strings.Join(got, ", ") })
}

// kinds are those of the batch's events, as the command line shows them.
func (l *left) kinds() map[string]int {
	l.t.Helper()
	out, said, code := cli(l.t, []string{"HOLDFAST_API_KEY=" + l.c.key}, "events", l.ID, "--json")
	var list openai.List[openai.BatchEvent]
	if err := json.Unmarshal(out, &list); err != nil || code != 0 {
		l.t.Fatalf("events: exit %d, %v, %s%s", code, err, out, said)
	}
	kinds := map[string]int{}
	for _, e := range list.Data {
		kinds[e.Kind]++
	}
	return kinds
}

// check holds the closed batch to its counts, and each line to its place: failed
// ones are those of the parts named, with this code.
func (l *left) check(b openai.Batch, code string, failed ...int) {
	l.t.Helper()
	n := 5 * len(failed)
	if b.RequestCounts != (openai.RequestCounts{Total: len(l.reqs), Completed: len(l.reqs) - n, Failed: n}) {
		l.t.Fatalf("%s with %+v", b.Status, b.RequestCounts)
	}
	lost := map[int]bool{}
	for _, part := range failed {
		lost[part] = true
	}
	var done, not []request
	for i, r := range l.reqs {
		if lost[i/5] {
			not = append(not, r)
		} else {
			done = append(done, r)
		}
	}
	for file, want := range map[*string][]request{b.OutputFileID: done, b.ErrorFileID: not} {
		if file == nil {
			if len(want) > 0 {
				l.t.Errorf("no file for %d lines", len(want))
			}
			continue
		}
		got := results(l.t, l.c, *file)
		if len(got) != len(want) {
			l.t.Fatalf("%d lines, want %d", len(got), len(want))
		}
		for i, r := range got {
			if string(r.CustomID) != want[i].rawID || file == b.ErrorFileID && (r.Error == nil || r.Error.Code != code) {
				l.t.Errorf("line %d: %+v", i, r)
			}
		}
	}
}

// A worker dies, another thrice, a message is lost, and nobody is at the batch: a
// tick of the reaper, and everything goes on. What died thrice waits for somebody
// to redrive it; what waited in vain is closed.
func TestReaperBringsABatchBack(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read,admin")
	l := leave(t, c, 4, later)
	l.try(3, 3)
	if _, err := l.table.Deaths.Declare(t.Context(), l.part(3), 3, time.Now(), time.Now().Add(-time.Minute), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	l.try(1, 2)
	l.die(1)
	l.die(0)
	l.lose(2)
	l.nudge()
	l.states(batch.Done, batch.Dead, batch.Done, batch.Sealed)
	if p := l.part(0); p.Lapses != 1 {
		t.Errorf("part 0 lapsed %d times", p.Lapses)
	}
	as := []string{"HOLDFAST_API_KEY=" + c.key}
	if out, said, code := cli(t, as, "dead", "list"); code != 0 || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), l.ID+"  part 1") {
		t.Errorf("dead list: exit %d, %s%s", code, out, said)
	}
	if out, said, code := cli(t, as, "dead", "redrive", l.ID, "0"); code != 1 || !strings.Contains(string(said), "part_not_dead") {
		t.Errorf("redrive of part 0: exit %d, %s%s", code, out, said)
	}
	if out, said, code := cli(t, as, "dead", "redrive", l.ID, "1"); code != 0 {
		t.Errorf("redrive: exit %d, %s%s", code, out, said)
	}
	l.states(batch.Done, batch.Done, batch.Done, batch.Sealed)
	l.nudge()
	b := c.wait(t, l.ID, time.Minute)
	if b.Status != openai.StatusCompleted {
		t.Errorf("it is %s", b.Status)
	}
	l.check(b, "part_dead", 3)
	c.verified(t, b) // the dead part's lines are accounted for, without a receipt
	kinds := l.kinds()
	for kind, least := range map[string]int{"lease_expired": 2, "dead": 1, "redriven": 1, "sealed": 1, "resent": 1, "restarted": 1} {
		if kinds[kind] < least {
			t.Errorf("events %v: %s", kinds, kind)
		}
	}
	if out, said, code := cli(t, as, "dead", "redrive", l.ID, "3"); code != 1 || !strings.Contains(string(said), "batch_not_running") {
		t.Errorf("redrive of a closed batch: exit %d, %s%s", code, out, said)
	}
}

// The queue is gone with all its messages, and so is the execution: a tenant's
// administrator doesn't wait for the minute.
func TestReclaimByCommandLine(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read,admin")
	l := leave(t, c, 3, later)
	for n := range 3 {
		l.lose(n)
	}
	as := []string{"HOLDFAST_API_KEY=" + c.key}
	out, said, code := cli(t, as, "reclaim", "--json")
	var r reap.Report
	if err := json.Unmarshal(out, &r); err != nil || code != 0 || r.Failed > 0 || r.Left > 0 {
		t.Fatalf("reclaim: exit %d, %s%s", code, out, said)
	}
	l.states(batch.Done, batch.Done, batch.Done)
	l.nudge()
	b := c.wait(t, l.ID, time.Minute)
	if b.Status != openai.StatusCompleted {
		t.Errorf("it is %s", b.Status)
	}
	l.check(b, "")
	if a := modelAccount(t, l.ID); a.Requests != len(l.reqs) {
		t.Errorf("%d requests for %d lines", a.Requests, len(l.reqs))
	}
}

// A batch is past its window while one of its parts is held by a worker that died:
// what was not run ends as expired.
func TestExpiry(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	l := leave(t, c, 3, func(b *batch.Batch) {
		b.Window, b.Deadline, b.Due = "15s", time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	})
	l.die(1)
	l.nudge()
	b := c.wait(t, l.ID, time.Minute)
	if b.Status != openai.StatusExpired || b.ExpiredAt == nil || b.CompletedAt != nil {
		t.Errorf("batch %+v", b)
	}
	l.check(b, "batch_expired", 0, 1, 2)
	if kinds := l.kinds(); kinds["ending"] != 1 {
		t.Errorf("events %v", kinds)
	}
	if a := modelAccount(t, l.ID); a.Requests != 0 {
		t.Errorf("%d requests", a.Requests)
	}
}

// Somebody stops a batch's execution, which is no cancel: the batch ends all the
// same, with every line run.
func TestStoppedExecution(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	reqs := slow(600, "sim-slow-500")
	id := c.create(t, c.upload(t, "stopped.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	var b openai.Batch
	poll(t, time.Minute, func() bool {
		b = get[openai.Batch](t, c, "/v1/batches/"+id)
		return b.Status == openai.StatusInProgress && modelAccount(t, id).Requests > 0
	}, func() string { return b.Status })
	execution := strings.Replace(env(t, "HOLDFAST_STATE_MACHINE_ARN"), ":stateMachine:", ":execution:", 1) + ":" + id
	if _, err := sfn.NewFromConfig(awsConfig(t)).StopExecution(t.Context(), &sfn.StopExecutionInput{ExecutionArn: &execution}); err != nil {
		t.Fatal(err)
	}
	if got := executionStatus(t, id); got != "ABORTED" {
		t.Errorf("the execution is %s", got)
	}
	l := &left{Batch: batch.Batch{Tenant: c.tenant, ID: id}, t: t, c: c, table: dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))}
	poll(t, 2*time.Minute, func() bool { return l.kinds()["restarted"] > 0 }, func() string { return "nobody noticed that its execution was stopped" })
	l.states(batch.Done, batch.Done)
	l.nudge() // the new execution's messages may be hidden for a lease still
	b = c.wait(t, id, 3*time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: 600, Completed: 600}) {
		t.Errorf("%s with %+v", b.Status, b.RequestCounts)
	}
	all := make([]int, len(reqs))
	for i := range all {
		all[i] = i
	}
	got := results(t, c, *b.OutputFileID)
	if len(got) != len(all) {
		t.Fatalf("%d lines", len(got))
	}
	for i, r := range got {
		if string(r.CustomID) != reqs[i].rawID {
			t.Fatalf("line %d is %s", i, r.CustomID)
		}
	}
	if a := modelAccount(t, id); len(a.Lines) != len(reqs) || a.Requests != len(reqs) {
		t.Errorf("%d requests for %s lines", a.Requests, strconv.Itoa(len(a.Lines)))
	}
}
