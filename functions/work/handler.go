package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/queue"
	"holdfast/internal/batch"
)

type handler struct {
	run    func(ctx context.Context, d batch.Delivery, until time.Time) batch.Outcome
	log    *slog.Logger
	usage  meter.Invocations
	counts *metrics.Recorder
}

// localLife is how long a run may take where nobody ends it.
const localLife = 15 * time.Minute

// handle works on what the queue delivers, which is one message at a time. The
// answer names those that are to come again; the poller deletes the others.
//
//	the Runner says Ack             not named: deleted
//	the Runner says otherwise       named; it has set when the message is seen again
//	the message is not understood   named: seen again after the queue's own time, in
//	                                the end a dead letter, never thrown away
//
// No error is ever returned: it would fail all of the messages, and the Runner
// has said what becomes of each.
func (h handler) handle(ctx context.Context, ev events.SQSEvent) (events.SQSEventResponse, error) {
	defer func() { h.counts.Flush(time.Now()) }()
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(localLife)
	}
	// Never null: a poller was seen that can't read that.
	out := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	for _, m := range ev.Records {
		if !h.one(ctx, m, until) {
			out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		}
	}
	return out, nil
}

// one reports whether the message is dealt with.
func (h handler) one(ctx context.Context, m events.SQSMessage, until time.Time) bool {
	receives, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"]) // approximate by contract; absent counts as 1
	d, err := queue.Decode(m.Body, m.ReceiptHandle, receives)
	if err != nil {
		h.log.ErrorContext(ctx, "message not understood", "message", m.MessageId, "receives", receives, "error", err)
		return false
	}
	began := time.Now()
	counted, end := h.usage.Start(ctx)
	o := h.run(counted, d, until)
	end(o.Lines, batch.Subject{})
	level := slog.LevelInfo
	if !o.Ack {
		level = slog.LevelWarn
	}
	h.log.Log(ctx, level, "ran", "tenant", d.Tenant, "batch", d.Batch, "part", d.Part, "receives", d.Receives,
		"ack", o.Ack, "why", o.Why, "parts", o.Tally.Parts, "done", o.Tally.Done, "lines", o.Tally.Lines, "tries", o.Tally.Tries,
		"ms", time.Since(began).Milliseconds())
	return o.Ack
}
