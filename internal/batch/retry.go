package batch

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// verdict is what to do after one try of a line.
type verdict int

const (
	settled  verdict = iota // the answer is the line's result
	again                   // wait, then send it once more
	longWait                // the upstream asks for more patience than a worker has
)

// The first and the longest wait between two tries; a full jitter lies between
// zero and them.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
)

// judge decides on a try of ln, and for how long to wait. Retried are 401, 407, 408,
// 409, 429, every 5xx, and no reply at all; other replies are the model's last word.
// The waiting of a line is bounded in tries and in time; what comes after the
// last try is kept. A pardoned try counts for neither.
func (o *RunnerOptions) judge(ln *line, reply Reply, err error, pardoned bool) (verdict, time.Duration) {
	switch {
	case errors.Is(err, ErrReplyTooLarge), errors.Is(err, ErrModelNotFound):
		return settled, 0
	case err == nil && !passing(reply.Status):
		return settled, 0
	case err == nil && reply.RetryAfter > o.LongWait:
		// Not the line's fault, so none of its tries is spent: the part comes back
		// when the upstream is ready.
		return longWait, reply.RetryAfter
	case !pardoned && ln.tries-ln.forgiven >= o.Tries:
		return settled, 0
	}
	if ln.pause == nil {
		ln.pause = newPause(firstPause, min(longestPause, o.LongWait))
	}
	wait := ln.pause.NextBackOff()
	if err == nil {
		wait += reply.RetryAfter // the jitter on top spreads those who were told the same
	}
	if pardoned {
		return again, wait
	}
	if ln.waited+wait > o.RetryBudget {
		return settled, 0
	}
	ln.waited += wait
	return again, wait
}

// passing reports whether a status speaks of the moment and not of the request.
func passing(status int) bool {
	return unauthorized(status) || status == http.StatusRequestTimeout || status == http.StatusConflict ||
		status == http.StatusTooManyRequests || status >= 500
}

// unauthorized reports whether a status speaks of the installation's credential and of
// nothing else: no line is to blame, and somebody will put another into the secret. A
// 403 may be about what was asked for.
func unauthorized(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired
}

// newPause gives full jitter: waits between zero and a ceiling that begins at
// first and doubles up to longest.
func newPause(first, longest time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval:     first / 2,
		RandomizationFactor: 1, // from 0 to twice the interval
		Multiplier:          2,
		MaxInterval:         longest / 2,
	}
}

// sleep waits for d or for the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// insist repeats f until it succeeds, until it answers with one of the errors
// that a repetition can't change, or until the lease would be over: whoever
// can't prove any more that it holds the part must not write to it.
func (s *shift) insist(ctx context.Context, leaseUntil time.Time, f func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(ctx, leaseUntil)
	defer cancel()
	pause := newPause(200*time.Millisecond, 5*time.Second)
	for {
		err := s.call(ctx, f)
		if err == nil || lost(err) {
			return err
		}
		if sleep(ctx, pause.NextBackOff()) != nil {
			return err
		}
	}
}

// patience is how often a hint (report, send) is tried before the message's own
// return has to do.
const patience = 4

// try repeats f a few times.
func (s *shift) try(ctx context.Context, f func(context.Context) error) (err error) {
	pause := newPause(200*time.Millisecond, 2*time.Second)
	for n := range patience {
		if n > 0 && sleep(ctx, pause.NextBackOff()) != nil {
			return err
		}
		if err = s.call(ctx, f); err == nil || errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return err
}

// returnWait is how long a message that failed is hidden: doubled with every
// receive.
func returnWait(receives int) time.Duration {
	return min(firstReturn<<min(max(receives-1, 0), 10), maxDelay)
}
