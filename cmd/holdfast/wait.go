package main

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/openai"
)

// wait looks at the batch until it has ended, less often the longer it takes, and
// says when it stands still. On an error b is the batch as last seen.
func (a *app) wait(ctx context.Context, c *client, b openai.Batch) (openai.Batch, error) {
	var bar *bar
	defer func() { bar.finish() }()
	status, still := "", stillness{}
	for look := a.look; ; look = min(look+look/10, 10*a.look) {
		n := b.RequestCounts
		if bar == nil && n.Total > 0 {
			bar = a.newBar(b.Status, int64(n.Total), false)
		}
		if bar == nil && b.Status != status {
			a.note("  %s", b.Status)
		}
		status = b.Status
		bar.set(status, int64(n.Completed+n.Failed))
		if terminal(b.Status) {
			return b, nil
		}
		if news := still.seen(b, a.now()); news != "" {
			bar.aside(func() { a.note("  %s; holdfast events %s may tell why", news, b.ID) })
		}
		select {
		case <-ctx.Done():
			return b, ctx.Err()
		case <-time.After(look):
		}
		var next openai.Batch
		if err := c.get(ctx, "/v1/batches/"+b.ID, &next); err != nil {
			return b, err
		}
		b = next
	}
}

// stillAfter is how long nothing must have changed for that to be said; it is said
// again after twice as long, and so on.
const stillAfter = 30 * time.Second

// stillness is for how long nothing has changed about a batch.
type stillness struct {
	status string
	counts openai.RequestCounts
	since  time.Time
	next   time.Duration // when it is to be said
}

// seen takes in a look at the batch and gives what is to be said; "": nothing.
func (s *stillness) seen(b openai.Batch, now time.Time) string {
	if s.since.IsZero() || b.Status != s.status || b.RequestCounts != s.counts {
		*s = stillness{b.Status, b.RequestCounts, now, stillAfter}
		return ""
	}
	long := now.Sub(s.since)
	if long < s.next {
		return ""
	}
	s.next = 2 * long
	at := b.Status
	if n := b.RequestCounts; n.Total > 0 {
		at = fmt.Sprintf("%d/%d", n.Completed+n.Failed, n.Total)
	}
	return fmt.Sprintf("still %s after %s", at, lasting(long.Round(time.Second)))
}

func terminal(status string) bool {
	switch status {
	case openai.StatusCompleted, openai.StatusFailed, openai.StatusExpired, openai.StatusCancelled:
		return true
	}
	return false
}
