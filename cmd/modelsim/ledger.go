package main

import (
	"encoding/hex"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ledger counts what was sent, by batch and line.
type ledger struct {
	mu      sync.Mutex
	batches map[string]*account
}

// account is one batch's requests; the empty batch id collects calls that
// name none.
type account struct {
	stats
	Lines map[string]entry `json:"lines"`
	// For says on whose behalf they were sent, and how often.
	For map[string]int `json:"on_behalf_of"`
}

// stats is an account without its lines: as small for 100,000 of them as for one.
type stats struct {
	Requests    int `json:"requests"`
	InFlight    int `json:"in_flight"`     // here now, in line or being answered
	MaxInFlight int `json:"max_in_flight"` // the most that were
	Answering   int `json:"answering"`     // in a slot now
	MaxAnswered int `json:"max_answered"`  // the most that were
	// Busy is the time that requests spent in a slot, in sum; over the time from the
	// first request to the last reply it is how many were answered at once on average.
	Busy float64 `json:"busy_seconds"`
	// First is when the first request had arrived, Last when the latest one was
	// answered or given up; zero when there was none.
	First time.Time `json:"first_request_at,omitzero"`
	Last  time.Time `json:"last_reply_at,omitzero"`
}

// entry is one line's requests.
type entry struct {
	Tries int    `json:"tries"`
	Sum   digest `json:"sha256"` // of the last body
}

// digest is a SHA-256, in hexadecimal on the wire. Kept as bytes, because a long
// run keeps one for each of its lines.
type digest [32]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes d in hexadecimal.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return fmt.Errorf("a digest of %d digits", len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// begin notes a request that arrived at now and returns which try of its line it
// is, from 1.
func (l *ledger) begin(batch, line, who string, sum digest, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches == nil {
		l.batches = map[string]*account{}
	}
	a := l.batches[batch]
	if a == nil {
		a = &account{Lines: map[string]entry{}, For: map[string]int{}, stats: stats{First: now}}
		l.batches[batch] = a
	}
	a.For[who]++
	a.Requests++
	a.InFlight++
	a.MaxInFlight = max(a.MaxInFlight, a.InFlight)
	e := a.Lines[line]
	e.Tries, e.Sum = e.Tries+1, sum
	a.Lines[line] = e
	return e.Tries
}

// enter notes that a request got a slot.
func (l *ledger) enter(batch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.batches[batch]; a != nil {
		a.Answering++
		a.MaxAnswered = max(a.MaxAnswered, a.Answering)
	}
}

// leave notes that a request gave back the slot that it got at since.
func (l *ledger) leave(batch string, since, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.batches[batch]; a != nil {
		a.Answering--
		a.Busy += now.Sub(since).Seconds()
	}
}

// end notes that a request was answered or given up at now.
func (l *ledger) end(batch string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.batches[batch]; a != nil {
		a.InFlight--
		a.Last = now
	}
}

// of copies what is known of a batch.
func (l *ledger) of(batch string) account {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := account{Lines: map[string]entry{}, For: map[string]int{}}
	if a := l.batches[batch]; a != nil {
		c.stats = a.stats
		for k, v := range a.Lines {
			c.Lines[k] = v
		}
		maps.Copy(c.For, a.For)
	}
	return c
}

// statsOf copies what is known of a batch, without its lines.
func (l *ledger) statsOf(batch string) stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.batches[batch]; a != nil {
		return a.stats
	}
	return stats{}
}

// reset forgets everything.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = nil
}
