package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"holdfast/internal/lease"
)

// Bounds of a claim's life. config holds the setting to them.
const (
	DefaultClaimStale = 180 * time.Second
	MinClaimStale     = 30 * time.Second
)

// Options adjust a Bridge. The zero value works.
type Options struct {
	// ClaimStale is the age at which a reservation may be stolen; 0 is
	// DefaultClaimStale, and MinClaimStale the least.
	ClaimStale time.Duration
	// SubmitTimeout ends one submit. It must be shorter than ClaimStale, or live
	// owners would be robbed as a rule; 0 is 20 s.
	SubmitTimeout time.Duration
	// Wait is how long Submit waits for somebody else's claim before it says that
	// it is held; 0 is 3 s, less than 0 not at all.
	Wait time.Duration
	// Stolen is told of each stale reservation that was stolen. It must not block.
	Stolen func()
	Log    *slog.Logger // discarded by default
}

// Bridge submits each correlation id once. Safe for concurrent use.
type Bridge struct {
	store     Store
	submitter Submitter
	o         Options
}

// New returns a Bridge, or an error where its times contradict each other.
func New(store Store, submitter Submitter, o *Options) (*Bridge, error) {
	b := &Bridge{store: store, submitter: submitter}
	if o != nil {
		b.o = *o
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&b.o.ClaimStale, DefaultClaimStale)
	or(&b.o.SubmitTimeout, 20*time.Second)
	or(&b.o.Wait, 3*time.Second)
	if b.o.Stolen == nil {
		b.o.Stolen = func() {}
	}
	if b.o.Log == nil {
		b.o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case b.o.ClaimStale < MinClaimStale:
		return nil, fmt.Errorf("bridge: a claim must not turn stale before %s, as it would after %s", MinClaimStale, b.o.ClaimStale)
	case b.o.SubmitTimeout <= 0 || b.o.SubmitTimeout >= b.o.ClaimStale:
		return nil, fmt.Errorf("bridge: a submit may take %s, which must be below the %s after which its claim is stolen", b.o.SubmitTimeout, b.o.ClaimStale)
	}
	return b, nil
}

// settleTime bounds the write after a submit. It doesn't end with the caller's
// context: a client that hangs up would leave its key reserved for nothing.
const settleTime = 5 * time.Second

// Submit has r's job started once, and returns its name: the first time and every
// time after. now is the time of the call; what waiting adds to it is counted in.
//
//   - ErrConflict: the id stands for another request, also where that one's owner
//     died before its job was there: an id is one request's, for good.
//   - ErrRefused: nothing runs, the id is free again; the cause is wrapped. With
//     ErrLater beside it the same may be taken later.
//   - *HeldError: somebody else's claim, which stayed fresh and unconfirmed for as
//     long as Options.Wait, and no job that could be found.
//   - Anything else: the fate is unknown and the claim stays. The same call later
//     goes on from there.
func (b *Bridge) Submit(ctx context.Context, r Request, now time.Time) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		waited := time.Since(began)
		now := now.Add(waited)
		job, held, err := b.try(ctx, r, now)
		switch {
		case held == nil && err != nil && !errors.Is(err, ErrConflict):
			return "", fmt.Errorf("submit %s: %w", BatchID(r.Tenant, r.CorrelationID), err)
		case held == nil:
			return job, err
		case waited >= b.o.Wait:
			return b.adopt(ctx, *held, now)
		}
		if err := sleep(ctx, min(pause/2+rand.N(pause), b.o.Wait-waited)); err != nil {
			return "", err
		}
	}
}

// How often a claim that somebody else holds is looked at.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 400 * time.Millisecond
)

// try claims r and submits it, or returns somebody else's fresh reservation.
func (b *Bridge) try(ctx context.Context, r Request, now time.Time) (job string, held *Row, err error) {
	mine := newRow(r, lease.NewToken(), now, b.o.ClaimStale)
	err = b.store.Claim(ctx, mine)
	taken, ok := errors.AsType[*TakenError](err)
	switch {
	case err == nil:
		job, err = b.submit(ctx, mine, false, now)
		return job, nil, err
	case !ok:
		return "", nil, err
	}
	switch found := taken.Row; {
	case found.Hash != mine.Hash:
		return "", nil, ErrConflict
	case found.State == Confirmed:
		return found.Job, nil, nil
	case b.fresh(found, now):
		return "", &found, nil
	default:
		job, err := b.rob(ctx, found, r.Object, false, now)
		if errors.Is(err, lease.ErrLost) {
			return "", &found, nil // to somebody else, or confirmed at last: look again
		}
		return job, nil, err
	}
}

// fresh reports whether a reservation still is its owner's alone.
func (b *Bridge) fresh(r Row, now time.Time) bool {
	return !r.ClaimedAt.Before(now.Add(-b.o.ClaimStale))
}

