// Package workflow tells Step Functions that there is something to do, or that
// something is over. It is the only importer of that client. What it says is a
// hint: the table is the truth.
package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"holdfast/internal/batch"
)

var _ batch.Workflow = (*Workflow)(nil)

// Workflow is batch.Workflow over one state machine.
type Workflow struct {
	client  client
	machine string
}

// client is what Workflow calls of *sfn.Client.
type client interface {
	StartExecution(context.Context, *sfn.StartExecutionInput, ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error)
	StopExecution(context.Context, *sfn.StopExecutionInput, ...func(*sfn.Options)) (*sfn.StopExecutionOutput, error)
	DescribeExecution(context.Context, *sfn.DescribeExecutionInput, ...func(*sfn.Options)) (*sfn.DescribeExecutionOutput, error)
	SendTaskSuccess(context.Context, *sfn.SendTaskSuccessInput, ...func(*sfn.Options)) (*sfn.SendTaskSuccessOutput, error)
}

// New returns the workflow of the state machine with this ARN. It makes no call.
// Start and Finish need states:StartExecution and states:DescribeExecution, Stop
// states:StopExecution, Report states:SendTaskSuccess.
func New(cfg aws.Config, stateMachineARN string) *Workflow {
	return &Workflow{sfn.NewFromConfig(cfg), stateMachineARN}
}

// input is an execution's input. The same batch gives the same bytes, which is
// how a second start is recognised.
type input struct {
	V      int    `json:"v"`
	Tenant string `json:"tenant"`
	Batch  string `json:"batch"`
	Finish bool   `json:"finish,omitempty"` // nothing but the last step
}

// Start implements batch.Workflow. An execution of that name with another input
// is batch.ErrExists, one that ended without success batch.ErrEnded.
func (w *Workflow) Start(ctx context.Context, name, tenant, id string) error {
	return w.start(ctx, name, input{V: batch.FormatVersion, Tenant: tenant, Batch: id})
}

// Finish implements batch.Workflow. An execution of that name with another input
// is batch.ErrExists, one that ended without success batch.ErrEnded.
func (w *Workflow) Finish(ctx context.Context, name, tenant, id string) error {
	return w.start(ctx, name, input{V: batch.FormatVersion, Tenant: tenant, Batch: id, Finish: true})
}

func (w *Workflow) start(ctx context.Context, name string, job input) error {
	in, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("start execution %s: %w", name, err)
	}
	_, err = w.client.StartExecution(ctx, &sfn.StartExecutionInput{
		StateMachineArn: &w.machine, Name: &name, Input: aws.String(string(in)),
	})
	if _, taken := errors.AsType[*types.ExecutionAlreadyExists](err); taken {
		err = w.same(ctx, name, string(in))
	}
	if err != nil {
		return fmt.Errorf("start execution %s: %w", name, err)
	}
	return nil
}

// same compares the input of the execution that has the name, and looks whether
// it may still do, or has done, what it is for. AWS itself takes a repeated start
// with equal input for success only while that execution runs.
func (w *Workflow) same(ctx context.Context, name, in string) error {
	out, err := w.client.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: w.execution(name)})
	if err != nil {
		return fmt.Errorf("look at the one of that name: %w", err)
	}
	if aws.ToString(out.Input) != in {
		return fmt.Errorf("the one of that name has another input: %w", batch.ErrExists)
	}
	if out.Status != types.ExecutionStatusRunning && out.Status != types.ExecutionStatusSucceeded {
		return fmt.Errorf("the one of that name is %s: %w", out.Status, batch.ErrEnded)
	}
	return nil
}

func (w *Workflow) execution(name string) *string {
	return aws.String(strings.Replace(w.machine, ":stateMachine:", ":execution:", 1) + ":" + name)
}

// Stop implements batch.Workflow. AWS takes an execution that is over for stopped.
func (w *Workflow) Stop(ctx context.Context, name string) error {
	_, err := w.client.StopExecution(ctx, &sfn.StopExecutionInput{
		ExecutionArn: w.execution(name), Error: aws.String("Holdfast.Stopped"), Cause: aws.String("the batch is ending early"),
	})
	if _, never := errors.AsType[*types.ExecutionDoesNotExist](err); never {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop execution %s: %w", name, err)
	}
	return nil
}

// Seen implements batch.Workflow.
func (w *Workflow) Seen(ctx context.Context, name string) (batch.Execution, error) {
	out, err := w.client.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: w.execution(name)})
	if _, never := errors.AsType[*types.ExecutionDoesNotExist](err); never {
		return batch.Never, nil
	}
	if err != nil {
		return "", fmt.Errorf("look at execution %s: %w", name, err)
	}
	switch out.Status {
	case types.ExecutionStatusRunning, types.ExecutionStatusPendingRedrive:
		return batch.Running, nil
	case types.ExecutionStatusSucceeded:
		return batch.Over, nil
	default:
		return batch.Fallen, nil
	}
}

// Report implements batch.Workflow. An empty token has nobody to report to.
func (w *Workflow) Report(ctx context.Context, taskToken string) error {
	if taskToken == "" {
		return nil
	}
	_, err := w.client.SendTaskSuccess(ctx, &sfn.SendTaskSuccessInput{TaskToken: &taskToken, Output: aws.String("{}")})
	if err == nil || forgotten(err) {
		return nil
	}
	// The token is a capability: it stays out of the error.
	return fmt.Errorf("report to the workflow: %w", err)
}

// forgotten reports whether the workflow no longer waits under the token: it was
// told already, timed out, was stopped, or is gone.
func forgotten(err error) bool {
	if _, ok := errors.AsType[*types.TaskTimedOut](err); ok {
		return true
	}
	if _, ok := errors.AsType[*types.TaskDoesNotExist](err); ok {
		return true
	}
	_, ok := errors.AsType[*types.InvalidToken](err)
	return ok
}
