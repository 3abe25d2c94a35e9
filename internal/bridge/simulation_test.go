package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// A town is what the simulation lives in: three ids, each asked for by several requests,
// deliveries and letters of them, drains and reapers, all at once and each a process of
// its own, with a clock of its own, whose calls are slow, fail, lose their answers, stand
// for minutes or are its last. After some minutes there is no more trouble: then nothing
// may stay reserved, and each letter has come to its end.
type town struct {
	mem     *memory.Memory
	queue   *memory.Letters
	seed    uint64
	trouble time.Time // ends

	mu        sync.Mutex
	processes uint64
	submits   map[string][]*stint
	won       map[string]string // by id: the hash of the request that was answered with a job
	created   map[string]time.Time
	words     map[string]bool // by letter: why nothing came of it was left
	were      map[string]bool // by delivery: what it asks for had been started
	wrong     []string
	seen      map[string]int
}

// stint is one call of a Submitter.
type stint struct {
	ctx          context.Context
	dated, ended time.Time // ended zero: it is under way
	trouble      bool
}

const (
	townStale  = bridge.MinClaimStale
	townSubmit = 20 * time.Second
	townSkew   = 2 * time.Second // each clock, either way
)

var townIDs = []string{"a", "b", "c"}

// townFiles are the inputs that ids are asked for with. One expires early, so that what
// was started would be refused by and by, and one isn't there.
var townFiles = []string{"file-1", "file-2", "file-old", "file-none"}

// live lives through a seed, in a store that ignores one clause (none if "").
func live(t *testing.T, seed uint64, drop string) (w *town) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		w = &town{
			mem: memory.New(memory.Options{Drop: drop}), queue: memory.NewLetters(nil), seed: seed, trouble: now.Add(4 * time.Minute),
			submits: map[string][]*stint{}, won: map[string]string{}, created: map[string]time.Time{}, words: map[string]bool{}, were: map[string]bool{}, seen: map[string]int{},
		}
		for _, id := range townFiles[:3] {
			f := batch.File{Tenant: "acme", ID: id, Purpose: "batch", CreatedAt: now, ExpiresAt: now.Add(30 * 24 * time.Hour)}
			if id == "file-old" {
				f.ExpiresAt = now.Add(90 * time.Second)
			}
			if err := w.mem.Table.Files.Put(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		w.run(context.WithoutCancel(t.Context()))
	})
	return w
}

func (w *town) run(ctx context.Context) {
	dice := rand.New(rand.NewPCG(w.seed, 0))
	var all sync.WaitGroup
	usual := map[string]string{}
	for _, id := range townIDs {
		usual[id] = townFiles[dice.IntN(4)]
	}
	for range 24 {
		id, at := townIDs[dice.IntN(3)], time.Duration(dice.Int64N(int64(w.left())))
		file := usual[id]
		if dice.IntN(4) == 0 {
			file = townFiles[dice.IntN(4)]
		}
		if dice.IntN(2) == 0 {
			at = time.Duration(dice.IntN(3)) * time.Second // copies at once
		}
		hangsUp := time.Hour
		if dice.IntN(3) == 0 {
			hangsUp = time.Duration(dice.IntN(30_000)) * time.Millisecond
		}
		if dice.IntN(2) == 0 {
			w.queue.Post(id + " " + file)
			continue
		}
		all.Go(func() {
			_ = memory.Wait(ctx, at)
			limited, cancel := context.WithTimeout(ctx, hangsUp)
			defer cancel()
			w.deliver(limited, w.process(), id, file)
		})
	}
	for range 2 {
		all.Go(func() { w.every(ctx, 5*time.Second, w.drain) })
		all.Go(func() { w.every(ctx, 20*time.Second, w.reap) })
	}
	all.Wait() // who stood still when the trouble ended is through as well

	// From here on nothing goes wrong, and nobody asks again: what was asked for is the
	// reaper's, and the letters'.
	for range 20 {
		w.reap(ctx, w.process())
		w.drain(ctx, w.process())
		_ = memory.Wait(ctx, time.Minute)
	}
	for _, id := range townIDs {
		if row, _ := w.mem.Table.Row("acme", id); row.State == bridge.Reserved {
			w.violated("%s is reserved for ever: %+v", id, row)
		}
	}
	if n := w.queue.Waiting(); n > 0 {
		w.violated("%d letters come for ever", n)
	}
	for _, id := range townIDs {
		w.deliver(ctx, w.process(), id, "file-1")
		row, _ := w.mem.Table.Row("acme", id)
		b, there := w.mem.Table.Batch("acme", bridge.BatchID("acme", id))
		if !there || row.State != bridge.Confirmed && b.Input.FileID == "file-1" || row.State == bridge.Confirmed && (row.Job != b.ID || row.Request.FileID != b.Input.FileID) {
			w.violated("%s: row %+v, batch %+v", id, row, b)
		}
	}
	if n := len(w.mem.Workflow.Executions()); n != len(townIDs) {
		w.violated("%d executions of %d ids", n, len(townIDs))
	}
}

