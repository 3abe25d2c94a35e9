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
	// SubmitTimeout ends one submit, counted from the instant that its claim is dated.
	// ClaimStale must be [Room] longer, or live owners would be robbed as a rule; 0 is
	// 20 s.
	SubmitTimeout time.Duration
	// Wait is how long Submit waits for somebody else's claim before it says that
	// it is held; 0 is 3 s, less than 0 not at all.
	Wait time.Duration
	// Stolen is told of each reservation that was stolen from an owner that went
	// without a word, Retaken of each that its owner had given back, for trouble. They
	// must not block.
	Stolen, Retaken func()
	Log             *slog.Logger // discarded by default
}

// Bridge submits each correlation id once. Safe for concurrent use.
type Bridge struct {
	store     Store
	submitter Submitter
	serves    func(service string) bool
	o         Options
}

// New returns a Bridge, or an error where its times contradict each other.
func New(store Store, submitter Submitter, o *Options) (*Bridge, error) {
	b := &Bridge{store: store, submitter: submitter, serves: func(string) bool { return true }}
	if s, ok := submitter.(interface{ Serves(service string) bool }); ok {
		b.serves = s.Serves
	}
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
	for _, told := range []*func(){&b.o.Stolen, &b.o.Retaken} {
		if *told == nil {
			*told = func() {}
		}
	}
	if b.o.Log == nil {
		b.o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case b.o.ClaimStale < MinClaimStale:
		return nil, fmt.Errorf("bridge: a claim must not turn stale before %s, as it would after %s", MinClaimStale, b.o.ClaimStale)
	case b.o.SubmitTimeout <= 0 || b.o.SubmitTimeout+Room > b.o.ClaimStale:
		return nil, fmt.Errorf("bridge: a submit may take %s, which must be %s below the %s after which its claim is stolen", b.o.SubmitTimeout, Room, b.o.ClaimStale)
	}
	return b, nil
}

const (
	// settleTime bounds the write after a submit. It doesn't end with the caller's
	// context: a client that hangs up would leave its key reserved for nothing.
	settleTime = 5 * time.Second
	// Room is what a claim's life has beyond a submit's: that write, and 5 s by which
	// two clocks may differ.
	Room = settleTime + 5*time.Second
	// findTime bounds a look for a job under somebody else's claim.
	findTime = 5 * time.Second
	// givenBack is how long a claim that was given back rests before anybody takes it
	// up: what was under way when its submit ended has landed by then or never will.
	givenBack = 10 * time.Second
)

// Submit has r's job started once, and returns its name: the first time and every
// time after. now is the time of the call; what waiting adds to it is counted in.
//
//   - ErrConflict, as a *ConflictError: the id stands for another request, also where
//     that one's owner died before its job was there: an id is one request's, for good.
//   - ErrRefused: nothing runs, the id is free again; the cause is wrapped. With
//     ErrLater beside it the same may be taken later.
//   - *HeldError: somebody else's claim, which stayed fresh and unconfirmed for as
//     long as Options.Wait, and no job that could be found; or a claim of a service
//     that isn't served here.
//   - Anything else: the fate is unknown and the claim stays, given back where that was
//     possible. The same call goes on from there, after some 10 s, else once it is stale.
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

// try claims r and submits it, or returns somebody else's reservation.
func (b *Bridge) try(ctx context.Context, r Request, now time.Time) (job string, held *Row, err error) {
	dated := time.Now()
	mine := newRow(r, lease.NewToken(), now, b.o.ClaimStale)
	limited, cancel := b.limit(ctx, dated)
	err = b.store.Claim(limited, mine)
	cancel()
	taken, ok := errors.AsType[*TakenError](err)
	switch {
	case err == nil:
		job, err = b.submit(ctx, mine, nil, dated)
		return job, nil, err
	case !ok:
		b.letGo(ctx, mine, dated)
		return "", nil, err
	}
	switch found := taken.Row; {
	case found.Hash != mine.Hash:
		return "", nil, &ConflictError{Row: found}
	case found.State == Confirmed:
		return found.Job, nil, nil
	case b.fresh(found, now), !b.serves(found.Request.Service):
		return "", &found, nil
	default:
		job, err := b.rob(ctx, found, r.Object, nil, now, dated)
		if errors.Is(err, lease.ErrLost) {
			return "", &found, nil // to somebody else, or confirmed at last: look again
		}
		return job, nil, err
	}
}

