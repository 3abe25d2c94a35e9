package queue

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
	"holdfast/internal/storetest"
)

var _ door.DeadLetters = (*Ingest)(nil)

func TestIngest(t *testing.T) {
	cfg := awstest.Config(t)
	client := sqs.NewFromConfig(cfg)
	receive := func(ctx context.Context, url string) ([]types.Message, error) {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
		})
		if err != nil {
			return nil, err
		}
		return out.Messages, nil
	}
	storetest.RunLetters(t, func(t storetest.T) storetest.LettersPorts {
		q, dead := newQueue(t, cfg), newQueue(t, cfg)
		in := &Ingest{queue: q, dead: dead}
		return storetest.LettersPorts{
			Postponer: in, Dead: in,
			Post: func(ctx context.Context, body string) error {
				_, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: &body})
				return err
			},
			Receive: func(ctx context.Context) (letters []bridge.Letter, err error) {
				got, err := receive(ctx, q.url)
				for _, m := range got {
					n, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
					letters = append(letters, bridge.Letter{ID: *m.MessageId, Receipt: *m.ReceiptHandle, Receives: n, Body: []byte(*m.Body)})
				}
				return letters, err
			},
			Look: func(ctx context.Context) (looked []storetest.LookedAt, err error) {
				got, err := receive(ctx, dead.url)
				for _, m := range got {
					looked = append(looked, storetest.LookedAt{
						Body: *m.Body, Code: aws.ToString(m.MessageAttributes["code"].StringValue), Reason: aws.ToString(m.MessageAttributes["reason"].StringValue),
					})
				}
				return looked, err
			},
		}
	})
}

// sent is a client that only takes note of what is sent.
type sent struct {
	client
	in *sqs.SendMessageInput
}

func (s *sent) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	s.in = in
	return &sqs.SendMessageOutput{}, nil
}

// Body and attributes have 1 MiB together, and the body comes first.
func TestRoomForTheReason(t *testing.T) {
	code, reason := "a_code", strings.Repeat("r", 900)
	withCode := len("code") + len("String") + len(code)
	both := withCode + len("reason") + len("String") + len(reason)
	for room, want := range map[int]string{0: "", withCode - 1: "", withCode: "code", both - 1: "code", both: "code reason"} {
		s := &sent{}
		q := &Ingest{dead: &Queue{client: s}}
		if err := q.Send(t.Context(), make([]byte, 1<<20-room), code, reason); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"code", "reason"} {
			if _, ok := s.in.MessageAttributes[name]; ok {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("with room for %d bytes: %q, want %q", room, got, want)
		}
	}
}

func TestSendable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\tand\r\n é日👩": "plain\tand\r\n é日👩", "a\x00b\x1bc": "a?b?c", "\ufffe\uffff": "??", "\x7f\ufffd": "\x7f\ufffd", "": "",
	} {
		if got := sendable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	s := &sent{}
	if err := (&Ingest{dead: &Queue{client: s}}).Send(t.Context(), []byte("x"), "code", ""); err != nil || len(s.in.MessageAttributes) != 1 {
		t.Errorf("%v, %v: SQS refuses an empty value", s.in.MessageAttributes, err)
	}
}
