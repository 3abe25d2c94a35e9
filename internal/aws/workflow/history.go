package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"holdfast/internal/batch"
)

// Execution is what an execution was billed for.
type Execution struct {
	Tenant, Batch  string
	Started, Ended time.Time // Ended is zero while it runs
	// Transitions are the states that were entered and the tasks that were tried
	// again; of a child of a Distributed Map, its start and its one state.
	Transitions int
	// Messages are those that were sent to the work queue.
	Messages int
	Children int // executions of a Distributed Map
}

// History reads the executions of one state machine, for operators' programs. It
// needs states:DescribeExecution, GetExecutionHistory, ListMapRuns and
// DescribeMapRun.
type History struct {
	client  *sfn.Client
	machine string
}

// NewHistory returns the history of the state machine with this ARN. It makes no
// call.
func NewHistory(cfg aws.Config, stateMachineARN string) *History {
	return &History{sfn.NewFromConfig(cfg), stateMachineARN}
}

// Execution reads the execution of that name. batch.ErrNotFound where there is
// none (any more: they are kept for 90 days).
func (h *History) Execution(ctx context.Context, name string) (Execution, error) {
	e, err := h.execution(ctx, name)
	if err != nil {
		return Execution{}, fmt.Errorf("read execution %s: %w", name, err)
	}
	return e, nil
}

func (h *History) execution(ctx context.Context, name string) (e Execution, err error) {
	arn := strings.Replace(h.machine, ":stateMachine:", ":execution:", 1) + ":" + name
	out, err := h.client.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: &arn})
	if _, none := errors.AsType[*types.ExecutionDoesNotExist](err); none {
		return e, fmt.Errorf("%w: %w", batch.ErrNotFound, err)
	}
	if err != nil {
		return e, err
	}
	var in input
	if err := json.Unmarshal([]byte(aws.ToString(out.Input)), &in); err != nil {
		return e, fmt.Errorf("its input is none of Holdfast's: %w", err)
	}
	e = Execution{Tenant: in.Tenant, Batch: in.Batch, Started: aws.ToTime(out.StartDate), Ended: aws.ToTime(out.StopDate)}
	if err := h.events(ctx, arn, &e); err != nil {
		return e, err
	}
	return e, h.mapRuns(ctx, arn, &e)
}

// events counts what the history has. A state is billed when it is entered, and
// once more each time that its task is tried again, of which the history shows
// another task scheduled and no entry.
func (h *History) events(ctx context.Context, arn string, e *Execution) error {
	var entered, tasks, scheduled int
	pages := sfn.NewGetExecutionHistoryPaginator(h.client, &sfn.GetExecutionHistoryInput{
		ExecutionArn: &arn, IncludeExecutionData: aws.Bool(false), MaxResults: 1000,
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, ev := range page.Events {
			if strings.HasSuffix(string(ev.Type), "StateEntered") {
				entered++
			}
			switch ev.Type {
			case types.HistoryEventTypeTaskStateEntered:
				tasks++
			case types.HistoryEventTypeTaskScheduled:
				scheduled++
				// AWS has "sqs" and "sendMessage…" apart; an emulator was seen that has the
				// whole name in one.
				d := ev.TaskScheduledEventDetails
				if d != nil && (aws.ToString(d.ResourceType) == "sqs" || strings.Contains(aws.ToString(d.Resource), ":sqs:")) {
					e.Messages++
				}
			}
		}
	}
	e.Transitions += entered + max(scheduled-tasks, 0)
	return nil
}

// mapRuns counts the children of the Distributed Map, by number: to read the
// history of each would be a call for every part, for the few that were retried.
func (h *History) mapRuns(ctx context.Context, arn string, e *Execution) error {
	pages := sfn.NewListMapRunsPaginator(h.client, &sfn.ListMapRunsInput{ExecutionArn: &arn})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, run := range page.MapRuns {
			out, err := h.client.DescribeMapRun(ctx, &sfn.DescribeMapRunInput{MapRunArn: run.MapRunArn})
			if err != nil {
				return err
			}
			if out.ExecutionCounts != nil {
				n := int(out.ExecutionCounts.Total)
				e.Children += n
				e.Transitions += 2 * n
				e.Messages += n
			}
		}
	}
	return nil
}
