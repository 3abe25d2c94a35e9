// Command upgrade replaces a stack while it runs a batch, and says whether the
// batch noticed. `make upgrade` starts it on a stack of an earlier commit, which
// is there already; see localstack/upgrade.sh.
//
//  1. A batch is begun by the old functions.
//  2. Once a tenth of it is done a second work function with the new code eats the
//     same queue, so that old and new workers run parts of the same batch at the
//     same time. A second batch is created, which the old plan cuts.
//  3. Once a quarter is done the whole new stack is deployed. The local AWS kills
//     what runs of a function that is updated; AWS lets it end, and so the old
//     workers end first, in their own good order. With -kill they don't: what they
//     hold must be found and taken over. The executions go on by the old
//     definition, as they do on AWS, and call the new functions.
//  4. Both batches must come to their end: each line once, in order, under its own
//     id, and sent once, but for what a crash allows (C + K for each lease that
//     lapsed).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.functions, "functions", "", "folder of the new functions, as built for this machine")
	flag.StringVar(&o.deploy, "deploy", "", "command that deploys the new stack")
	flag.IntVar(&o.lines, "lines", 7000, "lines of the first batch; the second has a quarter")
	flag.StringVar(&o.model, "model", "sim-slow-200", "model the lines ask for")
	flag.BoolVar(&o.kill, "kill", false, "kill the old workers in mid-run")
	flag.IntVar(&o.crash, "crash", 0, "lines that the end of one lease may repeat: C + K")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Printf("upgrade failed: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	functions, deploy string
	lines             int
	model             string
	crash             int
	kill              bool
}

func (o options) run(ctx context.Context) error {
	s, err := connect(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	first, err := s.begin(ctx, o.lines, o.model)
	if err != nil {
		return err
	}
	say("batch %s of %d lines, begun by the old stack", first.id, o.lines)
	if _, err := s.until(ctx, first, o.lines/10); err != nil {
		return err
	}

	w, err := s.worker(ctx)
	if err != nil {
		return err
	}
	code, err := w.beside(ctx, o.functions)
	if err != nil {
		return err
	}
	second, err := s.begin(ctx, o.lines/4, o.model)
	if err != nil {
		return err
	}
	say("as many new workers beside the old; batch %s of %d lines, planned by the old code", second.id, o.lines/4)
	both := &sight{fresh: code}
	done, err := s.until(ctx, first, o.lines/4, both.look)
	if err != nil {
		return err
	}
	say("%d lines done; %s", done, both)

	if !o.kill {
		if err := w.retire(ctx); err != nil {
			return err
		}
		say("the old workers have ended")
	}
	deploy := exec.CommandContext(ctx, "bash", "-c", o.deploy)
	if out, err := deploy.CombinedOutput(); err != nil {
		return fmt.Errorf("deploy the new stack: %w\n%s", err, out)
	}
	if err := w.enable(ctx, true); err != nil {
		return err
	}
	at, err := s.progress(ctx, first)
	if err != nil {
		return err
	}
	say("the new stack is deployed, with %d of %d lines done", at.RequestCounts.Completed, o.lines)
	if at.over() {
		return errors.New("the batch was over before the new stack was deployed: take more lines, or slower ones")
	}

	var faults []string
	for _, b := range []begun{first, second} {
		v, err := s.verify(ctx, b, o.crash)
		if err != nil {
			return err
		}
		say("batch %s: %s", b.id, v)
		faults = append(faults, v.faults...)
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	if both.seen > 0 && both.beside == 0 {
		return errors.New("old and new workers were never seen at once: nothing was shown about them")
	}
	fmt.Println("upgraded in mid-batch: every line has one result, in order, and none was sent twice but for what a crash allows")
	return nil
}
