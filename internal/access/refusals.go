package access

import "time"

// Refusals holds up keys whose requests are refused again and again, so that one that
// leaked can't be used to look for batches without end: each look may cost a read. Each
// key has a bucket, which fills again evenly. Every process counts for itself, in
// bounded memory. Safe for concurrent use.
type Refusals struct{ keys *sources }

// NewRefusals allows each key so many refusals a minute, 1 at least.
func NewRefusals(perMinute int) *Refusals { return &Refusals{newSources(perMinute)} }

// Wait is how long it takes until requests with the key of this ID are looked at
// again; 0: they are. One that isn't refused counts for nothing.
func (r *Refusals) Wait(key string, now time.Time) time.Duration { return r.keys.wait(key, now) }

// Count counts a refusal. A key without an ID is not held up.
func (r *Refusals) Count(key string, now time.Time) { r.keys.wrong(key, now) }
