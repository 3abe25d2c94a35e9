// Command chaos does to a deployed stack what must not matter, and says whether it
// did. `make chaos` starts it on a stack of its own; see localstack/chaos.sh.
//
//   - Worker processes are killed (kill -9), wherever they happen to be and between
//     two steps of the protocol: a proxy in front of the local AWS (proxy.go) holds
//     one of a worker's calls back until the worker is dead. The call arrives late,
//     or never.
//   - Workers are stopped beyond their lease and woken: zombies, whose parts others
//     have by then.
//   - The queue is emptied, and the workflow stopped, in the middle of a batch.
//   - Some lines kill whoever sends them.
//   - A batch is cancelled while all of its parts wait behind another tenant's.
//   - One request is delivered 200 times by every door, and processes that have its
//     claim, or ask for it, are killed; others that have one sleep beyond its life.
//
// Each batch must end unaided, with one result for each line, in order. What comes
// from outside is only the reaper's tick, which EventBridge sends each minute and
// this program every few seconds. Before each blow the worker is stopped for a
// moment and the table and the model are asked what it holds: that is what may be
// sent again, C + K lines of each part at most, and the model's counts say at the
// end whether anything else was.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	ossignal "os/signal"
	"sync"
	"syscall"
	"time"

	"holdfast/internal/config"
)

type options struct {
	folder, listen, json string
	only                 string
	kills, lines         int
	seed                 uint64
	small                bool
}

