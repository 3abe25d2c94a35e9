package queue

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"holdfast/internal/batch"
)

// one is a queue with one message. Only what Receive calls is there.
type one struct {
	client
	body   string
	hidden int32 // for how many seconds, at last
}

func (o *one) ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return &sqs.ReceiveMessageOutput{Messages: []types.Message{{Body: &o.body, MessageId: aws.String("m"), ReceiptHandle: aws.String("r")}}}, nil
}

func (o *one) ChangeMessageVisibility(_ context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	o.hidden = in.VisibilityTimeout
	return &sqs.ChangeMessageVisibilityOutput{}, nil
}

// TestMessageOfANewerProgram: while two releases run, one that this one doesn't
// read is soon seen by those that do. One that nobody reads makes way for longer.
func TestMessageOfANewerProgram(t *testing.T) {
	for _, c := range []struct {
		body   string
		newer  bool
		hidden int32
	}{
		{`{"v":2,"parts":[1,2]}`, true, 60},
		{`{"v":0,"tenant":"acme","batch":"batch_1","part":1}`, false, 11 * 3600},
		{`hello`, false, 11 * 3600},
	} {
		o := &one{body: c.body}
		_, err := (&Queue{client: o}).Receive(t.Context())
		if !errors.Is(err, batch.ErrMessage) || errors.Is(err, batch.ErrNewer) != c.newer {
			t.Errorf("%s: %v", c.body, err)
		}
		if o.hidden != c.hidden {
			t.Errorf("%s: hidden for %d s, want %d", c.body, o.hidden, c.hidden)
		}
	}
}

// TestMessageOfAnOlderProgram: as it stood in the queue of commit 03f1ad9, where
// Step Functions had put it.
func TestMessageOfAnOlderProgram(t *testing.T) {
	const body = `{"batch": "batch_2amtxtw4dhotg2jdjd5bs3crjz", "part": 5, "task_token": "bd2e4054-4bf7-4369-8726-32902a564cfd", "tenant": "acme", "v": 1}`
	d, err := Decode(body, "receipt", 1)
	want := batch.Message{V: 1, Tenant: "acme", Batch: "batch_2amtxtw4dhotg2jdjd5bs3crjz", Part: 5, TaskToken: "bd2e4054-4bf7-4369-8726-32902a564cfd"}
	if err != nil || d.Message != want {
		t.Errorf("%+v, %v", d, err)
	}
}
