package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
	"holdfast/internal/reap"
)

// Whose batch it is, and where things lie.
const (
	tenant   = "acme"
	batchID  = "batch_simulated_00000001"
	endpoint = "/v1/chat/completions"
	inputs   = "inputs"
	results  = "results"
	fileID   = "file-input"
)

// The installation's settings: the deployed ones in small, with the same relations.
const (
	checkpoint  = 5                // C
	ceiling     = 6                // K
	leaseTime   = 24 * time.Second // of parts and of finishers
	margin      = 5 * time.Second  // for skew
	lookEvery   = 5 * time.Second
	lineTimeout = 6 * time.Second
	maxAttempts = 3
	overdue     = 5 * time.Minute
	resend      = 2 * time.Minute
	lookOpen    = 2 * time.Minute // the reaper's at an open batch
	deadGrace   = 10 * time.Minute
	drain       = 20 * time.Second
)

// Window is how many lines of a part a death repeats at most: C + K.
const Window = checkpoint + ceiling

// World is one scenario under way.
type World struct {
	Scenario
	// OnStart is told of every process as it starts: the number-th of its kind, from
	// 1. It may give it faults of its own.
	OnStart func(kind string, number int, p *Process)
	// Operator is run once the batch is created: what people do. Nil: what the
	// scenario says.
	Operator func()
	// Life is how long each run of a worker may take; 0: 25 to 85 s.
	Life time.Duration
	// BadLine makes the last line of the input one that can't be.
	BadLine bool
	// Disturbed says that there is more trouble than the scenario knows of.
	Disturbed bool

	dice   dice
	stores *memory.Memory
	ctx    context.Context
	cancel context.CancelFunc
	began  time.Time
	over   chan struct{} // closed once no new process is to start
	wg     sync.WaitGroup
	bodies []string

	mu        sync.Mutex // held over every write and its judgement
	processes map[string][]*process
	trace     []step
	faults    []string // violations
	seen      history
}

// Process is a process of the world, to whoever gives it faults.
type Process = process

// Faults are the process's own.
func (p *process) Faults() *memory.Faults { return p.faults }

// NewWorld prepares a scenario; drop is the clause that its stores ignore, or "".
func NewWorld(ctx context.Context, s Scenario, drop string) *World {
	w := &World{
		Scenario: s, dice: dice(s.Seed), stores: memory.New(memory.Options{Drop: drop}), began: time.Now(), over: make(chan struct{}),
		processes: map[string][]*process{}, seen: newHistory(),
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.stores.Queue.Visibility(90 * time.Second)
	return w
}

// Calm reports whether faults have stopped.
func (w *World) Calm() bool { return time.Since(w.began) >= w.Bad }

// Run lives the scenario through and returns when nothing of it moves any more. It
// must be called in a synctest bubble.
func (w *World) Run() Report {
	w.upload()
	w.spawn(w.machine)
	for i := range w.Workers {
		w.spawn(func() { w.worker(i) })
	}
	for i := range w.Reapers {
		w.spawn(func() { w.reaper(i) })
	}
	w.create()
	w.spawn(w.operate)
	limit := w.Bad + w.Patience()
	for !w.terminal() && time.Since(w.began) < limit && !w.failed() {
		w.wait(time.Second)
	}
	took := time.Since(w.began)
	if !w.terminal() && !w.failed() {
		w.violated("the batch has come to no end %v after faults stopped: %s", w.Patience(), w.standing())
	}
	if !w.failed() {
		// Whoever is still about may do no harm any more.
		w.wait(2 * time.Minute)
	}
	close(w.over)
	w.cancel()
	w.wg.Wait()
	w.verdict()
	return w.report(took)
}

func (w *World) spawn(do func()) { w.wg.Go(do) }

// wait lets time pass; false: the world is over.
func (w *World) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.over:
		return false
	}
}

func (w *World) ended() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

func (w *World) terminal() bool {
	b, ok := w.stores.Table.Batch(tenant, batchID)
	return ok && b.Status.Terminal()
}

