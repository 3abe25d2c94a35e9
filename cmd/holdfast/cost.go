package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/logs"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/cost"
)

// account is what a bill is read from.
type account interface {
	// Execution is the batch's workflow. batch.ErrNotFound.
	Execution(ctx context.Context, name string) (workflow.Execution, error)
	// Batch reads the batch. batch.ErrNotFound.
	Batch(ctx context.Context, tenant, id string) (batch.Batch, error)
	// Lines are a log group's that hold all of the terms. logs.ErrNoGroup.
	Lines(ctx context.Context, group string, from, to time.Time, terms ...string) iter.Seq2[string, error]
}

// awsAccount is the account of the AWS credentials at hand.
type awsAccount struct {
	*workflow.History
	batches *dynamo.Batches
	logs    *logs.Logs
}

func (a awsAccount) Batch(ctx context.Context, tenant, id string) (batch.Batch, error) {
	return a.batches.Get(ctx, tenant, id)
}

func (a awsAccount) Lines(ctx context.Context, group string, from, to time.Time, terms ...string) iter.Seq2[string, error] {
	return a.logs.Find(ctx, group, from, to, terms...)
}

func openAccount(ctx context.Context, res config.Resources) (account, error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	return awsAccount{workflow.NewHistory(cfg, res.StateMachineARN), dynamo.Open(cfg, res.Table).Batches, logs.New(cfg)}, nil
}

const (
	// logsKept is how long the stack keeps its functions' logs.
	logsKept = 30 * 24 * time.Hour

	// logsLate is how much later than its invocation a usage line may arrive.
	logsLate = 2 * time.Minute

	// longestRun is how long Lambda lets an invocation run at most.
	longestRun = 15 * time.Minute
)

// metered are the functions that write usage lines.
var metered = []string{"api", "ingest", "plan", "work", "finish", "reap", "gateway"}

func (a *app) cost() *cobra.Command {
	var group string
	c := &cobra.Command{
		Use:   "cost BATCH",
		Short: "Show what a batch cost, in dollars",
		Long: `Show what a batch cost on AWS, with the AWS credentials at hand.

It adds up the usage lines that the functions logged for the batch and what the
history of its workflow says, and prices them by the table of ` + cost.Date + ` for
` + cost.Region + `, arm64, without any free tier. Beside each kind is its floor: what
these lines would have cost with every slot in use and no call to spare.

Needs HOLDFAST_TABLE and HOLDFAST_STATE_MACHINE_ARN, and permission to read the
table, the executions and the logs. Logs are kept for 30 days.`,
		Example: "  holdfast cost batch_4f2a9c1e7b3d5f60a1b2c3d4e5f60718",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.runCost(c.Context(), args[0], group) },
	}
	c.Flags().StringVar(&group, "logs", "/holdfast", "what the names of the functions' log groups begin with: the stack's name")
	return c
}

func (a *app) runCost(ctx context.Context, id, group string) error {
	if !batch.ValidID(id) {
		return usage("It begins with batch_, as submit prints it.", "%q is not the id of a batch", id)
	}
	settings, err := config.Parse(a.getenv)
	if err != nil {
		return usage("They must be those of the stack, whose checkpoints and timeouts the bill is reckoned by. See holdfast config.", "the settings won't do:\n%v", err)
	}
	res, err := config.ParseResources(a.getenv, config.Cost)
	if err != nil {
		return usage("With a local stack: . .local/env. On AWS they are the stack's outputs TableName and StateMachineArn.", "%v", err)
	}
	acc, err := a.accounts(ctx, res)
	if err != nil {
		return failed("Check the AWS credentials and region.", err, "can't reach the account: %v", err)
	}
	x, err := acc.Execution(ctx, id)
	if errors.Is(err, batch.ErrNotFound) {
		return failed("Is the id right, and HOLDFAST_STATE_MACHINE_ARN that of the stack which ran it? AWS forgets executions after 90 days.", err,
			"no workflow of %s is known", id)
	}
	if err != nil {
		return a.awsTrouble("read the workflow of "+id, err)
	}
	b, err := acc.Batch(ctx, x.Tenant, id)
	if errors.Is(err, batch.ErrNotFound) {
		return failed("Is HOLDFAST_TABLE that of the stack which ran it?", err, "the table %s has no batch %s", res.Table, id)
	}
	if err != nil {
		return a.awsTrouble("read "+id, err)
	}
	if age := a.now().Sub(b.CreatedAt); age > logsKept {
		return failed("", nil, "the logs of %s are gone: it was created %d days ago, and logs are kept for %d", id, int(age.Hours()/24), int(logsKept.Hours()/24))
	}
	if err := a.restarts(ctx, acc, b, &x); err != nil {
		return err
	}
	r, err := a.reckon(ctx, acc, b, x, group, settings.CheckpointLines)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	return a.printCost(r)
}

