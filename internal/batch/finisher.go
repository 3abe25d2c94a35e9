package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"holdfast/internal/lease"
)

var (
	// ErrPartsOpen says that parts of the batch are not over yet, so that there is
	// nothing to assemble. Come again later.
	ErrPartsOpen = errors.New("parts are not over yet")
	// ErrOutOfTime says that finishing was broken off because the caller's time
	// is nearly up. What was recorded until then counts; call again.
	ErrOutOfTime = errors.New("time is nearly up")
)

// OutOfTimeError is ErrOutOfTime with what the call came to.
type OutOfTimeError struct {
	Line  int64 // the next call goes on there, batch-wide from 0
	Saved bool  // this call recorded progress; if not, the next may do no better
}

// Error says where the next call goes on.
func (e *OutOfTimeError) Error() string {
	if !e.Saved {
		return fmt.Sprintf("%v: at line %d, as before", ErrOutOfTime, e.Line)
	}
	return fmt.Sprintf("%v: to be continued at line %d", ErrOutOfTime, e.Line)
}

// Unwrap makes errors.Is(err, ErrOutOfTime) true.
func (e *OutOfTimeError) Unwrap() error { return ErrOutOfTime }

// PartsOpenError is ErrPartsOpen with how many they are and which come first.
type PartsOpenError struct {
	Count int
	First []int // at most 10 numbers
}

// Error names the first parts.
func (e *PartsOpenError) Error() string {
	return fmt.Sprintf("%v: %d of them, first %v", ErrPartsOpen, e.Count, e.First)
}

// Unwrap makes errors.Is(err, ErrPartsOpen) true.
func (e *PartsOpenError) Unwrap() error { return ErrPartsOpen }

// FinisherPorts are what a Finisher works on; all of them are needed.
type FinisherPorts struct {
	Batches Batches
	Endings Endings
	Parts   Parts
	Seals   Seals
	Files   Files
	Objects Objects
	Uploads Uploads
}

// FinisherOptions are a Finisher's times and sizes.
type FinisherOptions struct {
	Lease time.Duration // how long a finisher is believed alive; 0: 120 s; renewed every quarter
	Skew  time.Duration // how far two clocks may differ; 0: 5 s

	// Drain is how long, from the decision to end a batch early, its workers may
	// still save what was under way; 0: 2 min.
	Drain time.Duration

	// FileExpiry is how long result files live for which the batch says nothing;
	// 0: 30 days.
	FileExpiry time.Duration

	// Margin of the context's deadline is kept for cleaning up, and as much again
	// for recording how far it came; 0: 10 s.
	Margin time.Duration

	// SaveBytes of results, or SaveEvery, are what is assembled between two records
	// of progress, and so what a death repeats at most; 0: 256 MiB, 60 s.
	SaveBytes int64
	SaveEvery time.Duration

	// PieceBytes is the size of an upload's pieces, unless the results are so
	// large that 9,000 pieces would not hold them; 0: 8 MiB, at least LeastPiece. Up
	// to four pieces are held in memory.
	PieceBytes int

	// LeastPiece is the least that the store takes as a piece; 0: 5 MiB, S3's.
	LeastPiece int

	// HeldBytes of chunks are held in memory while they are merged; 0: 12 MiB. A part
	// that is more than half of it is read through buffers.
	HeldBytes int

	Observer Observer     // nil: nobody is told
	Log      *slog.Logger // nil: nothing is logged
}

// FinisherGC is the garbage collector's target (GOGC) for a process that finishes.
// Most of what such a process holds is a few large buffers, which cost nothing to
// mark: collecting four times as often as by default is cheap, and memory stays a
// quarter above what is live and not twice that.
const FinisherGC = 25

// Finisher assembles the results of batches whose parts are over.
type Finisher struct {
	FinisherPorts
	bucket string
	o      FinisherOptions
}

