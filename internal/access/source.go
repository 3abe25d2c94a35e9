package access

import (
	"net/netip"
	"sync"
	"time"
)

// maxSources bounds the memory: 4,096 addresses are under 1 MB.
const maxSources = 4096

// sources counts the wrong keys of each source address. Each has a bucket of n,
// which fills again at n a minute; what is kept of it is the instant at which it is
// full. Where there is no more room, those are forgotten that lack one at most, or
// the one that lacks least: many addresses with one guess each don't push out the
// one with many. Safe for concurrent use.
//
// golang.org/x/time/rate has a bucket, but neither the map of them nor its bound,
// which are most of this; and the package does without libraries.
type sources struct {
	each time.Duration // in which one wrong key is forgiven
	most time.Duration // what an empty bucket takes to fill

	mu   sync.Mutex
	full map[string]time.Time
}

func newSources(perMinute int) *sources {
	each := time.Minute / time.Duration(perMinute)
	return &sources{each: each, most: time.Duration(perMinute) * each, full: map[string]time.Time{}}
}

// wait is how long it takes until the source may show another key; 0: it may.
func (s *sources) wait(source string, now time.Time) time.Duration {
	now = now.Round(0) // who has waited has waited also while a function was frozen: see memo
	s.mu.Lock()
	defer s.mu.Unlock()
	source = origin(source)
	full, there := s.full[source]
	if !there {
		return 0
	}
	if latest := now.Add(s.most); full.After(latest) { // a clock that was set back
		full = latest
		s.full[source] = full
	}
	return max(0, full.Sub(now)-(s.most-s.each))
}

// wrong counts a wrong key.
func (s *sources) wrong(source string, now time.Time) {
	if source == "" {
		return
	}
	source, now = origin(source), now.Round(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	full, there := s.full[source]
	if !there && len(s.full) >= maxSources {
		s.makeRoom(now)
	}
	if full.Before(now) {
		full = now
	}
	full = full.Add(s.each)
	if latest := now.Add(s.most); full.After(latest) {
		full = latest
	}
	s.full[source] = full
}

// makeRoom forgets many at a time if it can: it looks at all of them.
func (s *sources) makeRoom(now time.Time) {
	var next string
	for source, full := range s.full {
		if !full.After(now.Add(s.each)) {
			delete(s.full, source)
		} else if next == "" || full.Before(s.full[next]) {
			next = source
		}
	}
	if len(s.full) >= maxSources {
		delete(s.full, next)
	}
}

// origin is who stands behind an address, with or without a port: an IPv4 address,
// or the network of 64 bits that is the least anybody with IPv6 is given.
func origin(source string) string {
	addr, err := netip.ParseAddr(source)
	if err != nil {
		port, err := netip.ParseAddrPort(source)
		if err != nil {
			return source[:min(len(source), 64)]
		}
		addr = port.Addr()
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return addr.String()
	}
	return network.String()
}
