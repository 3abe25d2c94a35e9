package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
)

// groups is a client that takes note of whose each message is said to be.
type groups struct {
	client
	of []string
}

func (g *groups) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	g.note(in.MessageGroupId)
	return &sqs.SendMessageOutput{}, nil
}

func (g *groups) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	for _, e := range in.Entries {
		g.note(e.MessageGroupId)
	}
	return &sqs.SendMessageBatchOutput{}, nil
}

func (g *groups) note(group *string) {
	if group == nil {
		g.of = append(g.of, "none")
		return
	}
	g.of = append(g.of, fmt.Sprintf("%q", *group))
}

// Every sender names the tenant, or its messages would wait behind others' backlogs.
func TestMessagesNameTheirTenant(t *testing.T) {
	g := &groups{}
	q := &Queue{client: g}
	if err := q.Send(t.Context(), batch.Message{V: 1, Tenant: "acme", Batch: "batch_1"}, 0); err != nil {
		t.Fatal(err)
	}
	err := q.SendAll(t.Context(), []batch.Message{{V: 1, Tenant: "acme"}, {V: 1, Tenant: "other"}, {V: 1}})
	if want := []string{`"acme"`, `"acme"`, `"other"`, "none"}; err != nil || !slices.Equal(g.of, want) {
		t.Errorf("%v, %v; want %v", g.of, err, want)
	}
}

// As a receiver sees it. The queue stays a standard one: several messages of one
// group are out at a time.
func TestMessagesArriveWithTheirTenant(t *testing.T) {
	ctx, cfg := t.Context(), awstest.Config(t)
	q, client := newQueue(t, cfg), sqs.NewFromConfig(cfg)
	for n, tenant := range []string{"acme", "acme", "other"} {
		if err := q.Send(ctx, batch.Message{V: 1, Tenant: tenant, Batch: "batch_1", Part: n}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.SendAll(ctx, []batch.Message{{V: 1, Tenant: "third", Batch: "batch_1", Part: 3}}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{} // by part
	for range 20 {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &q.url, MaxNumberOfMessages: 10, WaitTimeSeconds: 1,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameMessageGroupId},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			d, err := Decode(aws.ToString(m.Body), "", 1)
			if err != nil {
				t.Fatal(err)
			}
			got[fmt.Sprint(d.Part)] = m.Attributes["MessageGroupId"]
		}
		if len(got) == 4 {
			break
		}
	}
	if want := map[string]string{"0": "acme", "1": "acme", "2": "other", "3": "third"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
