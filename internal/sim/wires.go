package sim

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// queue is the work queue as one process sees it. What is sent to it may be lost,
// or come twice.
type queue struct{ p *process }

var _ batch.Queue = queue{}

func (q queue) store() *memory.Queue { return q.p.w.stores.Queue.With(q.p.faults) }

func (q queue) Receive(ctx context.Context) (batch.Delivery, error) { return q.store().Receive(ctx) }

func (q queue) Hide(ctx context.Context, d batch.Delivery, wait time.Duration) error {
	return q.store().Hide(ctx, d, wait)
}

func (q queue) Delete(ctx context.Context, d batch.Delivery) error { return q.store().Delete(ctx, d) }

func (q queue) Send(ctx context.Context, m batch.Message, delay time.Duration) error {
	return q.p.faults.Around(ctx, "Queue.Send", func() error { return q.p.w.send(q.p.name, m, delay) })
}

func (q queue) SendAll(ctx context.Context, ms []batch.Message) error {
	return q.p.faults.Around(ctx, "Queue.SendAll", func() error {
		for _, m := range ms {
			if err := q.p.w.send(q.p.name, m, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// send is what becomes of a message.
func (w *World) send(who string, m batch.Message, delay time.Duration) error {
	w.mu.Lock()
	w.seen.sent++
	n := w.seen.sent
	w.mu.Unlock()
	times, how := 1, "sent"
	if !w.Calm() {
		switch {
		case w.dice.at(1000, n, "lost") < w.Lost:
			times, how = 0, "lost"
		case w.dice.at(1000, n, "twice") < w.Twice:
			times, how = 2, "sent twice"
		}
	}
	w.mu.Lock()
	w.noted(who, "message", fmt.Sprintf("%s for part %d in %v", how, m.Part, delay), nil)
	w.mu.Unlock()
	for range times {
		if err := w.stores.Queue.Send(context.Background(), m, delay); err != nil {
			return err
		}
	}
	return nil
}

// EmptyQueue empties the work queue.
func (w *World) EmptyQueue() {
	w.mu.Lock()
	w.noted("operator", "purge", "", nil)
	w.mu.Unlock()
	for _, m := range w.stores.Queue.Messages() {
		w.stores.Queue.Delete(context.Background(), batch.Delivery{Message: m.Message, Receipt: m.Receipt})
	}
}

// model is the model as one process sees it.
type model struct{ p *process }

var _ batch.Model = model{}

func (m model) Call(ctx context.Context, c batch.Call) (r batch.Reply, err error) {
	err = m.p.faults.Around(ctx, "Model.Call", func() (err error) {
		if c.Ready != nil {
			if err := c.Ready(ctx); err != nil {
				return err
			}
		}
		r, err = m.p.w.answer(ctx, m.p, c)
		return err
	})
	return r, err
}

// answer is the model's, after some time. A poison line kills who sent it.
func (w *World) answer(ctx context.Context, p *process, c batch.Call) (batch.Reply, error) {
	nth := w.asked(p, c)
	defer w.landed(p)
	key := fmt.Sprint(c.Line)
	took := 50*time.Millisecond + time.Duration(w.dice.at(int(w.Slow), nth, "latency", key))
	if err := memory.Wait(ctx, took); err != nil {
		return batch.Reply{}, err
	}
	for _, line := range w.Poison {
		if line == c.Line {
			p.Kill(fmt.Sprintf("by line %d", line))
			return batch.Reply{}, memory.ErrCrashed
		}
	}
	if !w.Calm() {
		roll := w.dice.at(100, nth, "answer", key)
		switch half := int(time.Since(w.began) / (30 * time.Second)); {
		case w.Storm && half%2 == 0 && roll < 80:
			w.unanswered(p, c)
			return batch.Reply{Status: 429, RetryAfter: time.Duration(w.dice.at(7, nth, "retry after", key)) * time.Second}, nil
		case roll == 0:
			w.unanswered(p, c)
			return batch.Reply{}, batch.ErrUnreachable
		case roll < 3:
			w.unanswered(p, c)
			return batch.Reply{Status: 503}, nil
		}
	}
	w.mu.Lock()
	w.seen.answered[c.Line]++
	w.mu.Unlock()
	if c.Line%17 == 5 {
		return batch.Reply{Status: 400, Body: fmt.Appendf(nil, `{"error":{"message":"no"},"n":%d}`, c.Line)}, nil
	}
	return batch.Reply{Status: 200, Body: fmt.Appendf(nil, `{"n":%d,"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, c.Line)}, nil
}

// asked takes a request down, and judges whether it may be made. Its answer is how
// often the line was sent before.
func (w *World) asked(p *process, c batch.Call) int64 {
	k := w.key(int(c.Line) / w.PartLines)
	p.mu.Lock()
	tok := p.holds[k]
	p.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if string(c.Body) != w.bodies[c.Line] {
		w.wrong("line %d was sent as %q, want %q", c.Line, c.Body, w.bodies[c.Line])
	}
	w.seen.flying[p]++
	if n := w.seen.flying[p]; n > ceiling {
		w.wrong("%s has %d requests in flight, want at most %d", p.name, n, ceiling)
	}
	if w.seen.sends[tok] == nil {
		w.seen.sends[tok] = map[int64]bool{}
	}
	w.seen.sends[tok][c.Line] = true
	if at := w.seen.endedAt; !at.IsZero() && time.Since(at) > lookEvery {
		w.wrong("%s sends line %d %v after the batch's ending was decided", p.name, c.Line, time.Since(at))
	}
	if x, _ := w.stores.Table.Part(k); x.Owner == tok && x.State == batch.Leased && !x.Suspect.None() && x.Suspect.By == tok {
		if line := x.FirstLine + int64(x.Suspect.Line); line != c.Line || w.seen.flying[p] > 1 {
			w.wrong("%s sends line %d beside %d others while line %d is to be alone", p.name, c.Line, w.seen.flying[p]-1, line)
		}
	}
	delete(w.seen.waits, tok)
	w.seen.asked[c.Line]++
	return w.seen.asked[c.Line] - 1
}

// unanswered takes down that a line is in flight no more, and has no answer.
func (w *World) unanswered(p *process, c batch.Call) {
	k := w.key(int(c.Line) / w.PartLines)
	p.mu.Lock()
	tok := p.holds[k]
	p.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if x, _ := w.stores.Table.Part(k); x.Owner == tok && x.Suspect.By == tok && x.FirstLine+int64(x.Suspect.Line) == c.Line {
		w.seen.waits[tok] = time.Now()
	}
}

func (w *World) landed(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.flying[p]--
}