// left is the time that trouble has left.
func (w *town) left() time.Duration { return time.Until(w.trouble) }

// every has a new process do something again and again while there is trouble.
func (w *town) every(ctx context.Context, pause time.Duration, do func(context.Context, *resident)) {
	for w.left() > 0 {
		do(ctx, w.process())
		_ = memory.Wait(ctx, rand.N(pause))
	}
}

// resident is one process.
type resident struct {
	*bridge.Bridge
	*memory.Faults
	skew  time.Duration
	dead  func() bool
	start func(context.Context, batch.Batch) error
}

func (p *resident) now() time.Time { return time.Now().Add(p.skew) }

func (w *town) process() *resident {
	w.mu.Lock()
	w.processes++
	dice := rand.New(rand.NewPCG(w.seed, w.processes))
	w.mu.Unlock()
	f, p := memory.NewFaults(), &resident{}
	var mu sync.Mutex
	dead := false
	fate := func(ctx context.Context, at memory.Point) error {
		mu.Lock()
		n, d := dice.IntN(100), time.Duration(dice.IntN(100_000))*time.Millisecond
		mu.Unlock()
		switch {
		case w.left() <= 0:
			return nil
		case n < 2:
			w.note("deaths")
			mu.Lock()
			dead = true
			mu.Unlock()
			return f.Crash(ctx, at)
		case n < 7:
			return memory.ErrInjected
		case n < 11: // it stands still, and then it goes on, whoever waits for it or not
			w.note("stalls")
			_ = memory.Wait(context.WithoutCancel(ctx), d)
		default:
			_ = memory.Wait(context.WithoutCancel(ctx), d/1000)
		}
		return nil
	}
	f.Before("", 0, fate)
	f.After("", 0, fate)
	view := w.mem.With(f)
	creator, err := batch.NewCreator(view.Table.Batches, view.Table.Files, view.Workflow, &batch.CreatorOptions{Endpoints: []string{"/v1/embeddings"}})
	if err == nil {
		s := batches.New(creator, view.Table.Batches, view.Table.Files, 30*24*time.Hour)
		p.Bridge, err = bridge.New(audited{w, w.mem.Table.Bridge, f}, watched{s, w}, &bridge.Options{
			ClaimStale: townStale, SubmitTimeout: townSubmit, Wait: time.Duration(dice.IntN(2)*4-1) * time.Second,
			Stolen: func() { w.note("thefts") }, Retaken: func() { w.note("taken up") },
		})
	}
	if err != nil {
		panic(err)
	}
	p.start = creator.Start
	p.Faults, p.dead = f, func() bool { mu.Lock(); defer mu.Unlock(); return dead }
	p.skew = time.Duration(dice.Int64N(int64(2*townSkew))) - townSkew
	return p
}

func townRequest(id, file string) bridge.Request {
	r := request(id)
	r.FileID = file
	return r
}

// deliver asks by way of Bridge.Submit.
func (w *town) deliver(ctx context.Context, p *resident, id, file string) {
	r := townRequest(id, file)
	b, was := w.mem.Table.Batch("acme", bridge.BatchID("acme", id))
	job, err := p.Submit(ctx, r, p.now())
	w.told(r, job, err, was && b.Input.FileID == file)
}

