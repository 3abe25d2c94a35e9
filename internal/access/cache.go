package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// maxTTL bounds how long a key that was disabled goes on working.
const maxTTL = 60 * time.Second

// CacheOptions adjust a Cache. The zero value works.
type CacheOptions struct {
	TTL  time.Duration // how long a key is believed; 30 s by default, 60 s at most
	Size int           // keys kept; 1,024 by default
}

// Cache authenticates like Authenticate and reads a key at most once per TTL.
// Only keys that exist are kept: a key works the moment it is made, and
// guessing fills nothing. Expiry is judged anew each time. Safe for concurrent
// use.
type Cache struct {
	store Store
	ttl   time.Duration
	size  int

	mu   sync.Mutex
	keys map[string]cached
}

type cached struct {
	key Key
	at  time.Time
}

// NewCache returns an empty cache over store.
func NewCache(store Store, opts *CacheOptions) *Cache {
	c := &Cache{store: store, ttl: 30 * time.Second, size: 1024, keys: map[string]cached{}}
	if opts != nil && opts.TTL > 0 {
		c.ttl = min(opts.TTL, maxTTL)
	}
	if opts != nil && opts.Size > 0 {
		c.size = opts.Size
	}
	return c
}

// Authenticate is the function of this name, with the cache's store.
func (c *Cache) Authenticate(ctx context.Context, header string, now time.Time) (Caller, error) {
	hash, err := parseHeader(header)
	if err != nil {
		return Caller{}, err
	}
	if k, ok := c.lookup(hash, now); ok {
		return k.judge(hash, now)
	}
	k, err := c.store.Get(ctx, hash)
	if errors.Is(err, ErrNotFound) {
		return Caller{}, ErrInvalidKey
	}
	if err != nil {
		return Caller{}, fmt.Errorf("read key: %w", err)
	}
	c.keep(hash, k, now)
	return k.judge(hash, now)
}

func (c *Cache) lookup(hash string, now time.Time) (Key, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.keys[hash]
	return e.key, ok && e.fresh(now, c.ttl)
}

func (c *Cache) keep(hash string, k Key, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.keys[hash]; !there && len(c.keys) >= c.size {
		for h, e := range c.keys {
			if !e.fresh(now, c.ttl) {
				delete(c.keys, h)
			}
		}
	}
	if _, there := c.keys[hash]; !there && len(c.keys) >= c.size {
		for h := range c.keys { // any one: what is in use comes back with one read
			delete(c.keys, h)
			break
		}
	}
	c.keys[hash] = cached{k, now}
}

// fresh: a clock that was set back makes an entry stale, never eternal.
func (e cached) fresh(now time.Time, ttl time.Duration) bool {
	age := now.Sub(e.at)
	return age >= 0 && age < ttl
}
