// Command work is the Lambda that replays parts: one message of the work queue
// at a time, as the submitter of its batch.
package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/objects"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/secrets"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

func main() {
	function.Run(wire, func(h handler) any { return h.handle })
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.Work)
	if err != nil {
		return handler{}, err
	}
	// What is live is half of the memory at most (config's relation), and the
	// collector lets the heap double before it begins: at the largest replies that
	// would meet the function's end. Near the limit it begins earlier instead.
	debug.SetMemoryLimit(int64(settings.WorkMemory) << 20 / 10 * 9)
	var services []upstream.Service
	for _, u := range res.AllUpstreams() {
		services = append(services, upstream.Service(u))
	}
	// Most stacks have no secret, and then nothing of Secrets Manager is set up.
	vault := sync.OnceValue(func() upstream.Secrets { return secrets.New(cfg) })
	model, err := upstream.Open(services, vault, &upstream.Options{
		Guard:       outbound.Guard{Allow: res.UpstreamAllow},
		ReplyBytes:  settings.ReplyBytes,
		Timeout:     settings.LineTimeout,
		Connections: settings.ConcurrencyCeiling,
	})
	if err != nil {
		return handler{}, err
	}
	table := dynamo.Open(cfg, res.Table)
	counts := metrics.New("work", os.Stdout, &metrics.Options{AtOnce: true})
	runner, err := batch.NewRunner(batch.RunnerPorts{
		Batches:  table.Batches,
		Parts:    table.Parts,
		Claims:   table.Claims,
		Steals:   table.Claims,
		Deaths:   table.Deaths,
		Events:   table.Events,
		Objects:  objects.New(cfg, &objects.Options{ResultsBucket: res.ResultsBucket}),
		Queue:    queue.New(cfg, res.WorkQueueURL),
		Workflow: workflow.New(cfg, ""), // reports go by token and need no state machine
		Model:    meter.Model{Model: model},
		Log:      log,
		Results:  res.ResultsBucket,
	}, &batch.RunnerOptions{
		Concurrency:     settings.Concurrency,
		Floor:           settings.ConcurrencyFloor,
		Ceiling:         settings.ConcurrencyCeiling,
		CheckpointLines: settings.CheckpointLines,
		CheckpointEvery: settings.CheckpointEvery,
		CheckpointBytes: settings.CheckpointBytes,
		ReplyBytes:      settings.ReplyBytes,
		Lease:           settings.Lease,
		Heartbeat:       settings.Heartbeat,
		Skew:            settings.Skew,
		LineTimeout:     settings.LineTimeout,
		Margin:          settings.Margin,
		Tries:           settings.LineTries,
		RetryBudget:     settings.RetryBudget,
		LongWait:        settings.LongWait,
		MaxAttempts:     settings.MaxAttempts,
		DeadGrace:       settings.DeadGrace,
		Overdue:         settings.Overdue,
		Observer:        counts.Observer(),
	})
	if err != nil {
		return handler{}, err
	}
	return handler{run: runner.Run, log: log, counts: counts, usage: meter.NewInvocations("work", settings.ConcurrencyCeiling, getenv, log)}, nil
}