// upload stores the input.
func (w *World) upload() {
	var input strings.Builder
	for i := range w.Lines {
		w.bodies = append(w.bodies, fmt.Sprintf(`{"model":"m-%d", "n":%d}`, i%2, i))
		fmt.Fprintf(&input, `{"custom_id":"id-%d","method":"POST","url":%q,"body":%s}`+"\n", i, endpoint, w.bodies[i])
	}
	if w.BadLine {
		input.WriteString("{}\n")
	}
	o, err := w.stores.Objects.Put(w.ctx, batch.Object{Bucket: inputs, Key: "files/" + fileID}, []byte(input.String()))
	if err != nil {
		panic(err)
	}
	err = w.stores.Table.Files.Put(w.ctx, batch.File{
		Tenant: tenant, ID: fileID, Purpose: openai.PurposeBatch, Filename: "in.jsonl", Object: o, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(72 * time.Hour),
	})
	if err != nil {
		panic(err)
	}
}

// create is the client's request, sent again until it is answered.
func (w *World) create() {
	for n := 0; n < 1000 && w.begin("api", n, func(p *process) bool {
		c, err := batch.NewCreator(batches{p}, files{p}, w.stores.Workflow.With(p.faults), &batch.CreatorOptions{Windows: []string{w.Window.String()}})
		if err != nil {
			panic(err)
		}
		_, err = c.Create(p.ctx, batch.Request{
			Tenant: tenant, Submitter: "ann", ID: batchID, FileID: fileID, Endpoint: endpoint, Window: w.Window.String(),
		}, time.Now())
		w.note(p, "create", "", err)
		if refused, ok := errors.AsType[*openai.Error](err); ok {
			panic(refused)
		}
		return err != nil
	}); n++ {
		w.wait(time.Second)
	}
}

// begin runs do in a new process, which ends with it.
func (w *World) begin(kind string, n int, do func(p *process) bool) bool {
	p := w.start(kind, n)
	defer p.cancel()
	return do(p)
}

func (p *process) ender() *batch.Ender {
	return batch.NewEnder(batches{p}, batches{p}, p.w.stores.Workflow.With(p.faults))
}

func (p *process) reap() *reap.Reaper {
	r, err := reap.New(reap.Ports{
		Batches: batches{p}, Parts: parts{p}, Reaps: reaps{p}, Deaths: reaps{p}, Seals: reaps{p}, Events: events{p},
		Queue: queue{p}, Workflow: p.w.stores.Workflow.With(p.faults), Ender: p.ender(),
	}, &reap.Options{
		Skew: margin, MaxAttempts: maxAttempts, DeadGrace: deadGrace, Overdue: overdue, Resend: resend, Look: lookOpen, Soon: 30 * time.Second,
		Margin: 2 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	return r
}

func (p *process) runner() *batch.Runner {
	r, err := batch.NewRunner(batch.RunnerPorts{
		Batches: batches{p}, Parts: parts{p}, Claims: claims{p}, Steals: claims{p}, Deaths: reaps{p}, Events: events{p},
		Objects: p.w.stores.Objects.With(p.faults), Queue: queue{p},
		Workflow: p.w.stores.Workflow.With(p.faults), Model: model{p}, Log: slog.New(slog.DiscardHandler), Results: results,
	}, &batch.RunnerOptions{
		Concurrency: 4, Floor: 1, Ceiling: ceiling, CheckpointLines: checkpoint, CheckpointEvery: 3 * time.Second,
		Lease: leaseTime, Skew: margin, LookEvery: lookEvery, LineTimeout: lineTimeout, Margin: 6 * time.Second, Tries: 4, RetryBudget: 15 * time.Second,
		LongWait: 4 * time.Second, MaxAttempts: maxAttempts, DeadGrace: deadGrace, Overdue: overdue,
	})
	if err != nil {
		panic(err)
	}
	return r
}

func (p *process) planner() *batch.Planner {
	pl, err := batch.NewPlanner(batches{p}, parts{p}, p.w.stores.Objects.With(p.faults), results, &batch.PlannerOptions{PartLines: p.w.PartLines, Overdue: overdue})
	if err != nil {
		panic(err)
	}
	return pl
}

func (p *process) finisher() *batch.Finisher {
	o := p.w.stores.Objects.With(p.faults)
	f, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: batches{p}, Endings: batches{p}, Parts: parts{p}, Seals: reaps{p}, Files: files{p}, Objects: o, Uploads: o,
	}, results, &batch.FinisherOptions{Lease: leaseTime, Skew: margin, Drain: drain, Margin: 3 * time.Second, SaveBytes: 4 << 10})
	if err != nil {
		panic(err)
	}
	return f
}

