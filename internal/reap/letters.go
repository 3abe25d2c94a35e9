package reap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/batch"
)

// letters reads dead letters: messages that were received so often that the queue
// put them aside. Nobody is meant to lose a part by that, so one whose part is
// still to be run is sent anew. One that isn't understood stays for a person, whom
// the alarm on the queue's depth calls.
func (o *round) letters(ctx context.Context) error {
	defer o.flush(ctx)
	for range o.r.o.Letters {
		if o.timeUp() {
			return nil
		}
		d, err := o.r.Letters.Receive(ctx)
		switch {
		case errors.Is(err, batch.ErrEmpty):
			return nil
		case errors.Is(err, batch.ErrMessage):
			o.r.o.Log.LogAttrs(ctx, slog.LevelError, "dead letter not understood", slog.Any("error", err))
			continue // it is hidden for a moment, so that the next is another
		case err != nil:
			return fmt.Errorf("read dead letters: %w", err)
		}
		o.failed(ctx, d.Key(), o.letter(batch.WithSubject(ctx, d.Tenant, d.Batch), d))
	}
	return nil
}

// letter deals with one dead letter. It is deleted last: one too many does no
// harm. One whose part was written to meanwhile comes back.
func (o *round) letter(ctx context.Context, d batch.Delivery) error {
	if err := o.answer(ctx, d); err != nil && !errors.Is(err, batch.ErrNotFound) {
		return fmt.Errorf("dead letter of part %d: %w", d.Part, err)
	}
	if err := o.r.Letters.Delete(ctx, d); err != nil {
		return fmt.Errorf("dead letter of part %d: %w", d.Part, err)
	}
	o.count(func(r *Report) { r.Letters++ })
	return nil
}

// longestDelay is how late a message may be sent at most.
const longestDelay = 15 * time.Minute

// answer does what the worker would have done that the letter never reached. What
// it has of its own is its task token: a workflow that replaced another waits under
// it, and the part may not know it. batch.ErrNotFound: nobody waits for it.
func (o *round) answer(ctx context.Context, d batch.Delivery) error {
	p, err := o.r.Parts.Get(ctx, d.Key())
	if err != nil {
		return err
	}
	if p.Over() {
		return o.r.Workflow.Report(ctx, d.TaskToken)
	}
	v, err := o.view(ctx, d.Key())
	switch {
	case err != nil:
		return err
	case !v.running():
		return nil // whoever ends the batch seals the part, and stops who waits for it
	case p.State == batch.Dead:
		if d.TaskToken == "" || d.TaskToken == p.TaskToken {
			return nil // a redrive sends a message of its own, and a seal reports
		}
		return o.r.Queue.Send(ctx, d.Message, longestDelay) // until it is one or the other
	case o.r.exhausted(p) && (p.State == batch.Pending || o.due(p)):
		err := o.declare(ctx, p, o.clock())
		if err == nil && d.TaskToken != "" && d.TaskToken != p.TaskToken {
			err = o.r.Queue.Send(ctx, d.Message, longestDelay)
		}
		return err
	}
	return o.r.Queue.Send(ctx, d.Message, 0)
}
