package workflow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"holdfast/internal/batch"
)

const machine = "arn:aws:states:us-east-1:000000000000:stateMachine:holdfast"

// service answers as told and takes note of what it was asked.
type service struct {
	start, stop, describe, report error
	input                         string // of the execution described
	status                        types.ExecutionStatus
	asked                         []string
}

func (s *service) StartExecution(_ context.Context, in *sfn.StartExecutionInput, _ ...func(*sfn.Options)) (*sfn.StartExecutionOutput, error) {
	s.asked = append(s.asked, fmt.Sprintf("start %s %s %s", *in.StateMachineArn, *in.Name, *in.Input))
	return &sfn.StartExecutionOutput{}, s.start
}

func (s *service) StopExecution(_ context.Context, in *sfn.StopExecutionInput, _ ...func(*sfn.Options)) (*sfn.StopExecutionOutput, error) {
	s.asked = append(s.asked, "stop "+*in.ExecutionArn)
	return &sfn.StopExecutionOutput{}, s.stop
}

func (s *service) DescribeExecution(_ context.Context, in *sfn.DescribeExecutionInput, _ ...func(*sfn.Options)) (*sfn.DescribeExecutionOutput, error) {
	s.asked = append(s.asked, "describe "+*in.ExecutionArn)
	return &sfn.DescribeExecutionOutput{Input: &s.input, Status: s.status}, s.describe
}

func (s *service) SendTaskSuccess(_ context.Context, in *sfn.SendTaskSuccessInput, _ ...func(*sfn.Options)) (*sfn.SendTaskSuccessOutput, error) {
	s.asked = append(s.asked, fmt.Sprintf("success %s %s", *in.TaskToken, *in.Output))
	return &sfn.SendTaskSuccessOutput{}, s.report
}

func TestStart(t *testing.T) {
	const (
		started   = `start ` + machine + ` batch_1 {"v":1,"tenant":"acme","batch":"batch_1"}`
		described = "describe arn:aws:states:us-east-1:000000000000:execution:holdfast:batch_1"
		same      = `{"v":1,"tenant":"acme","batch":"batch_1"}`
	)
	taken := &types.ExecutionAlreadyExists{Message: aws.String("taken")}
	trouble := errors.New("trouble")
	for _, c := range []struct {
		name    string
		service service
		want    error
		asked   []string
	}{
		{"new", service{}, nil, []string{started}},
		{"runs", service{start: taken, input: same, status: types.ExecutionStatusRunning}, nil, []string{started, described}},
		{"has succeeded", service{start: taken, input: same, status: types.ExecutionStatusSucceeded}, nil, []string{started, described}},
		{"was stopped", service{start: taken, input: same, status: types.ExecutionStatusAborted}, batch.ErrEnded, []string{started, described}},
		{"has failed", service{start: taken, input: same, status: types.ExecutionStatusFailed}, batch.ErrEnded, []string{started, described}},
		{"timed out", service{start: taken, input: same, status: types.ExecutionStatusTimedOut}, batch.ErrEnded, []string{started, described}},
		{"taken by another", service{start: taken, input: `{"v":1,"tenant":"acme","batch":"batch_2"}`}, batch.ErrExists, []string{started, described}},
		{"taken by one that can't be seen", service{start: taken, describe: trouble}, trouble, []string{started, described}},
		{"trouble", service{start: trouble}, trouble, []string{started}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &Workflow{&c.service, machine}
			if err := w.Start(t.Context(), "batch_1", "acme", "batch_1"); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if got, want := strings.Join(c.service.asked, "\n"), strings.Join(c.asked, "\n"); got != want {
				t.Errorf("asked\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The input of an execution that only finishes is what the state machine's first
// choice looks at, and is not that of the batch's own.
func TestFinish(t *testing.T) {
	s := service{start: &types.ExecutionAlreadyExists{Message: aws.String("taken")}, input: `{"v":1,"tenant":"acme","batch":"batch_1"}`}
	w := &Workflow{&s, machine}
	if err := w.Finish(t.Context(), "batch_1-finish-3", "acme", "batch_1"); !errors.Is(err, batch.ErrExists) {
		t.Errorf("a name taken by the batch's own: %v", err)
	}
	s.input, s.status = `{"v":1,"tenant":"acme","batch":"batch_1","finish":true}`, types.ExecutionStatusAborted
	if err := w.Finish(t.Context(), "batch_1-finish-3", "acme", "batch_1"); !errors.Is(err, batch.ErrEnded) {
		t.Errorf("one that was stopped: %v", err)
	}
	s.status = types.ExecutionStatusRunning
	if err := w.Finish(t.Context(), "batch_1-finish-3", "acme", "batch_1"); err != nil {
		t.Errorf("again: %v", err)
	}
	if want := "start " + machine + " batch_1-finish-3 " + s.input; s.asked[0] != want {
		t.Errorf("asked %s, want %s", s.asked[0], want)
	}
}

func TestStop(t *testing.T) {
	trouble := errors.New("trouble")
	for name, c := range map[string]struct{ answer, want error }{
		"stopped":       {nil, nil},
		"never started": {&types.ExecutionDoesNotExist{}, nil},
		"trouble":       {trouble, trouble},
	} {
		s := service{stop: c.answer}
		if err := (&Workflow{&s, machine}).Stop(t.Context(), "batch_1"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.asked) != 1 || s.asked[0] != "stop arn:aws:states:us-east-1:000000000000:execution:holdfast:batch_1" {
			t.Errorf("%s: asked %q", name, s.asked)
		}
	}
}

func TestReport(t *testing.T) {
	trouble := errors.New("trouble")
	for _, c := range []struct {
		name, token string
		answer      error
		want        error
		asked       int
	}{
		{"told", "token", nil, nil, 1},
		{"timed out", "token", &types.TaskTimedOut{}, nil, 1},
		{"unknown", "token", &types.TaskDoesNotExist{}, nil, 1},
		{"invalid", "token", &types.InvalidToken{}, nil, 1},
		{"nobody waits", "", nil, nil, 0},
		{"refused output", "token", &types.InvalidOutput{}, &types.InvalidOutput{}, 1},
		{"trouble", "token", trouble, trouble, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &service{report: c.answer}
			err := (&Workflow{s, machine}).Report(t.Context(), c.token)
			if (err == nil) != (c.want == nil) || err != nil && !errors.Is(err, c.answer) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if len(s.asked) != c.asked {
				t.Errorf("asked %q", s.asked)
			}
			for _, a := range s.asked {
				if a != "success token {}" {
					t.Errorf("asked %q", a)
				}
			}
		})
	}
}
