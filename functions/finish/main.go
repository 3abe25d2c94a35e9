// Command finish is the Lambda that assembles a batch's results and closes it.
package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/objects"
	"holdfast/internal/batch"
	"holdfast/internal/config"
)

func main() {
	debug.SetGCPercent(batch.FinisherGC)
	function.Run(wire, func(h handler) any { return h.handle })
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.Finish)
	if err != nil {
		return handler{}, err
	}
	table := dynamo.Open(cfg, res.Table)
	store := objects.New(cfg, &objects.Options{ResultsBucket: res.ResultsBucket})
	counts := metrics.New("finish", os.Stdout, nil)
	finisher, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: table.Batches,
		Endings: table.Endings,
		Parts:   table.Parts,
		Seals:   table.Seals,
		Files:   table.Files,
		Objects: store,
		Uploads: store,
	}, res.ResultsBucket, &batch.FinisherOptions{
		Lease:      settings.Lease,
		Skew:       settings.Skew,
		Drain:      settings.Drain,
		FileExpiry: settings.FileExpiry,
		Observer:   counts.Observer(),
		Log:        log,
	})
	if err != nil {
		return handler{}, err
	}
	return handler{finisher: finisher, log: log, counts: counts, usage: meter.NewInvocations("finish", 0, getenv, log)}, nil
}