// NewFinisher returns a Finisher that reads chunks from the results bucket and
// writes result files into it, or an error when an option is out of bounds.
func NewFinisher(ports FinisherPorts, bucket string, o *FinisherOptions) (*Finisher, error) {
	f := &Finisher{FinisherPorts: ports, bucket: bucket}
	if o != nil {
		f.o = *o
	}
	orDefault(&f.o.Lease, 120*time.Second)
	orDefault(&f.o.Skew, 5*time.Second)
	orDefault(&f.o.Drain, 2*time.Minute)
	orDefault(&f.o.FileExpiry, 30*24*time.Hour)
	orDefault(&f.o.Margin, 10*time.Second)
	orDefault(&f.o.SaveBytes, 256<<20)
	orDefault(&f.o.SaveEvery, time.Minute)
	orDefault(&f.o.PieceBytes, 8<<20)
	orDefault(&f.o.LeastPiece, 5<<20)
	orDefault(&f.o.HeldBytes, heldBytes)
	if f.o.Log == nil {
		f.o.Log = slog.New(slog.DiscardHandler)
	}
	if f.o.Lease < 4*time.Millisecond || f.o.Skew < 0 || f.o.Drain < 0 || f.o.FileExpiry < 0 || f.o.Margin < 0 || f.o.SaveEvery < 0 || f.o.SaveBytes < 0 || f.o.HeldBytes < 0 {
		return nil, fmt.Errorf("finisher: a time or size is out of bounds: %+v", f.o)
	}
	if f.o.PieceBytes < max(f.o.LeastPiece, 1) {
		return nil, fmt.Errorf("finisher: pieces of %d bytes; the store takes none below %d", f.o.PieceBytes, f.o.LeastPiece)
	}
	return f, nil
}

// Finish brings a batch whose parts are all over to its terminal status: it
// decides the ending if nobody has (Completed), takes the right to assemble,
// merges the chunks into the result files in input order, records the files,
// closes the batch (C16) and only then deletes the chunks. For a terminal batch
// there is nothing to do but the last step, in case somebody died before it.
//
// A batch that ends early (Cancelled, Expired) needs not be over: its open parts
// are sealed first (C13), once live workers have had their time to drain. Results
// checkpointed by then are in the files as ever; every other line is in the error
// file as batch_cancelled or batch_expired, under its own id, in its place.
//
// Whatever it broke off at, Finish again does the rest, from the progress that was
// recorded last: at most SaveBytes or SaveEvery before. That is also how it ends
// inside the caller's time, however much there is. Two finishers at once are
// harmless: the table lets one of them record and close. What the other may still
// store has the same names and the same bytes, because chunks of a part that is
// over don't change, a merge has one result only, the size of a piece is recorded,
// and nothing else of the finisher (time, token) gets into a file. And nothing is
// completed before the proof, so a finisher whose chunks were deleted under it
// completes nothing.
//
// Errors: [ErrNotFound] (no such batch), [*HeldError] (another finisher is alive: come again when it would have
// lapsed), [ErrDraining] (in a moment), [ErrPartsOpen] and [*OutOfTimeError] (come again), [ErrStatus] (still
// validating), [ErrConservation] (don't: look), lease.ErrLost (robbed: come again
// and see it closed); everything else is trouble of the moment.
func (f *Finisher) Finish(ctx context.Context, tenant, id string, now time.Time) (Batch, error) {
	b, err := f.finish(ctx, tenant, id, now)
	if err != nil {
		return Batch{}, fmt.Errorf("finish %s: %w", id, err)
	}
	if b.Status != Failed { // a refused batch never had any
		f.sweep(ctx, b)
	}
	return b, nil
}

func (f *Finisher) finish(ctx context.Context, tenant, id string, now time.Time) (Batch, error) {
	began := time.Now() // finishing takes minutes: what is written late says when
	clock := func() time.Time { return now.Add(time.Since(began)) }

	b, err := f.Batches.Get(ctx, tenant, id)
	if err != nil || b.Status.Terminal() {
		return b, err
	}
	if b.Status == Validating {
		return b, fmt.Errorf("%w: still validating", ErrStatus)
	}
	if early(b) {
		if err := f.drain(ctx, b, clock); err != nil {
			return b, err
		}
	}
	bytes, troubles, err := f.survey(ctx, b)
	if err != nil {
		return b, err
	}
	if b, err = f.decide(ctx, b, clock()); err != nil || b.Status.Terminal() {
		return b, err
	}
	tok, at := lease.NewToken(), clock()
	err = tryAgain(ctx, func() (err error) {
		b, err = f.Endings.Finalize(ctx, tenant, id, tok, at.Add(f.o.Lease), lease.Cut(at, f.o.Skew), at)
		return err
	})
	if errors.Is(err, ErrStatus) {
		// Closed since it was read, most likely.
		if now, err := f.Batches.Get(ctx, tenant, id); err == nil && now.Status.Terminal() {
			return now, nil
		}
	}
	if err != nil {
		if !decided(err) { // it may be ours without our knowing
			f.giveBack(ctx, tenant, id, tok, clock())
		}
		return b, fmt.Errorf("take the right to assemble: %w", err)
	}
	var stop atomic.Bool
	a := f.newAssembly(b, tok, bytes, clock, &stop)
	closed, err := f.hold(ctx, b, tok, clock, &stop, a.run)
	if errors.Is(err, ErrOutOfTime) {
		f.o.Log.InfoContext(ctx, "to be continued", "tenant", tenant, "batch", id, "line", a.stored.Line, "saved", a.saved, "why", err)
		err = &OutOfTimeError{Line: a.stored.Line, Saved: a.saved}
	}
	if err == nil {
		closed.Troubles = troubles
		err = tryAgain(ctx, func() (err error) {
			b, err = f.Endings.Close(ctx, tenant, id, tok, closed, clock())
			return err
		})
	}
	if err != nil {
		return f.failed(ctx, tenant, id, tok, clock(), err)
	}
	f.o.Observer.Add(MetricBatches, 1)
	f.o.Observer.Add(MetricBatchAge, clock().Sub(b.CreatedAt).Seconds())
	f.o.Log.InfoContext(ctx, "closed", "tenant", tenant, "batch", id, "status", string(b.Status),
		"lines", b.Counts.Total, "completed", b.Counts.Completed, "failed", b.Counts.Failed, "took", time.Since(began))
	return b, nil
}

