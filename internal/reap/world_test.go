package reap_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

const acme = "acme"

// world is everything in process; a part of it is looked at by the tests that no
// fault can touch.
type world struct {
	t       *testing.T
	truth   *memory.Memory
	letters *memory.Queue
	faults  *memory.Faults
	o       reap.Options
	reaper  *reap.Reaper
	metrics map[batch.Metric]float64
	// submitter is in the place of Holdfast's own batches, unless it is nil.
	submitter bridge.Submitter
	n         int // batches so far
}

// in runs f in a bubble, where time is the test's.
func in(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, truth: memory.New(memory.Options{}), letters: memory.NewQueue(nil)}
		w.letters.Visibility(30 * time.Second)
		w.restart()
		f(w)
	})
}

// restart is a new process over what there is.
func (w *world) restart() *memory.Faults {
	w.t.Helper()
	w.faults = memory.NewFaults()
	w.metrics = map[batch.Metric]float64{}
	var add = make(chan struct{}, 1)
	add <- struct{}{}
	w.o.Observer = func(m batch.Metric, n float64) {
		<-add
		w.metrics[m] += n
		add <- struct{}{}
	}
	m := w.truth.With(w.faults)
	creator, err := batch.NewCreator(m.Table.Batches, m.Table.Files, m.Workflow, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	claims, err := bridge.New(m.Table.Bridge, cmp.Or[bridge.Submitter](w.submitter, batches.New(creator, m.Table.Batches, m.Table.Files, 30*24*time.Hour)), &bridge.Options{
		Stolen:  func() { w.o.Observer.Add(batch.MetricClaimSteals, 1) },
		Retaken: func() { w.o.Observer.Add(batch.MetricClaimRetries, 1) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := reap.New(reap.Ports{
		Batches: m.Table.Batches, Parts: m.Table.Parts, Reaps: m.Table.Reaps, Deaths: m.Table.Deaths, Seals: m.Table.Seals, Events: m.Table.Events,
		Queue: m.Queue, Workflow: m.Workflow, Ender: batch.NewEnder(m.Table.Batches, m.Table.Endings, m.Workflow), Letters: w.letters.With(w.faults),
		Claims: claims,
	}, &w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.reaper = r
	return w.faults
}

// round is one that nothing went wrong in.
func (w *world) round() reap.Report {
	w.t.Helper()
	rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
	if err != nil || rep.Failed > 0 || rep.More {
		w.t.Fatalf("round: %+v, %v", rep, err)
	}
	return rep
}

// did demands that a round does just that.
func (w *world) did(want reap.Report) {
	w.t.Helper()
	if got := w.round(); got != want {
		w.t.Errorf("the round did %+v\nwant %+v", got, want)
	}
}

// idle demands that a round finds nothing to do.
func (w *world) idle() {
	w.t.Helper()
	w.did(reap.Report{})
}

// after lets time pass.
func after(d time.Duration) { <-time.After(d) }

// batch is one of n parts that is in progress, its execution at it, and not due
// for a while.
func (w *world) batch(n int) batch.Batch {
	w.t.Helper()
	w.n++
	now := time.Now()
	b := batch.Batch{
		Tenant: acme, ID: fmt.Sprintf("batch_%018d", w.n), Status: batch.InProgress, Parts: n, Lines: int64(10 * n), Ver: 2,
		CreatedAt: now, InProgressAt: now, Deadline: now.Add(24 * time.Hour), Due: now.Add(10 * time.Minute),
	}
	b.Workflow = b.ID
	w.truth.Table.SeedBatch(b)
	w.start(b.ID, b)
	return b
}

func (w *world) start(name string, b batch.Batch) {
	w.t.Helper()
	if err := w.truth.Workflow.Start(context.WithoutCancel(w.t.Context()), name, b.Tenant, b.ID); err != nil {
		w.t.Fatal(err)
	}
}

// change seeds the batch anew.
func (w *world) change(b batch.Batch, f func(*batch.Batch)) batch.Batch {
	f(&b)
	w.truth.Table.SeedBatch(b)
	return b
}

// part seeds part n of b: pending, its message sent, unless f says otherwise.
func (w *world) part(b batch.Batch, n int, f func(*batch.Part)) batch.PartKey {
	p := batch.Part{
		PartKey: batch.PartKey{Tenant: b.Tenant, Batch: b.ID, N: n}, State: batch.Pending, Ver: 5, Lines: 10, FirstLine: int64(10 * n),
		DoneLines: batch.NewBitmap(10), TaskToken: fmt.Sprintf("token-%s-%d", b.ID, n), Due: time.Now().Add(2 * time.Hour),
	}
	if f != nil {
		f(&p)
	}
	w.truth.Table.SeedPart(p)
	return p.PartKey
}

// lapsed makes a part one whose worker went without a word a minute ago, on its
// attempts-th claim in a row.
func lapsed(attempts int) func(*batch.Part) {
	return func(p *batch.Part) {
		p.State, p.Owner, p.Attempts = batch.Leased, lease.NewToken(), attempts
		p.LeaseUntil = time.Now().Add(-time.Minute)
		p.Due = p.LeaseUntil
	}
}

func (w *world) look(k batch.PartKey) batch.Part {
	w.t.Helper()
	p, ok := w.truth.Table.Part(k)
	if !ok {
		w.t.Fatalf("no part %v", k)
	}
	return p
}

func (w *world) see(b batch.Batch) batch.Batch {
	w.t.Helper()
	now, ok := w.truth.Table.Batch(b.Tenant, b.ID)
	if !ok {
		w.t.Fatalf("no batch %s", b.ID)
	}
	return now
}

// messages is how many of the part's there are in the queue.
func (w *world) messages(k batch.PartKey) (n int) {
	for _, m := range w.truth.Queue.Messages() {
		if m.Key() == k {
			n++
		}
	}
	return n
}

// take receives and deletes all messages that are visible, as workers would.
func (w *world) take() (keys []batch.PartKey) {
	for {
		d, err := w.truth.Queue.Receive(w.t.Context())
		if err != nil {
			return keys
		}
		if err := w.truth.Queue.Delete(w.t.Context(), d); err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, d.Key())
	}
}

// events are the kinds of a batch's, in order.
func (w *world) events(b batch.Batch) (kinds []batch.EventKind) {
	for _, e := range w.truth.Table.EventsOf(b.Tenant, b.ID) {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func (w *world) told(b batch.Batch, kinds ...batch.EventKind) {
	w.t.Helper()
	if got := w.events(b); !slices.Equal(got, kinds) {
		w.t.Errorf("events %v, want %v", got, kinds)
	}
}

// executions are the names of those of a batch, in the order of their start.
func (w *world) executions(b batch.Batch) (names []string) {
	for _, e := range w.truth.Workflow.Executions() {
		if e.Batch == b.ID {
			names = append(names, e.Name)
		}
	}
	return names
}

func (w *world) runs(b batch.Batch, names ...string) {
	w.t.Helper()
	if got := w.executions(b); !slices.Equal(got, names) {
		w.t.Errorf("executions %v, want %v", got, names)
	}
}

// aside is a hook that does something beside the call.
func aside(do func()) memory.Hook {
	return func(context.Context, memory.Point) error { do(); return nil }
}
