package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/cost"
	"holdfast/internal/memory"
)

// Metered is a batch and the workers that run it, in virtual time, with everything
// counted that AWS would bill.
type Metered struct {
	Workers     int
	Lines       int
	PartLines   int                       // P
	Checkpoint  int                       // C
	Concurrency int                       // K
	Memory      float64                   // of the work function, MB
	Latency     func(i int) time.Duration // of line i at the model
	// Spread is the time over which the workers begin, at random: functions are not
	// started all at once.
	Spread time.Duration
	// Call is a latency of every call of table, queue and object store.
	Call time.Duration
}

// Spent is what a Metered's batch came to.
type Spent struct {
	Usage cost.Usage
	Work  cost.Work
	// Runs is how many invocations of the work function there were.
	Runs int
	// Elapsed is from the first worker's start to the last part's end.
	Elapsed time.Duration
	// Writes are units by second in the batch's own partition, and DueWrites in the
	// hottest of the due index's, while all workers had work: from Spread on until
	// the queue was empty.
	Writes, DueWrites []float64
}

// Overlay is so many copies of a run's Writes on top of each other, each begun
// at another second at random: workers share nothing but the queue, so that
// twenty times fifty of them write as a thousand do. It returns the most in one
// second and the mean.
func Overlay(writes []float64, copies int) (peak, mean float64) {
	if len(writes) == 0 {
		return 0, 0
	}
	rng := rand.New(rand.NewPCG(2, 2))
	sum := make([]float64, len(writes))
	for range copies {
		for at, offset := 0, rng.IntN(len(writes)); at < len(writes); at++ {
			sum[at] += writes[(at+offset)%len(writes)]
		}
	}
	for _, units := range sum {
		peak = max(peak, units)
		mean += units / float64(len(sum))
	}
	return peak, mean
}

const (
	// runLife is a work function's timeout.
	runLife = 900 * time.Second

	// tokenBytes is the length of a task token. Step Functions documents 2,048 at
	// most; those that people have published have 696.
	tokenBytes = 700

	// workflowBytes is what the workflow logs of a part: eight events of its child
	// execution, without data.
	workflowBytes = 8 * 450

	// planStates are those of an execution outside of its parts: Only to finish?,
	// Plan, Planned?, Parts (or Many parts), Finish.
	planStates = 5

	// widest is the largest batch whose parts are iterations of an inline Map.
	widest = 40

	// vCPU is what 1,024 MB are of a processor.
	vCPU = 1024.0 / 1769
)

// Run plans, runs and finishes the batch. It wants to be in a bubble: see Bubble.
func (f Metered) Run() (Spent, error) {
	m := memory.New(memory.Options{})
	l := newLedger(m, tenant, costBatch)
	input, err := f.input(m)
	if err != nil {
		return Spent{}, err
	}
	faults := memory.NewFaults()
	faults.After("", 0, l.watch)
	v := m.With(faults)
	logged := &atomic.Int64{}
	log := slog.New(slog.NewJSONHandler(counter{logged}, nil))

	n, err := f.plan(m, v, l, input, log)
	if err != nil {
		return Spent{}, fmt.Errorf("plan: %w", err)
	}
	spent := Spent{Work: cost.Work{Lines: int64(f.Lines), Parts: n, Slots: f.Concurrency, Memory: f.Memory,
		CheckpointLines: f.Checkpoint, Wide: n > widest}}
	if err := f.work(m, l, n, log, &spent); err != nil {
		return Spent{}, fmt.Errorf("run: %w", err)
	}
	if err := f.finish(m, v, l, log); err != nil {
		return Spent{}, fmt.Errorf("finish: %w", err)
	}
	if l.unpriced != "" {
		return Spent{}, fmt.Errorf("nobody knows what %s costs", l.unpriced)
	}
	spent.Usage = l.usage
	spent.Usage.Add(cost.Transitions, planStates+float64(n))
	if spent.Work.Wide {
		spent.Usage.Add(cost.Transitions, float64(n)) // each child execution is one
	}
	spent.Usage.Add(cost.QueueRequests, float64(n)+2*float64(spent.Runs)) // the workflow's sends, the poller's receive and delete
	spent.Usage.Add(cost.Invocations, float64(spent.Runs)+2)
	const usageLine, platform = 900, 500
	spent.Usage.Add(cost.LogBytes, (float64(logged.Load())+float64(n)*workflowBytes+float64(spent.Runs+2)*(usageLine+platform))/(1<<30))
	return spent, nil
}

// costBatch is an id of the usual length: it is in every key.
const costBatch = "batch_4f2a9c1e7b3d5f60a1b2c3d4e5"

func (f Metered) input(m *memory.Memory) (batch.Object, error) {
	var text strings.Builder
	for i := range f.Lines {
		fmt.Fprintf(&text, request, i, i)
	}
	return m.Objects.Put(context.Background(), batch.Object{Bucket: "inputs", Key: "input"}, []byte(text.String()))
}

