package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

var (
	// ErrPartsOpen says that parts of the batch are not over yet, so that there is
	// nothing to assemble. Come again later.
	ErrPartsOpen = errors.New("parts are not over yet")
	// ErrOutOfTime says that finishing was broken off because the caller's time
	// is nearly up. Everything stands as before; call again.
	ErrOutOfTime = errors.New("time is nearly up")
)

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

	// Margin of the context's deadline is kept for cleaning up; 0: 10 s.
	Margin time.Duration

	// PieceBytes is the size of an upload's pieces, unless the results are so
	// large that 9,000 pieces would not hold them; 0: 8 MiB, at least 5 MiB. Up
	// to four pieces are held in memory.
	PieceBytes int

	Log *slog.Logger // nil: nothing is logged
}

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
	orDefault(&f.o.PieceBytes, 8<<20)
	if f.o.Log == nil {
		f.o.Log = slog.New(slog.DiscardHandler)
	}
	if f.o.Lease < 4*time.Millisecond || f.o.Skew < 0 || f.o.Drain < 0 || f.o.FileExpiry < 0 || f.o.Margin < 0 {
		return nil, fmt.Errorf("finisher: a time is out of bounds: %+v", f.o)
	}
	if f.o.PieceBytes < 5<<20 {
		return nil, fmt.Errorf("finisher: pieces of %d bytes; stores take none below 5 MiB", f.o.PieceBytes)
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
// Whatever it broke off at, Finish again does the rest. Two finishers at once are
// harmless: the table lets one of them close. What the other may still complete
// has the same key and the same bytes, because chunks of a part that is over
// don't change, a merge has one result only, and nothing of the finisher (time,
// token, size of a piece) gets into a file. And nothing is completed before the
// proof, so a finisher whose chunks were deleted under it completes nothing.
//
// Errors: [ErrNotFound] (no such batch), [*HeldError] (another finisher is alive: come again when it would have
// lapsed), [ErrDraining] (in a moment), [ErrPartsOpen] and [ErrOutOfTime] (come again), [ErrStatus] (still
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
	bytes, err := f.survey(ctx, b)
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
	closed, err := f.hold(ctx, b, tok, clock, func(ctx context.Context) (Closed, error) { return f.assemble(ctx, b, bytes) })
	if err == nil {
		err = tryAgain(ctx, func() (err error) {
			b, err = f.Endings.Close(ctx, tenant, id, tok, closed, clock())
			return err
		})
	}
	if err != nil {
		return f.failed(ctx, tenant, id, tok, clock(), err)
	}
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
// and of what lines without a result get, which no file can exceed.
func (f *Finisher) survey(ctx context.Context, b Batch) (bytes int64, err error) {
	var (
		open  PartsOpenError
		n     int
		lines int64
	)
	for p, err := range f.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			return 0, fmt.Errorf("read the parts: %w", err)
		}
		if p.N != n || p.FirstLine != lines {
			return 0, &ConservationError{PartKey: PartKey{b.Tenant, b.ID, n}, Line: lines, What: fmt.Sprintf("part %d with first line %d comes next", p.N, p.FirstLine)}
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
	}
	switch {
	case n != b.Parts || lines != b.Lines:
		return 0, &ConservationError{PartKey: PartKey{b.Tenant, b.ID, n}, Line: -1, What: fmt.Sprintf("%d parts hold %d lines, the batch has %d and %d", n, lines, b.Parts, b.Lines)}
	case open.Count > 0:
		return 0, &open
	}
	return bytes, nil
}

// hold does the work while it renews the right to assemble, and breaks it off
// when the right is lost or the time is nearly up.
func (f *Finisher) hold(ctx context.Context, b Batch, tok lease.Token, clock func() time.Time, work func(context.Context) (Closed, error)) (Closed, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if deadline, ok := ctx.Deadline(); ok {
		stop := time.AfterFunc(time.Until(deadline)-f.o.Margin, func() { cancel(ErrOutOfTime) })
		defer stop.Stop()
	}
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		beat := time.NewTicker(f.o.Lease / 4)
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
			at := clock()
			err := f.Endings.Hold(ctx, b.Tenant, b.ID, tok, at.Add(f.o.Lease), at)
			if errors.Is(err, lease.ErrLost) {
				cancel(err)
			} else if err != nil && ctx.Err() == nil {
				// The next one may succeed; if none does we are robbed, and Close says so.
				f.o.Log.WarnContext(ctx, "finalizer heartbeat failed", "tenant", b.Tenant, "batch", b.ID, "error", err)
			}
		}
	}()
	c, err := work(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	// A heartbeat under way must not come after what we do next: giving back.
	cancel(nil)
	<-beating
	return c, err
}

// giveBack ends the right to assemble early, so that the next try needs not wait
// for it to lapse. Best effort: if it fails, the next one waits.
func (f *Finisher) giveBack(ctx context.Context, tenant, id string, tok lease.Token, now time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cleanup())
	defer cancel()
	// Lapsed by every clock that is not further off than it may be.
	lapsed := now.Add(-2*f.o.Skew - time.Second)
	if err := f.Endings.Hold(ctx, tenant, id, tok, lapsed, now); err != nil && !errors.Is(err, lease.ErrLost) {
		f.o.Log.WarnContext(ctx, "finalizer was not given back", "tenant", tenant, "batch", id, "error", err)
	}
}

// cleanup is how long an undone thing may take to be put away.
func (f *Finisher) cleanup() time.Duration { return max(f.o.Margin/3, time.Second) }

// record writes the file's record. Its id and its times come from the batch, so
// that whoever writes it again writes the same.
func (f *Finisher) record(ctx context.Context, b Batch, kind string, o Object) (string, error) {
	life := b.OutputExpiry
	if life == 0 {
		life = f.o.FileExpiry
	}
	file := File{
		Tenant: b.Tenant, ID: ResultFileID(b.ID, kind), Purpose: openai.PurposeBatchOutput,
		Filename: b.ID + "_" + kind + ".jsonl",
		// Neither version nor ETag: whoever wrote the object last, its bytes are these.
		Object:    Object{Bucket: o.Bucket, Key: o.Key, Bytes: o.Bytes},
		CreatedAt: b.FinalizingAt, ExpiresAt: b.FinalizingAt.Add(life),
	}
	err := f.Files.Put(ctx, file)
	if errors.Is(err, ErrExists) {
		// Written by a finisher whose default expiry was another. It stays.
		var stored File
		stored, err = f.Files.Get(ctx, file.Tenant, file.ID)
		if err == nil && (stored.Object != file.Object || stored.Purpose != file.Purpose) {
			err = fmt.Errorf("%w: as another file", ErrExists)
		}
	}
	if err != nil {
		return "", fmt.Errorf("record %s: %w", file.Filename, err)
	}
	return file.ID, nil
}

// The result files of a batch.
const (
	OutputFile   = "output"
	ErrorFile    = "error"
	ReceiptsFile = "receipts"
)

// ResultFileID is the id of a batch's output or error file: the same, whoever
// makes it.
func ResultFileID(batch, kind string) string {
	sum := sha256.Sum256([]byte("holdfast result file\n" + batch + "\n" + kind))
	return "file-" + hex.EncodeToString(sum[:12])
}

// ResultKey is the key of a batch's result file in the results bucket.
func ResultKey(tenant, batch, kind string) string {
	return tenant + "/out/" + batch + "_" + kind + ".jsonl"
}
