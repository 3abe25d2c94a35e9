package workflow

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sfn/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
	"holdfast/internal/storetest"
)

// newMachine makes a state machine of the test's own.
func newMachine(t *testing.T, cfg aws.Config, definition string) (client *sfn.Client, arn string) {
	t.Helper()
	client = sfn.NewFromConfig(cfg)
	out, err := client.CreateStateMachine(t.Context(), &sfn.CreateStateMachineInput{
		Name: aws.String(awstest.Name("machine")), Definition: &definition, RoleArn: aws.String(awstest.Role(t, cfg, "states.amazonaws.com")),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := client.DeleteStateMachine(context.WithoutCancel(t.Context()), &sfn.DeleteStateMachineInput{StateMachineArn: out.StateMachineArn}); err != nil {
			t.Errorf("delete state machine: %v", err)
		}
	})
	return client, *out.StateMachineArn
}

func TestSuite(t *testing.T) {
	cfg := awstest.Config(t)
	// Executions wait, so that the suite can stop them; they go with the machine.
	_, arn := newMachine(t, cfg, `{"StartAt":"Wait","States":{"Wait":{"Type":"Wait","Seconds":300,"End":true}}}`)
	storetest.RunWorkflow(t, func(storetest.T) batch.Workflow { return New(cfg, arn) })
}

// TestReportIsHeard: an execution waits for a part, and goes on once it is told.
// Telling it again is no error.
func TestReportIsHeard(t *testing.T) {
	ctx, cfg := t.Context(), awstest.Config(t)
	queues := sqs.NewFromConfig(cfg)
	queue, err := queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(awstest.Name("queue"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := queues.DeleteQueue(context.WithoutCancel(ctx), &sqs.DeleteQueueInput{QueueUrl: queue.QueueUrl}); err != nil {
			t.Errorf("delete queue: %v", err)
		}
	})
	definition, err := json.Marshal(map[string]any{"StartAt": "Part", "States": map[string]any{"Part": map[string]any{
		"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken", "End": true, "TimeoutSeconds": 60,
		"Parameters": map[string]any{"QueueUrl": queue.QueueUrl, "MessageBody": map[string]any{"task_token.$": "$$.Task.Token"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	client, arn := newMachine(t, cfg, string(definition))
	w := New(cfg, arn)
	if err := w.Start(ctx, "batch_1", "acme", "batch_1"); err != nil {
		t.Fatal(err)
	}

	out, err := queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, WaitTimeSeconds: 10})
	if err != nil || len(out.Messages) != 1 {
		t.Fatalf("no message: %v", err)
	}
	var message batch.Message
	if err := json.Unmarshal([]byte(*out.Messages[0].Body), &message); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Report(ctx, message.TaskToken); err != nil {
			t.Fatal(err)
		}
	}

	execution := "arn:aws:states:" + cfg.Region + ":000000000000:execution:" + arn[len("arn:aws:states:"+cfg.Region+":000000000000:stateMachine:"):] + ":batch_1"
	deadline, tick := time.After(10*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		got, err := client.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: &execution})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status == types.ExecutionStatusSucceeded && aws.ToString(got.Output) == "{}" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the execution is %s with output %q", got.Status, aws.ToString(got.Output))
		case <-tick.C:
		}
	}
}
