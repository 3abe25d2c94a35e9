package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"holdfast/internal/lease"
)

// maxPieces is how many pieces a file is planned for. Stores take 10,000; the
// rest is room for being wrong.
const maxPieces = 9000

// assembly is one finisher's work on one batch. It merges all parts into the
// result files and records them; nothing is completed before every line of every
// part is proven to be in exactly one file.
//
// It begins where the batch's Progress says, and records progress every so many
// bytes, every so often, and when the time is nearly up: first the pieces are
// stored, then what is behind them, as objects (tails), then Advance names both.
// So a death anywhere repeats what was done since the last Advance, with the same
// bytes under the same names.
type assembly struct {
	f     *Finisher
	b     Batch
	tok   lease.Token
	clock func() time.Time
	stop  *atomic.Bool // the time is nearly up

	m      *merger
	sender *sender
	files  []*resultFile // as in kinds

	at     Progress  // what is in pieces and buffers
	stored Progress  // what was recorded last
	saved  bool      // … by us
	old    []string  // keys of tails that nobody needs any more
	since  int64     // bytes taken in since then
	last   time.Time // when that was
	part   hash.Hash // over the results of the part's lines so far; nil: they are proven
}

func (f *Finisher) newAssembly(b Batch, tok lease.Token, size int64, clock func() time.Time, stop *atomic.Bool) *assembly {
	a := &assembly{f: f, b: b, tok: tok, clock: clock, stop: stop,
		m: newMerger(f.Objects, f.bucket, f.o.HeldBytes), sender: &sender{uploads: f.Uploads},
		at: b.Progress, stored: b.Progress, last: time.Now()}
	if a.at.Piece == 0 {
		a.at.Piece = max(int64(f.o.PieceBytes), (size+maxPieces-1)/maxPieces)
	}
	for _, kind := range kinds {
		a.files = append(a.files, &resultFile{kind: kind, piece: int(a.at.Piece), bound: int(min(size, a.at.Piece)), sender: a.sender,
			object: Object{Bucket: f.bucket, Key: ResultKey(b.Tenant, b.ID, kind)}})
	}
	return a
}

// run assembles. When what was recorded can't be used it records that nothing is
// assembled: the next try makes everything anew.
func (a *assembly) run(ctx context.Context) (Closed, error) {
	c, err := a.assemble(ctx)
	if err != nil {
		a.abort(ctx)
	}
	if errors.Is(err, errUnusable) {
		if lost := a.reset(ctx); lost != nil {
			return Closed{}, lost
		}
		return Closed{}, fmt.Errorf("to be begun anew: %v", err)
	}
	return c, err
}

func (a *assembly) assemble(ctx context.Context) (c Closed, err error) {
	for _, r := range a.files {
		if err := r.resume(ctx, a.m, a.b, *a.at.file(r.kind), a.at.Line == a.b.Lines); err != nil {
			return Closed{}, err
		}
	}
	if err := a.mergeAll(ctx); err != nil {
		return Closed{}, err
	}
	// Each part is proven; that they are all of the batch was surveyed, and is
	// proven here again against what is about to be closed.
	c = Closed{Counts: a.at.Counts, Usage: a.at.Usage}
	if c.Counts.Total != a.b.Lines || c.Counts.Completed+c.Counts.Failed != a.b.Lines {
		return Closed{}, &ConservationError{PartKey: PartKey{a.b.Tenant, a.b.ID, a.b.Parts}, Line: -1,
			What: fmt.Sprintf("%d + %d results for %d lines", c.Counts.Completed, c.Counts.Failed, a.b.Lines)}
	}
	if err := a.complete(ctx); err != nil {
		return Closed{}, err
	}
	for _, r := range a.files {
		if r.bytes == 0 || r.kind == ReceiptsFile {
			continue
		}
		id, err := a.f.record(ctx, a.b, r.kind, r.object)
		if err != nil {
			return Closed{}, err
		}
		if r.kind == OutputFile {
			c.OutputFileID = id
		} else {
			c.ErrorFileID = id
		}
	}
	return c, nil
}

