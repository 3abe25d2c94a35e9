package bench

import (
	"context"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// flow is a workflow that waits for so many parts at once: the next part's message
// is sent once one is reported, and takes as long as a Map takes to begin a child.
type flow struct {
	batch.Workflow
	queue *memory.Queue
	parts int

	mu       sync.Mutex
	next     int // part without a message
	reported int
}

const (
	nextChild = 100 * time.Millisecond
	pollAgain = 50 * time.Millisecond // a poller that found nothing; SQS answers one that waits at once
)

func message(part int) batch.Message {
	return batch.Message{V: 1, Tenant: tenant, Batch: id, Part: part, TaskToken: "t"}
}

// over reports whether every part was reported.
func (f *flow) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reported == f.parts
}

// Report has the next part's message sent. Each part is reported once here: nobody
// dies.
func (f *flow) Report(ctx context.Context, token string) error {
	if err := f.Workflow.Report(ctx, token); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reported++
	if f.next == f.parts {
		return nil
	}
	part := f.next
	f.next++
	go func() {
		ctx := context.WithoutCancel(ctx)
		if err := memory.Wait(ctx, nextChild); err == nil {
			_ = f.queue.Send(ctx, message(part), 0) // to memory
		}
	}()
	return nil
}