// restarts adds the executions that replaced the batch's first, which fell.
func (a *app) restarts(ctx context.Context, acc account, b batch.Batch, x *workflow.Execution) error {
	for _, name := range batch.Successors(b) {
		next, err := acc.Execution(ctx, name)
		if errors.Is(err, batch.ErrNotFound) {
			return nil // one is started only when the one before it is there
		}
		if err != nil {
			return a.awsTrouble("read the workflow of "+b.ID, err)
		}
		if next.Batch == b.ID && next.Tenant == b.Tenant {
			x.Transitions, x.Messages, x.Children = x.Transitions+next.Transitions, x.Messages+next.Messages, x.Children+next.Children
		}
	}
	return nil
}

// reckon reads the usage lines and makes the bill.
//
// A line is written at an invocation's end. A run of work goes on with other
// batches when this one is over, and finish sweeps up after it, as long as a
// function may run: their logs are read that far. Those of the API and the reaper
// end with the batch: whoever looked at it afterwards is not on its bill.
func (a *app) reckon(ctx context.Context, acc account, b batch.Batch, x workflow.Execution, group string, checkpointLines int) (costReport, error) {
	sum := cost.NewSum(b.Tenant, b.ID)
	var absent []string
	for _, function := range metered {
		name, to := group+"/"+function, a.now()
		if end := endedAt(b); !end.IsZero() {
			to = end.Add(logsLate)
			if function == "work" || function == "finish" {
				to = to.Add(longestRun)
			}
		}
		for line, err := range acc.Lines(ctx, name, b.CreatedAt.Add(-time.Minute), to, b.ID, cost.UsageMessage) {
			if errors.Is(err, logs.ErrNoGroup) {
				absent = append(absent, name) // of a stack from before there was this function
				break
			}
			if err != nil {
				return costReport{}, a.awsTrouble("read the logs of "+b.ID, err)
			}
			i, err := cost.ParseLine(line)
			if err != nil {
				continue // another line with the word and the id in it
			}
			sum.Add(i, len(line))
		}
	}
	if len(absent) == len(metered) {
		return costReport{}, failed("--logs names what the groups begin with: / and the stack's name in lower case.", logs.ErrNoGroup, "there is no log group %s", absent[0])
	}
	if len(sum.Runs) == 0 {
		return costReport{}, failed("Logs take some seconds to arrive. Functions deployed before there was this command logged no usage.", nil,
			"no usage of %s is logged", b.ID)
	}
	sum.Workflow(x.Transitions, x.Messages)
	floor := cost.Work{
		Lines: b.Lines, Parts: b.Parts, Waiting: float64(sum.Upstream.Waited), Slots: sum.Slots, Memory: sum.Memory,
		CheckpointLines: checkpointLines, Wide: x.Children > 0,
	}.Floor()
	r := newCostReport(b, sum, sum.Usage.Price(floor), x)
	r.AbsentLogs = absent
	return r, nil
}

// replied is how many of an ended batch's lines got a reply, at least: of one that
// ended early, or had a dead part, it isn't told which errors were replies.
func replied(b batch.Batch) int64 {
	if b.Status == batch.Completed && b.Troubles.Dead == 0 {
		return b.Lines
	}
	return b.Counts.Completed
}

// endedAt is when the batch became what it is; zero while it runs.
func endedAt(b batch.Batch) time.Time {
	for _, t := range []time.Time{b.CompletedAt, b.FailedAt, b.ExpiredAt, b.CancelledAt} {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}
