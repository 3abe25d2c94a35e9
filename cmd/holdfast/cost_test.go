package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/aws/logs"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/config"
)

// books is an account in process.
type books struct {
	x     workflow.Execution
	b     batch.Batch
	lines map[string][]string // by log group
	err   error               // of the first call of the kind in at
	at    string
	next  []workflow.Execution // those that replaced x, by their names' numbers from 2
	// When work's lines arrived; zero: whenever they are asked for.
	workAt time.Time
	absent []string  // log groups that aren't there
	from   time.Time // as asked of the logs
	to     map[string]time.Time
}

func (k *books) Execution(_ context.Context, name string) (workflow.Execution, error) {
	if k.at == "execution" {
		return workflow.Execution{}, k.err
	}
	for i, x := range k.next {
		if name == fmt.Sprintf("%s-%d", k.x.Batch, i+2) {
			return x, nil
		}
	}
	if name != k.x.Batch {
		return workflow.Execution{}, fmt.Errorf("read: %w", batch.ErrNotFound)
	}
	return k.x, nil
}

func (k *books) Batch(_ context.Context, tenant, id string) (batch.Batch, error) {
	if k.at == "batch" {
		return batch.Batch{}, k.err
	}
	return k.b, nil
}

func (k *books) Lines(_ context.Context, group string, from, to time.Time, terms ...string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if k.to == nil {
			k.to = map[string]time.Time{}
		}
		k.from, k.to[group] = from, to
		if slices.Contains(k.absent, group) {
			yield("", fmt.Errorf("find: %w", logs.ErrNoGroup))
			return
		}
		if strings.HasSuffix(group, "/work") && k.workAt.After(to) {
			return
		}
		if k.at == "logs" {
			yield("", k.err)
			return
		}
		for _, line := range k.lines[group] {
			has := true
			for _, term := range terms {
				has = has && strings.Contains(line, term)
			}
			if has && !yield(line, nil) {
				return
			}
		}
	}
}

const billed = "batch_4f2a9c1e7b3d5f60a1b2c3d4e5f60718"

func newBooks(created time.Time) *books {
	line := func(function, share string) string {
		return `{"msg":"usage","v":1,"function":"` + function + `","mb":1024,"ms":1000,"k":2,"batches":[{"tenant":"acme","batch":"` + billed + `","part":1,` + share + `}]}`
	}
	return &books{
		x: workflow.Execution{Tenant: "acme", Batch: billed, Transitions: 8, Messages: 1},
		b: batch.Batch{Tenant: "acme", ID: billed, Status: batch.Completed, Lines: 4, Parts: 1, CreatedAt: created, CompletedAt: created.Add(time.Minute)},
		lines: map[string][]string{
			"/holdfast/plan": {line("plan", `"calls":{"DynamoDB.PutItem":{"n":1,"w":2}}`)},
			"/holdfast/work": {
				`{"msg":"ran","batch":"` + billed + `","why":"usage of words"}`,
				line("work", `"lines":4,"calls":{"S3.PutObject":{"n":1}},"upstream":{"n":5,"ms":900}`),
			},
		},
	}
}

// withBooks is a house whose operator has this account.
func withBooks(t *testing.T, k *books) *house {
	h := newHouse(t)
	h.env[config.EnvTable] = "t"
	h.env[config.EnvStateMachineARN] = "arn:aws:states:us-east-1:000000000000:stateMachine:holdfast"
	h.account = k
	return h
}

