package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

const submitter = "somebody@example.com" // whose keys newKey makes

// answer is what the gateway says.
type answer struct {
	status int
	code   string
	body   string
	id     string
}

// gate posts a body to an endpoint of the gateway with whatever headers.
func (c *client) gate(t *testing.T, path, body string, headers map[string]string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", strings.TrimRight(env(t, "HOLDFAST_GATEWAY_URL"), "/")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	for name, value := range headers {
		req.Header.Set(name, value)
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
	var said struct{ Error struct{ Code string } }
	_ = json.Unmarshal(b, &said) // what is no error has none
	return answer{resp.StatusCode, said.Error.Code, string(b), resp.Header.Get("X-Request-Id")}
}

// replays is what a key with batch_replay says of itself; line "" names none.
func replays(tenant, batch, line string) map[string]string {
	h := map[string]string{"X-Tenant-ID": tenant, "X-Batch-ID": batch}
	if line != "" {
		h["X-Batch-Line"] = line
	}
	return h
}

// seed puts a batch of three lines into the table that is as if it had come there: no
// workflow knows of it. It goes when the test ends, so that nobody looks after it.
func (e *estate) seed(t *testing.T, status, ending batch.Status) string {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	b := batch.Batch{
		Tenant: e.tenant, ID: batch.NewID(), Status: batch.Validating, Submitter: submitter, Endpoint: "/v1/chat/completions",
		Input: batch.Input{FileID: "file-none", Object: batch.Object{Bucket: "none", Key: "none"}}, Window: "24h", CreatedAt: now, Deadline: now.Add(24 * time.Hour),
	}
	e.end(t, b, status, ending, now)
	gone := dynamodb.NewFromConfig(awsConfig(t))
	t.Cleanup(func() {
		if _, err := gone.DeleteItem(context.WithoutCancel(t.Context()), &dynamodb.DeleteItemInput{TableName: aws.String(env(t, "HOLDFAST_TABLE")), Key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "T#" + e.tenant + "#B#" + b.ID}, "sk": &types.AttributeValueMemberS{Value: "META"},
		}}); err != nil {
			t.Error(err)
		}
	})
	return b.ID
}

