package meter

import (
	"context"
	"time"

	"holdfast/internal/batch"
)

// Model is a batch.Model that counts its requests and how long they took: the
// waiting that a worker is paid for, and that no implementation can save.
type Model struct{ batch.Model }

// Call implements batch.Model.
func (m Model) Call(ctx context.Context, c batch.Call) (batch.Reply, error) {
	began := time.Now()
	reply, err := m.Model.Call(ctx, c)
	if r, ok := ctx.Value(recordKey{}).(*Record); ok {
		s := batch.SubjectOf(ctx)
		r.mu.Lock()
		u := r.upstream[s]
		u.Requests++
		u.Waited += time.Since(began).Milliseconds()
		r.upstream[s] = u
		r.mu.Unlock()
	}
	return reply, err
}
