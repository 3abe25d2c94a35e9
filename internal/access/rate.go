package access

import (
	"sync"
	"time"
)

// maxRated bounds the memory of Rates.
const maxRated = 4096

// Rates holds tenants to their requests a minute ([Limits].RequestsPerMinute), as far
// as one process sees them: each counts for itself, so that a tenant whose requests
// meet n of them may make n times as many. It protects the others and the bill from a
// loop that runs wild; it is no meter. The zero value is ready. Safe for concurrent use.
type Rates struct {
	mu      sync.Mutex
	tenants map[string]bucket
}

// bucket holds as many requests as a minute allows, and fills evenly. What is kept is
// when it will be full again.
type bucket struct{ full time.Time }

// Take counts a request of the tenant, which may make perMinute of them; 0 or less is
// no limit. It returns how long to wait where that is used up, and then counts
// nothing; else 0.
func (r *Rates) Take(tenant string, perMinute int, now time.Time) time.Duration {
	if perMinute <= 0 {
		return 0
	}
	now = now.Round(0) // a minute is one also while a function is frozen: see memo
	each := max(time.Minute/time.Duration(perMinute), 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	full := r.tenants[tenant].full
	if latest := now.Add(time.Minute); full.After(latest) {
		full = latest // a clock that was set back
	}
	if full.Before(now) {
		full = now
	}
	if full = full.Add(each); full.After(now.Add(time.Minute)) {
		return full.Sub(now.Add(time.Minute))
	}
	if r.tenants == nil {
		r.tenants = map[string]bucket{}
	}
	if _, there := r.tenants[tenant]; !there && len(r.tenants) >= maxRated {
		r.makeRoom(now)
	}
	r.tenants[tenant] = bucket{full}
	return 0
}

// makeRoom forgets the tenants that have their whole minute again, or any one: it
// gets its minute anew.
func (r *Rates) makeRoom(now time.Time) {
	for name, b := range r.tenants {
		if !b.full.After(now) {
			delete(r.tenants, name)
		}
	}
	for name := range r.tenants {
		if len(r.tenants) < maxRated {
			return
		}
		delete(r.tenants, name)
	}
}
