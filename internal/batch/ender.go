package batch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrNotHandedOn says that a batch was told to end, which stands, but that its
// workflow could not be told to finish it. Telling it again tells that again.
var ErrNotHandedOn = errors.New("batch is ending but its workflow was not told")

// Ender ends batches early, and sees to it that somebody finishes those that are
// to end.
type Ender struct {
	batches  Batches
	endings  Endings
	workflow Workflow
}

// NewEnder returns an Ender.
func NewEnder(batches Batches, endings Endings, workflow Workflow) *Ender {
	return &Ender{batches, endings, workflow}
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
//	             ending. The other one, which waits for parts, is
//	             stopped after that: nobody will report them all.
//	finalizing:  whoever finalizes it. Once its lease has lapsed, an execution
//	             that only finishes, in case nobody comes back.
//
// An execution that died is replaced by one under another name; once five did, one
// an hour is started, here or by the reaper.
//
// Doing this again is harmless, and is how a call that failed half-way is
// mended: the answer is then the batch together with [ErrNotHandedOn]. Other
// errors: [ErrNotFound], or trouble that leaves the fate of the decision open.
func (c *Ender) Cancel(ctx context.Context, tenant, id string, now time.Time) (Batch, error) {
	return c.end(ctx, tenant, id, Cancelled, now)
}

// Expire decides that the batch ends as expired, for its window is over; the rest
// is as with [Ender.Cancel]. Whether the window is over is the caller's to judge.
func (c *Ender) Expire(ctx context.Context, tenant, id string, now time.Time) (Batch, error) {
	return c.end(ctx, tenant, id, Expired, now)
}

func (c *Ender) end(ctx context.Context, tenant, id string, ending Status, now time.Time) (Batch, error) {
	b, err := c.decide(ctx, tenant, id, ending, now)
	if err != nil {
		return Batch{}, fmt.Errorf("end %s as %s: %w", id, ending, err)
	}
	if b.Ending != ending || b.Status.Terminal() || b.Status == Finalizing && !b.FinalizerUntil.Before(now) {
		return b, nil
	}
	if err := c.handOn(ctx, b, now); err != nil {
		return b, fmt.Errorf("end %s as %s: %w: %w", id, ending, ErrNotHandedOn, err)
	}
	return b, nil
}

// mainName is the name of the execution that plans a batch and waits for it, the
// first of them.
func mainName(b Batch) string {
	if b.Workflow != "" {
		return b.Workflow
	}
	return b.ID
}

// decide answers with the batch whose ending is decided, by this call or before.
func (c *Ender) decide(ctx context.Context, tenant, id string, ending Status, now time.Time) (b Batch, err error) {
	err = tryAgain(ctx, func() (err error) { b, err = c.endings.End(ctx, tenant, id, ending, now); return err })
	if errors.Is(err, ErrStatus) {
		// Over, or another ending came first: that stands.
		err = tryAgain(ctx, func() (err error) { b, err = c.batches.Get(ctx, tenant, id); return err })
	}
	return b, err
}

func (c *Ender) handOn(ctx context.Context, b Batch, now time.Time) error {
	name := mainName(b)
	if b.Status == Validating {
		return c.begin(ctx, b, name, now, func(name string) error { return c.workflow.Start(ctx, name, b.Tenant, b.ID) })
	}
	// First the one that finishes, so that there is no time without any. The other
	// only waits, and when it comes to finish the batch itself, it finds it
	// finished.
	err := c.begin(ctx, b, FinishName(b), now, func(name string) error { return c.workflow.Finish(ctx, name, b.Tenant, b.ID) })
	if err != nil || b.Status != InProgress {
		return err
	}
	return c.stop(ctx, b, now)
}

// stop ends the execution that waits for the batch's parts, be it the first of
// them or one that replaced it.
func (c *Ender) stop(ctx context.Context, b Batch, now time.Time) error {
	for n := 1; n <= spentNames; n++ {
		name := nth(mainName(b), n)
		if n > 1 {
			seen, err := c.seen(ctx, name)
			if err != nil || seen == Never {
				return err
			}
		}
		if err := tryAgain(ctx, func() error { return c.workflow.Stop(ctx, name) }); err != nil {
			return err
		}
	}
	hour, seen, err := c.latest(ctx, b, mainName(b), now)
	if err != nil || seen != Running {
		return err
	}
	return tryAgain(ctx, func() error { return c.workflow.Stop(ctx, hourly(mainName(b), hour)) })
}

// spentNames is how many names in a row are tried before those by the hour.
const spentNames = 5

// begin starts an execution under name or, where an execution that died (or
// somebody else's) has it, under name-2, name-3 and so on, and then the hour's: who
// cancels again and again finds the one that lives, and starts no more. When the
// hour's fell too, the reaper starts the next one's.
func (c *Ender) begin(ctx context.Context, b Batch, name string, now time.Time, start func(name string) error) error {
	for n := 1; n <= spentNames; n++ {
		err := tryAgain(ctx, func() error { return start(nth(name, n)) })
		if !errors.Is(err, ErrExists) {
			return err
		}
	}
	if _, seen, err := c.latest(ctx, b, name, now); err != nil || seen == Running {
		return err
	}
	err := tryAgain(ctx, func() error { return start(hourly(name, hourOf(now))) })
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// nth is the n-th name that an execution of one purpose goes by, from 1.
func nth(name string, n int) string {
	if n == 1 {
		return name
	}
	return fit("batch-again-", name+"-"+strconv.Itoa(n))
}

// Successors are the names of the executions that replaced a batch's first, in
// their order: there is one only where there is the one before it. Those that were
// started by the hour, once that many had fallen, are not among them.
func Successors(b Batch) []string {
	var names []string
	for n := 2; n <= spentNames; n++ {
		names = append(names, nth(mainName(b), n))
	}
	return names
}

// maxExecution is the longest name of an execution.
const maxExecution = 80

// FinishName names the execution that only finishes b, the first of them: by its
// ending, which is decided once, and not by its version, which each try to finish
// moves. So those that fall are counted. Nothing left to run is completed.
func FinishName(b Batch) string {
	return fit("batch-finish-", b.ID+"-finish-"+string(cmp.Or(b.Ending, Completed)))
}

// fit is name, or where that is too long for an execution, prefix and its hash.
func fit(prefix, name string) string {
	if len(name) <= maxExecution {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:])[:40]
}