// told judges an answer. was: it had been started when it was asked for.
func (w *town) told(r bridge.Request, job string, err error, was bool) {
	b, is := w.mem.Table.Batch("acme", bridge.BatchID("acme", r.CorrelationID))
	w.mu.Lock()
	defer w.mu.Unlock()
	if first, known := w.created[b.ID]; is && known && !first.Equal(b.CreatedAt) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s was created at %s and at %s", r.CorrelationID, first, b.CreatedAt))
	} else if is {
		w.created[b.ID] = b.CreatedAt
	}
	switch hash := r.Hash(); {
	case err == nil:
		w.seen["started"]++
		if first := w.won[r.CorrelationID]; !is || job != b.ID || b.Input.FileID != r.FileID || first != "" && first != hash {
			w.wrong = append(w.wrong, fmt.Sprintf("%s for %s is answered with %q; there is %+v", r.CorrelationID, r.FileID, job, b))
		}
		w.won[r.CorrelationID] = hash
	case errors.Is(err, bridge.ErrConflict):
		w.seen["conflicts"]++
		// Of file-old one may be created so late that others were refused meanwhile, and
		// the id is being claimed for another.
		if was && r.FileID != "file-old" {
			w.wrong = append(w.wrong, fmt.Sprintf("%s for %s is a conflict with itself: %v", r.CorrelationID, r.FileID, err))
		}
	case errors.Is(err, bridge.ErrRefused):
		w.seen["refusals"]++
		if was {
			w.wrong = append(w.wrong, fmt.Sprintf("%s for %s is refused, and was started: %v", r.CorrelationID, r.FileID, err))
		}
	case errors.Is(err, lease.ErrHeld):
		w.seen["held"]++
	default:
		w.seen["trouble"]++
	}
}

// drain does a round of letters, as Lambda does: what it deletes it deletes at the end,
// if it lives.
func (w *town) drain(ctx context.Context, p *resident) {
	letters := w.queue.Receive(10)
	failed, _ := bridge.NewDrainer(p.Bridge, townDoor{w, p}, w.queue.With(p.Faults), nil).Drain(ctx, letters, p.now())
	if p.dead() {
		return
	}
	for _, l := range letters {
		again := false
		for _, f := range failed {
			again = again || f.ID == l.ID
		}
		if again {
			continue
		}
		id, file, _ := strings.Cut(string(l.Body), " ")
		b, there := w.mem.Table.Batch("acme", bridge.BatchID("acme", id))
		w.mu.Lock()
		if !w.words[l.ID] && !(there && b.Input.FileID == file) {
			w.wrong = append(w.wrong, fmt.Sprintf("%s for %s is deleted without a job and without a word", id, file))
		}
		w.mu.Unlock()
		w.queue.Delete(l)
	}
}

// reap goes on with what is due by the process's clock.
func (w *town) reap(ctx context.Context, p *resident) {
	for _, id := range townIDs {
		row, there := w.mem.Table.Row("acme", id)
		if there && !row.Due.IsZero() && !row.Due.After(p.now()) {
			if got, err := p.Resume(ctx, "acme", row.Name(), p.now(), nil); err == nil && got != "" {
				w.note("resumed")
			}
		}
		// A slow owner may record its batch when another was refused the same already, and
		// released the claim, and die before the workflow starts. The reaper starts it like
		// any batch. One with a claim is left alone here: that it starts is what is judged.
		if b, is := w.mem.Table.Batch("acme", bridge.BatchID("acme", id)); is && !there && !b.Due.After(p.now()) && p.start(ctx, b) == nil {
			w.note("begun")
		}
	}
}

func (w *town) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
}

func (w *town) violated(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// TestSimulation lives some hundred seeds through.
func TestSimulation(t *testing.T) {
	var mu sync.Mutex
	sum := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(200) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := live(t, seed, "")
				if len(w.wrong) > 0 {
					t.Errorf("%s\nagain: go test ./internal/bridge -run 'TestSimulation/seeds/%d$' -count 20", strings.Join(w.wrong, "\n"), seed)
				}
				mu.Lock()
				defer mu.Unlock()
				for what, n := range w.seen {
					sum[what] += n
				}
			})
		}
	})
	// The seeds are not all fair weather.
	for _, what := range []string{"deaths", "stalls", "thefts", "taken up", "resumed", "started", "conflicts", "refusals", "held", "trouble"} {
		if sum[what] < 20 {
			t.Errorf("%s: %d in all seeds", what, sum[what])
		}
	}
	t.Log(sum)
}

// TestSimulationFindsOut drops one clause of the store at a time. The others are implied by
// one of these, or by what the bridge judges beside the store, as long as nobody forges a
// row; the suite holds each of them.
func TestSimulationFindsOut(t *testing.T) {
	for _, clause := range []string{"C1.absent", "C3.token", "C3b.token", "C4.token", "C15.create.absent"} {
		t.Run(clause, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				if w := live(t, seed, clause); len(w.wrong) > 0 {
					t.Logf("seed %d: %s", seed, w.wrong[0])
					return
				}
			}
			t.Errorf("nothing is wrong in 200 seeds without %s", memory.Describe(clause))
		})
	}
}
