package batch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"holdfast/internal/lease"
)

// decided reports whether a port's error is an answer, which trying again won't
// change, and not trouble of the moment.
func decided(err error) bool {
	for _, answer := range []error{
		ErrNotFound, ErrExists, ErrChanged, ErrStatus, ErrOver, ErrDead, ErrExhausted, ErrStale,
		lease.ErrHeld, lease.ErrLost, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// A write is tried this often before the caller is told, which tries the whole
// again: the adapters have tried a few times below. portPause is the longest wait
// before the second try.
const (
	portTries = 3
	portPause = 100 * time.Millisecond
)

// tryAgain calls op until it succeeds, gets an answer or has been tried
// portTries times, and returns what op said last.
func tryAgain(ctx context.Context, op func() error) error {
	for try := 1; ; try++ {
		err := op()
		if err == nil || decided(err) || try >= portTries {
			return err
		}
		if pauseUpTo(ctx, portPause<<(try-1)) != nil {
			return err // what op said tells more than that time is over
		}
	}
}

// pauseUpTo sleeps for a random while up to `most` (full jitter: those who failed
// together don't come back together). The error is ctx's.
func pauseUpTo(ctx context.Context, most time.Duration) error {
	t := time.NewTimer(rand.N(most + 1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
