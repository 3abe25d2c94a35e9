package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

type handler struct {
	drain func(ctx context.Context, letters []bridge.Letter, now time.Time) ([]bridge.Letter, bridge.Drained)
	log   *slog.Logger
	// receives is how often a message is tried; 0 counts as for ever. The queue delivers it
	// a few times more: to leave word, where the last try couldn't.
	receives int
	usage    meter.Invocations
	counts   *metrics.Recorder
}

// margin is what a drain needs once its time is over, and an answer after that.
const margin = bridge.DrainMargin + 2*time.Second

// handle starts what the queue's messages ask for, all of them at once. The answer
// names those that are to come again; the poller deletes the others.
//
//	started, now or before      not named
//	asks for nothing            not named
//	never will start            not named: its sender was told, or it is a dead letter
//	somebody else starts it     named; the drainer has set when it is seen again
//	trouble                     named; likewise, later each time
//	trouble, the last time      not named: word of it was left; named if that failed too
//
// Some seconds before the function's time is over the drain is: an answer that comes too
// late fails all of the messages, and a process that is killed gives no claim back.
//
// No error is ever returned: it would fail all of the messages, those too whose
// batch is there.
func (h handler) handle(ctx context.Context, ev events.SQSEvent) (events.SQSEventResponse, error) {
	ctx, end := h.usage.Start(ctx)
	defer end(nil, batch.Subject{})
	defer func() { h.counts.Flush(time.Now()) }()
	letters := make([]bridge.Letter, len(ev.Records))
	for i, m := range ev.Records {
		receives, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"]) // approximate by contract; absent counts as 1
		letters[i] = bridge.Letter{ID: m.MessageId, Receipt: m.ReceiptHandle, Receives: max(receives, 1), Body: []byte(m.Body),
			Last: h.receives > 0 && receives >= h.receives}
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
		defer cancel()
	}
	failed, sum := h.drain(ctx, letters, time.Now())
	// Never null: a poller was seen that can't read that.
	out := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, l := range failed {
		out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: l.ID})
	}
	h.log.InfoContext(ctx, "drained", "messages", len(letters), "sum", sum)
	return out, nil
}
