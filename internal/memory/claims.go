package memory

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// Claims is batch.Claims over a Table.
type Claims struct{ port }

var _ batch.Claims = (*Claims)(nil)

// maxReason bounds what Fail records, in bytes.
const maxReason = 1000

// Claim is batch.Claims.Claim.
func (s *Claims) Claim(ctx context.Context, c batch.Claim, taskToken string, maxAttempts int, until, now time.Time) (batch.Part, error) {
	return call(ctx, s.faults, "Claims.Claim", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(c.PartKey)
		if err != nil {
			return batch.Part{}, err
		}
		if s.rules.must("C5.pending", p.State == batch.Pending) &&
			s.rules.must("C5.attempts", p.Attempts < maxAttempts || s.rules.own("C5.suspect", !p.Suspect.None())) {
			return s.writePart(claimed(p, c, taskToken, until)), nil
		}
		if s.rules.own("C5.own",
			s.rules.must("C5.own.leased", p.State == batch.Leased) &&
				s.rules.must("C5.own.owner", p.Owner == c.Token)) {
			return p, nil
		}
		return batch.Part{}, fmt.Errorf("claim part %d of %s: %w", p.N, p.Batch, whyNot(p))
	})
}

// claimed is p held by c from now on.
func claimed(p batch.Part, c batch.Claim, taskToken string, until time.Time) batch.Part {
	p.State, p.Owner = batch.Leased, c.Token
	p.LeaseUntil, p.Due = until, until
	p.Attempts++
	p.Resends, p.Begun = 0, 0
	p.TaskToken = taskToken
	return p
}

// whyNot says why a part can't be claimed.
func whyNot(p batch.Part) error {
	switch p.State {
	case batch.Leased:
		return &batch.HeldError{Until: p.LeaseUntil, Ver: p.Ver, Owner: p.Owner, Begun: p.Begun}
	case batch.Done, batch.Sealed:
		return batch.ErrOver
	case batch.Dead:
		return batch.ErrDead
	default:
		return batch.ErrExhausted
	}
}

// Heartbeat is batch.Claims.Heartbeat.
func (s *Claims) Heartbeat(ctx context.Context, c batch.Claim, begun int, until, now time.Time) error {
	return s.owned(ctx, "Heartbeat", "C7", c, func(p batch.Part, held bool) (batch.Part, bool, error) {
		if !held {
			return p, false, lease.ErrLost
		}
		p.LeaseUntil, p.Begun = until, begun
		return p, true, nil
	})
}

// Suspect is batch.Claims.Suspect.
func (s *Claims) Suspect(ctx context.Context, c batch.Claim, sus batch.Suspect, processed int, until, now time.Time) error {
	return s.owned(ctx, "Suspect", "C7s", c, func(p batch.Part, held bool) (batch.Part, bool, error) {
		if !held || !s.rules.must("C7s.processed", p.Processed == processed) {
			return p, false, lease.ErrLost
		}
		if p.Suspect = sus; sus.None() {
			p.Suspect = batch.Suspect{}
		}
		p.LeaseUntil, p.Begun = until, 1
		return p, true, nil
	})
}

// Checkpoint is batch.Claims.Checkpoint.
func (s *Claims) Checkpoint(ctx context.Context, c batch.Claim, k batch.Checkpoint, until, now time.Time) error {
	return s.owned(ctx, "Checkpoint", "C8", c, func(p batch.Part, held bool) (batch.Part, bool, error) {
		if held && s.rules.must("C8.from", p.Processed == k.From) {
			p.Processed, p.DoneLines = k.To, k.Done
			p.Chunks = append(p.Chunks, k.Chunk)
			p.Attempts, p.Begun = 0, k.Begun
			p.Suspect = batch.Suspect{}
			p.LeaseUntil, p.Due = until, until
			if k.Last {
				p.State, p.Due = batch.Done, time.Time{}
			}
			return p, true, nil
		}
		if s.rules.own("C8.own",
			s.rules.must("C8.own.owner", p.Owner == c.Token) &&
				s.rules.must("C8.own.to", p.Processed == k.To)) {
			return p, false, nil
		}
		return p, false, lease.ErrLost
	})
}