func main() {
	var o options
	flag.StringVar(&o.folder, "stack", ".local/chaos", "folder of the stack (HOLDFAST_LOCAL)")
	flag.StringVar(&o.listen, "listen", "", "loopback address that the functions take for the local AWS's")
	flag.StringVar(&o.json, "json", "", "file for the report as JSON; empty writes none")
	flag.IntVar(&o.kills, "kills", 20, "workers to be killed, beside those that poison kills")
	flag.IntVar(&o.lines, "lines", 5000, "lines of a batch")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the choice of workers, places and pauses")
	flag.StringVar(&o.only, "only", "", "doors: nothing but these; empty: all")
	flag.BoolVar(&o.small, "small", false, "one batch, with everything but the cancel, and no bound on times")
	flag.Parse()
	ctx, stop := ossignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if flag.NArg() > 0 || o.kills < 1 || o.lines < 1 {
		fmt.Fprintln(os.Stderr, "chaos: -kills and -lines of one at least; see chaos -help")
		os.Exit(2)
	}
	rep, err := o.run(ctx)
	if rep != nil && o.json != "" {
		err = errors.Join(err, rep.write(o.json))
	}
	if rep != nil {
		fmt.Println(rep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	if !rep.OK {
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) (*summary, error) {
	settings, err := config.Parse(os.Getenv)
	if err != nil {
		return nil, err
	}
	s, err := stackFromEnv(ctx)
	if err != nil {
		return nil, err
	}
	w, err := processesOf(o.folder)
	if err != nil {
		return nil, err
	}
	p, err := newProxy(o.listen, os.Getenv("AWS_ENDPOINT_URL"), o.folder+"/tls/certificate.pem", o.folder+"/tls/key.pem", w)
	if err != nil {
		return nil, err
	}
	defer p.close()
	began := time.Now()
	var saying sync.Mutex
	say := func(format string, args ...any) {
		saying.Lock()
		defer saying.Unlock()
		fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	say("seed %d; lease %v, C %d, K %d, %d lines a part, %d workers", o.seed, settings.Lease, settings.CheckpointLines,
		settings.ConcurrencyCeiling, settings.PartLines, settings.MaxConcurrency)
	f := newField(s, p, w, say)
	defer f.wakeAll()
	rep := &summary{Seed: o.seed, Bound: settings.CheckpointLines + settings.ConcurrencyCeiling, Lease: settings.Lease.Seconds(), timed: !o.small}

	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	for _, do := range []func(context.Context) error{f.follow, f.executioner, func(ctx context.Context) error { return f.reap(ctx, settings.Lease+2*time.Second, &rep.Reaper) }} {
		beside.Go(func() {
			if err := do(ctx); unlessOver(err) != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	t := newTormentor(f, o.seed, settings.Lease+settings.Skew+2*time.Second)
	err = o.scenes(ctx, t, settings, rep)
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	cancel(context.Canceled)
	beside.Wait()
	rep.blows(f.blows)
	rep.judge()
	return rep, err
}

// reap ticks. Between two ticks is more than from a lapse to a thief, so that some
// parts are stolen and some reaped.
func (f *field) reap(ctx context.Context, each time.Duration, sum *tally) error {
	return every(ctx, each, func() (bool, error) {
		t, err := f.tick(ctx)
		if err != nil && ctx.Err() == nil {
			f.say("%v", err) // the next one comes
		}
		sum.add(t)
		return false, nil
	})
}

// scenes shows everything: the doors beside the batches, since most of their time is
// waiting.
func (o options) scenes(ctx context.Context, t *tormentor, settings config.Settings, rep *summary) error {
	var (
		beside sync.WaitGroup
		vs     []verdict
		doors  error
	)
	beside.Go(func() { vs, doors = o.doors(ctx, t, settings, rep) })
	err := o.batches(ctx, t, settings, rep)
	beside.Wait()
	rep.Batches = append(rep.Batches, vs...)
	if err = errors.Join(err, doors); err != nil || o.small || o.only != "" {
		return err
	}
	e, vs, err := t.cancelled(ctx, 500, settings.PartLines, settings.MaxConcurrency, rep.Bound)
	rep.Cancel = &e
	rep.Batches = append(rep.Batches, vs...)
	return err
}

func (o options) batches(ctx context.Context, t *tormentor, settings config.Settings, rep *summary) error {
	if o.only != "" {
		return nil
	}
	if o.small {
		in := input{lines: o.lines, model: "sim-slow-100", poison: map[int]bool{settings.PartLines / 5: true}}
		v, _, _, err := t.show(ctx, scene{what: "everything at once", in: in, kills: o.kills, stops: 1, gap: 500 * time.Millisecond,
			purge: 0.2, halt: 0.4, within: 3 * time.Minute}, rep.Bound)
		rep.Batches = append(rep.Batches, v)
		return err
	}
	slow := input{lines: o.lines, model: "sim-slow-250"}
	kills, stops := o.kills, max(o.kills/4, 1)
	for n := 1; kills > 0 || stops > 0; n++ {
		var v verdict
		var err error
		before := kills + stops
		v, kills, stops, err = t.show(ctx, scene{what: fmt.Sprintf("kills and zombies %d", n), in: slow, kills: kills, stops: stops,
			gap: 1500 * time.Millisecond, within: 10 * time.Minute}, rep.Bound)
		rep.Batches = append(rep.Batches, v)
		if err != nil {
			return err
		}
		if kills+stops == before {
			return errors.New("no blow found a worker: the batch is too fast, or the workers can't be seen here")
		}
	}
	fast := input{lines: o.lines, model: "sim-slow-50"}
	poison := input{lines: min(o.lines, 4*settings.PartLines), model: "sim-slow-50", poison: poisoned(min(o.lines, 4*settings.PartLines), settings.PartLines)}
	for _, s := range []scene{
		{what: "queue and workflow", in: fast, purge: 0.1, halt: 0.4, within: 5 * time.Minute},
		{what: "poison", in: poison, within: 5 * time.Minute},
	} {
		v, _, _, err := t.show(ctx, s, rep.Bound)
		rep.Batches = append(rep.Batches, v)
		if err != nil {
			return err
		}
	}
	return nil
}

// doors shows the doors, and then those of another service's jobs: what they are
// configured by, everybody's ingest is.
func (o options) doors(ctx context.Context, t *tormentor, settings config.Settings, rep *summary) ([]verdict, error) {
	s := storming{deliveries: 200, concurrent: settings.IngestConcurrency, thieves: 1, whole: true}
	if o.small {
		s.deliveries, s.thieves, s.whole = 40, 0, false
	}
	d, vs, err := t.shown(ctx, s, rep.Bound)
	rep.Doors = d
	if err != nil {
		return vs, err
	}
	e, faults, err := t.elsewhere(ctx, s.whole)
	rep.Jobs = &e
	rep.Faults = append(rep.Faults, faults...)
	return vs, err
}

func (s *summary) write(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