// rob takes a stale reservation over and submits what it holds. lease.ErrLost when
// somebody else was faster. o is the input, if the thief knows it as an object: the
// robbed may have had nothing but its file id, of which no record is there yet, and
// the thief would be refused in its stead. keep is submit's.
func (b *Bridge) rob(ctx context.Context, found Row, o *Object, keep bool, now time.Time) (string, error) {
	stolen, err := b.store.Steal(ctx, found.Key, found.Ver, now.Add(-b.o.ClaimStale), lease.NewToken(), now.Add(b.o.ClaimStale), now)
	if err != nil {
		return "", err
	}
	if stolen.Request.Object == nil {
		stolen.Request.Object = o
	}
	b.o.Stolen()
	b.o.Log.LogAttrs(ctx, slog.LevelInfo, "stale claim stolen", append(about(stolen),
		slog.Duration("age", now.Sub(found.ClaimedAt)), slog.String("robbed", string(found.Token)))...)
	return b.submit(ctx, stolen, keep, now)
}

// Resume submits the reservation of this name ([Key.Name]) if it is stale: nobody
// may come again to ask for it, and the row holds the whole request. id is that of
// the job, whatever became of the submit; "" without an error: there was nothing to
// do, or somebody else did it. ErrRefused, with the cause, frees the correlation id as in
// [Bridge.Submit]; after any other error, and with ErrLater, the claim stays, and turns
// stale again.
func (b *Bridge) Resume(ctx context.Context, tenant, name string, now time.Time) (id string, err error) {
	found, err := b.store.Row(ctx, tenant, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("resume: %w", err)
	case found.State != Reserved || b.fresh(found, now):
		return "", nil
	}
	id = BatchID(found.Tenant, found.CorrelationID)
	_, err = b.rob(ctx, found, nil, true, now)
	switch {
	case errors.Is(err, lease.ErrLost):
		return "", nil
	case err != nil:
		return id, fmt.Errorf("resume %s: %w", id, err)
	}
	return id, nil
}

// submit does what a claim is for. The request is the row's own, which is the
// caller's in all but its request id. keep is to keep the claim of a request that may
// be taken later: nobody else may be there to ask for it again.
func (b *Bridge) submit(ctx context.Context, row Row, keep bool, now time.Time) (string, error) {
	limited, cancel := context.WithTimeout(ctx, b.o.SubmitTimeout)
	job, err := b.submitter.Submit(limited, BatchID(row.Tenant, row.CorrelationID), row.Request, now)
	cancel()
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	switch {
	case errors.Is(err, ErrLater) && keep:
		return "", err
	case errors.Is(err, ErrRefused):
		// A row that stays after all turns stale, is submitted again and refused again.
		b.note(ctx, "claim not released", row, b.store.Release(settled, row.Key, row.Token))
		return "", err
	case err != nil:
		return "", err
	}
	// The job is there, whatever comes of this: the next delivery, or the reaper,
	// finds it by its id.
	b.note(ctx, "claim not confirmed", row, b.store.Confirm(settled, row.Key, row.Token, job))
	return job, nil
}

// adopt looks past a claim that nobody confirms for the job itself: its owner may
// have died after starting it.
func (b *Bridge) adopt(ctx context.Context, held Row, now time.Time) (string, error) {
	id := BatchID(held.Tenant, held.CorrelationID)
	job, err := b.submitter.Find(ctx, id, held.Request)
	switch {
	case errors.Is(err, ErrNotFound):
		stale := held.ClaimedAt.Add(b.o.ClaimStale)
		// As long again as the owner has had already; by then it is done, or dead.
		after := min(max(now.Sub(held.ClaimedAt), time.Second), longestRetryAfter, max(stale.Sub(now), time.Second))
		return "", &HeldError{RetryAfter: after, Stale: stale}
	case err != nil:
		return "", fmt.Errorf("look for %s: %w", id, err)
	}
	// In the owner's name. Its own confirm, should it live, finds it done.
	b.note(ctx, "claim not confirmed", held, b.store.Confirm(ctx, held.Key, held.Token, job))
	return job, nil
}

// longestRetryAfter is the longest that official clients heed.
const longestRetryAfter = time.Minute

// note logs a write that failed where nothing depends on it. Being robbed by then
// is no failure: the thief started the same job.
func (b *Bridge) note(ctx context.Context, what string, row Row, err error) {
	if err != nil && !errors.Is(err, lease.ErrLost) {
		b.o.Log.LogAttrs(ctx, slog.LevelWarn, what, append(about(row), slog.Any("error", err))...)
	}
}

// about names a row in the log: not by its correlation id, which may hold anything.
func about(r Row) []slog.Attr {
	return []slog.Attr{
		slog.String("tenant", r.Tenant), slog.String("batch", BatchID(r.Tenant, r.CorrelationID)),
		slog.String("owner", string(r.Token)), slog.String("request_id", r.Request.RequestID),
	}
}

// sleep waits for d, or for ctx, whose error it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
