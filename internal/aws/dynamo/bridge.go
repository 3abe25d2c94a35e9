package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

var (
	_ bridge.Store = (*Bridge)(nil)
	_ bridge.Sends = (*Sends)(nil)
)

// Bridge is bridge.Store. Errors name no correlation id: it may hold anything.
type Bridge struct{ t *table }

// Claim implements bridge.Store (C1).
func (s *Bridge) Claim(ctx context.Context, r bridge.Row) error {
	out, err := s.t.insert(ctx, newRowItem(r), c1Claim())
	if err == nil && out.refused {
		var found rowItem
		found, err = decode[rowItem](out.item)
		if err == nil && !(found.State == bridge.Reserved && found.Token == r.Token) {
			err = &bridge.TakenError{Row: found.row()}
		}
	}
	if err != nil {
		return bridgeErr("claim", r.Key, err)
	}
	return nil
}

// Steal implements bridge.Store (C2).
func (s *Bridge) Steal(ctx context.Context, k bridge.Key, seen int64, cut time.Time, tok lease.Token, due, now time.Time) (bridge.Row, error) {
	at := bridgeKey(k)
	r, err := s.write(ctx, at, c2Steal(at, seen, cut, tok, due, now), bridge.Reserved, tok)
	if err != nil {
		return bridge.Row{}, bridgeErr("steal", k, err)
	}
	return r, nil
}

// Confirm implements bridge.Store (C3).
func (s *Bridge) Confirm(ctx context.Context, k bridge.Key, tok lease.Token, job string, expires time.Time) error {
	if _, err := s.write(ctx, bridgeKey(k), c3Confirm(tok, job, expires), bridge.Confirmed, tok); err != nil {
		return bridgeErr("confirm", k, err)
	}
	return nil
}

// GiveBack implements bridge.Store (C3b). Its own lost write it makes again: the
// condition holds still.
func (s *Bridge) GiveBack(ctx context.Context, k bridge.Key, tok lease.Token, claimed time.Time) error {
	out, err := s.t.update(ctx, bridgeKey(k), c3bGiveBack(tok, claimed), false)
	if err == nil && out.refused {
		err = lease.ErrLost
		if out.item != nil {
			if _, unread := decode[rowItem](out.item); unread != nil {
				err = unread
			}
		}
	}
	if err != nil {
		return bridgeErr("give back", k, err)
	}
	return nil
}

// write makes one update. A row that tok holds in the state which the write leads
// to is the caller's own, whose answer was lost; any other is lost to it.
func (s *Bridge) write(ctx context.Context, k key, w write, to bridge.State, tok lease.Token) (bridge.Row, error) {
	out, err := s.t.update(ctx, k, w, true)
	if err != nil {
		return bridge.Row{}, err
	}
	if out.item == nil {
		return bridge.Row{}, lease.ErrLost
	}
	i, err := decode[rowItem](out.item)
	if err == nil && out.refused && !(i.State == to && i.Token == tok) {
		err = lease.ErrLost
	}
	return i.row(), err
}

// Release implements bridge.Store (C4).
func (s *Bridge) Release(ctx context.Context, k bridge.Key, tok lease.Token) error {
	out, err := s.t.remove(ctx, bridgeKey(k), c4Release(tok))
	if err == nil && out.refused && out.item != nil {
		if _, err = decode[rowItem](out.item); err == nil {
			err = lease.ErrLost
		}
	}
	if err != nil {
		return bridgeErr("release", k, err)
	}
	return nil
}

// Row implements bridge.Store.
func (s *Bridge) Row(ctx context.Context, tenant, name string) (bridge.Row, error) {
	a, err := s.t.get(ctx, bridgeNamed(tenant, name))
	if errors.Is(err, batch.ErrNotFound) {
		err = bridge.ErrNotFound
	}
	var i rowItem
	if err == nil {
		i, err = decode[rowItem](a)
	}
	if err != nil {
		return bridge.Row{}, fmt.Errorf("get %s: %w", bridgeNamed(tenant, name).pk, err)
	}
	return i.row(), nil
}

// bridgeErr names the row by the hash in its key.
func bridgeErr(op string, k bridge.Key, err error) error {
	return fmt.Errorf("%s %s: %w", op, bridgeKey(k).pk, err)
}

// Sends is bridge.Sends.
type Sends struct{ t *table }

// Last implements bridge.Sends.
func (s *Sends) Last(ctx context.Context, tenant, hash string) (bridge.Send, error) {
	a, err := s.t.get(ctx, sendKey(tenant, hash))
	if errors.Is(err, batch.ErrNotFound) {
		err = bridge.ErrNotFound
	}
	if err != nil {
		return bridge.Send{}, sendErr("get", tenant, hash, err)
	}
	i, err := decode[sendItem](a)
	if err != nil {
		return bridge.Send{}, sendErr("get", tenant, hash, err)
	}
	return i.send(), nil
}

// Record implements bridge.Sends.
func (s *Sends) Record(ctx context.Context, send bridge.Send, seen int64) error {
	var (
		out outcome
		err error
	)
	if send.Ver = seen + 1; seen == 0 {
		out, err = s.t.insert(ctx, newSendItem(send), insertSend())
	} else {
		out, err = s.t.update(ctx, sendKey(send.Tenant, send.Hash), replaceSend(newSendItem(send), seen), false)
	}
	if err == nil && out.refused {
		var found bridge.Send
		if out.item != nil {
			var i sendItem
			i, err = decode[sendItem](out.item)
			found = i.send()
		}
		if err == nil && found.ID != send.ID {
			err = &bridge.ChangedError{Found: found}
		}
	}
	if err != nil {
		return sendErr("record", send.Tenant, send.Hash, err)
	}
	return nil
}

func sendErr(op, tenant, hash string, err error) error {
	return fmt.Errorf("%s send %s of %s: %w", op, hash, tenant, err)
}
