package dynamo

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var _ batch.Claims = (*Claims)(nil)

// Claims is batch.Claims.
type Claims struct{ t *table }

// maxReason bounds the stored reason of a failure, in bytes.
const maxReason = 1000

// Claim implements batch.Claims (C5).
func (s *Claims) Claim(ctx context.Context, c batch.Claim, taskToken string, maxAttempts int, until, _ time.Time) (batch.Part, error) {
	k := partKey(c.PartKey)
	p, refused, err := s.write(ctx, c, c5Claim(k, c.Token, taskToken, maxAttempts, until), true)
	switch {
	case err != nil:
	case !refused:
	case p.State == batch.Leased && p.Owner == c.Token:
		// Our own write, whose answer was lost.
	case p.State == batch.Leased:
		err = &batch.HeldError{Until: p.LeaseUntil, Ver: p.Ver}
	case p.Over():
		err = batch.ErrOver
	case p.State == batch.Dead:
		err = batch.ErrDead
	default:
		err = batch.ErrExhausted
	}
	if err != nil {
		return batch.Part{}, partErr("claim", c.PartKey, err)
	}
	return p, nil
}

// Heartbeat implements batch.Claims (C7).
func (s *Claims) Heartbeat(ctx context.Context, c batch.Claim, until, _ time.Time) error {
	return s.owners(ctx, "heartbeat", c, c7Heartbeat(c.Token, until), nil)
}

// Checkpoint implements batch.Claims (C8).
func (s *Claims) Checkpoint(ctx context.Context, c batch.Claim, k batch.Checkpoint, until, _ time.Time) error {
	return s.owners(ctx, "checkpoint", c, c8Checkpoint(partKey(c.PartKey), c.Token, k, until), func(p batch.Part) bool {
		return p.Owner == c.Token && p.Processed == k.To
	})
}

// Finish implements batch.Claims (C9).
func (s *Claims) Finish(ctx context.Context, c batch.Claim, lines int, _ time.Time) error {
	return s.owners(ctx, "finish", c, c9Finish(c.Token, lines), func(p batch.Part) bool {
		return p.State == batch.Done && p.Owner == c.Token
	})
}

// HandOver implements batch.Claims (C10).
func (s *Claims) HandOver(ctx context.Context, c batch.Claim, attempts int, due, _ time.Time) error {
	return s.owners(ctx, "hand over", c, c10HandOver(partKey(c.PartKey), c.Token, attempts, due), nil)
}

// Fail implements batch.Claims (C10f). A reason that is too long is an error: to
// cut it is the caller's, who knows what matters in it.
func (s *Claims) Fail(ctx context.Context, c batch.Claim, reason string, due, _ time.Time) error {
	if len(reason) > maxReason {
		return partErr("fail", c.PartKey, fmt.Errorf("reason of %d bytes exceeds %d", len(reason), maxReason))
	}
	return s.owners(ctx, "fail", c, c10fFail(partKey(c.PartKey), c.Token, reason, due), nil)
}

// owners makes a write that only the part's owner may make: lease.ErrLost for
// anybody else. mine recognises the write's own earlier effect; nil: it can't be
// told from a loss.
func (s *Claims) owners(ctx context.Context, op string, c batch.Claim, w write, mine func(batch.Part) bool) error {
	p, refused, err := s.write(ctx, c, w, false)
	if err == nil && refused && (mine == nil || !mine(p)) {
		err = lease.ErrLost
	}
	if err != nil {
		return partErr(op, c.PartKey, err)
	}
	return nil
}

// write answers with the part as written (if answer is set) or, refused, as
// found. batch.ErrNotFound.
func (s *Claims) write(ctx context.Context, c batch.Claim, w write, answer bool) (p batch.Part, refused bool, err error) {
	out, err := s.t.update(ctx, partKey(c.PartKey), w, answer)
	if err != nil {
		return batch.Part{}, false, err
	}
	if !out.refused && !answer {
		return batch.Part{}, false, nil
	}
	if out.item == nil {
		return batch.Part{}, out.refused, batch.ErrNotFound
	}
	i, err := decode[partItem](out.item)
	return i.part(), out.refused, err
}
