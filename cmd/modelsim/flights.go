package main

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// flights are the requests that are here now, so that who ends a worker can say
// what it was at.
type flights struct {
	mu   sync.Mutex
	last int
	now  map[int]flight
}

// flight is one request that is here.
type flight struct {
	Batch string    `json:"batch"`
	Line  string    `json:"line"`
	From  string    `json:"from"` // address and port of the client
	Since time.Time `json:"since"`
}

// begin notes a request that arrived; end that it was answered or given up.
func (f *flights) begin(one flight) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil {
		f.now = map[int]flight{}
	}
	f.last++
	n := f.last
	f.now[n] = one
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.now, n)
	}
}

// all are the requests that are here, the oldest first.
func (f *flights) all() []flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]flight, 0, len(f.now))
	for _, one := range f.now {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b flight) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Line, b.Line))
	})
	return all
}