// Finish is batch.Claims.Finish.
func (s *Claims) Finish(ctx context.Context, c batch.Claim, lines int, now time.Time) error {
	return s.owned(ctx, "Finish", "C9", c, func(p batch.Part, held bool) (batch.Part, bool, error) {
		if held && s.rules.must("C9.lines", p.Processed == lines) {
			p.State, p.Due = batch.Done, time.Time{}
			return p, true, nil
		}
		if s.rules.own("C9.own",
			s.rules.must("C9.own.done", p.State == batch.Done) &&
				s.rules.must("C9.own.owner", p.Owner == c.Token)) {
			return p, false, nil
		}
		return p, false, lease.ErrLost
	})
}

// HandOver is batch.Claims.HandOver.
func (s *Claims) HandOver(ctx context.Context, c batch.Claim, attempts int, due, now time.Time) error {
	return s.owned(ctx, "HandOver", "C10", c, func(p batch.Part, held bool) (batch.Part, bool, error) {
		if !held {
			return p, false, lease.ErrLost
		}
		p = s.takeBack("C10", given(p, due), c.Token)
		p.Attempts = attempts
		return p, true, nil
	})
}

// Fail is batch.Claims.Fail. A reason that is too long is an error: to cut it
// is the caller's, who knows what matters in it.
func (s *Claims) Fail(ctx context.Context, c batch.Claim, reason string, due, now time.Time) error {
	return s.owned(ctx, "Fail", "C10f", c, func(p batch.Part, held bool) (batch.Part, bool, error) {
		if len(reason) > maxReason {
			return p, false, fmt.Errorf("reason of %d bytes exceeds %d", len(reason), maxReason)
		}
		if !held {
			return p, false, lease.ErrLost
		}
		p = s.takeBack("C10f", given(p, due), c.Token)
		p.LastError = reason
		return p, true, nil
	})
}

// given is p given back to whoever comes next.
func given(p batch.Part, due time.Time) batch.Part {
	p.State, p.Owner, p.LeaseUntil, p.Due = batch.Pending, "", time.Time{}, due
	p.Begun = 0
	return p
}

// lapse is p whose holder went without a word.
func lapse(p batch.Part) batch.Part {
	p.Lapses++
	p.Repeats, p.Begun = p.Repeats+p.Begun, 0
	return p
}

// takeBack takes a strike back that tok wrote: its claim comes to another end
// than death.
func (s *Claims) takeBack(row string, p batch.Part, tok lease.Token) batch.Part {
	if s.rules.own(row+".strike", !p.Suspect.None() && s.rules.must(row+".strike.by", p.Suspect.By == tok)) {
		p.Suspect = p.Suspect.TakenBack()
	}
	return p
}

// owned runs one write by a part's owner. decide gets the part and whether
// `state=leased AND owner=token` (the row's clauses) holds, and gives the part
// as it shall be and whether to write it; neither a write nor an error is a
// recognised lost answer.
func (s *Claims) owned(ctx context.Context, method, row string, c batch.Claim, decide func(batch.Part, bool) (batch.Part, bool, error)) error {
	return effect(ctx, s.faults, "Claims."+method, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.part(c.PartKey)
		if err != nil {
			return err
		}
		held := s.rules.must(row+".leased", p.State == batch.Leased) &&
			s.rules.must(row+".owner", p.Owner == c.Token)
		p, write, err := decide(p, held)
		if err != nil {
			return fmt.Errorf("%s of part %d of %s: %w", method, c.N, c.Batch, err)
		}
		if write {
			s.writePart(p)
		}
		return nil
	})
}
