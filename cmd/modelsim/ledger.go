package main

import "sync"

// ledger counts what was sent, by batch and line.
type ledger struct {
	mu      sync.Mutex
	batches map[string]*account
}

// account is one batch's requests; the empty batch id collects calls that
// name none.
type account struct {
	Requests    int              `json:"requests"`
	InFlight    int              `json:"in_flight"`
	MaxInFlight int              `json:"max_in_flight"`
	Lines       map[string]entry `json:"lines"`
}

// entry is one line's requests.
type entry struct {
	Tries int    `json:"tries"`
	Sum   string `json:"sha256"` // of the last body
}

// begin notes a request and returns which try of its line it is, from 1.
func (l *ledger) begin(batch, line, sum string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches == nil {
		l.batches = map[string]*account{}
	}
	a := l.batches[batch]
	if a == nil {
		a = &account{Lines: map[string]entry{}}
		l.batches[batch] = a
	}
	a.Requests++
	a.InFlight++
	a.MaxInFlight = max(a.MaxInFlight, a.InFlight)
	e := a.Lines[line]
	e.Tries, e.Sum = e.Tries+1, sum
	a.Lines[line] = e
	return e.Tries
}

// end notes that a request was answered or given up.
func (l *ledger) end(batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.batches[batch]; a != nil {
		a.InFlight--
	}
}

// of copies what is known of a batch.
func (l *ledger) of(batch string) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := account{Lines: map[string]entry{}}
	if a := l.batches[batch]; a != nil {
		c.Requests, c.InFlight, c.MaxInFlight = a.Requests, a.InFlight, a.MaxInFlight
		for k, v := range a.Lines {
			c.Lines[k] = v
		}
	}
	return c
}

// reset forgets everything.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = nil
}
