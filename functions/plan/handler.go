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
	"holdfast/internal/batch"
)

type handler struct {
	planner *batch.Planner
	log     *slog.Logger
	usage   meter.Invocations
}

// event is the execution's input, and what its workflow can do.
type event struct {
	V      int    `json:"v"`
	Tenant string `json:"tenant"`
	Batch  string `json:"batch"`
	// Wide says that the caller reads a wide plan's parts from an object. An execution
	// keeps the definition that it began with: one from before a deploy that brought
	// wide plans gets every part in the list, as ever.
	Wide bool `json:"wide"`
}

// plan is the answer: what the workflow goes on with. Parts is never null.
type plan struct {
	V      int     `json:"v"`
	Tenant string  `json:"tenant"`
	Batch  string  `json:"batch"`
	Status string  `json:"status"` // planned, failed, ended; only after planned is there anything to run
	Parts  []part  `json:"parts"`  // empty where they are listed in Plan
	Wide   bool    `json:"wide"`
	Plan   *object `json:"plan,omitempty"` // only where Wide: one part a line
}

type object struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
}

type part struct {
	Part int `json:"part"`
}

func (h handler) handle(ctx context.Context, ev event) (plan, error) {
	if err := check(ev); err != nil {
		return plan{}, h.told(ctx, ev, err)
	}
	ctx, end := h.usage.Start(batch.WithSubject(ctx, ev.Tenant, ev.Batch))
	defer end(nil, batch.Subject{})
	p, err := h.planner.Plan(ctx, ev.Tenant, ev.Batch, time.Now())
	if err != nil {
		return plan{}, h.told(ctx, ev, err)
	}
	out := plan{V: batch.FormatVersion, Tenant: ev.Tenant, Batch: ev.Batch, Status: string(p.Status), Parts: []part{}}
	if ev.Wide && p.Wide() {
		out.Wide, out.Plan = true, &object{p.Object.Bucket, p.Object.Key}
		return out, nil
	}
	out.Parts = make([]part, len(p.Parts))
	for i, n := range p.Parts {
		out.Parts[i] = part{n}
	}
	return out, nil
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
)

// told logs err and gives it the name that the state machine decides by. A bad
// input is no error: it made the batch failed, and the plan says so.
//
//	the event is not ours                        Permanent
//	no such batch (its item aged out)            Permanent
//	stored parts are of another cut (ErrCut)     Permanent, until somebody sets the old size
//	everything else (throttling, a torn stream)  Transient
func (h handler) told(ctx context.Context, ev event, err error) error {
	name := transient
	if errors.Is(err, errEvent) || errors.Is(err, batch.ErrNotFound) || errors.Is(err, batch.ErrCut) {
		name = permanent
	}
	h.log.ErrorContext(ctx, "plan failed", "tenant", ev.Tenant, "batch", ev.Batch, "kind", name, "error", err)
	return messages.InvokeResponse_Error{Type: name, Message: err.Error()}
}
