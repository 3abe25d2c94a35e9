package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Letter is one delivery of a message at a door's queue.
type Letter struct {
	ID       string // the message's
	Receipt  string // of this delivery only
	Receives int    // how often it was delivered, at least 1
	Body     []byte
}

// Door says what a letter asks for.
type Door interface {
	// Open reads a letter. ErrNothing when it asks for nothing and that is as it
	// should be. ErrRefused, with the cause (a *RefusedError, say), when it never will
	// be a request; what is known of it by then may come along, for Refuse. Anything
	// else may pass: the letter comes back. now is the drain's.
	Open(ctx context.Context, l Letter, now time.Time) (Request, error)
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

// Drained counts what became of letters.
type Drained struct {
	Started int `json:"started"` // a job is there: of this letter, or of an earlier one that asked for the same
	Nothing int `json:"nothing"` // asked for nothing
	Refused int `json:"refused"` // will never start; word of it was left
	Held    int `json:"held"`    // somebody else submits the same, or died doing so
	Later   int `json:"later"`   // trouble that may pass
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
//     would be left to ask.
//   - Trouble, fate unknown: it fails, and comes back after 30 s, doubled with each
//     delivery up to 15 min.
//   - Refused for now (ErrLater): likewise. Its claim is free meanwhile.
//   - Refused: the door leaves word of it. Could it not, that is trouble.
func (d *Drainer) Drain(ctx context.Context, letters []Letter, now time.Time) (failed []Letter, sum Drained) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for _, l := range letters {
		wg.Go(func() {
			what, wait, err := d.one(ctx, l, now)
			if err != nil && wait > 0 {
				// Still hidden for as long as the queue hides what it delivers, if this fails.
				if err := d.queue.Postpone(ctx, l, wait); err != nil {
					d.log.LogAttrs(ctx, slog.LevelWarn, "letter not postponed", slog.String("message", l.ID), slog.Any("error", err))
				}
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

// one deals with one letter. An error has it come back after wait.
func (d *Drainer) one(ctx context.Context, l Letter, now time.Time) (count func(*Drained), wait time.Duration, err error) {
	r, err := d.door.Open(ctx, l, now)
	if err == nil {
		var job string
		if job, err = d.bridge.Submit(ctx, r, now); err == nil {
			d.log.LogAttrs(ctx, slog.LevelInfo, "started", slog.String("message", l.ID), slog.String("tenant", r.Tenant), slog.String("job", job))
			return func(s *Drained) { s.Started++ }, 0, nil
		}
	}
	held, _ := errors.AsType[*HeldError](err)
	switch {
	case errors.Is(err, ErrNothing):
		return func(s *Drained) { s.Nothing++ }, 0, nil
	case held != nil:
		// A moment more: claims age by the clock of whoever looks.
		return func(s *Drained) { s.Held++ }, max(held.Stale.Sub(now), 0) + time.Second, err
	case errors.Is(err, ErrLater): // its tenant has as much running as it may: as with trouble
	case errors.Is(err, ErrRefused), errors.Is(err, ErrConflict):
		if told := d.door.Refuse(ctx, l, r, err, now); told != nil {
			err = fmt.Errorf("leave word of a refusal (%w): %w", err, told)
			break
		}
		d.log.LogAttrs(ctx, slog.LevelInfo, "refused", slog.String("message", l.ID), slog.String("tenant", r.Tenant), slog.Any("why", err))
		return func(s *Drained) { s.Refused++ }, 0, nil
	}
	wait = firstRetry << min(max(l.Receives-1, 0), 10)
	wait = min(wait, longestRetry)
	wait = wait/2 + rand.N(wait/2+1) // those that failed together don't come back together
	d.log.LogAttrs(ctx, slog.LevelWarn, "left to a later delivery", slog.String("message", l.ID), slog.String("tenant", r.Tenant),
		slog.Int("receives", l.Receives), slog.Duration("wait", wait), slog.Any("error", err))
	return func(s *Drained) { s.Later++ }, wait, err
}
