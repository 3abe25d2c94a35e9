package access

import (
	"sync"
	"time"
)

// memo keeps what was read for a while, and so much of it at most. Safe for
// concurrent use.
type memo[V any] struct {
	size int

	mu      sync.Mutex
	entries map[string]entry[V]
}

type entry[V any] struct {
	value V
	at    time.Time
	ttl   time.Duration
}

func newMemo[V any](size int) *memo[V] { return &memo[V]{size: size, entries: map[string]entry[V]{}} }

func (m *memo[V]) lookup(name string, now time.Time) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[name]
	return e.value, ok && e.fresh(now)
}

// last gives what was kept last, fresh or not; false where that is nothing, or
// made room.
func (m *memo[V]) last(name string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[name]
	return e.value, ok
}

func (m *memo[V]) keep(name string, v V, now time.Time, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.entries[name]; !there && len(m.entries) >= m.size {
		for n, e := range m.entries {
			if !e.fresh(now) {
				delete(m.entries, n)
			}
		}
	}
	if _, there := m.entries[name]; !there && len(m.entries) >= m.size {
		for n := range m.entries { // any one: what is in use comes back with one read
			delete(m.entries, n)
			break
		}
	}
	// By the wall clock: the monotonic one, by which Go would subtract, stands still
	// while Lambda has a function frozen, and a key that was disabled meanwhile would
	// be good for as long after.
	m.entries[name] = entry[V]{v, now.Round(0), ttl}
}

// forget keeps nothing of it.
func (m *memo[V]) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, name)
}

// fresh: a clock that was set back makes an entry stale, never eternal.
func (e entry[V]) fresh(now time.Time) bool {
	age := now.Sub(e.at)
	return age >= 0 && age < e.ttl
}
