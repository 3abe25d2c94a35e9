package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/lambda/messages"

	"holdfast/internal/access"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

type handler struct {
	finisher *batch.Finisher
	log      *slog.Logger
	usage    meter.Invocations
	counts   *metrics.Recorder
}

// event is what the workflow (or who sweeps up after one) asks to finish.
type event struct {
	V      int    `json:"v"`
	Tenant string `json:"tenant"`
	Batch  string `json:"batch"`
}

// finished is the answer.
type finished struct {
	Status string `json:"status"` // terminal
}

func (h handler) handle(ctx context.Context, ev event) (finished, error) {
	if err := check(ev); err != nil {
		return finished{}, h.told(ctx, ev, err)
	}
	ctx, end := h.usage.Start(batch.WithSubject(ctx, ev.Tenant, ev.Batch))
	defer end(nil, batch.Subject{})
	defer func() { h.counts.Flush(time.Now()) }()
	b, err := h.finisher.Finish(ctx, ev.Tenant, ev.Batch, time.Now())
	if err != nil {
		return finished{}, h.told(ctx, ev, err)
	}
	h.log.InfoContext(ctx, "finished", "tenant", ev.Tenant, "batch", ev.Batch, "status", string(b.Status),
		"lines", b.Counts.Total, "completed", b.Counts.Completed, "failed", b.Counts.Failed)
	return finished{Status: string(b.Status)}, nil
}

var errEvent = errors.New("event not understood")

func check(ev event) error {
	switch {
	case ev.V < 1 || ev.V > batch.FormatVersion:
		return fmt.Errorf("%w: v=%d, this program reads 1 to %d", errEvent, ev.V, batch.FormatVersion)
	case access.CheckTenant(ev.Tenant) != nil:
		return fmt.Errorf("%w: no tenant", errEvent)
	case !batch.ValidID(ev.Batch):
		return fmt.Errorf("%w: no batch", errEvent)
	}
	return nil
}

// The names that errors have in the state machine.
const (
	permanent = "Holdfast.Permanent" // the same call would fail the same way
	transient = "Holdfast.Transient" // trouble of the moment: call again
	draining  = "Holdfast.Draining"  // workers save what is under way: call again in a moment
	continued = "Holdfast.Continue"  // its time was up and its progress is recorded: call again at once
	held      = "Holdfast.Held"      // somebody else is at it: call again when its lease would have lapsed
)

// told logs err and gives it the name that the state machine decides by.
//
//	the event is not ours, no such batch             Permanent
//	the batch is validating still (ErrStatus)        Permanent
//	chunks don't add up (ErrConservation)            Permanent: somebody must look
//	workers hold parts of a batch that ends early    Draining
//	another finisher is alive, parts are not over    Held
//	time is up, and there is progress                Continue
//	robbed (ErrLost), no progress, everything else   Transient
func (h handler) told(ctx context.Context, ev event, err error) error {
	name, level := transient, slog.LevelError
	out, timeUp := errors.AsType[*batch.OutOfTimeError](err)
	switch {
	case timeUp && out.Saved:
		name, level = continued, slog.LevelInfo
	case errors.Is(err, errEvent), errors.Is(err, batch.ErrNotFound), errors.Is(err, batch.ErrStatus), errors.Is(err, batch.ErrConservation):
		name = permanent
	case errors.Is(err, batch.ErrDraining):
		name, level = draining, slog.LevelInfo
	case errors.Is(err, lease.ErrHeld), errors.Is(err, batch.ErrPartsOpen):
		name, level = held, slog.LevelWarn
	case errors.Is(err, lease.ErrLost), errors.Is(err, batch.ErrOutOfTime):
		level = slog.LevelWarn
	}
	h.log.Log(ctx, level, "finish failed", "tenant", ev.Tenant, "batch", ev.Batch, "kind", name, "error", err)
	return messages.InvokeResponse_Error{Type: name, Message: err.Error()}
}
