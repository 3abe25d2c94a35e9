package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var (
	_ batch.Claims = (*Claims)(nil)
	_ batch.Steals = (*Claims)(nil)
)

// Claims is batch.Claims and batch.Steals.
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
	default:
		err = unclaimed(p)
	}
	if err != nil {
		return batch.Part{}, partErr("claim", c.PartKey, err)
	}
	return p, nil
}

// Steal implements batch.Steals (C6).
func (s *Claims) Steal(ctx context.Context, c batch.Claim, taskToken string, ver int64, maxAttempts int, cut, until, _ time.Time) (batch.Part, error) {
	k := partKey(c.PartKey)
	p, refused, err := s.write(ctx, c, c6Steal(k, c.Token, taskToken, ver, maxAttempts, cut, until), true)
	switch {
	case err != nil:
	case !refused:
	case p.State == batch.Leased && p.Owner == c.Token:
		// Our own write, whose answer was lost.
	case p.State == batch.Leased && p.Ver == ver && p.LeaseUntil.Before(fromMillis(millis(cut))):
		err = batch.ErrExhausted // all the rest holds
	case p.State == batch.Pending:
		err = batch.ErrStale
	default:
		err = unclaimed(p)
	}
	if err != nil {
		return batch.Part{}, partErr("steal", c.PartKey, err)
	}
	return p, nil
}

// unclaimed says why a part can't be claimed.
func unclaimed(p batch.Part) error {
	switch {
	case p.State == batch.Leased:
		return &batch.HeldError{Until: p.LeaseUntil, Ver: p.Ver, Owner: p.Owner, Begun: p.Begun}
	case p.Over():
		return batch.ErrOver
	case p.State == batch.Dead:
		return batch.ErrDead
	}
	return batch.ErrExhausted
}

// Heartbeat implements batch.Claims (C7).
func (s *Claims) Heartbeat(ctx context.Context, c batch.Claim, begun int, until, _ time.Time) error {
	return s.owners(ctx, "heartbeat", c, c7Heartbeat(c.Token, begun, until), nil)
}

// Suspect implements batch.Claims (C7s).
func (s *Claims) Suspect(ctx context.Context, c batch.Claim, sus batch.Suspect, processed int, until, _ time.Time) error {
	return s.owners(ctx, "suspect", c, c7sSuspect(c.Token, sus, processed, until), nil)
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
	k := partKey(c.PartKey)
	return s.giveBack(ctx, "hand over", c, c10HandOver(k, c.Token, attempts, due), func() expression.UpdateBuilder {
		return handedOver(attempts, released(k, due))
	})
}

// Fail implements batch.Claims (C10f). A reason that is too long is an error: to
// cut it is the caller's, who knows what matters in it.
func (s *Claims) Fail(ctx context.Context, c batch.Claim, reason string, due, _ time.Time) error {
	if len(reason) > maxReason {
		return partErr("fail", c.PartKey, fmt.Errorf("reason of %d bytes exceeds %d", len(reason), maxReason))
	}
	k := partKey(c.PartKey)
	return s.giveBack(ctx, "fail", c, c10fFail(k, c.Token, reason, due), func() expression.UpdateBuilder {
		return failed(reason, released(k, due))
	})
}

// takeBackTries is how often a part is given back anew because a late heartbeat
// of its own claim came in between.
const takeBackTries = 5

// giveBack makes w, which is refused when the claim still holds the part but left
// a strike of its own in it. That costs a second write, seldom enough: a claim
// that sends lines alone mostly ends between two of them.
func (s *Claims) giveBack(ctx context.Context, op string, c batch.Claim, w write, then func() expression.UpdateBuilder) error {
	p, refused, err := s.write(ctx, c, w, false)
	for range takeBackTries {
		if err != nil || !refused || p.State != batch.Leased || p.Owner != c.Token {
			break
		}
		p, refused, err = s.write(ctx, c, c10TakeBack(p.Ver, p.Suspect, then()), false)
	}
	if err == nil && refused {
		err = lease.ErrLost
	}
	if err != nil {
		return partErr(op, c.PartKey, err)
	}
	return nil
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