// mergeAll merges the parts from where progress is.
func (a *assembly) mergeAll(ctx context.Context) error {
	unsent := newUnsent(ctx, a.f.Objects, a.b)
	defer unsent.close()
	from := a.at.Line
	left := func(yield func(Part, error) bool) {
		for p, err := range a.f.Parts.All(ctx, a.b.Tenant, a.b.ID) {
			if err == nil && p.FirstLine+int64(p.Lines) <= from {
				continue // in the files, and proven by who put it there
			}
			if !yield(p, err) {
				return
			}
		}
	}
	return a.m.each(ctx, left, func(l *loaded) error {
		p := l.part
		var fill func(int64) (Record, error)
		if p.State == Sealed {
			fill = func(line int64) (Record, error) { return unsent.record(p, line) }
		}
		if a.part = nil; !l.proven() {
			a.part = sha256.New()
		}
		end := p.FirstLine + int64(p.Lines)
		err := a.m.merge(ctx, l, fill, func(r Record) error {
			if err := a.take(ctx, p, r, from); err != nil {
				return err
			}
			// Behind the part's last line, only once the part is proven.
			if r.Line < from || r.Line == end-1 {
				return nil
			}
			return a.pause(ctx)
		})
		if err != nil {
			return err
		}
		a.part = nil
		return a.pause(ctx)
	})
}

// sum is over the results of the part so far, "" where they are proven.
func (a *assembly) sum() string {
	if a.part == nil {
		return ""
	}
	return hex.EncodeToString(a.part.Sum(nil))
}

// take puts one result into its files. Lines below from are there already: they
// are read once more because a chunk is proven as a whole, by whoever reads it to
// its end. If they were stored before their chunks were proven, which is so in
// parts too large to be held, their sum proves that they are what is proven now.
func (a *assembly) take(ctx context.Context, p Part, r Record, from int64) error {
	kind := ErrorFile
	if r.OK {
		kind = OutputFile
	}
	a.hash(kind, r, from)
	if r.Line < from {
		if r.Line == from-1 && a.stored.Part != "" && a.sum() != a.stored.Part {
			return fmt.Errorf("%w: the results of part %d up to line %d had another sum", errUnusable, p.N, r.Line)
		}
		return nil
	}
	if a.at.Counts.Total++; r.OK {
		a.at.Counts.Completed++
	} else {
		a.at.Counts.Failed++
	}
	if err := addUsage(&a.at.Usage, r.Receipt); err != nil {
		return &ConservationError{PartKey: p.PartKey, Line: r.Line, What: "its receipt is not one: " + err.Error()}
	}
	if err := a.files[slices.Index(kinds, kind)].line(ctx, r.Result); err != nil {
		return err
	}
	if len(r.Receipt) > 0 { // else the line was not sent
		if err := a.files[slices.Index(kinds, ReceiptsFile)].line(ctx, r.Receipt); err != nil {
			return err
		}
	}
	a.since += int64(len(r.Receipt) + len(r.Result))
	a.at.Line = r.Line + 1
	return nil
}

// hash adds a result to the part's sum.
func (a *assembly) hash(kind string, r Record, from int64) {
	if a.part == nil && r.Line < from && a.stored.Part != "" {
		a.part = sha256.New() // who stored it didn't hold the part; we do
	}
	if a.part == nil {
		return
	}
	_, _ = io.WriteString(a.part, kind)
	for _, b := range [...][]byte{r.Receipt, newline, r.Result, newline} {
		a.part.Write(b)
	}
}

// pause saves when it is time to, and stops when the time is nearly up.
func (a *assembly) pause(ctx context.Context) error {
	stop := a.stop.Load()
	if !stop && a.since < a.f.o.SaveBytes && time.Since(a.last) < a.f.o.SaveEvery {
		return nil
	}
	if a.at.Line > a.stored.Line {
		a.at.Part = a.sum()
		if err := a.save(ctx); err != nil {
			return err
		}
	}
	if stop && a.at.Line < a.b.Lines {
		return ErrOutOfTime
	}
	return nil
}

