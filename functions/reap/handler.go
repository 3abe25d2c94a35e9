package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/reap"
)

type handler struct {
	round  func(ctx context.Context, scope reap.Scope, now time.Time) (reap.Report, error)
	look   func(ctx context.Context, tenant, id string, now time.Time) (reap.Report, error)
	log    *slog.Logger
	usage  meter.Invocations
	counts *metrics.Recorder
}

// event is what EventBridge sends, in the members that matter here.
type event struct {
	Source     string `json:"source"`
	DetailType string `json:"detail-type"`
	Detail     struct {
		Name   string `json:"name"`
		Status string `json:"status"`
		Input  string `json:"input"` // the execution's, a JSON text
	} `json:"detail"`
}

// What comes here.
const (
	tick   = "Scheduled Event"
	change = "Step Functions Execution Status Change"
)

// handle does what the event asks for. The answer is what was done, for whoever
// invoked the function by hand: EventBridge throws it away.
//
//	the minute's tick                   a round over everything that is due
//	an execution failed, timed out      a look at its batch: whether somebody is at it
//	or was stopped                      is not for the next tick to find out
//	... of a batch that isn't there     nothing
//	anything else                       an error: a rule sends what it shouldn't
//
// An error has the event sent again, twice. That does no harm, and a tick a minute
// later does the same.
func (h handler) handle(ctx context.Context, ev event) (reap.Report, error) {
	ctx, end := h.usage.Start(ctx)
	defer end(nil, batch.Subject{})
	defer func() { h.counts.Flush(time.Now()) }()
	switch ev.DetailType {
	case tick:
		report, err := h.round(ctx, reap.Scope{}, time.Now())
		if err != nil {
			h.log.ErrorContext(ctx, "round failed", "error", err)
		}
		return report, err
	case change:
		return h.changed(ctx, ev)
	}
	err := fmt.Errorf("%w: detail-type %.100q of %.100q", errEvent, ev.DetailType, ev.Source)
	h.log.ErrorContext(ctx, "event refused", "error", err)
	return reap.Report{}, err
}

var errEvent = errors.New("event not understood")

// changed looks at the batch of an execution that came to a bad end.
func (h handler) changed(ctx context.Context, ev event) (reap.Report, error) {
	var of struct {
		V      int    `json:"v"`
		Tenant string `json:"tenant"`
		Batch  string `json:"batch"`
	}
	// EventBridge leaves a large input out. Ours never is.
	err := json.Unmarshal([]byte(ev.Detail.Input), &of)
	if err != nil || access.CheckTenant(of.Tenant) != nil || !batch.ValidID(of.Batch) {
		err := fmt.Errorf("%w: execution %.100q, %.20s, names no batch", errEvent, ev.Detail.Name, ev.Detail.Status)
		h.log.ErrorContext(ctx, "event refused", "error", err)
		return reap.Report{}, err
	}
	report, err := h.look(ctx, of.Tenant, of.Batch, time.Now())
	if errors.Is(err, batch.ErrNotFound) {
		err = nil
	}
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelError
	}
	h.log.Log(ctx, level, "execution fell", "tenant", of.Tenant, "batch", of.Batch, "execution", ev.Detail.Name,
		"status", ev.Detail.Status, "report", report, "error", err)
	return report, err
}
