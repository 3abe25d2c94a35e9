package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// LastError is why a letter came to nothing that its queue delivers no more: what its
// last delivery met. It is no refusal: a claim may have stayed, by which the job is
// started yet.
type LastError struct {
	Receives int // deliveries, this one included
	Cause    error
}

// Error says how often, and what came of the last.
func (e *LastError) Error() string {
	return fmt.Sprintf("the last of %d deliveries failed: %v", e.Receives, e.Cause)
}

// Unwrap is the cause.
func (e *LastError) Unwrap() error { return e.Cause }

// wordTime is what the word of a last delivery has at least, also where ctx is over or
// about to be: what hung for all of its time is a trouble like any other.
const wordTime = 5 * time.Second

// last has word left of a letter that fails for the last time, and reports whether it
// was: then nothing is lost with the letter. Otherwise the queue has it still, and puts
// it among its dead letters in the end, as it is.
func (d *Drainer) last(ctx context.Context, l Letter, r Request, why error, now time.Time) (told bool) {
	if !l.Last {
		return false
	}
	if end, ends := ctx.Deadline(); ctx.Err() != nil || ends && time.Until(end) < wordTime {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), wordTime)
		defer cancel()
	}
	what := "letter given up"
	err := d.door.Refuse(ctx, l, r, &LastError{Receives: l.Receives, Cause: why}, now)
	if err != nil {
		what = "letter given up without word"
	}
	d.log.LogAttrs(ctx, slog.LevelError, what, slog.String("message", l.ID), slog.String("tenant", r.Tenant),
		slog.Int("receives", l.Receives), slog.Any("why", why), slog.Any("error", err))
	return err == nil
}
