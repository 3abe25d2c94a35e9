package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
	"holdfast/internal/storetest"
)

// newQueue makes a queue of the test's own.
func newQueue(t storetest.T, cfg aws.Config) *Queue {
	t.Helper()
	client := sqs.NewFromConfig(cfg)
	out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{
		QueueName: aws.String(awstest.Name("queue")), Attributes: map[string]string{"VisibilityTimeout": "60"},
	})
	if err != nil {
		t.Fatalf("create queue: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := client.DeleteQueue(context.WithoutCancel(t.Context()), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil {
			t.Errorf("delete queue: %v", err)
		}
	})
	return New(cfg, *out.QueueUrl)
}

func TestSuite(t *testing.T) {
	cfg := awstest.Config(t)
	storetest.RunQueue(t, func(t storetest.T) batch.Queue { return newQueue(t, cfg) })
}

// TestForeignMessage: what isn't understood is set aside, not thrown away.
func TestForeignMessage(t *testing.T) {
	ctx, cfg := t.Context(), awstest.Config(t)
	q, client := newQueue(t, cfg), sqs.NewFromConfig(cfg)
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String(`{"v":99}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Receive(ctx); !errors.Is(err, batch.ErrMessage) {
		t.Fatalf("receive: %v, want %v", err, batch.ErrMessage)
	}
	// The next one is behind it, and is found although the first was not deleted.
	if err := q.Send(ctx, batch.Message{V: 1, Tenant: "acme", Batch: "batch_1"}, 0); err != nil {
		t.Fatal(err)
	}
	if d, err := q.Receive(ctx); err != nil || d.Tenant != "acme" {
		t.Fatalf("receive: %+v, %v", d, err)
	}
	out, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessagesNotVisible},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := out.Attributes["ApproximateNumberOfMessagesNotVisible"]; got != "2" {
		t.Errorf("%s messages are hidden, want both", got)
	}
}

func TestBounds(t *testing.T) {
	q := &Queue{} // a call would panic
	for _, wait := range []time.Duration{-1, 12*time.Hour + 1} {
		if err := q.Hide(t.Context(), batch.Delivery{}, wait); err == nil {
			t.Errorf("hidden for %v", wait)
		}
	}
	for _, delay := range []time.Duration{-1, 15*time.Minute + 1} {
		if err := q.Send(t.Context(), batch.Message{}, delay); err == nil {
			t.Errorf("sent after %v", delay)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int32{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 12 * time.Hour: 43200} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

func TestStale(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("trouble"), false},
		{&types.MessageNotInflight{}, true},
		{&types.ReceiptHandleIsInvalid{}, true},
		{&smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."}, true},
		{&smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "Value 99999 for parameter VisibilityTimeout is invalid."}, false},
		{&types.QueueDoesNotExist{}, false},
	} {
		if got := stale(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
