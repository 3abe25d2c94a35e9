package bench

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/batch"
	"holdfast/internal/cost"
	"holdfast/internal/memory"
)

// ledger counts what the calls on in-process ports would be billed for: table
// units by the sizes of the items that the real adapter would store, the rest by
// the request. It knows one batch.
type ledger struct {
	stores *memory.Memory // as seen by nobody: no faults, not counted
	tenant string
	batch  string

	mu       sync.Mutex
	usage    cost.Usage
	base     map[int64]float64     // write units by second, of the batch's own partition
	shards   [16]map[int64]float64 // of the due index
	ops      map[string]int
	unpriced string // the first operation that it has no price for
}

func newLedger(m *memory.Memory, tenant, id string) *ledger {
	l := &ledger{stores: m, tenant: tenant, batch: id, usage: cost.Usage{}, base: map[int64]float64{}, ops: map[string]int{}}
	for i := range l.shards {
		l.shards[i] = map[int64]float64{}
	}
	return l
}

// watch is the hook that counts every call.
func (l *ledger) watch(ctx context.Context, p memory.Point) error {
	if p.Op == "Objects.Read" {
		return nil // within the request that opened it
	}
	l.mu.Lock()
	l.ops[p.Op]++
	l.mu.Unlock()
	switch p.Op {
	case "Claims.Claim", "Claims.Heartbeat", "Claims.Checkpoint", "Claims.Finish", "Claims.HandOver", "Claims.Fail", "Parts.Insert":
		// Counted by claims and parts below, who know the item.
	case "Batches.Get":
		l.meta(ctx, false)
	case "Batches.Start", "Endings.End", "Endings.Finalize", "Endings.Hold", "Endings.Advance", "Endings.Close":
		l.meta(ctx, true)
	case "Parts.All":
		size := 0
		for part, err := range l.stores.Table.Parts.All(context.WithoutCancel(ctx), l.tenant, l.batch) {
			if err != nil {
				return err
			}
			item, err := dynamo.PartItem(part)
			if err != nil {
				return err
			}
			size += item.Bytes()
		}
		l.add(cost.TableReads, dynamo.ReadUnits(size, true))
	case "Events.Record": // an item of less than 1 KB, in no index
		l.wrote(batch.PartKey{Tenant: l.tenant, Batch: l.batch, N: -1}, dynamo.Units{Table: 1})
	case "Files.Put": // the item and an entry of each index
		l.add(cost.TableWrites, 3)
	case "Files.Get":
		l.add(cost.TableReads, 1)
	case "Objects.Put", "Uploads.Begin", "Uploads.PutPiece", "Uploads.Complete", "Uploads.Pieces":
		l.add(cost.ObjectPuts, 1)
	case "Objects.Open", "Uploads.Stat":
		l.add(cost.ObjectGets, 1)
	case "Queue.Receive", "Queue.Hide", "Queue.Delete", "Queue.Send":
		l.add(cost.QueueRequests, 1)
	case "Objects.Delete", "Uploads.Abort", "Workflow.Report": // free
	default:
		l.mu.Lock()
		l.unpriced = p.Op
		l.mu.Unlock()
	}
	return nil
}

func (l *ledger) add(k cost.Kind, n float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usage.Add(k, n)
}

// meta counts a read or a write of the batch's own item. A write keeps its place
// in the index by tenant, which holds the whole item.
func (l *ledger) meta(ctx context.Context, write bool) {
	b, err := l.stores.Table.Batches.Get(context.WithoutCancel(ctx), l.tenant, l.batch)
	if err != nil {
		return
	}
	item, err := dynamo.BatchItem(b)
	if err != nil {
		return
	}
	if !write {
		l.add(cost.TableReads, dynamo.ReadUnits(item.Bytes(), true))
		return
	}
	before := b
	before.Ver--
	was, err := dynamo.BatchItem(before)
	if err != nil {
		return
	}
	l.wrote(batch.PartKey{Tenant: l.tenant, Batch: l.batch, N: -1}, dynamo.WriteUnits(was, item))
}

// wrote counts a write where and when it was.
func (l *ledger) wrote(k batch.PartKey, u dynamo.Units) {
	second := time.Now().Unix()
	h := fnv.New32a()
	fmt.Fprint(h, k.Batch, k.N)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usage.Add(cost.TableWrites, u.Total())
	l.base[second] += u.Table
	l.shards[h.Sum32()%16][second] += u.Due
}

// series is what by holds for each second within [from, to).
func series(by map[int64]float64, from, to int64) []float64 {
	var all []float64
	for second := from; second < to; second++ {
		all = append(all, by[second])
	}
	return all
}

func total(all []float64) (sum float64) {
	for _, n := range all {
		sum += n
	}
	return sum
}

// part is the part as it now is; the zero Item where there is none.
func (l *ledger) part(k batch.PartKey) dynamo.Item {
	p, err := l.stores.Table.Parts.Get(context.Background(), k)
	if err != nil {
		return dynamo.Item{}
	}
	item, err := dynamo.PartItem(p)
	if err != nil {
		return dynamo.Item{}
	}
	return item
}

// around counts what f does to a part. A part has one owner at a time: nobody
// else writes it meanwhile.
func (l *ledger) around(k batch.PartKey, f func() error) error {
	before := l.part(k)
	err := f()
	l.wrote(k, dynamo.WriteUnits(before, l.part(k)))
	return err
}

// claims are batch.Claims that count.
type claims struct {
	batch.Claims
	l *ledger
}

func (c claims) Claim(ctx context.Context, k batch.Claim, token string, most int, until, now time.Time) (p batch.Part, err error) {
	err = c.l.around(k.PartKey, func() error { p, err = c.Claims.Claim(ctx, k, token, most, until, now); return err })
	return p, err
}

func (c claims) Heartbeat(ctx context.Context, k batch.Claim, begun int, until, now time.Time) error {
	return c.l.around(k.PartKey, func() error { return c.Claims.Heartbeat(ctx, k, begun, until, now) })
}

func (c claims) Checkpoint(ctx context.Context, k batch.Claim, s batch.Checkpoint, until, now time.Time) error {
	return c.l.around(k.PartKey, func() error { return c.Claims.Checkpoint(ctx, k, s, until, now) })
}

func (c claims) Finish(ctx context.Context, k batch.Claim, lines int, now time.Time) error {
	return c.l.around(k.PartKey, func() error { return c.Claims.Finish(ctx, k, lines, now) })
}

func (c claims) HandOver(ctx context.Context, k batch.Claim, attempts int, due, now time.Time) error {
	return c.l.around(k.PartKey, func() error { return c.Claims.HandOver(ctx, k, attempts, due, now) })
}

func (c claims) Fail(ctx context.Context, k batch.Claim, reason string, due, now time.Time) error {
	return c.l.around(k.PartKey, func() error { return c.Claims.Fail(ctx, k, reason, due, now) })
}

// parts are batch.Parts that count what is inserted.
type parts struct {
	batch.Parts
	l *ledger
}

func (p parts) Insert(ctx context.Context, all []batch.Part) error {
	if err := p.Parts.Insert(ctx, all); err != nil {
		return err
	}
	for _, part := range all {
		p.l.wrote(part.PartKey, dynamo.WriteUnits(dynamo.Item{}, p.l.part(part.PartKey)))
	}
	return nil
}