// end stores the batch and takes it where it shall be, by the table's own conditions.
func (e *estate) end(t *testing.T, b batch.Batch, status, ending batch.Status, decided time.Time) {
	t.Helper()
	ctx, tok, now := t.Context(), lease.NewToken(), b.CreatedAt
	steps := []func() error{func() error { return e.table.Batches.Create(ctx, b) }}
	then := func(do func() (batch.Batch, error)) {
		steps = append(steps, func() error { _, err := do(); return err })
	}
	start := func() (batch.Batch, error) {
		return e.table.Batches.Start(ctx, b.Tenant, b.ID, batch.Started{Parts: 1, Lines: 3}, now)
	}
	switch {
	case status == batch.Failed:
		then(func() (batch.Batch, error) {
			return e.table.Batches.Refuse(ctx, b.Tenant, b.ID, []openai.BatchError{{Code: "empty_file", Message: "none"}}, now)
		})
	case status != batch.Validating:
		then(start)
	}
	if ending != "" {
		then(func() (batch.Batch, error) { return e.table.Endings.End(ctx, b.Tenant, b.ID, ending, decided) })
	}
	if status == batch.Finalizing || status == ending && ending != "" {
		then(func() (batch.Batch, error) {
			return e.table.Endings.Finalize(ctx, b.Tenant, b.ID, tok, now.Add(time.Hour), now, now)
		})
	}
	if status == ending && ending != "" {
		then(func() (batch.Batch, error) {
			return e.table.Endings.Close(ctx, b.Tenant, b.ID, tok, batch.Closed{Counts: batch.Counts{Total: 3, Failed: 3}}, now)
		})
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := e.table.Batches.Get(ctx, b.Tenant, b.ID); err != nil || got.Status != status {
		t.Fatalf("seeded %s, want %s: %v", got.Status, status, err)
	}
}

// shelf is every receipt there.
func (e *estate) shelf(t *testing.T, tenant, name string) []access.Receipt {
	t.Helper()
	page, more, err := e.table.Receipts.List(t.Context(), tenant, name, "", access.MaxReceipts)
	if err != nil || more {
		t.Fatalf("receipts of %s: %v, more: %v", name, err, more)
	}
	return page
}

const replayBody = `{"model":"sim", "messages":[]}`

// A key of a worker elsewhere has leaked. It opens what the rule says for as long as
// the rule says, one answer tells nothing more than another, and what it opened is on
// record; nothing else is.
func TestLeakedReplayKeyDeployed(t *testing.T) {
	t.Parallel()
	victim, other := newEstate(t), newEstate(t)
	fleet := newTenant(t, "batch_replay")
	leaked := access.KeyID(access.HashSecret(fleet.key))
	allowed := map[string][]string{} // batch: the request ids of what was
	var refusals []answer
	refused := func(what string, headers map[string]string) {
		t.Helper()
		a := fleet.gate(t, "/v1/chat/completions", replayBody, headers)
		if a.status != 403 || a.code != "batch_replay_not_authorized" {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
		refusals = append(refusals, a)
	}
	allow := func(what, id, line string) {
		t.Helper()
		a := fleet.gate(t, "/v1/chat/completions", replayBody, replays(victim.tenant, id, line))
		if a.status != 200 || a.id == "" {
			t.Errorf("%s: %d %s", what, a.status, a.body)
			return
		}
		allowed[id] = append(allowed[id], a.id)
	}

	// A batch that really runs, and is cancelled: its lines take their time.
	reqs := slow(40, "sim-slow-4000")
	as := &client{victim.base, victim.tenant, newKey(t, victim.tenant, "submit,read"), victim.http}
	real := as.create(t, as.upload(t, "in.jsonl", file(reqs)).ID, "/v1/chat/completions").ID

	late := victim.overdue(t)
	for what, id := range map[string]string{
		"before it starts":         victim.seed(t, batch.Validating, ""),
		"cancelled before":         victim.seed(t, batch.Validating, batch.Cancelled),
		"whose lines are all over": victim.seed(t, batch.InProgress, batch.Completed),
		"finalizing":               victim.seed(t, batch.Finalizing, batch.Completed),
		"finalizing, cancelled":    victim.seed(t, batch.Finalizing, batch.Cancelled),
		"completed":                victim.seed(t, batch.Completed, batch.Completed),
		"failed":                   victim.seed(t, batch.Failed, ""),
		"cancelled":                victim.seed(t, batch.Cancelled, batch.Cancelled),
		"expired":                  victim.seed(t, batch.Expired, batch.Expired),
		"cancelled too long ago":   late,
		"that isn't there":         "batch_00000000000000000000000000",
		"of another tenant":        other.running,
	} {
		refused("a batch "+what, replays(victim.tenant, id, "0"))
		allowed[id] = nil
	}
	for what, ending := range map[string]batch.Status{"cancelling": batch.Cancelled, "expiring": batch.Expired} {
		allow(what+", not drained", victim.seed(t, batch.InProgress, ending), "")
	}
	mine := victim.running
	allow("in progress", mine, "2")
	if a := fleet.gate(t, "/v1/embeddings", `{"model":"sim","input":""}`, replays(victim.tenant, mine, "0")); a.code != "batch_replay_not_authorized" {
		t.Errorf("another endpoint than the batch's: %d %s", a.status, a.body)
	}
	if status, _, b := fleet.do(t, "GET", "/v1/batches/"+mine, "", nil); status != 403 || !strings.Contains(string(b), "batch_replay_not_authorized") {
		t.Errorf("at the API: %d %s", status, b)
	}
	for what, headers := range map[string]map[string]string{
		"no header":              nil,
		"no batch":               {"X-Tenant-ID": victim.tenant},
		"no tenant":              {"X-Batch-ID": mine},
		"another tenant":         replays(other.tenant, mine, "0"),
		"its own tenant":         replays(fleet.tenant, mine, "0"),
		"its own, without batch": {"X-Tenant-ID": fleet.tenant},
		"a line that it hasn't":  replays(victim.tenant, mine, "3"),
		"a line below none":      replays(victim.tenant, mine, "-1"),
		"two tenants":            replays(victim.tenant+", "+victim.tenant, mine, "0"),
		"two batches":            replays(victim.tenant, mine+","+mine, "0"),
		"a path":                 replays(victim.tenant, mine+"/../x", "0"),
		"a prefix of the key":    replays(victim.tenant+"#B#", mine, "0"),
	} {
		refused(what, headers)
	}

	poll(t, 30*time.Second, func() bool { return modelAccount(t, real).InFlight > 0 }, func() string { return "no line is sent" })
	allow("that really runs", real, "39")
	as.cancel(t, real)
	allow("that was cancelled just now", real, "0")
	b := as.ended(t, real, "replayed while it drained")
	end := time.Now()
	var last answer
	poll(t, 5*time.Second, func() bool { // so old may a view of it be
		last = fleet.gate(t, "/v1/chat/completions", replayBody, replays(victim.tenant, real, "1"))
		if last.status == 200 {
			allowed[real] = append(allowed[real], last.id)
		}
		return last.code == "batch_replay_not_authorized"
	}, func() string { return fmt.Sprintf("%d %s", last.status, last.body) })
	t.Logf("refused %v after its end, %d calls by then", time.Since(end).Round(time.Millisecond), len(allowed[real]))

	for _, r := range refusals {
		if r.body != refusals[0].body {
			t.Errorf("one refusal says more than another: %s, %s", r.body, refusals[0].body)
		}
	}
	for id, want := range allowed {
		var got []string
		for _, r := range victim.shelf(t, victim.tenant, id) {
			got = append(got, r.RequestID)
			if r.Tenant != victim.tenant || r.Batch != id || r.OnBehalfOf != submitter || r.Key != leaked || r.Model != "sim" || r.Completion == nil || r.Outcome != access.Replied || r.Status != 200 {
				t.Errorf("receipt %+v", r)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: receipts of %v, allowed %v", id, got, want)
		}
		if n := modelAccount(t, id).Requests; id != real && n != len(want) {
			t.Errorf("%s: the model got %d requests, %d were allowed", id, n, len(want))
		}
	}
	today := access.DayShelf(time.Now())
	for _, tenant := range []string{victim.tenant, other.tenant, fleet.tenant} {
		if r := victim.shelf(t, tenant, today); len(r) > 0 {
			t.Errorf("%s: receipts of no batch: %+v", tenant, r)
		}
	}
	if r := victim.shelf(t, other.tenant, other.running); len(r) > 0 {
		t.Errorf("another tenant's batch: %+v", r)
	}
	as.verified(t, b)
}

// overdue is a batch that was cancelled so long ago that nobody drains it any more,
// and yet isn't finalizing.
func (e *estate) overdue(t *testing.T) string {
	t.Helper()
	id := e.seed(t, batch.InProgress, "")
	if _, err := e.table.Endings.End(t.Context(), e.tenant, id, batch.Cancelled, time.Now().Add(-batch.MaxDrain)); err != nil {
		t.Fatal(err)
	}
	return id
}
