package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// ErrDraining says that workers still hold parts of a batch that ends early, and
// that their time to save what is under way is not up. Come again in a moment.
var ErrDraining = errors.New("workers are draining")

// early reports whether the batch ends before all of its lines were run.
func early(b Batch) bool { return b.Ending == Cancelled || b.Ending == Expired }

// unsentCode is what lines of a sealed part without a result end with. A part
// is sealed because the batch ends early, or because it was dead for too long.
func unsentCode(b Batch) string {
	switch b.Ending {
	case Cancelled:
		return openai.CodeBatchCancelled
	case Expired:
		return openai.CodeBatchExpired
	default:
		return openai.CodePartDead
	}
}

// sealsAtOnce bounds the seals in flight; sealTries is how often one part is
// read and sealed anew because its holder wrote in between.
const (
	sealsAtOnce = 16
	sealTries   = 20
)

// drain closes the open parts of a batch that ends early (C13): what nobody holds
// at once, so that queued messages find it sealed; what a live worker holds once
// it was given back, its lease has lapsed, or Drain is over since the ending was
// decided. [ErrDraining] while one of the last kind is left; otherwise every
// part is over, and its chunks are all it will ever have. The order defends
// against this:
//
//	finisher reads the chunks of part 7: lines 0-99
//	worker, which holds it, checkpoints lines 100-199: success, as it must be
//	finisher writes lines 100-199 as cancelled, closes, deletes both chunks
func (f *Finisher) drain(ctx context.Context, b Batch, clock func() time.Time) error {
	var (
		wg       sync.WaitGroup
		slot     = make(chan struct{}, sealsAtOnce)
		mu       sync.Mutex
		held     int
		sealed   int
		firstErr error
	)
	for p, err := range f.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			mu.Lock() // seals are under way
			firstErr = fmt.Errorf("read the parts: %w", err)
			mu.Unlock()
			break
		}
		if p.Over() {
			continue
		}
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			over, err := f.seal(ctx, b, p, clock)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && firstErr == nil:
				firstErr = err
			case err == nil && over:
				sealed++
			case err == nil:
				held++
			}
		})
	}
	wg.Wait()
	if sealed > 0 {
		f.o.Log.InfoContext(ctx, "parts sealed", "tenant", b.Tenant, "batch", b.ID, "ending", string(b.Ending), "sealed", sealed, "held", held)
	}
	switch {
	case firstErr != nil:
		return firstErr
	case held > 0:
		return fmt.Errorf("%w: %d parts, until %s at most", ErrDraining, held, b.EndingAt.Add(f.o.Drain).UTC().Format(time.RFC3339))
	}
	return nil
}

// seal closes one part, unless a live worker may still save what it has. Its
// answer is whether the part is over.
func (f *Finisher) seal(ctx context.Context, b Batch, p Part, clock func() time.Time) (over bool, err error) {
	for range sealTries {
		now := clock()
		live := p.State == Leased && !p.LeaseUntil.Before(lease.Cut(now, f.o.Skew))
		if live && now.Before(b.EndingAt.Add(f.o.Drain)) {
			return false, nil
		}
		err = tryAgain(ctx, func() error { _, err := f.Seals.Seal(ctx, p.PartKey, p.Ver, now); return err })
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ErrStale) {
			break
		}
		// The holder was faster. What it wrote counts; look again.
		var seen Part
		if seen, err = f.Parts.Get(ctx, p.PartKey); err != nil {
			break
		}
		if p = seen; p.Over() {
			return true, nil
		}
		err = ErrStale
	}
	if errors.Is(err, ErrNotFound) {
		// To our caller the name would mean that there is no such batch.
		err = errors.New("it is gone")
	}
	return false, fmt.Errorf("seal part %d: %w", p.N, err)
}
