package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Letters is the doors' queue in process with its dead letters: bridge.Postponer
// and door.DeadLetters. Time is time.Now, which a synctest bubble fakes. Safe for
// concurrent use.
type Letters struct {
	*mail
	faults *Faults
}

var _ bridge.Postponer = (*Letters)(nil)

// mail is what the views of Letters share.
type mail struct {
	mu      sync.Mutex
	waiting []*posted
	dead    []DeadLetter
	ids     int
}

type posted struct {
	bridge.Letter
	visible time.Time
}

// DeadLetter is one that nothing came of.
type DeadLetter struct {
	Body         string
	Code, Reason string
}

// lettersHidden is for how long what is received is hidden: the queue's own
// visibility.
const lettersHidden = time.Minute

// NewLetters returns an empty queue; f may be nil.
func NewLetters(f *Faults) *Letters { return &Letters{&mail{}, f} }

// With is a view of the same queue with faults of its own: another process.
func (q *Letters) With(f *Faults) *Letters { return &Letters{q.mail, f} }

// Post sends a letter.
func (q *Letters) Post(body string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ids++
	q.waiting = append(q.waiting, &posted{Letter: bridge.Letter{ID: "message-" + strconv.Itoa(q.ids), Body: []byte(body)}})
}

// Receive delivers the letters that are visible, at most so many, and hides them
// for a minute.
func (q *Letters) Receive(most int) (letters []bridge.Letter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, p := range q.waiting {
		if len(letters) < most && !p.visible.After(now) {
			q.ids++
			p.Receipt, p.visible = "receipt-"+strconv.Itoa(q.ids), now.Add(lettersHidden)
			p.Receives++
			l := p.Letter
			l.Body = bytes.Clone(l.Body)
			letters = append(letters, l)
		}
	}
	return letters
}

// Delete deletes what was delivered, whatever became of it since.
func (q *Letters) Delete(letters ...bridge.Letter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(p *posted) bool {
		return slices.ContainsFunc(letters, func(l bridge.Letter) bool { return l.ID == p.ID })
	})
}

// Postpone is bridge.Postponer.Postpone.
func (q *Letters) Postpone(ctx context.Context, l bridge.Letter, wait time.Duration) error {
	return effect(ctx, q.faults, "Letters.Postpone", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if wait < 0 || wait > maxHide {
			return fmt.Errorf("postpone by %s: not within 0-%s", wait, maxHide)
		}
		now := time.Now()
		for _, p := range q.waiting {
			if p.Receipt == l.Receipt && p.visible.After(now) {
				p.visible = now.Add(wait)
				return nil
			}
		}
		return fmt.Errorf("postpone: receipt: %w", batch.ErrNotFound)
	})
}

// Send is door.DeadLetters.Send.
func (q *Letters) Send(ctx context.Context, body []byte, code, reason string) error {
	return effect(ctx, q.faults, "Letters.Send", func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dead = append(q.dead, DeadLetter{string(body), code, reason})
		return nil
	})
}

// Dead is a look at the dead letters, the oldest first.
func (q *Letters) Dead() []DeadLetter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.dead)
}

// Waiting is a look at how many letters weren't deleted.
func (q *Letters) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
