package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// Letter is one delivery of a message at a door's queue.
type Letter struct {
	ID       string // the message's
	Receipt  string // of this delivery only
	Receives int    // how often it was delivered, at least 1
	Last     bool   // its tries are over: whatever ends this one is told, not tried again
	Body     []byte
}

// Door says what a letter asks for.
type Door interface {
	// Open reads a letter. ErrNothing when it asks for nothing and that is as it
	// should be. ErrRefused, with the cause (a *RefusedError, say), when it can't be a
	// request as the world is now; what is known of it by then comes along: with tenant
	// and correlation id it is found out whether it was started when the world was
	// another. Anything else may pass: the letter comes back. now is the drain's.
	Open(ctx context.Context, l Letter, now time.Time) (Request, error)
	// Same reports whether a row under the id of r, which Open made of the letter in
	// whole or in part, is of what the letter is there to start.
	Same(l Letter, r Request, found Row) bool
	// Refuse leaves word of why nothing came of a letter where its sender looks for
	// it. r is what Open made of it; its zero value if nothing. After nil the letter
	// is deleted, so whatever is to be known of it has to be kept by then; it may be
	// called again for the same letter.
	Refuse(ctx context.Context, l Letter, r Request, why error, now time.Time) error
}

// Postponer hides a letter from everybody for a while.
type Postponer interface {
	// Postpone makes the delivery visible again wait from now (0 to 12 h).
	Postpone(ctx context.Context, l Letter, wait time.Duration) error
}

// ErrNothing: the letter asks for nothing, and nobody has to know.
var ErrNothing = errors.New("nothing to start")

// RefusedError is ErrRefused with what is wrong, for the sender.
type RefusedError struct {
	Code   string // as the HTTP API has it, or the door's own: lower case and '_'
	Reason string // a sentence: what is wrong, where, what to do
}

// Error is code and reason.
func (e *RefusedError) Error() string { return e.Code + ": " + e.Reason }

// Unwrap makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Unwrap() error { return ErrRefused }

// refusalCode is what the log says of a refusal: its sentence may quote what was
// sent.
func refusalCode(err error) string {
	if e, ok := errors.AsType[*RefusedError](err); ok {
		return e.Code
	}
	if errors.Is(err, ErrConflict) {
		return "conflict"
	}
	return "refused"
}

// Drained counts what became of letters.
type Drained struct {
	Started int `json:"started"` // a job is there: of this letter, or of an earlier one that asked for the same
	Nothing int `json:"nothing"` // asked for nothing
	Refused int `json:"refused"` // will never start; word of it was left
	Held    int `json:"held"`    // somebody else submits the same, or died doing so
	Later   int `json:"later"`   // trouble that may pass
	Ended   int `json:"ended"`   // trouble at its last delivery; word of it was left
}

// How long a letter with trouble waits, and how its wait grows with every delivery.
const (
	firstRetry   = 30 * time.Second
	longestRetry = 15 * time.Minute
)

// Drainer turns letters into jobs. Its Bridge should not wait for others' claims
// (Options.Wait < 0): a letter costs nothing where it lies, a waiting drain does.
// Safe for concurrent use.
type Drainer struct {
	bridge *Bridge
	door   Door
	queue  Postponer
	log    *slog.Logger
}

// NewDrainer returns a Drainer. log nil: nothing is logged.
func NewDrainer(b *Bridge, d Door, q Postponer, log *slog.Logger) *Drainer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Drainer{b, d, q, log}
}

// Drain deals with all letters at once; that copies of one request may be among
// them, here and in other processes, is what the claim is for. The letters
// returned have to come back: to the caller's queue they have failed. All others
// are done with and may be deleted.
//
//   - Lost to somebody else's claim: it fails, and comes back when that claim turns
//     stale. As a success it would be gone, and if the winner then died nobody
//     would be left to ask. Lost to one that was given back: as with trouble.
//   - Trouble, fate unknown: it fails, and comes back after 30 s, doubled with each
//     delivery up to 15 min. A panic is trouble, of its letter alone.
//   - Refused for now (ErrLater): likewise. Its claim is free meanwhile.
//   - Refused, by the door or by the service, or its id stands for another request, and
//     yet it is a copy of what that id stands for (Door.Same): as that one's. What was
//     started when the world was another is started.
//   - Refused: the door leaves word of it. Could it not, that is trouble.
//   - Trouble, or refused for now, and delivered for the last time (Letter.Last): the
//     door leaves word of that, a *LastError, and the letter is done with.
//
// When ctx ends, letters that are not dealt with are trouble; Drain returns some seconds
// after that, which its caller has to leave (DrainMargin).
func (d *Drainer) Drain(ctx context.Context, letters []Letter, now time.Time) (failed []Letter, sum Drained) {
	began := time.Now()
	clock := func() time.Time { return now.Add(time.Since(began)) }
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for _, l := range letters {
		wg.Go(func() {
			what, wait, err := d.caught(ctx, l, clock)
			if err != nil {
				d.postpone(ctx, l, wait)
			}
			mu.Lock()
			defer mu.Unlock()
			what(&sum)
			if err != nil {
				failed = append(failed, l)
			}
		})
	}
	wg.Wait()
	return failed, sum
}

const (
	// postponeTime bounds the last that is done for a letter, also once ctx is over.
	postponeTime = 2 * time.Second
	// DrainMargin is how long a drain may go on once its ctx is over: a claim is given
	// back, word is left of a last delivery, its letter postponed.
	DrainMargin = settleTime + wordTime + postponeTime + time.Second
)