// failed leaves things in order after an error under the right to assemble, and
// says what it means. Who was robbed learns it by a refusal, or by finding chunks
// gone: the thief has closed the batch then, and all is well.
func (f *Finisher) failed(ctx context.Context, tenant, id string, tok lease.Token, now time.Time, err error) (Batch, error) {
	if errors.Is(err, lease.ErrLost) || errors.Is(err, ErrConservation) {
		if b, err := f.Batches.Get(ctx, tenant, id); err == nil && b.Status.Terminal() {
			return b, nil
		}
	}
	if !errors.Is(err, lease.ErrLost) {
		f.giveBack(ctx, tenant, id, tok, now)
	}
	if errors.Is(err, ErrNotFound) {
		// An upload that is gone, and made anew by the next try. To our caller the
		// name would mean that there is no such batch.
		err = fmt.Errorf("assemble: %v", err)
	}
	return Batch{}, err
}

// decide ends a batch as completed, unless its ending was decided before.
func (f *Finisher) decide(ctx context.Context, b Batch, now time.Time) (Batch, error) {
	if b.Ending != "" {
		return b, nil
	}
	decided, err := f.Endings.End(ctx, b.Tenant, b.ID, Completed, now)
	if errors.Is(err, ErrStatus) {
		// A cancel, an expiry or another finisher came first: that ending stands.
		decided, err = f.Batches.Get(ctx, b.Tenant, b.ID)
		if err == nil && decided.Ending == "" && !decided.Status.Terminal() {
			err = ErrStatus
		}
	}
	if err != nil {
		return b, fmt.Errorf("decide the ending: %w", err)
	}
	return decided, nil
}

// survey looks at all parts before anything is written: every one is over, and
// together they are the lines of the batch. It returns the size of all chunks
// and of what lines without a result get, which no file can exceed, and what
// befell the parts.
func (f *Finisher) survey(ctx context.Context, b Batch) (bytes int64, troubles Troubles, err error) {
	var (
		open  PartsOpenError
		n     int
		lines int64
	)
	for p, err := range f.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			return 0, troubles, fmt.Errorf("read the parts: %w", err)
		}
		if p.N != n || p.FirstLine != lines {
			return 0, troubles, &ConservationError{PartKey: PartKey{b.Tenant, b.ID, n}, Line: lines, What: fmt.Sprintf("part %d with first line %d comes next", p.N, p.FirstLine)}
		}
		n, lines = n+1, lines+int64(p.Lines)
		if !p.Over() {
			if open.Count++; len(open.First) < 10 {
				open.First = append(open.First, p.N)
			}
		}
		for _, c := range p.Chunks {
			bytes += c.Bytes
		}
		bytes += maxUnsent * int64(max(p.Lines-p.Processed, 0))
		troubles = troubles.Add(p)
	}
	switch {
	case n != b.Parts || lines != b.Lines:
		return 0, troubles, &ConservationError{PartKey: PartKey{b.Tenant, b.ID, n}, Line: -1, What: fmt.Sprintf("%d parts hold %d lines, the batch has %d and %d", n, lines, b.Parts, b.Lines)}
	case open.Count > 0:
		return 0, troubles, &open
	}
	return bytes, troubles, nil
}
