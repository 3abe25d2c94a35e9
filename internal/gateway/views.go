package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

const (
	// maxAge is how old a view of a batch may be when a call is made on it (promise 7).
	maxAge = 5 * time.Second
	// keepGood is how long a view is used that lets somebody act: as long as that and
	// the receipt allow. keepBad is how long one that doesn't is: a batch that has just
	// begun shall not be refused for long, and who asks for others over and over costs
	// one read a second.
	keepGood = maxAge * 4 / 5
	keepBad  = time.Second
	// lookTime bounds one look: one that took longer would be too old when it comes.
	lookTime = 2 * time.Second
	// maxViews bounds the memory: 10,000 running batches have views of half a MB.
	maxViews = 16384
)

// views is batches as they were a moment ago. Safe for concurrent use.
type views struct {
	batches Batches
	drain   time.Duration
	now     func() time.Time

	mu   sync.Mutex
	seen map[viewKey]view
}

type viewKey struct{ tenant, batch string }

// view is as little of a batch as the rule needs: they are many.
type view struct {
	at             time.Time // when the look began: what it saw is at least as new
	gone           bool      // there is no such batch
	status, ending batch.Status
	endingAt       time.Time
	submitter      string
	endpoint       string
	lines          int64
}

func newViews(b Batches, drain time.Duration, now func() time.Time) *views {
	return &views{batches: b, drain: drain, now: now, seen: map[viewKey]view{}}
}

func (v view) batch() batch.Batch {
	return batch.Batch{Status: v.status, Ending: v.ending, EndingAt: v.endingAt}
}

// runs is access.Runs for one request, from what is kept, from what was read with its
// key, or by a look of its own. at becomes when that look began.
func (s *views) runs(look *look, at *time.Time) access.Runs {
	return func(ctx context.Context, tenant, id string) (access.Run, error) {
		k, now := viewKey{tenant, id}, s.now()
		v, ok := s.kept(k, now)
		if !ok {
			var err error
			if v, err = s.fresh(ctx, look, k, now); err != nil {
				return access.Run{}, err
			}
		}
		*at = v.at
		if v.gone {
			return access.Run{}, access.ErrNoRun
		}
		return access.Run{Submitter: v.submitter, Lines: v.lines, Endpoint: v.endpoint, Replayable: v.lets(now, s.drain)}, nil
	}
}

// kept is a view that may still be used.
func (s *views) kept(k viewKey, now time.Time) (view, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.seen[k]
	return v, ok && v.usable(now, s.drain)
}

// fresh is a new view, from what the request's look has read or reads now, or from a
// read of the batch alone where there is none. Trouble is not kept.
func (s *views) fresh(ctx context.Context, look *look, k viewKey, now time.Time) (view, error) {
	v, ok := look.view(now)
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		var b batch.Batch
		var err error
		if look != nil && look.owner {
			_, err = look.read(ctx, "", nil)
			b = look.seen
		} else {
			b, err = s.batches.Get(ctx, k.tenant, k.batch)
		}
		if err != nil && !errors.Is(err, batch.ErrNotFound) {
			return view{}, err
		}
		v = viewOf(b, err == nil && b.ID != "", now)
	}
	s.keep(k, v)
	return v, nil
}

// viewOf is what was seen of a batch, if it was there, by a look that began at
// now.
func viewOf(b batch.Batch, there bool, now time.Time) view {
	return view{at: now, gone: !there, status: b.Status, ending: b.Ending, endingAt: b.EndingAt, submitter: b.Submitter, endpoint: b.Endpoint, lines: b.Lines}
}

// keep keeps a view. Where two looked at once and the older look comes in last, it must
// not make a cancelled batch run again for who comes next. One from before the clock was
// set back gives way.
func (s *views) keep(k viewKey, v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, there := s.seen[k]
	if there && old.at.After(v.at) && !old.at.After(s.now()) {
		return
	}
	if !there && len(s.seen) >= maxViews {
		s.makeRoom(v.at)
	}
	s.seen[k] = v
}

// makeRoom forgets what isn't used any more, or any one.
func (s *views) makeRoom(now time.Time) {
	for k, v := range s.seen {
		if !v.usable(now, s.drain) {
			delete(s.seen, k)
		}
	}
	for k := range s.seen {
		if len(s.seen) < maxViews {
			return
		}
		delete(s.seen, k)
	}
}

// lets reports whether somebody may act for the batch's submitter.
func (v view) lets(now time.Time, drain time.Duration) bool {
	return !v.gone && v.batch().Replayable(now, drain)
}

// usable: a clock that was set back makes a view stale, never eternal.
func (v view) usable(now time.Time, drain time.Duration) bool {
	age, most := now.Sub(v.at), keepBad
	if v.lets(now, drain) {
		most = keepGood
	}
	return age >= 0 && age < most
}

// within reports whether at is so long ago, and no longer. Where the clock was set back
// since, nobody knows.
func within(most time.Duration, at, now time.Time) bool {
	age := now.Sub(at)
	return age >= 0 && age <= most
}