// postpone hides a failed letter for wait. It is still hidden for as long as the queue
// hides what it delivers, if this fails.
func (d *Drainer) postpone(ctx context.Context, l Letter, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postponeTime)
	defer cancel()
	if err := d.queue.Postpone(ctx, l, wait); err != nil {
		d.log.LogAttrs(ctx, slog.LevelWarn, "letter not postponed", slog.String("message", l.ID), slog.Any("error", err))
	}
}

// errPanic: a bug was met. The log has the place.
var errPanic = errors.New("a bug in Holdfast was met; its log has the place")

// caught is one, with the panics that a letter causes: the letters beside it, and their
// process, are no part of that.
func (d *Drainer) caught(ctx context.Context, l Letter, clock func() time.Time) (count func(*Drained), wait time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			// Its type only: what it says may quote the letter.
			d.log.LogAttrs(ctx, slog.LevelError, "panic over a letter", slog.String("message", l.ID),
				slog.String("panic", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
			count, wait, err = func(s *Drained) { s.Later++ }, backoff(l), errPanic
			if d.lastOfPanic(ctx, l, clock()) {
				count, wait, err = func(s *Drained) { s.Ended++ }, 0, nil
			}
		}
	}()
	return d.one(ctx, l, clock)
}

// lastOfPanic is last of a letter that caused a panic, and may cause another.
func (d *Drainer) lastOfPanic(ctx context.Context, l Letter, now time.Time) (told bool) {
	defer func() {
		if recover() != nil {
			told = false
		}
	}()
	return d.last(ctx, l, Request{}, errPanic, now)
}

// one deals with one letter. An error has it come back after wait.
func (d *Drainer) one(ctx context.Context, l Letter, clock func() time.Time) (count func(*Drained), wait time.Duration, err error) {
	var r Request
	if err = ctx.Err(); err == nil { // else there is no time to begin
		r, err = d.door.Open(ctx, l, clock())
	}
	opened := err == nil
	var job string
	if opened {
		job, err = d.bridge.Submit(ctx, r, clock())
	}
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrRefused) && !errors.Is(err, ErrLater) {
		job, err = d.before(ctx, l, r, opened, err, clock())
	}
	held, _ := errors.AsType[*HeldError](err)
	switch {
	case err == nil:
		d.log.LogAttrs(ctx, slog.LevelInfo, "started", slog.String("message", l.ID), slog.String("tenant", r.Tenant), slog.String("job", job))
		return func(s *Drained) { s.Started++ }, 0, nil
	case errors.Is(err, ErrNothing):
		return func(s *Drained) { s.Nothing++ }, 0, nil
	case held != nil:
		// A moment more: claims age by the clock of whoever looks. By an owner's clock that
		// is ahead a claim could be fresh for longer than a queue hides a letter.
		wait = min(held.Stale.Sub(clock()), d.bridge.o.ClaimStale) + time.Second
		if wait <= time.Second || held.GivenBack {
			// Somebody else's to take up, the reaper's, say; or somebody else had the trouble
			// that this letter would have had, and it is to be patient all the same.
			wait = max(wait, backoff(l))
		}
		return func(s *Drained) { s.Held++ }, wait, err
	case errors.Is(err, ErrLater): // its tenant has as much running as it may: as with trouble
	case errors.Is(err, ErrRefused), errors.Is(err, ErrConflict):
		if told := d.door.Refuse(ctx, l, r, err, clock()); told != nil {
			err = fmt.Errorf("leave word of a refusal (%w): %w", err, told)
			break
		}
		d.log.LogAttrs(ctx, slog.LevelInfo, "refused", slog.String("message", l.ID), slog.String("tenant", r.Tenant), slog.String("code", refusalCode(err)))
		return func(s *Drained) { s.Refused++ }, 0, nil
	}
	if d.last(ctx, l, r, err, clock()) {
		return func(s *Drained) { s.Ended++ }, 0, nil
	}
	wait = backoff(l)
	d.log.LogAttrs(ctx, slog.LevelWarn, "left to a later delivery", slog.String("message", l.ID), slog.String("tenant", r.Tenant),
		slog.Int("receives", l.Receives), slog.Duration("wait", wait), slog.Any("error", err))
	return func(s *Drained) { s.Later++ }, wait, err
}

// before looks past a refusal at what the letter's id stands for by now. The job, if
// that is what the letter is to start; a *HeldError, if somebody is about to start it;
// else why, or trouble. A door judges the world as it is: what it refuses may be a copy
// of what it let pass yesterday, and runs.
func (d *Drainer) before(ctx context.Context, l Letter, r Request, opened bool, why error, now time.Time) (job string, err error) {
	var found Row
	conflict, known := errors.AsType[*ConflictError](why)
	switch {
	case known:
		found = conflict.Row
	case opened || r.Tenant == "" || r.CorrelationID == "":
		return "", why // of what was submitted the service has looked for a job already
	default:
		found, err = d.bridge.store.Row(ctx, r.Tenant, Key{r.Tenant, r.CorrelationID}.Name())
		if errors.Is(err, ErrNotFound) {
			return "", why
		}
		if err != nil {
			return "", fmt.Errorf("look for what a letter started before: %w", err)
		}
	}
	switch {
	case !d.door.Same(l, r, found):
		return "", why
	case found.State == Confirmed:
		return found.Job, nil
	}
	return "", d.bridge.heldError(found, now)
}

// backoff is how long a letter with trouble waits.
func backoff(l Letter) time.Duration {
	wait := firstRetry << min(max(l.Receives-1, 0), 10)
	wait = min(wait, longestRetry)
	return wait/2 + rand.N(wait/2+1) // those that failed together don't come back together
}
