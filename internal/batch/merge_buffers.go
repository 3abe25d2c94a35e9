package batch

import (
	"context"
	"sync"
)

// buffers is a bound on bytes held, and keeps what was given back for the next.
type buffers struct {
	most int
	poke chan struct{} // holds one element after something was given back

	mu    sync.Mutex
	used  int      // of buffers that are out
	spare [][]byte // given back
	kept  int      // bytes of spare
}

func newBuffers(most int) *buffers { return &buffers{most: most, poke: make(chan struct{}, 1)} }

// take gives a buffer of n bytes once there is room, at once if nothing is out.
// It is false when ctx ended before. For one goroutine.
func (r *buffers) take(ctx context.Context, n int) ([]byte, bool) {
	for {
		if b := r.find(n); b != nil {
			return b[:n], true
		}
		select {
		case <-r.poke:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// find gives a buffer that can hold n bytes, or nil when there is no room.
func (r *buffers) find(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, b := range r.spare {
		if cap(b) >= n && (r.used == 0 || r.used+cap(b) <= r.most) {
			last := len(r.spare) - 1
			r.spare[i], r.spare[last] = r.spare[last], nil
			r.spare = r.spare[:last]
			r.kept -= cap(b)
			r.used += cap(b)
			return b
		}
	}
	const step = 64 << 10 // parts differ a little, and shall fit one another's buffers
	size := (n + step - 1) / step * step
	if r.used > 0 && r.used+size > r.most {
		return nil
	}
	for len(r.spare) > 0 && r.used+r.kept+size > r.most { // too small, and in the way
		last := len(r.spare) - 1
		r.kept -= cap(r.spare[last])
		r.spare[last] = nil
		r.spare = r.spare[:last]
	}
	r.used += size
	return make([]byte, size)
}

// give gives a buffer back.
func (r *buffers) give(b []byte) {
	if cap(b) == 0 {
		return
	}
	r.mu.Lock()
	r.used -= cap(b)
	r.kept += cap(b)
	r.spare = append(r.spare, b)
	r.mu.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
}
