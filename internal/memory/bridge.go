package memory

import (
	"context"
	"fmt"
	"maps"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// Bridge is bridge.Store over a Table.
type Bridge struct{ port }

var _ bridge.Store = (*Bridge)(nil)

// Claim is bridge.Store.Claim (C1).
func (s *Bridge) Claim(ctx context.Context, r bridge.Row) error {
	return effect(ctx, s.faults, "Bridge.Claim", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		found, there := s.bridges[r.Key]
		if s.rules.must("C1.absent", !there) {
			s.bridges[r.Key] = cloneRow(r)
			return nil
		}
		reserved := s.rules.must("C1.own.reserved", found.State == bridge.Reserved)
		if s.rules.own("C1.own", reserved && s.rules.must("C1.own.token", found.Token == r.Token)) {
			return nil
		}
		return fmt.Errorf("claim: %w", &bridge.TakenError{Row: cloneRow(found)})
	})
}

// Steal is bridge.Store.Steal (C2).
func (s *Bridge) Steal(ctx context.Context, k bridge.Key, seen int64, cut time.Time, tok lease.Token, due, now time.Time) (bridge.Row, error) {
	return call(ctx, s.faults, "Bridge.Steal", func() (bridge.Row, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r, there := s.bridges[k]
		switch {
		case !there:
		case s.rules.must("C2.reserved", r.State == bridge.Reserved) && s.rules.must("C2.seen", r.Ver == seen) &&
			s.rules.must("C2.stale", r.ClaimedAt.Before(millis(cut))):
			r.State, r.Token, r.ClaimedAt, r.Due = bridge.Reserved, tok, now, due
			r.GivenBack, r.ExpiresAt = false, time.Time{}
			return s.writeRow(r), nil
		default:
			reserved := s.rules.must("C2.own.reserved", r.State == bridge.Reserved)
			if s.rules.own("C2.own", reserved && s.rules.must("C2.own.token", r.Token == tok)) {
				return cloneRow(r), nil
			}
		}
		return bridge.Row{}, fmt.Errorf("steal: %w", lease.ErrLost)
	})
}

// Confirm is bridge.Store.Confirm (C3).
func (s *Bridge) Confirm(ctx context.Context, k bridge.Key, tok lease.Token, job string, expires time.Time) error {
	return effect(ctx, s.faults, "Bridge.Confirm", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		r, there := s.bridges[k]
		switch {
		case !there:
		case s.rules.must("C3.reserved", r.State == bridge.Reserved) && s.rules.must("C3.token", r.Token == tok):
			r.State, r.Job, r.Due, r.ExpiresAt = bridge.Confirmed, job, time.Time{}, expires
			s.writeRow(r)
			return nil
		default:
			// Reserved under this token it would have been confirmed just now.
			if s.rules.own("C3.own", s.rules.must("C3.own.token", r.Token == tok)) {
				return nil
			}
		}
		return fmt.Errorf("confirm: %w", lease.ErrLost)
	})
}

// GiveBack is bridge.Store.GiveBack (C3b).
func (s *Bridge) GiveBack(ctx context.Context, k bridge.Key, tok lease.Token, claimed time.Time) error {
	return effect(ctx, s.faults, "Bridge.GiveBack", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		r, there := s.bridges[k]
		if there && s.rules.must("C3b.reserved", r.State == bridge.Reserved) && s.rules.must("C3b.token", r.Token == tok) {
			r.ClaimedAt, r.GivenBack = claimed, true
			s.writeRow(r)
			return nil
		}
		return fmt.Errorf("give back: %w", lease.ErrLost)
	})
}

// Release is bridge.Store.Release (C4).
func (s *Bridge) Release(ctx context.Context, k bridge.Key, tok lease.Token) error {
	return effect(ctx, s.faults, "Bridge.Release", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		r, there := s.bridges[k]
		if !there {
			return nil
		}
		if s.rules.must("C4.reserved", r.State == bridge.Reserved) && s.rules.must("C4.token", r.Token == tok) {
			delete(s.bridges, k)
			return nil
		}
		return fmt.Errorf("release: %w", lease.ErrLost)
	})
}

// Row is bridge.Store.Row.
func (s *Bridge) Row(ctx context.Context, tenant, id string) (bridge.Row, error) {
	return call(ctx, s.faults, "Bridge.Row", func() (bridge.Row, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for k, r := range s.bridges {
			if k.Tenant == tenant && k.Name() == id {
				return cloneRow(r), nil
			}
		}
		return bridge.Row{}, fmt.Errorf("row: %w", bridge.ErrNotFound)
	})
}

// Row is a look at one row that no fault can touch.
func (t *Table) Row(tenant, correlationID string) (bridge.Row, bool) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	r, ok := t.items.bridges[bridge.Key{Tenant: tenant, CorrelationID: correlationID}]
	return cloneRow(r), ok
}

func (i *items) writeRow(r bridge.Row) bridge.Row {
	r = cloneRow(r)
	r.Ver++
	i.bridges[r.Key] = r
	return cloneRow(r)
}

func cloneRow(r bridge.Row) bridge.Row {
	r.Request.Metadata = maps.Clone(r.Request.Metadata)
	if o := r.Request.Object; o != nil {
		stored := *o
		stored.StoredAt = millis(stored.StoredAt)
		r.Request.Object = &stored
	}
	r.ClaimedAt, r.Due, r.ExpiresAt = millis(r.ClaimedAt), millis(r.Due), millis(r.ExpiresAt)
	return r
}

// Sends is bridge.Sends over a Table.
type Sends struct{ port }

var _ bridge.Sends = (*Sends)(nil)

// Last is bridge.Sends.Last.
func (s *Sends) Last(ctx context.Context, tenant, hash string) (bridge.Send, error) {
	return call(ctx, s.faults, "Sends.Last", func() (bridge.Send, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		found, ok := s.sends[name{tenant, hash}]
		if !ok {
			return bridge.Send{}, fmt.Errorf("last send: %w", bridge.ErrNotFound)
		}
		return found, nil
	})
}

// Record is bridge.Sends.Record.
func (s *Sends) Record(ctx context.Context, send bridge.Send, seen int64) error {
	return effect(ctx, s.faults, "Sends.Record", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		found, there := s.sends[name{send.Tenant, send.Hash}]
		holds := s.rules.must("sends.absent", !there)
		if seen != 0 {
			holds = s.rules.must("sends.seen", there && found.Ver == seen)
		}
		if holds {
			send.Ver = seen + 1
			send.At, send.ExpiresAt = millis(send.At), millis(send.ExpiresAt)
			s.sends[name{send.Tenant, send.Hash}] = send
			return nil
		}
		if s.rules.own("sends.own", s.rules.must("sends.own.id", found.ID == send.ID)) {
			return nil
		}
		return fmt.Errorf("record send: %w", &bridge.ChangedError{Found: found})
	})
}
