package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"holdfast/internal/bridge"
)

var _ bridge.Postponer = (*Ingest)(nil)

// Ingest is the queue of the doors beside HTTP, and its dead letters: it is
// bridge.Postponer and door.DeadLetters. Lambda receives and deletes. Safe for
// concurrent use.
type Ingest struct {
	queue *Queue
	dead  *Queue
}

// NewIngest returns the queue with this URL and the one of its dead letters. It
// makes no call.
func NewIngest(cfg aws.Config, url, deadURL string) *Ingest {
	return &Ingest{queue: New(cfg, url), dead: New(cfg, deadURL)}
}

// Postpone implements bridge.Postponer. Parts of a second count as a whole one. A
// delivery that is over, because the message was deleted or delivered again,
// can't be postponed: batch.ErrNotFound.
func (q *Ingest) Postpone(ctx context.Context, l bridge.Letter, wait time.Duration) error {
	return q.queue.hide(ctx, l.Receipt, wait)
}

// maxMessage is the most that SQS takes, body and attributes together.
const maxMessage = 1 << 20

// Attributes of a dead letter.
const (
	codeAttribute   = "code"
	reasonAttribute = "reason"
)

// Send implements door.DeadLetters.
func (q *Ingest) Send(ctx context.Context, body []byte, code, reason string) error {
	in := &sqs.SendMessageInput{QueueUrl: &q.dead.url, MessageBody: aws.String(string(body))}
	room := maxMessage - len(body)
	for _, a := range []struct{ name, value string }{{codeAttribute, code}, {reasonAttribute, reason}} {
		value := sendable(a.value)
		need := len(a.name) + len("String") + len(value)
		if value == "" || need > room {
			continue // nothing, or a body so large that it leaves no room: it comes first
		}
		room -= need
		if in.MessageAttributes == nil {
			in.MessageAttributes = map[string]types.MessageAttributeValue{}
		}
		in.MessageAttributes[a.name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	if _, err := q.dead.client.SendMessage(ctx, in); err != nil {
		return fmt.Errorf("send to the dead letters: %w", err)
	}
	return nil
}

// sendable shows as '?' what SQS takes in no text: what XML can't hold.
func sendable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= ' ' && r <= 0xd7ff, r >= 0xe000 && r <= 0xfffd, r >= 0x10000:
			return r
		}
		return '?'
	}, s)
}
