package memory

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"holdfast/internal/batch"
)

// Answer is a Model's script: how one call goes. It takes the time it needs
// ([Wait] is a latency) and gives a reply or an error, like batch.Model.
type Answer func(ctx context.Context, c batch.Call) (batch.Reply, error)

// Model is batch.Model in process. It counts what it is asked. Safe for
// concurrent use.
type Model struct {
	*desk
	faults *Faults
}

var _ batch.Model = (*Model)(nil)

// desk is what the views of a Model share.
type desk struct {
	answer Answer

	mu       sync.Mutex
	calls    []batch.Call
	counts   map[line]int
	inFlight int
	most     int
}

// line is one line of one batch.
type line struct {
	tenant, batch string
	n             int64
}

// NewModel returns a model that answers as told; nil answers 200 and "{}" at
// once. f may be nil.
func NewModel(f *Faults, answer func(context.Context, batch.Call) (batch.Reply, error)) *Model {
	if answer == nil {
		answer = func(context.Context, batch.Call) (batch.Reply, error) {
			return batch.Reply{Status: 200, Body: []byte("{}")}, nil
		}
	}
	return &Model{&desk{answer: answer, counts: map[line]int{}}, f}
}

// With is a view of the same model with faults of its own: another process.
func (m *Model) With(f *Faults) *Model { return &Model{m.desk, f} }

// Wait stands for a latency: it returns after d, or with ctx's error.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Call is batch.Model.Call.
func (m *Model) Call(ctx context.Context, c batch.Call) (batch.Reply, error) {
	return call(ctx, m.faults, "Model.Call", func() (batch.Reply, error) {
		if c.Ready != nil {
			if err := c.Ready(ctx); err != nil {
				return batch.Reply{}, err
			}
		}
		m.enter(c)
		defer m.leave()
		r, err := m.answer(ctx, c)
		if err != nil {
			return batch.Reply{}, err
		}
		if code := batch.WithheldCode(r.Status); code != "" {
			r.Body, r.Withheld = nil, batch.Withhold(r.Status, code, r.Body)
		}
		r.Body = bytes.Clone(r.Body)
		return r, nil
	})
}

func (d *desk) enter(c batch.Call) {
	c.Body = bytes.Clone(c.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	d.counts[line{c.Tenant, c.Batch, c.Line}]++
	d.inFlight++
	d.most = max(d.most, d.inFlight)
}

func (d *desk) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
}

// Calls is a look at all calls that reached the model, in order.
func (m *Model) Calls() []batch.Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := slices.Clone(m.calls)
	for i := range calls {
		calls[i].Body = bytes.Clone(calls[i].Body)
	}
	return calls
}

// Count is how often a line reached the model.
func (m *Model) Count(tenant, id string, n int64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[line{tenant, id, n}]
}

// Counts is how often each line of a batch reached the model.
func (m *Model) Counts(tenant, id string) map[int64]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[int64]int{}
	for l, n := range m.counts {
		if l.tenant == tenant && l.batch == id {
			counts[l.n] = n
		}
	}
	return counts
}

// InFlight is how many calls the model answers now, and the most it ever did at
// once.
func (m *Model) InFlight() (now, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inFlight, m.most
}
