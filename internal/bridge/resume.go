package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/lease"
)

// heir submits what somebody left behind, for whom nobody may be there to ask again.
type heir struct {
	// refused leaves word of a refusal while the claim still says that something was
	// asked for.
	refused func(ctx context.Context, id string, why error) error
}

// Service says whose job the reservation of this name ([Key.Name]) is
// ([Request.Service]), if it is stale. ErrNotFound where nobody has to do anything
// about it; ErrUnserved, beside the service, where [Bridge.Resume] couldn't.
func (b *Bridge) Service(ctx context.Context, tenant, name string, now time.Time) (string, error) {
	found, err := b.left(ctx, tenant, name, now)
	if err != nil {
		return found.Request.Service, err
	}
	return found.Request.Service, nil
}

// Resume submits the reservation of this name if it is stale: nobody may come again to
// ask for it, and the row holds the whole request. id is that of the job, whatever
// became of the submit; "" without an error: there was nothing to do, or somebody else
// did it.
//
// ErrRefused, with the cause, frees the correlation id as in [Bridge.Submit]. Before
// that, refused is told, if it isn't nil: whoever asked may be gone, and a death after
// the release would take the only trace along. Should it fail, nothing is released. It
// may be told again of the same refusal. After any other error, and with ErrLater, the
// claim stays, and is due again when it turns stale. ErrUnserved: it was left as it is,
// for a process that serves it.
func (b *Bridge) Resume(ctx context.Context, tenant, name string, now time.Time, refused func(ctx context.Context, id string, why error) error) (id string, err error) {
	dated := time.Now()
	found, err := b.left(ctx, tenant, name, now)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if found.Tenant != "" {
		id = BatchID(found.Tenant, found.CorrelationID)
	}
	if err != nil {
		return id, fmt.Errorf("resume: %w", err)
	}
	_, err = b.rob(ctx, found, nil, &heir{refused}, now, dated)
	switch {
	case errors.Is(err, lease.ErrLost):
		return "", nil
	case err != nil:
		return id, fmt.Errorf("resume %s: %w", id, err)
	}
	return id, nil
}

// left reads a reservation that is stale. ErrNotFound, ErrUnserved.
func (b *Bridge) left(ctx context.Context, tenant, name string, now time.Time) (Row, error) {
	found, err := b.store.Row(ctx, tenant, name)
	switch {
	case err != nil:
		return Row{}, err
	case found.State != Reserved || b.fresh(found, now):
		return Row{}, fmt.Errorf("%w: no stale claim", ErrNotFound)
	case !b.serves(found.Request.Service):
		return found, fmt.Errorf("%w: %q", ErrUnserved, found.Request.Service)
	}
	return found, nil
}

// submit does what a claim is for. The request is the row's own, which is the
// caller's in all but its request id. dated is when the row's ClaimedAt was now: what
// went by since, for the claim itself, is the submit's.
func (b *Bridge) submit(ctx context.Context, row Row, h *heir, dated time.Time) (string, error) {
	id := BatchID(row.Tenant, row.CorrelationID)
	now := func() time.Time { return row.ClaimedAt.Add(time.Since(dated)) }
	limited, cancel := b.limit(ctx, dated)
	job, err := b.submitter.Submit(limited, id, row.Request, now())
	cancel()
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	refused := errors.Is(err, ErrRefused) && !(h != nil && errors.Is(err, ErrLater))
	if refused && h != nil && h.refused != nil {
		if told := h.refused(settled, id, err); told != nil {
			refused, err = false, fmt.Errorf("leave word of a refusal (%v): %w", err, told)
		}
	}
	switch {
	case refused:
		// A row that stays after all turns stale, is submitted again and refused again.
		b.note(ctx, "claim not released", row, b.store.Release(settled, row.Key, row.Token))
		return "", err
	case err != nil:
		b.giveBack(ctx, settled, row, now())
		return "", err
	}
	// The job is there, whatever comes of this: the next delivery, or the reaper,
	// finds it by its id.
	b.note(ctx, "claim not confirmed", row, b.store.Confirm(settled, row.Key, row.Token, job, now().Add(Kept)))
	return job, nil
}

// giveBack leaves a claim whose submit ended in trouble to whoever comes next, soon.
// Its owner is alive and knows that it submits no more, which is what others would wait
// for ClaimStale to be sure of. It stays a reservation: the fate of its job is unknown.
//
//  1. An owner's submit is cut off, and its request is on its way still.
//  2. The owner gives back; a delivery takes over and submits: under the same id, so
//     that whichever of the two comes first, there is one job.
//  3. Were the second one refused instead, and the claim released, the first could
//     land after that. So a claim rests first ([givenBack]), and a Submitter looks for
//     the job before it refuses.
//
// The row stays due when it was: the reaper is for those that nobody comes again for.
func (b *Bridge) giveBack(ctx, settled context.Context, row Row, now time.Time) {
	stale := now.Add(givenBack - b.o.ClaimStale)
	if row.ClaimedAt.Before(stale) {
		stale = row.ClaimedAt // it turns stale sooner by itself
	}
	b.note(ctx, "claim not given back", row, b.store.GiveBack(settled, row.Key, row.Token, stale))
}

// letGo gives back what may have been claimed by a write whose answer never came: its
// owner lives and submits nothing under it. Where nothing was written, or by somebody
// else, nothing is.
func (b *Bridge) letGo(ctx context.Context, row Row, dated time.Time) {
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	b.giveBack(ctx, settled, row, row.ClaimedAt.Add(time.Since(dated)))
}
