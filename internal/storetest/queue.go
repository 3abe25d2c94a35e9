package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// RunQueue runs the suite of batch.Queue. Each case needs a queue of its own,
// empty, that hides what is received for at least 30 s.
func RunQueue(t *testing.T, open func(T) batch.Queue) {
	t.Helper()
	run(t, QueueCases(), open)
}

// QueueCases is the suite of batch.Queue. Its waits are about a second, because
// that is SQS's finest unit.
func QueueCases() []Case[batch.Queue] {
	return []Case[batch.Queue]{
		{"receive/nothing", receiveNothing},
		{"receive/what was sent", receiveSent},
		{"receive/equal messages are two", receiveTwins},
		{"receive/hidden until deleted", receiveHidden},
		{"receive/many receivers, each message once", receiveMany},
		{"hide/0 shows the message at once", hideZero},
		{"hide/shows the message after its time", hideWaits},
		{"hide/an old receipt does nothing", hideStale},
		{"hide/a deleted message", hideDeleted},
		{"delete/for good, however often", deleteTwice},
		{"delete/an old receipt does nothing", deleteStale},
		{"send/with a delay", sendDelayed},
		{"send all/each once, however many", sendAll},
		{"bounds of waits", queueBounds},
		{"a context that is over", queueInterrupted},
	}
}

func message(n int) batch.Message {
	k := key(n)
	return batch.Message{V: batch.FormatVersion, Tenant: k.Tenant, Batch: k.Batch, Part: n, TaskToken: awkward}
}

func send(t T, q batch.Queue, m batch.Message) {
	t.Helper()
	succeeds(t, "send", q.Send(t.Context(), m, 0))
}

// receive waits for a message.
func receive(t T, q batch.Queue) (d batch.Delivery) {
	t.Helper()
	eventually(t, "a message", func() bool {
		got, err := q.Receive(t.Context())
		if errors.Is(err, batch.ErrEmpty) {
			return false
		}
		succeeds(t, "receive", err)
		d = got
		return true
	})
	if d.Receipt == "" {
		t.Errorf("a delivery without a receipt")
	}
	return d
}

// nothing demands that nothing can be received, for a moment.
func nothing(t T, q batch.Queue, what string) {
	t.Helper()
	stays(t, "nothing to receive "+what, 200*time.Millisecond, func() bool {
		return errors.Is(fault(q.Receive(t.Context())), batch.ErrEmpty)
	})
}

// is demands that d is m, received for the n-th time.
func is(t T, d batch.Delivery, m batch.Message, n int) {
	t.Helper()
	if d.Message != m || d.Receives != n {
		t.Errorf("received %+v\nwant %+v, for the %d. time", d, m, n)
	}
}

func receiveNothing(t T, q batch.Queue) { nothing(t, q, "from an empty queue") }

func receiveSent(t T, q batch.Queue) {
	bare := message(0)
	bare.TaskToken = ""
	for _, m := range []batch.Message{message(0), message(39), bare} {
		send(t, q, m)
		d := receive(t, q)
		is(t, d, m, 1)
		succeeds(t, "delete", q.Delete(t.Context(), d))
	}
}

func receiveTwins(t T, q batch.Queue) {
	m := message(1)
	send(t, q, m)
	send(t, q, m)
	first, second := receive(t, q), receive(t, q)
	is(t, first, m, 1)
	is(t, second, m, 1)
	succeeds(t, "delete", q.Delete(t.Context(), first))
	succeeds(t, "hide the other", q.Hide(t.Context(), second, 0))
	is(t, receive(t, q), m, 2)
}

func receiveHidden(t T, q batch.Queue) {
	send(t, q, message(0))
	d := receive(t, q)
	nothing(t, q, "while it is hidden")
	succeeds(t, "hide for longer", q.Hide(t.Context(), d, time.Minute))
	nothing(t, q, "while it is hidden anew")
}

func receiveMany(t T, q batch.Queue) {
	const n = 48
	for i := range n {
		send(t, q, message(i))
	}
	seen := map[batch.Message]int{}
	eventually(t, "all messages", func() bool {
		for _, d := range race(8, func(int) []batch.Delivery { return drain(t, q) }) {
			for _, d := range d {
				seen[d.Message]++
			}
		}
		return len(seen) >= n
	})
	for m, times := range seen {
		if times != 1 {
			t.Errorf("part %d was received %d times", m.Part, times)
		}
	}
	if len(seen) != n {
		t.Errorf("%d messages of %d", len(seen), n)
	}
}

// drain receives until there is nothing, or more than there can be.
func drain(t T, q batch.Queue) (all []batch.Delivery) {
	for len(all) < 100 {
		d, err := q.Receive(t.Context())
		if err != nil {
			if !errors.Is(err, batch.ErrEmpty) {
				t.Errorf("receive: %v", err)
			}
			return all
		}
		all = append(all, d)
	}
	return all
}

func hideZero(t T, q batch.Queue) {
	m := message(0)
	send(t, q, m)
	for n := 1; n <= 3; n++ {
		d := receive(t, q)
		is(t, d, m, n)
		succeeds(t, "hide", q.Hide(t.Context(), d, 0))
	}
}

