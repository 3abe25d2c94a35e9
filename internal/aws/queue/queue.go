// Package queue carries messages over SQS. It is the only importer of that
// client. A message is a hint: any number of copies may exist, and a lost one
// costs time and no result.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/go-json-experiment/json"

	"holdfast/internal/batch"
)

var _ batch.Queue = (*Queue)(nil)

const (
	maxHide  = 12 * time.Hour
	maxDelay = 15 * time.Minute

	// aside hides a message that this program doesn't understand. SQS counts the
	// 12 hours that a message can be hidden from its receipt on, so the whole of
	// them would be refused.
	aside = 11 * time.Hour

	// newerAside hides one that a newer program will understand: until this one
	// is replaced, the workers of a release may run beside those of the next.
	newerAside = time.Minute
)

// Queue is batch.Queue over one SQS queue.
type Queue struct {
	client  client
	url     string
	letters bool // what isn't understood is left where it is
}

// client is what Queue calls of *sqs.Client.
type client interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	SendMessageBatch(context.Context, *sqs.SendMessageBatchInput, ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error)
}

// New returns the queue with this URL. It makes no call.
func New(cfg aws.Config, url string) *Queue { return &Queue{client: sqs.NewFromConfig(cfg), url: url} }

// NewLetters returns the dead-letter queue with this URL. It differs in one thing:
// a message that isn't understood stays where it is, visible again when the
// queue's own visibility is over, so that the queue's depth goes on telling of it.
func NewLetters(cfg aws.Config, url string) *Queue {
	return &Queue{client: sqs.NewFromConfig(cfg), url: url, letters: true}
}

// Receive implements batch.Queue. The message stays hidden for the queue's own
// visibility until Hide says otherwise. One that isn't understood is batch.ErrMessage:
// it was set aside for 11 hours (a newer program's, batch.ErrNewer, for a minute),
// so that the next Receive finds another.
func (q *Queue) Receive(ctx context.Context) (batch.Delivery, error) {
	out, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: 1, WaitTimeSeconds: 0,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
	})
	if err != nil {
		return batch.Delivery{}, fmt.Errorf("receive: %w", err)
	}
	if len(out.Messages) == 0 {
		return batch.Delivery{}, fmt.Errorf("receive: %w", batch.ErrEmpty)
	}
	m := out.Messages[0]
	// The count is approximate by contract; an absent one counts as 1.
	receives, _ := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	d, err := Decode(aws.ToString(m.Body), aws.ToString(m.ReceiptHandle), receives)
	if err != nil {
		wait := aside
		if errors.Is(err, batch.ErrNewer) {
			wait = newerAside
		}
		err = fmt.Errorf("receive message %s: %w", aws.ToString(m.MessageId), err)
		if q.letters {
			return batch.Delivery{}, err
		}
		return batch.Delivery{}, errors.Join(err, q.Hide(ctx, batch.Delivery{Receipt: aws.ToString(m.ReceiptHandle)}, wait))
	}
	return d, nil
}

// Hide implements batch.Queue. Parts of a second count as a whole one. SQS lets
// a message be hidden for 12 hours since it was received, all in all.
func (q *Queue) Hide(ctx context.Context, d batch.Delivery, wait time.Duration) error {
	return q.hide(ctx, d.Receipt, wait)
}

func (q *Queue) hide(ctx context.Context, receipt string, wait time.Duration) error {
	if wait < 0 || wait > maxHide {
		return fmt.Errorf("hide: %v is not within 0 and %v", wait, maxHide)
	}
	_, err := q.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &q.url, ReceiptHandle: &receipt, VisibilityTimeout: seconds(wait),
	})
	if stale(err) {
		return fmt.Errorf("hide: %w", batch.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("hide: %w", err)
	}
	return nil
}

// Delete implements batch.Queue.
func (q *Queue) Delete(ctx context.Context, d batch.Delivery) error {
	_, err := q.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &q.url, ReceiptHandle: &d.Receipt})
	if err != nil && !stale(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// Send implements batch.Queue. Parts of a second count as a whole one.
func (q *Queue) Send(ctx context.Context, m batch.Message, delay time.Duration) error {
	if delay < 0 || delay > maxDelay {
		return fmt.Errorf("send: a delay of %v is not within 0 and %v", delay, maxDelay)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	_, err = q.client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: &q.url, MessageBody: aws.String(string(body)), DelaySeconds: seconds(delay), MessageGroupId: group(m),
	})
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// sendsAtOnce is the most messages that SQS takes in one call.
const sendsAtOnce = 10

// SendAll implements batch.Queue, ten messages a call.
func (q *Queue) SendAll(ctx context.Context, ms []batch.Message) error {
	var faults []error
	for some := range slices.Chunk(ms, sendsAtOnce) {
		in := &sqs.SendMessageBatchInput{QueueUrl: &q.url}
		for n, m := range some {
			body, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("send: %w", err)
			}
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), MessageBody: aws.String(string(body)), MessageGroupId: group(m)})
		}
		out, err := q.client.SendMessageBatch(ctx, in)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("send %d messages: %w", len(some), err))
		case len(out.Failed) > 0:
			f := out.Failed[0]
			faults = append(faults, fmt.Errorf("send %d messages: %d failed, one of them: %s %s", len(some), len(out.Failed), aws.ToString(f.Code), aws.ToString(f.Message)))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(faults...)
}

// group makes SQS deal fairly with tenants: of a standard queue whose messages name
// their group, those of a group that has few are received before the backlog of one
// that has many. It orders nothing, and holds nothing up. Step Functions names the
// same in what it sends.
func group(m batch.Message) *string {
	if m.Tenant == "" {
		return nil // SQS takes no empty one
	}
	return &m.Tenant
}

func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// stale reports whether a receipt no longer gives its holder the message. SQS
// says so in three ways, one of which it uses for every other bad value too.
func stale(err error) bool {
	if _, ok := errors.AsType[*types.MessageNotInflight](err); ok {
		return true
	}
	if _, ok := errors.AsType[*types.ReceiptHandleIsInvalid](err); ok {
		return true
	}
	e, ok := errors.AsType[smithy.APIError](err)
	return ok && strings.HasSuffix(e.ErrorCode(), "InvalidParameterValue") && strings.Contains(e.ErrorMessage(), "ReceiptHandle")
}
