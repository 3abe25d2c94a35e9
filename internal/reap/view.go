package reap

import (
	"context"
	"errors"
	"fmt"

	"holdfast/internal/batch"
)

type viewKey struct{ tenant, batch string }

// view is a batch as this round saw it, for its many parts. It may have moved on
// since: what is done because of it is harmless in any later status, too.
type view struct {
	once  once
	batch batch.Batch
	err   error

	asked   once
	reached int
}

// once is a sync.Once that may take its time: whoever waits for it stands at a
// channel, and not at a mutex, so that tests in virtual time see that.
type once struct {
	turn chan struct{}
	done bool // whose turn it is may look
}

func newOnce() once { return once{turn: make(chan struct{}, 1)} }

// Do runs f unless it was run.
func (o *once) Do(f func()) {
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	if !o.done {
		o.done = true
		f()
	}
}

// view looks at a part's batch, once a round.
func (o *round) view(ctx context.Context, k batch.PartKey) (*view, error) {
	key := viewKey{k.Tenant, k.Batch}
	o.mu.Lock()
	v := o.views[key]
	if v == nil {
		v = &view{once: newOnce(), asked: newOnce()}
		o.views[key] = v
	}
	o.mu.Unlock()
	v.once.Do(func() { v.batch, v.err = o.r.Batches.Get(ctx, k.Tenant, k.Batch) })
	if v.err != nil && !errors.Is(v.err, batch.ErrNotFound) {
		return v, fmt.Errorf("look at the batch of part %d: %w", k.N, v.err)
	}
	return v, nil
}

// over reports whether nobody will ever run a part of the batch.
func (v *view) over() bool { return v.err != nil || v.batch.Status.Terminal() }

// running reports whether a message for a part of it is of use.
func (v *view) running() bool {
	return v.err == nil && v.batch.Status == batch.InProgress && v.batch.Ending == ""
}

// sent reports whether the part's first message was sent, as far as one can know.
// A wide batch's workflow sends them in order, and waits for so many parts at
// once: what comes later has none yet, and one from here would only crowd the
// queue. Without this the 20,000 parts of a batch that takes longer than Overdue
// would all get one, and everybody else's parts would wait behind them.
func (o *round) sent(ctx context.Context, v *view, p batch.Part) bool {
	if p.TaskToken != "" || v.batch.Parts <= batch.InlineParts {
		return true
	}
	v.asked.Do(func() { v.reached = o.reached(ctx, v.batch) })
	return p.N < v.reached
}

// reached is the number of the first part that the workflow has not come to. Where
// nobody sends messages but us, it is behind them all.
func (o *round) reached(ctx context.Context, b batch.Batch) int {
	if alive, err := o.r.Ender.Alive(ctx, b, o.clock()); err == nil && !alive {
		return b.Parts
	}
	over := 0
	for p, err := range o.r.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			break // too few messages in this round
		}
		if p.Over() {
			over++
		}
	}
	return over + o.r.o.Waiting
}