// plan also says what the function would be billed for: its processor's time at
// its share of one, and its calls one after the other.
func (f Metered) plan(m, v *memory.Memory, l *ledger, input batch.Object, log *slog.Logger) (n int, err error) {
	m.Table.SeedBatch(batch.Batch{Tenant: tenant, ID: costBatch, Status: batch.Validating, Submitter: "ann@example.com",
		Endpoint: "/v1/chat/completions", Window: "24h", Input: batch.Input{FileID: "file-1", Object: input},
		CreatedAt: time.Now(), Deadline: time.Now().Add(24 * time.Hour)})
	p, err := batch.NewPlanner(v.Table.Batches, parts{v.Table.Parts, l}, v.Objects, "results",
		&batch.PlannerOptions{Lines: 10_000_000, Bytes: 10e9, PartLines: f.PartLines, Log: log})
	if err != nil {
		return 0, err
	}
	var plan batch.Plan
	used, err := cpuOf(func() error {
		plan, err = p.Plan(context.Background(), tenant, costBatch, time.Now())
		return err
	})
	if err != nil {
		return 0, err
	}
	if plan.Status != batch.Planned {
		return 0, fmt.Errorf("planning came to %s", plan.Status)
	}
	b, err := m.Table.Batches.Get(context.Background(), tenant, costBatch)
	if err != nil {
		return 0, err
	}
	const insertsAtOnce = 16
	l.function(used, time.Duration(b.Parts/insertsAtOnce+10)*f.Call)
	return b.Parts, nil
}

// function bills plan or finish.
func (l *ledger) function(used, waited time.Duration) {
	l.add(cost.OtherCompute, cost.GBSeconds(1024, float64(used.Milliseconds())/vCPU+float64(waited.Milliseconds())))
}

func (f Metered) work(m *memory.Memory, l *ledger, n int, log *slog.Logger, spent *Spent) error {
	ctx := context.Background()
	token := strings.Repeat("k", tokenBytes)
	for i := range n {
		if err := m.Queue.Send(ctx, batch.Message{V: 1, Tenant: tenant, Batch: costBatch, Part: i, TaskToken: token}, 0); err != nil {
			return err
		}
	}
	faults := memory.NewFaults()
	faults.Before("", 0, func(ctx context.Context, p memory.Point) error {
		if p.Op == "Objects.Read" {
			return nil
		}
		return memory.Wait(ctx, f.Call)
	})
	faults.After("", 0, l.watch)
	v := m.With(faults)
	var waited atomic.Int64
	model := modelFunc(func(ctx context.Context, c batch.Call) (batch.Reply, error) {
		latency := f.Latency(int(c.Line))
		waited.Add(latency.Milliseconds())
		return batch.Reply{Status: 200, RequestID: "req_1", Body: []byte(reply)}, memory.Wait(ctx, latency)
	})
	runner, err := batch.NewRunner(batch.RunnerPorts{
		Batches: v.Table.Batches, Parts: v.Table.Parts, Claims: claims{v.Table.Claims, l}, Steals: v.Table.Claims, Deaths: v.Table.Deaths, Events: v.Table.Events,
		Objects: v.Objects, Queue: v.Queue, Workflow: v.Workflow,
		Model: model, Log: log, Results: "results",
	}, &batch.RunnerOptions{Concurrency: f.Concurrency, Ceiling: f.Concurrency, CheckpointLines: f.Checkpoint})
	if err != nil {
		return err
	}
	var (
		mu      sync.Mutex
		billed  time.Duration
		empty   time.Time
		failure error
		all     sync.WaitGroup
	)
	begun := time.Now()
	rng := rand.New(rand.NewPCG(1, 1))
	for range f.Workers {
		start := time.Duration(rng.Float64() * float64(f.Spread))
		all.Go(func() {
			_ = memory.Wait(ctx, start)
			for {
				d, err := m.Queue.Receive(ctx) // the poller's
				if err != nil {
					mu.Lock()
					if empty.IsZero() {
						empty = time.Now()
					}
					if !errors.Is(err, batch.ErrEmpty) {
						failure = err
					}
					mu.Unlock()
					return
				}
				at := time.Now()
				out := runner.Run(ctx, d, at.Add(runLife))
				mu.Lock()
				spent.Runs++
				billed += time.Since(at)
				if !out.Ack && out.Why != "abandoned" {
					failure = fmt.Errorf("a part ended as %s", out.Why)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	spent.Elapsed = time.Since(begun)
	l.add(cost.Compute, cost.GBSeconds(f.Memory, float64(billed.Milliseconds())))
	spent.Work.Waiting = float64(waited.Load())
	from, to := begun.Add(f.Spread).Unix()+1, empty.Unix()
	spent.Writes = series(l.base, from, to)
	for _, shard := range l.shards {
		if s := series(shard, from, to); total(s) > total(spent.DueWrites) {
			spent.DueWrites = s
		}
	}
	return failure
}

func (f Metered) finish(m, v *memory.Memory, l *ledger, log *slog.Logger) error {
	finisher, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: v.Table.Batches, Endings: v.Table.Endings, Parts: v.Table.Parts, Seals: v.Table.Seals, Files: v.Table.Files,
		Objects: v.Objects, Uploads: v.Objects,
	}, "results", &batch.FinisherOptions{Log: log})
	if err != nil {
		return err
	}
	l.mu.Lock()
	before := l.calls()
	l.mu.Unlock()
	var b batch.Batch
	used, err := cpuOf(func() error {
		b, err = finisher.Finish(context.Background(), tenant, costBatch, time.Now())
		return err
	})
	if err != nil {
		return err
	}
	if b.Status != batch.Completed || b.Counts.Completed != int64(f.Lines) {
		return fmt.Errorf("the batch ended as %s with %+v", b.Status, b.Counts)
	}
	l.function(used, time.Duration(l.calls()-before)*f.Call)
	return nil
}

func (l *ledger) calls() (n int) {
	for _, k := range l.ops {
		n += k
	}
	return n
}

// counter is a writer that keeps only how much was written.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
