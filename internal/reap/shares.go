package reap

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"holdfast/internal/batch"
)

const (
	// tenantShare is how many parts of one tenant a round deals with as it finds them:
	// a dozen small batches, and less than a second of its writes. The rest waits
	// until everything due was found.
	tenantShare = 500
	// mostWaiting is how many parts may wait: about 30 MB of rows. What is beyond is
	// the next round's.
	mostWaiting = 200_000
)

// shares are what of a round each tenant had, and what waits for its turn. The index is in the order of time, and one batch may have 100,000 rows
// there: without this nobody else's part would be looked at for minutes.
type shares struct {
	mu      sync.Mutex
	tenants map[string]int
	waiting map[viewKey][]batch.PartKey
	n       int // of them
}

func newShares() *shares {
	return &shares{tenants: map[string]int{}, waiting: map[viewKey][]batch.PartKey{}}
}

// take says which of these parts are to be dealt with now. The others wait, all of
// them unless full.
func (s *shares) take(keys []batch.PartKey) (now []batch.PartKey, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		of := viewKey{k.Tenant, k.Batch}
		switch {
		case s.tenants[k.Tenant] < tenantShare:
			s.tenants[k.Tenant]++
			now = append(now, k)
		case s.n < mostWaiting:
			s.waiting[of] = append(s.waiting[of], k)
			s.n++
		default:
			full = true
		}
	}
	return now, full
}

// lots are those that wait, a lot of a batch at a time: the tenants in turn, and
// each one's batches in turn.
func (s *shares) lots() [][]batch.PartKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []viewKey
	for of := range s.waiting {
		keys = append(keys, of)
	}
	slices.SortFunc(keys, func(a, b viewKey) int { return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.batch, b.batch)) })
	var tenants, batches [][][]batch.PartKey
	for i, of := range keys {
		batches = append(batches, slices.Collect(slices.Chunk(s.waiting[of], batch.MaxParts)))
		if i == len(keys)-1 || keys[i+1].tenant != of.tenant {
			tenants, batches = append(tenants, inTurn(batches)), nil
		}
	}
	return inTurn(tenants)
}

// inTurn is the first of each list, then the second of each, and so on.
func inTurn[T any](lists [][]T) (all []T) {
	for n := 0; ; n++ {
		before := len(all)
		for _, l := range lists {
			if n < len(l) {
				all = append(all, l[n])
			}
		}
		if len(all) == before {
			return all
		}
	}
}

// lotsAtOnce keeps every slot busy while some lots read or send, and few enough
// that all of them come to an end within the margin once time is up.
const lotsAtOnce = 8

// rest deals with the parts that had to wait.
func (o *round) rest(ctx context.Context) {
	var wg sync.WaitGroup
	lots := make(chan struct{}, lotsAtOnce)
	for _, some := range o.shares.lots() {
		lots <- struct{}{} // whoever has one comes to an end
		if o.timeUp() {
			break
		}
		wg.Go(func() {
			defer func() { <-lots }()
			o.lot(ctx, some)
			o.flush(ctx)
		})
	}
	wg.Wait()
}