// limit ends with the time that a claim dated then has for its submit, its own write
// included: what takes longer comes to nothing.
func (b *Bridge) limit(ctx context.Context, dated time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, dated.Add(b.o.SubmitTimeout))
}

// fresh reports whether a reservation still is its owner's alone.
func (b *Bridge) fresh(r Row, now time.Time) bool {
	return !r.ClaimedAt.Before(now.Add(-b.o.ClaimStale))
}

// rob takes a stale reservation over and submits what it holds. lease.ErrLost when
// somebody else was faster. o is the input, if the thief knows it as an object: the
// robbed may have had nothing but its file id, of which no record is there yet, and
// the thief would be refused in its stead. h and dated are submit's.
//
// Only who can submit it may rob: a thief that can't would keep it from everybody who
// can until it is stale again.
func (b *Bridge) rob(ctx context.Context, found Row, o *Object, h *heir, now, dated time.Time) (string, error) {
	tok := lease.NewToken()
	limited, cancel := b.limit(ctx, dated)
	stolen, err := b.store.Steal(limited, found.Key, found.Ver, now.Add(-b.o.ClaimStale), tok, now.Add(b.o.ClaimStale), now)
	cancel()
	if err != nil {
		if !errors.Is(err, lease.ErrLost) {
			found.Token, found.ClaimedAt = tok, now
			b.letGo(ctx, found, dated)
		}
		return "", err
	}
	if stolen.Request.Object == nil {
		stolen.Request.Object = o
	}
	what, told := "stale claim stolen", b.o.Stolen
	if found.GivenBack {
		what, told = "claim taken up again", b.o.Retaken
	}
	told()
	b.o.Log.LogAttrs(ctx, slog.LevelInfo, what, append(about(stolen),
		slog.Duration("age", now.Sub(found.ClaimedAt)), slog.String("robbed", string(found.Token)))...)
	return b.submit(ctx, stolen, h, dated)
}

// adopt looks past a claim that nobody confirms for the job itself: its owner may
// have died after starting it.
func (b *Bridge) adopt(ctx context.Context, held Row, now time.Time) (string, error) {
	id := BatchID(held.Tenant, held.CorrelationID)
	limited, cancel := context.WithTimeout(ctx, findTime)
	job, err := b.submitter.Find(limited, id, held.Request)
	cancel()
	switch {
	case err == nil:
	case errors.Is(err, ErrConflict):
		return "", fmt.Errorf("look for %s: %w", id, err)
	case !errors.Is(err, ErrNotFound):
		// The claim is somebody else's, whatever can't be found out about its job.
		b.note(ctx, "job not looked for", held, err)
		fallthrough
	default:
		return "", b.heldError(held, now)
	}
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	// In the owner's name. Its own confirm, should it live, finds it done.
	b.note(ctx, "claim not confirmed", held, b.store.Confirm(settled, held.Key, held.Token, job, now.Add(Kept)))
	return job, nil
}

// heldError says of a reservation when to come again: after as long again as the owner
// has had already. By then it is done, or dead.
func (b *Bridge) heldError(held Row, now time.Time) *HeldError {
	stale := held.ClaimedAt.Add(b.o.ClaimStale)
	after := min(max(now.Sub(held.ClaimedAt), time.Second), longestRetryAfter, max(stale.Sub(now), time.Second))
	return &HeldError{RetryAfter: after, Stale: stale, GivenBack: held.GivenBack}
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