// appears demands that m is received no earlier than about wait after since.
func appears(t T, q batch.Queue, m batch.Message, n int, since time.Time, wait time.Duration) {
	t.Helper()
	is(t, receive(t, q), m, n)
	if took := time.Since(since); took < wait*6/10 {
		t.Errorf("visible after %v, want %v", took, wait)
	}
}

func hideWaits(t T, q batch.Queue) {
	m := message(0)
	send(t, q, m)
	d := receive(t, q)
	since := time.Now()
	succeeds(t, "hide", q.Hide(t.Context(), d, time.Second))
	appears(t, q, m, 2, since, time.Second)
}

func sendDelayed(t T, q batch.Queue) {
	m := message(0)
	since := time.Now()
	succeeds(t, "send", q.Send(t.Context(), m, time.Second))
	appears(t, q, m, 1, since, time.Second)
}

func sendAll(t T, q batch.Queue) {
	succeeds(t, "send nothing", q.SendAll(t.Context(), nil))
	nothing(t, q, "after nothing was sent")
	const n = 23 // SQS takes ten at once
	want := make([]batch.Message, n)
	for i := range want {
		want[i] = message(i)
	}
	want[n-1] = want[0] // twice is two messages
	succeeds(t, "send all", q.SendAll(t.Context(), want))
	seen := map[batch.Message]int{}
	for range n {
		seen[receive(t, q).Message]++
	}
	nothing(t, q, "but those")
	for i, m := range want[:n-1] {
		if times := 1; seen[m] != times && (i != 0 || seen[m] != 2) {
			t.Errorf("message %d was received %d times", i, seen[m])
		}
	}
}

func hideStale(t T, q batch.Queue) {
	send(t, q, message(0))
	old := receive(t, q)
	succeeds(t, "hide", q.Hide(t.Context(), old, 0))
	last := receive(t, q)
	refuses(t, "hide by the old receipt", q.Hide(t.Context(), old, 0), batch.ErrNotFound)
	nothing(t, q, "after the old receipt's hide")
	succeeds(t, "hide by the last receipt", q.Hide(t.Context(), last, 0))
	receive(t, q)
}

func hideDeleted(t T, q batch.Queue) {
	send(t, q, message(0))
	d := receive(t, q)
	succeeds(t, "delete", q.Delete(t.Context(), d))
	refuses(t, "hide", q.Hide(t.Context(), d, 0), batch.ErrNotFound)
	nothing(t, q, "after that")
}

func deleteTwice(t T, q batch.Queue) {
	gone, kept := message(0), message(1)
	send(t, q, gone)
	d := receive(t, q)
	send(t, q, kept)
	for range 2 {
		succeeds(t, "delete", q.Delete(t.Context(), d))
	}
	is(t, receive(t, q), kept, 1)
	nothing(t, q, "but the other")
}

func deleteStale(t T, q batch.Queue) {
	m := message(0)
	send(t, q, m)
	old := receive(t, q)
	succeeds(t, "hide", q.Hide(t.Context(), old, 0))
	last := receive(t, q)
	succeeds(t, "delete by the old receipt", q.Delete(t.Context(), old))
	succeeds(t, "hide by the last receipt", q.Hide(t.Context(), last, 0))
	is(t, receive(t, q), m, 3)
}

func queueBounds(t T, q batch.Queue) {
	m := message(0)
	for _, d := range []time.Duration{-time.Second, 15*time.Minute + time.Second} {
		if err := q.Send(t.Context(), m, d); err == nil {
			t.Errorf("sent with a delay of %v", d)
		}
	}
	nothing(t, q, "after messages that were refused")
	send(t, q, m)
	d := receive(t, q)
	for _, wait := range []time.Duration{-time.Second, 12*time.Hour + time.Second} {
		if err := q.Hide(t.Context(), d, wait); err == nil || errors.Is(err, batch.ErrNotFound) {
			t.Errorf("hidden for %v: %v", wait, err)
		}
	}
	succeeds(t, "send with the longest delay", q.Send(t.Context(), message(1), 15*time.Minute))
	nothing(t, q, fmt.Sprintf("for %v", 15*time.Minute))
}

func queueInterrupted(t T, q batch.Queue) {
	m := message(0)
	send(t, q, m)
	d := receive(t, q)
	interrupts(t, map[string]func(context.Context) error{
		"Receive": func(ctx context.Context) error { return fault(q.Receive(ctx)) },
		"Hide":    func(ctx context.Context) error { return q.Hide(ctx, d, 0) },
		"Delete":  func(ctx context.Context) error { return q.Delete(ctx, d) },
		"Send":    func(ctx context.Context) error { return q.Send(ctx, message(1), 0) },
		"SendAll": func(ctx context.Context) error { return q.SendAll(ctx, []batch.Message{message(1), message(2)}) },
	})
	nothing(t, q, "after those")
	succeeds(t, "hide", q.Hide(t.Context(), d, 0))
	is(t, receive(t, q), m, 2)
}
