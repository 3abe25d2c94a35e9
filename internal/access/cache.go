package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// maxTTL bounds how long a key that was disabled goes on working, and a door.
const maxTTL = 60 * time.Second

// CacheOptions adjust a Cache. The zero value works.
type CacheOptions struct {
	TTL       time.Duration // how long a key is believed; 30 s by default, 60 s at most
	Size      int           // keys kept; 1,024 by default
	WrongKeys int           // wrong keys that one source may show in a minute; 10 by default
	Log       *slog.Logger  // discarded by default

	// Where Tenants are known, a key that has to be read anew is read together with
	// its tenant's record, which is then known. Both or neither.
	Tenants *TenantCache
	Pairs   Pairs
}

// Cache authenticates like Authenticate and reads a key at most once per TTL.
// A key works the moment it is made. Expiry is judged anew each time. Safe for
// concurrent use.
//
// Each wrong key costs a read, and a source that shows many is held up: further
// keys that this process doesn't know are refused unread until WrongKeys a minute
// are kept to (*LimitError). Nobody can tell a right key from a guess without the
// read, so that a right one may wait there too, but only if nobody was let in with
// it for a day: who works behind one address with somebody who guesses goes on
// working. One wrong key over and over, from whom its end has escaped, is read and
// counted once per TTL: it holds nobody up. Every process counts for itself, in bounded memory, and what is under
// way at once is counted when it comes back: the bound is meant for the bill and
// the log. What keeps guesses out is that a secret has 160 random bits.
type Cache struct {
	store   Records
	ttl     time.Duration
	keys    *memo[Key]
	known   *memo[time.Time] // by hash: the day on which somebody was let in
	none    *memo[struct{}]  // by hash: shown lately, and no key; nobody shows a key before it is made
	sources *sources
	log     *slog.Logger
	tenants *TenantCache // with pairs, or nil
	pairs   Pairs
}

// NewCache returns an empty cache over store.
func NewCache(store Records, opts *CacheOptions) *Cache {
	if opts == nil {
		opts = &CacheOptions{}
	}
	ttl, size, wrong, log := 30*time.Second, 1024, 10, slog.New(slog.DiscardHandler)
	if opts.TTL > 0 {
		ttl = min(opts.TTL, maxTTL)
	}
	if opts.Size > 0 {
		size = opts.Size
	}
	if opts.WrongKeys > 0 {
		wrong = opts.WrongKeys
	}
	if opts.Log != nil {
		log = opts.Log
	}
	return &Cache{store, ttl, newMemo[Key](size), newMemo[time.Time](size), newMemo[struct{}](size), newSources(wrong), log, opts.Tenants, opts.Pairs}
}

// Authenticate is the function of this name, with the cache's store. source is the
// address that the request came from, as the door itself saw it: never what a
// header says. "" is a door without addresses, and is not held up.
func (c *Cache) Authenticate(ctx context.Context, header, source string, now time.Time) (Caller, error) {
	return c.AuthenticateBy(ctx, header, source, now, nil)
}

// AuthenticateBy is Authenticate for a request that needs more of the table than its
// key: where the key has to be read, by reads it, and what else it likes in the same
// call. It is not called for a key that is known or held up. What it has read beside
// the key was asked for by somebody whose key may be wrong; it must not outlive a
// refusal. nil: the cache's own way.
func (c *Cache) AuthenticateBy(ctx context.Context, header, source string, now time.Time, by Pairs) (Caller, error) {
	hash, err := parseHeader(header)
	if err != nil {
		return Caller{}, err
	}
	if k, ok := c.keys.lookup(hash, now); ok {
		return k.judge(hash, now)
	}
	if _, ok := c.none.lookup(hash, now); ok {
		return Caller{}, ErrInvalidKey
	}
	touched, known := c.known.lookup(hash, now)
	if !known {
		if wait := c.sources.wait(source, now); wait > 0 {
			return Caller{}, &LimitError{wait}
		}
	}
	k, err := c.get(ctx, hash, now, by)
	if errors.Is(err, ErrNotFound) {
		c.sources.wrong(source, now)
		c.known.forget(hash) // no longer, should it have been
		c.none.keep(hash, struct{}{}, now, c.ttl)
		return Caller{}, ErrInvalidKey
	}
	if err != nil {
		return Caller{}, fmt.Errorf("read key: %w", err)
	}
	c.keys.keep(hash, k, now, c.ttl)
	caller, err := k.judge(hash, now)
	if err != nil {
		c.sources.wrong(source, now)
		return Caller{}, err
	}
	today := dayOf(now)
	c.known.keep(hash, today, now, oneDay)
	if k.LastUsed.Before(today) && !touched.Equal(today) {
		c.touch(ctx, k, today)
	}
	caller.read = true
	return caller, nil
}

const oneDay = 24 * time.Hour

// dayOf is when now's day began, in UTC.
func dayOf(now time.Time) time.Time { return now.UTC().Truncate(oneDay) }

// touchTime is the most that recording a use may add to a request: the first one of
// a key and a day.
const touchTime = time.Second

// touch is tried once a key, process and day, whatever comes of it. It is waited
// for, since a function may be frozen as soon as it has answered; but the request
// goes on without it.
func (c *Cache) touch(ctx context.Context, k Key, today time.Time) {
	ctx, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	if err := c.store.Touch(ctx, k, today); err != nil {
		c.log.LogAttrs(ctx, slog.LevelWarn, "last use of a key not recorded",
			slog.String("tenant", k.Tenant), slog.String("key", k.ID()), slog.Any("error", err))
	}
}
