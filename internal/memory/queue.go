package memory

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"holdfast/internal/batch"
)

// What SQS allows.
const (
	maxHide  = 12 * time.Hour
	maxDelay = 15 * time.Minute
)

// Queue is batch.Queue in process. The oldest visible message is received
// first; time is time.Now, which a synctest bubble fakes. Safe for concurrent
// use.
type Queue struct {
	*backlog
	faults *Faults
}

var _ batch.Queue = (*Queue)(nil)

// backlog is what the views of a Queue share.
type backlog struct {
	rules rules

	mu         sync.Mutex
	messages   []*Queued
	visibility time.Duration
	receipts   int
	sent       int
}

// Queued is a message as the queue holds it.
type Queued struct {
	batch.Message
	Sent     int       // the how-manieth message ever sent, from 1
	Visible  time.Time // from when it can be received
	Receives int
	Receipt  string // of the last receive, "" before the first
}

// NewQueue returns an empty queue; f may be nil. What is received is hidden for
// 15 minutes unless the receiver says otherwise (see Visibility).
func NewQueue(f *Faults) *Queue { return newQueue(rules{}, f) }

func newQueue(r rules, f *Faults) *Queue {
	return &Queue{&backlog{rules: r, visibility: 15 * time.Minute}, f}
}

// With is a view of the same queue with faults of its own: another process.
func (q *Queue) With(f *Faults) *Queue { return &Queue{q.backlog, f} }

// Visibility sets for how long Receive hides a message.
func (q *Queue) Visibility(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.visibility = d
}

// Receive is batch.Queue.Receive.
func (q *Queue) Receive(ctx context.Context) (batch.Delivery, error) {
	return call(ctx, q.faults, "Queue.Receive", func() (batch.Delivery, error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		now := time.Now()
		for _, m := range q.messages {
			if !q.rules.must("queue.visible", !m.Visible.After(now)) {
				continue
			}
			q.receipts++
			m.Receipt = "receipt-" + strconv.Itoa(q.receipts)
			m.Receives++
			m.Visible = now.Add(q.visibility)
			return batch.Delivery{Message: m.Message, Receipt: m.Receipt, Receives: m.Receives}, nil
		}
		return batch.Delivery{}, fmt.Errorf("receive: %w", batch.ErrEmpty)
	})
}

// Hide is batch.Queue.Hide. A wait outside its bounds is an error.
func (q *Queue) Hide(ctx context.Context, d batch.Delivery, wait time.Duration) error {
	return effect(ctx, q.faults, "Queue.Hide", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if wait < 0 || wait > maxHide {
			return fmt.Errorf("hide for %s: not within 0-%s", wait, maxHide)
		}
		now := time.Now()
		for _, m := range q.messages {
			// A message that is visible again belongs to nobody, even if nobody
			// has received it since.
			last := m.Receipt == d.Receipt && m.Visible.After(now)
			if m.Message == d.Message && q.rules.must("queue.hide", last) {
				m.Visible = now.Add(wait)
				return nil
			}
		}
		return fmt.Errorf("hide: receipt: %w", batch.ErrNotFound)
	})
}

// Delete is batch.Queue.Delete.
func (q *Queue) Delete(ctx context.Context, d batch.Delivery) error {
	return effect(ctx, q.faults, "Queue.Delete", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for i, m := range q.messages {
			if m.Message == d.Message && q.rules.must("queue.delete", m.Receipt == d.Receipt) {
				q.messages = append(q.messages[:i:i], q.messages[i+1:]...)
				return nil
			}
		}
		return nil
	})
}

// Send is batch.Queue.Send. A delay outside its bounds is an error.
func (q *Queue) Send(ctx context.Context, m batch.Message, delay time.Duration) error {
	return effect(ctx, q.faults, "Queue.Send", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if delay < 0 || delay > maxDelay {
			return fmt.Errorf("send with a delay of %s: not within 0-%s", delay, maxDelay)
		}
		q.sent++
		q.messages = append(q.messages, &Queued{Message: m, Sent: q.sent, Visible: time.Now().Add(delay)})
		return nil
	})
}

// SendAll is batch.Queue.SendAll.
func (q *Queue) SendAll(ctx context.Context, ms []batch.Message) error {
	return effect(ctx, q.faults, "Queue.SendAll", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, m := range ms {
			q.sent++
			q.messages = append(q.messages, &Queued{Message: m, Sent: q.sent, Visible: time.Now()})
		}
		return nil
	})
}

// Messages is a look at all messages that weren't deleted, oldest first, that
// no fault can touch.
func (q *Queue) Messages() []Queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Queued, len(q.messages))
	for i, m := range q.messages {
		all[i] = *m
	}
	return all
}
