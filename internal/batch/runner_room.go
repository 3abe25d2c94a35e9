package batch

import (
	"context"
	"slices"
	"sync"
)

// room is the uncommitted window in bytes (promise 8): lines that were sent, what
// their replies need, and results not yet committed, over all hands of a shift.
//
// Together they hold at most `most` bytes, and beside them one line with its
// reply, whatever their size: the one that is let over. Without it the window
// could fill with halves of replies, of which none could become whole. Everybody
// else waits; so a large reply costs time, never memory. A reply asks before its
// bytes are there (Call.Room): how large it is nobody knows when its line is
// sent, and K of the largest at once would be many times the window.
//
// The loop and the requests beside it use a room; it is safe for that.
type room struct {
	most int64

	mu    sync.Mutex
	used  int64 // by all seats but the one that is over
	over  *seat // the one that may exceed
	queue []*wish
}

// seat is what one line, or its result, holds of the room.
type seat struct{ n int64 }

// wish is a seat that waits to grow.
type wish struct {
	p     *seat
	n     int64
	given chan struct{}
}

// admit makes a seat of n bytes for a line, unless the window is full. A line
// too large for it goes alone.
func (r *room) admit(n int64) *seat {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &seat{}
	if len(r.queue) > 0 || !r.fits(p, n) && (r.used > 0 || r.over != nil) {
		return nil
	}
	r.take(p, n)
	return p
}

// grow makes p hold n bytes at least, and waits until it may. Before it waits it
// calls stuck: somebody must make room. ctx's error.
func (r *room) grow(ctx context.Context, p *seat, n int64, stuck func()) error {
	r.mu.Lock()
	// The one that is over waits for nobody: all others wait for it.
	if n <= p.n || r.over == p || r.free(p, n) && len(r.queue) == 0 {
		r.take(p, max(n, p.n))
		r.mu.Unlock()
		return nil
	}
	w := &wish{p: p, n: n, given: make(chan struct{})}
	r.queue = append(r.queue, w)
	r.mu.Unlock()
	stuck()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue = slices.DeleteFunc(r.queue, func(o *wish) bool { return o == w })
		r.serve()
		return ctx.Err()
	}
}

// set makes p hold n bytes, fewer than it did or hardly more.
func (r *room) set(p *seat, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(p, n)
	r.serve()
}

// leave gives back all that the seats hold.
func (r *room) leave(seats ...*seat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range seats {
		r.take(p, 0)
	}
	r.serve()
}

func seatsOf(results []result) []*seat {
	seats := make([]*seat, len(results))
	for i, res := range results {
		seats[i] = res.seat
	}
	return seats
}

// waits reports whether somebody waits for room.
func (r *room) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) > 0
}

// fits reports whether p can hold n bytes within the window.
func (r *room) fits(p *seat, n int64) bool {
	if p != r.over {
		n -= p.n
	}
	return r.used+n <= r.most
}

// free reports whether p may hold n bytes: it fits, or p may be let over.
func (r *room) free(p *seat, n int64) bool {
	return r.fits(p, n) || r.over == nil || r.over == p
}

// take makes p hold n bytes; what doesn't fit is let over, if nobody is.
func (r *room) take(p *seat, n int64) {
	if r.over != p {
		r.used -= p.n
	}
	p.n = n
	switch {
	case r.used+n <= r.most || n == 0:
		if r.over == p {
			r.over = nil
		}
		r.used += n
	case r.over == nil || r.over == p:
		r.over = p
	default:
		r.used += n
	}
}

// serve grants what can be, in the order it was asked for.
func (r *room) serve() {
	for len(r.queue) > 0 && r.free(r.queue[0].p, r.queue[0].n) {
		w := r.queue[0]
		r.queue = slices.Delete(r.queue, 0, 1)
		r.take(w.p, max(w.n, w.p.n))
		close(w.given)
	}
}
