package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/cost"
)

// costReport is the answer of holdfast cost; with --json as it is.
type costReport struct {
	Batch  string `json:"batch"`
	Tenant string `json:"tenant"`
	Status string `json:"status"`
	Lines  int64  `json:"lines"`
	Parts  int    `json:"parts"`
	cost.Bill
	PerMillion float64               `json:"per_million_lines"`
	Committed  int                   `json:"lines_committed"` // by invocations whose usage line was found
	Unbilled   int64                 `json:"lines_unbilled"`  // got a reply, of others: the bill is short of those
	AbsentLogs []string              `json:"absent_logs,omitempty"`
	Requests   int64                 `json:"upstream_requests"`
	WaitedMS   int64                 `json:"upstream_ms"`
	Runs       map[string]int        `json:"invocations"`
	Calls      map[string]cost.Calls `json:"calls"`
	Workflow   struct {
		Transitions int `json:"transitions"`
		Messages    int `json:"messages"`
		Children    int `json:"children"`
	} `json:"workflow"`
}

func newCostReport(b batch.Batch, sum *cost.Sum, bill cost.Bill, x workflow.Execution) costReport {
	r := costReport{
		Batch: b.ID, Tenant: b.Tenant, Status: string(b.Status), Lines: b.Lines, Parts: b.Parts, Bill: bill,
		Committed: sum.Lines, Requests: sum.Upstream.Requests, WaitedMS: sum.Upstream.Waited, Runs: sum.Runs, Calls: sum.Calls,
	}
	r.Workflow.Transitions, r.Workflow.Messages, r.Workflow.Children = x.Transitions, x.Messages, x.Children
	if b.Lines > 0 {
		r.PerMillion = bill.Total / float64(b.Lines) * 1e6
	}
	if b.Status.Terminal() {
		r.Unbilled = max(replied(b)-int64(sum.Lines), 0)
	}
	return r
}

func (a *app) printCost(r costReport) error {
	var out strings.Builder
	soFar := ""
	if !batch.Status(r.Status).Terminal() {
		soFar = " so far"
	}
	fmt.Fprintf(&out, "%s  %s, %s, %s\n", r.Batch, r.Status, number(r.Lines, "line", "lines"), number(r.Parts, "part", "parts"))
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kind\tcount\tunit\t$\tfloor $\t")
	for _, l := range r.Bill.Lines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.6f\t%.6f\t\n", l.Name, quantity(l.Quantity), l.Unit, l.Dollars, l.Floor)
	}
	fmt.Fprintf(w, "total%s\t\t\t%.6f\t%.6f\t\n", soFar, r.Total, r.Floor)
	if r.Lines > 0 {
		fmt.Fprintf(w, "per million lines\t\t\t%.4f\t%.4f\t\n", r.PerMillion, r.Floor/float64(r.Lines)*1e6)
	}
	_ = w.Flush() // to memory
	fmt.Fprintf(&out, "\n%s waited %.1f s in sum, in %s of work\n", number(r.Requests, "request", "requests"), float64(r.WaitedMS)/1000, number(r.Runs["work"], "run", "runs"))
	w = tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "call\tanswered\tfailed\tread units\twrite units\t")
	for _, name := range slices.Sorted(maps.Keys(r.Calls)) {
		c := r.Calls[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t\n", name, c.Answered, c.Failed, quantity(c.Reads), quantity(c.Writes))
	}
	_ = w.Flush()
	if r.Unbilled > 0 {
		fmt.Fprintf(&out, `
The bill is too small: %s got a reply in invocations of which no
usage line was found. One that died wrote none; logs take some seconds to
arrive; and a run that goes on with other batches writes its own at its end.
`, number(r.Unbilled, "line", "lines"))
	}
	for _, name := range r.AbsentLogs {
		fmt.Fprintf(&out, "\nThere is no log group %s: what that function did is not in the bill.\n", name)
	}
	fmt.Fprintf(&out, `
Prices of %s, %s, arm64, no free tier. Not in it: what is stored (input,
results, logs, table), data sent to the internet, the upstream service itself,
the upload of the input file, invocations that died before they logged their
usage, executions that only finished a batch which had ended early, and what
the stack costs idle. See docs/cost.md.
`, r.Date, r.Region)
	return a.print("%s", out.String())
}

// quantity shows whole numbers as such.
func quantity(n float64) string {
	switch {
	case n == 0:
		return "-"
	case n == float64(int64(n)):
		return fmt.Sprint(int64(n))
	case n < 1:
		return fmt.Sprintf("%.6f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

// awsTrouble words why the account didn't answer.
func (a *app) awsTrouble(what string, err error) error {
	_, isDNS := errors.AsType[*net.DNSError](err)
	_, isDial := errors.AsType[*net.OpError](err)
	_, isSent := errors.AsType[*url.Error](err)
	const local = " With a local stack: . .local/env"
	switch {
	case strings.Contains(err.Error(), "get credentials: "):
		return failed("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."+local, err, "can't %s: there are no AWS credentials that serve", what)
	case isDNS || isDial || isSent:
		return failed("Is the stack up (make up)? Check AWS_ENDPOINT_URL, the credentials and the region."+local, err, "can't %s: the endpoint doesn't answer: %v", what, err)
	}
	return failed("It needs dynamodb:GetItem, states:DescribeExecution, states:GetExecutionHistory, states:ListMapRuns, states:DescribeMapRun and logs:FilterLogEvents.", err,
		"can't %s: %v", what, err)
}
