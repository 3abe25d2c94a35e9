package gateway

import (
	"context"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

// look reads for one request what it needs of the table, in one call: the batch of a
// replay, the records of the tenant it acts for and of its key's, and the key, as far
// as they aren't known. What was read beside a key serves that request alone until the
// key is good: somebody whose key is wrong fills no memory.
//
// A nil look is that of a request which names no batch.
type look struct {
	replays Replays
	tenants Tenants
	of      viewKey
	batch   bool // no view of it is kept
	owner   bool // the record of its tenant isn't known
	now     func() time.Time

	began   time.Time // of the call; zero: there was none
	seen    batch.Batch
	records map[string]access.Tenant
}

// lookOf is the look of a request that asserts so much.
func (g *Gateway) lookOf(a access.Asserted, now time.Time) *look {
	tenant, id, ok := a.Run()
	if !ok {
		return nil
	}
	l := &look{replays: g.ports.Replays, tenants: g.ports.Tenants, of: viewKey{tenant, id}, now: g.now}
	_, kept := g.views.kept(l.of, now)
	l.batch, l.owner = !kept, !l.tenants.Fresh(tenant, now)
	return l
}

// pairs is the look for who reads the key; nil where the key is all there is to read.
func (l *look) pairs() access.Pairs {
	if l == nil || !l.batch && !l.owner {
		return nil
	}
	return l
}

// Pair implements access.Pairs.
func (l *look) Pair(ctx context.Context, hash, tenant string) (access.Key, access.Tenant, error) {
	var more []string
	if tenant != "" {
		more = append(more, tenant)
	}
	k, err := l.read(ctx, hash, more)
	return k, l.records[tenant], err
}

// read reads all that is missing, and the key and the records given.
func (l *look) read(ctx context.Context, hash string, records []string) (access.Key, error) {
	if l.owner && (len(records) == 0 || records[0] != l.of.tenant) {
		records = append(records, l.of.tenant)
	}
	began := l.now()
	k, b, found, err := l.replays.Replay(ctx, hash, l.of.tenant, l.of.batch, records...)
	if err != nil {
		return access.Key{}, err
	}
	l.began, l.seen, l.records = began, b, found
	return k, nil
}

// settle reads the record of the key's tenant where it isn't known, together with what
// else the replay will ask for; or tells what of it was read with the key.
func (l *look) settle(ctx context.Context, tenant string, now time.Time) error {
	if l != nil && l.of.tenant == tenant {
		l.teach(now)
	}
	if l == nil || !l.batch && !l.owner || !l.began.IsZero() || l.tenants.Fresh(tenant, now) {
		return nil
	}
	if _, err := l.read(ctx, "", []string{tenant}); err != nil {
		return err
	}
	l.tenants.Learn(tenant, l.records[tenant], now)
	return nil
}

// view is what was seen of the batch; false where nothing was, or so long ago that a
// look would have been given up.
func (l *look) view(now time.Time) (view, bool) {
	if l == nil || l.began.IsZero() || !within(lookTime, l.began, now) {
		return view{}, false
	}
	return viewOf(l.seen, l.seen.ID != "", l.began), true
}

// teach tells what was read of the tenant for whom the request may act.
func (l *look) teach(now time.Time) {
	if l != nil && l.owner && !l.began.IsZero() {
		l.tenants.Learn(l.of.tenant, l.records[l.of.tenant], now)
	}
}
