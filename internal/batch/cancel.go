package batch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNotHandedOn says that a batch was told to cancel, which stands, but that its
// workflow could not be told to finish it. Cancelling again tells it again.
var ErrNotHandedOn = errors.New("batch is cancelling but its workflow was not told")

// Canceller cancels batches.
type Canceller struct {
	batches  Batches
	endings  Endings
	workflow Workflow
}

// NewCanceller returns a Canceller.
func NewCanceller(batches Batches, endings Endings, workflow Workflow) *Canceller {
	return &Canceller{batches, endings, workflow}
}

// Cancel decides that the batch ends as cancelled (C15) and sees to it that
// somebody finishes it. From then on no worker sends a line of it that was not
// under way; see [Finisher.Finish] for what becomes of the rest. A batch whose
// ending is decided already, or that is over, is answered as it is.
//
// Who finishes it depends on the status that the decision found, which is one
// item with it, so that there is no gap between the two:
//
//	validating:  its own execution. The plan goes on, so that counts and ids
//	             exist, sees the ending, and the execution finishes the batch.
//	             In case it never started, it is started here.
//	in_progress: an execution that only finishes, under a name derived from the
//	             batch as decided. The other one, which waits for parts, is
//	             stopped after that: nobody will report them all.
//	finalizing:  whoever finalizes it. Once its lease has lapsed, an execution
//	             that only finishes, in case nobody comes back.
//
// An execution that died is replaced by one under another name.
//
// Doing this again is harmless, and is how a call that failed half-way is
// mended: the answer is then the batch together with [ErrNotHandedOn]. Other
// errors: [ErrNotFound], or trouble that leaves the fate of the decision open.
func (c *Canceller) Cancel(ctx context.Context, tenant, id string, now time.Time) (Batch, error) {
	b, err := c.decide(ctx, tenant, id, now)
	if err != nil {
		return Batch{}, fmt.Errorf("cancel %s: %w", id, err)
	}
	if b.Ending != Cancelled || b.Status.Terminal() || b.Status == Finalizing && !b.FinalizerUntil.Before(now) {
		return b, nil
	}
	if err := c.handOn(ctx, b); err != nil {
		return b, fmt.Errorf("cancel %s: %w: %w", id, ErrNotHandedOn, err)
	}
	return b, nil
}

// decide answers with the batch whose ending is decided, by this call or before.
func (c *Canceller) decide(ctx context.Context, tenant, id string, now time.Time) (b Batch, err error) {
	err = tryAgain(ctx, func() (err error) { b, err = c.endings.End(ctx, tenant, id, Cancelled, now); return err })
	if errors.Is(err, ErrStatus) {
		// Over, or another ending came first: that stands.
		err = tryAgain(ctx, func() (err error) { b, err = c.batches.Get(ctx, tenant, id); return err })
	}
	return b, err
}

func (c *Canceller) handOn(ctx context.Context, b Batch) error {
	name := b.Workflow
	if name == "" {
		name = b.ID
	}
	if b.Status == Validating {
		return begin(ctx, name, func(name string) error { return c.workflow.Start(ctx, name, b.Tenant, b.ID) })
	}
	// First the one that finishes, so that there is no time without any. The other
	// only waits, and when it comes to finish the batch itself, it finds it
	// finished.
	err := begin(ctx, FinishName(b), func(name string) error { return c.workflow.Finish(ctx, name, b.Tenant, b.ID) })
	if err != nil || b.Status != InProgress {
		return err
	}
	return tryAgain(ctx, func() error { return c.workflow.Stop(ctx, name) })
}

// spentNames is how many names in a row are tried before one that nobody has.
const spentNames = 5

// begin starts an execution under name or, where an execution that died (or
// somebody else's) has it, under name-2, name-3 and so on: who cancels again and
// again finds the one that lives, and starts no more.
func begin(ctx context.Context, name string, start func(name string) error) error {
	for n := 1; ; n++ {
		free := name
		switch {
		case n > spentNames:
			free = fit("batch-again-", name+"-"+strings.ToLower(rand.Text()[:10]))
		case n > 1:
			free = fit("batch-again-", name+"-"+strconv.Itoa(n))
		}
		err := tryAgain(ctx, func() error { return start(free) })
		if !errors.Is(err, ErrExists) || n > spentNames {
			return err
		}
	}
}

// maxExecution is the longest name of an execution.
const maxExecution = 80

// FinishName names the execution that only finishes b, as it now is: two of one
// version are the same, and who comes again after a write starts another.
func FinishName(b Batch) string {
	return fit("batch-finish-", b.ID+"-finish-"+strconv.FormatInt(b.Ver, 10))
}

// fit is name, or where that is too long for an execution, prefix and its hash.
func fit(prefix, name string) string {
	if len(name) <= maxExecution {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:])[:40]
}