func TestCost(t *testing.T) {
	created := time.Now().Add(-time.Hour)
	k := newBooks(created)
	h := withBooks(t, k)
	r := h.run("cost", billed).is(0)
	for _, want := range []string{"completed, 4 lines, 1 part", "work functions", "table writes", "object puts", "total", "per million lines", "5 requests waited 0.9 s", "no free tier"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("not said: %q in\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "so far") {
		t.Error("an ended batch is billed so far")
	}
	if !k.from.Before(created) {
		t.Errorf("logs from %v of a batch of %v", k.from, created)
	}
	for group, to := range k.to { // those of API and reaper end with the batch
		late := to.Sub(k.b.CompletedAt)
		if long := group == "/holdfast/work" || group == "/holdfast/finish"; late < time.Minute || long != (late > 15*time.Minute) || late > 20*time.Minute {
			t.Errorf("logs of %s until %v after the batch's end", group, late)
		}
	}
	var out struct {
		Batch     string
		Lines     int
		Committed int `json:"lines_committed"`
		Kinds     []struct {
			Kind            string
			Dollars, Floor  float64
			Quantity, Price float64
		}
		Total, Floor float64
		PerMillion   float64 `json:"per_million_lines"`
	}
	h.run("cost", billed, "--json").is(0).object(&out)
	// Work: one second of 1 GB; waiting 900 ms in two slots.
	if out.Batch != billed || out.Lines != 4 || out.Committed != 4 || len(out.Kinds) < 6 || out.Kinds[0].Kind != "compute" ||
		out.Kinds[0].Quantity != 1 || out.Kinds[0].Floor/out.Kinds[0].Price < 0.449 || out.Kinds[0].Floor/out.Kinds[0].Price > 0.451 {
		t.Errorf("bill %+v", out)
	}
	if per := out.Total / 4 * 1e6; per < out.PerMillion*0.999 || per > out.PerMillion*1.001 {
		t.Errorf("$%v in all, $%v per million", out.Total, out.PerMillion)
	}
}

// A run of work that goes on with another batch writes its line long after this
// one's end.
func TestCostOfARunThatGoesOn(t *testing.T) {
	k := newBooks(time.Now().Add(-time.Hour))
	k.workAt = k.b.CompletedAt.Add(14 * time.Minute)
	var out costReport
	withBooks(t, k).run("cost", billed, "--json").is(0).object(&out)
	if out.Runs["work"] != 1 || out.Committed != 4 || out.Unbilled != 0 {
		t.Errorf("%d runs, %d lines committed, %d unbilled", out.Runs["work"], out.Committed, out.Unbilled)
	}
}

// A worker that died wrote no usage. The bill says how much it is short of.
func TestCostSaysWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*books)
		unbilled int64
		said     string
	}{
		"nothing":      {func(k *books) {}, 0, ""},
		"of two lines": {func(k *books) { k.b.Lines = 6 }, 2, "too small: 2 lines"},
		"not known yet": {func(k *books) {
			k.b.Lines, k.b.Status, k.b.CompletedAt = 6, batch.InProgress, time.Time{}
		}, 0, ""},
		"lines that were never sent": {func(k *books) {
			k.b.Lines, k.b.Status, k.b.Counts = 6, batch.Cancelled, batch.Counts{Total: 6, Completed: 4, Failed: 2}
		}, 0, ""},
		"of those that were": {func(k *books) {
			k.b.Lines, k.b.Status, k.b.Counts = 9, batch.Expired, batch.Counts{Total: 9, Completed: 7, Failed: 2}
		}, 3, "too small: 3 lines"},
		"a dead part": {func(k *books) {
			k.b.Lines, k.b.Counts, k.b.Troubles.Dead = 6, batch.Counts{Total: 6, Completed: 4, Failed: 2}, 1
		}, 0, ""},
		"a log group": {func(k *books) { k.absent = []string{"/holdfast/reap"} }, 0, "no log group /holdfast/reap"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newBooks(time.Now().Add(-time.Hour))
			c.change(k)
			h := withBooks(t, k)
			var out costReport
			h.run("cost", billed, "--json").is(0).object(&out)
			if out.Unbilled != c.unbilled || !slices.Equal(out.AbsentLogs, k.absent) {
				t.Errorf("%d unbilled, no logs %v", out.Unbilled, out.AbsentLogs)
			}
			r := h.run("cost", billed).is(0)
			if !strings.Contains(r.stdout, c.said) || (c.said == "") == (strings.Contains(r.stdout, "too small") || strings.Contains(r.stdout, "no log group")) {
				t.Errorf("said:\n%s", r.stdout)
			}
		})
	}
}

// An execution that fell was replaced, and both are billed.
func TestCostOfARestart(t *testing.T) {
	k := newBooks(time.Now().Add(-time.Hour))
	k.next = []workflow.Execution{
		{Tenant: "acme", Batch: billed, Transitions: 20, Messages: 3, Children: 2},
		{Tenant: "acme", Batch: "batch_other", Transitions: 1000},
	}
	var out costReport
	withBooks(t, k).run("cost", billed, "--json").is(0).object(&out)
	if w := out.Workflow; w.Transitions != 28 || w.Messages != 4 || w.Children != 2 {
		t.Errorf("workflow %+v", w)
	}
}

func TestCostOfARunningBatch(t *testing.T) {
	k := newBooks(time.Now().Add(-time.Minute))
	k.b.Status, k.b.CompletedAt = batch.InProgress, time.Time{}
	if r := withBooks(t, k).run("cost", billed).is(0); !strings.Contains(r.stdout, "total so far") {
		t.Errorf("said:\n%s", r.stdout)
	}
}

func TestCostRefusals(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		change func(*books, *house)
		args   []string
		code   int
		want   string
	}{
		"no id":      {nil, []string{"cost", "4711"}, 2, "not the id of a batch"},
		"no batch":   {nil, []string{"cost"}, 2, "name a BATCH: holdfast cost BATCH"},
		"unknown":    {nil, []string{"cost", billed[:len(billed)-1] + "0"}, 1, "90 days"},
		"aged out":   {func(k *books, _ *house) { k.err, k.at = fmt.Errorf("get: %w", batch.ErrNotFound), "batch" }, nil, 1, "has no batch"},
		"logs gone":  {func(k *books, _ *house) { k.b.CreatedAt = now.Add(-40 * 24 * time.Hour) }, nil, 1, "created 40 days ago"},
		"no usage":   {func(k *books, _ *house) { k.lines = nil }, nil, 1, "no usage"},
		"no group":   {func(k *books, _ *house) { k.err, k.at = fmt.Errorf("find: %w", logs.ErrNoGroup), "logs" }, nil, 1, "--logs"},
		"settings":   {func(_ *books, h *house) { h.env["HOLDFAST_LEASE"] = "1x" }, nil, 2, "holdfast config"},
		"no table":   {func(_ *books, h *house) { delete(h.env, config.EnvTable) }, nil, 2, "HOLDFAST_TABLE"},
		"no machine": {func(_ *books, h *house) { h.env[config.EnvStateMachineARN] = "machine" }, nil, 2, "HOLDFAST_STATE_MACHINE_ARN"},
		"no credentials": {func(k *books, _ *house) {
			k.err, k.at = errors.New("operation error: get credentials: none"), "execution"
		}, nil, 1, "no AWS credentials that serve"},
		"no endpoint": {func(k *books, _ *house) {
			k.err, k.at = &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}, "logs"
		}, nil, 1, "Is the stack up"},
		"not allowed": {func(k *books, _ *house) { k.err, k.at = errors.New("AccessDenied"), "logs" }, nil, 1, "logs:FilterLogEvents"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newBooks(now.Add(-time.Hour))
			h := withBooks(t, k)
			if c.change != nil {
				c.change(k, h)
			}
			args := c.args
			if args == nil {
				args = []string{"cost", billed}
			}
			h.run(args...).is(c.code, c.want)
		})
	}
}