// died takes down what a process held when it was killed.
func (w *World) died(p *process, why string) {
	w.note(p, "killed", why, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.deaths++
	for _, x := range w.stores.Table.PartsOf(tenant, batchID) {
		p.mu.Lock()
		_, own := p.owns[x.Owner]
		p.mu.Unlock()
		if own && x.State == batch.Leased {
			w.seen.diedHolding[x.Owner] = true
			w.judgeStrike(p, x)
		}
	}
}

// judgeStrike: who dies leaves a strike behind for what it had in flight only. In the
// instant after an answer the write that takes it back, or the checkpoint, may not
// have been made; where writes fail, hang or land late, they may take longer than
// the judge can know.
func (w *World) judgeStrike(p *process, x batch.Part) {
	if x.Suspect.None() || x.Suspect.By != x.Owner {
		return
	}
	since, waits := w.seen.waits[x.Owner]
	if waits && w.Strict() && !w.Disturbed && time.Since(since) > time.Millisecond {
		w.wrong("%s dies with nothing in flight, and leaves a strike of line %d, which waits for %v", p.name, x.FirstLine+int64(x.Suspect.Line), time.Since(since))
		return
	}
	w.wasAlone(x)
}

// wasAlone takes down that the claim that holds the part was lost with the suspect
// alone in flight.
func (w *World) wasAlone(x batch.Part) {
	line := x.FirstLine + int64(x.Suspect.Line)
	if w.seen.alone[line] == nil {
		w.seen.alone[line] = map[lease.Token]bool{}
	}
	w.seen.alone[line][x.Owner] = true
}

func (w *World) key(n int) batch.PartKey { return batch.PartKey{Tenant: tenant, Batch: batchID, N: n} }

// step is one line of the trace.
type step struct {
	at        time.Duration
	who, what string
	how       string
	err       error
}

func (s step) String() string {
	line := fmt.Sprintf("%10.3fs %-10s %-22s %s", s.at.Seconds(), s.who, s.what, s.how)
	if s.err != nil {
		line += " — " + s.err.Error()
	}
	return line
}

// note adds to the trace.
func (w *World) note(p *process, what, how string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted(p.name, what, how, err)
}

func (w *World) noted(who, what, how string, err error) {
	w.trace = append(w.trace, step{time.Since(w.began), who, what, how, err})
	if len(w.trace) > 2*kept {
		w.trace = append(w.trace[:0], w.trace[kept:]...)
	}
}

// kept is how many of the last steps a report has, at least.
const kept = 150

// violated takes down that something is not as it must be. mu isn't held.
func (w *World) violated(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong(format, args...)
}

// wrong is violated, with mu held.
func (w *World) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(w.faults) < 10 {
		w.faults = append(w.faults, text)
		w.noted("JUDGE", "!!", text, nil)
	}
}

func (w *World) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faults) > 0
}

func (w *World) standing() string {
	b, _ := w.stores.Table.Batch(tenant, batchID)
	text := fmt.Sprintf("%s/%s", b.Status, b.Ending)
	for _, p := range w.stores.Table.PartsOf(tenant, batchID) {
		text += fmt.Sprintf("; part %d %s %d/%d attempts %d", p.N, p.State, p.Processed, p.Lines, p.Attempts)
	}
	return text + fmt.Sprintf("; %d messages", len(w.stores.Queue.Messages()))
}