// save records how far the results are assembled.
func (a *assembly) save(ctx context.Context) error {
	if err := a.sender.land(); err != nil {
		return err
	}
	next := a.at
	next.Step = a.stored.Step + 1
	for _, r := range a.files {
		if err := r.saveTail(ctx, a.f.Objects, a.b); err != nil {
			return fmt.Errorf("save the tail of %s: %w", r.object.Key, err)
		}
		*next.file(r.kind) = r.progress()
	}
	if err := a.advance(ctx, next); err != nil {
		return err
	}
	a.since, a.last, a.saved = 0, time.Now(), true
	return nil
}

// advance makes next what is recorded, and deletes what only the record before
// needed.
func (a *assembly) advance(ctx context.Context, next Progress) error {
	// From here on, unless the table says no, somebody may go on with our uploads.
	var fresh []*resultFile
	for _, r := range a.files {
		if r.upload != "" && !r.recorded {
			r.recorded = true
			fresh = append(fresh, r)
		}
	}
	err := tryAgain(ctx, func() error {
		at := a.clock()
		return a.f.Endings.Advance(ctx, a.b.Tenant, a.b.ID, a.tok, next, at.Add(a.f.o.Lease), at)
	})
	if errors.Is(err, lease.ErrLost) {
		for _, r := range fresh {
			r.recorded = false
		}
	}
	if err != nil {
		return fmt.Errorf("record progress: %w", err)
	}
	a.old = append(a.old, a.stored.tails(a.b.Tenant, a.b.ID)...)
	needed := next.tails(a.b.Tenant, a.b.ID)
	a.old = slices.DeleteFunc(a.old, func(k string) bool { return slices.Contains(needed, k) })
	a.at, a.stored = next, next
	if len(a.old) > 0 {
		if err := a.f.Objects.Delete(ctx, a.f.bucket, a.old); err != nil {
			a.f.o.Log.WarnContext(ctx, "tails were not deleted", "tenant", a.b.Tenant, "batch", a.b.ID, "error", err)
			return nil // with the next ones
		}
		a.old = a.old[:0]
	}
	return nil
}

// complete makes the files visible. Where there is an upload, that all of them are
// whole is recorded before the first is completed: who finds one gone then knows
// that it was completed, and with how many bytes.
func (a *assembly) complete(ctx context.Context) error {
	uploads, news := false, a.stored.Line < a.at.Line
	for _, r := range a.files {
		news = news || r.upload != "" && len(r.buf) > 0
		if err := r.flush(ctx); err != nil {
			return err
		}
		uploads = uploads || r.upload != ""
	}
	if err := a.sender.land(); err != nil {
		return err
	}
	if uploads && news {
		a.at.Part = ""
		if err := a.save(ctx); err != nil {
			return err
		}
	}
	for _, r := range a.files {
		if err := r.finish(ctx, a.f.Objects); err != nil {
			return fmt.Errorf("write %s: %w", r.object.Key, err)
		}
	}
	return nil
}

// reset records that nothing is assembled.
func (a *assembly) reset(ctx context.Context) error {
	old := a.stored
	if err := a.advance(ctx, Progress{Step: old.Step + 1}); err != nil {
		return err
	}
	for _, r := range a.files {
		r.upload, r.recorded = old.file(r.kind).Upload, false
	}
	a.abort(ctx)
	return nil
}

// abort drops the uploads that nobody can go on with. Best effort: the store's
// lifecycle is the backstop.
func (a *assembly) abort(ctx context.Context) {
	_ = a.sender.land() // the error that brought us here says more; nothing may arrive after an abort
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.f.cleanup())
	defer cancel()
	for _, r := range a.files {
		if r.upload == "" || r.recorded || r.complete {
			continue
		}
		if err := a.f.Uploads.Abort(ctx, r.object, r.upload); err != nil {
			a.f.o.Log.WarnContext(ctx, "upload was not aborted", "tenant", a.b.Tenant, "batch", a.b.ID, "key", r.object.Key, "error", err)
		}
	}
}
