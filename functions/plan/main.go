// Command plan is the Lambda that validates a batch's input and cuts it into
// parts.
package main

import (
	"context"
	"log/slog"
	"runtime/debug"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/objects"
	"holdfast/internal/batch"
	"holdfast/internal/config"
)

func main() {
	debug.SetGCPercent(batch.PlanGCPercent)
	function.Run(wire, func(h handler) any { return h.handle })
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.Plan)
	if err != nil {
		return handler{}, err
	}
	table := dynamo.Open(cfg, res.Table)
	store := objects.New(cfg, &objects.Options{ResultsBucket: res.ResultsBucket})
	planner, err := batch.NewPlanner(table.Batches, table.Parts, store, res.ResultsBucket, &batch.PlannerOptions{
		Lines:     settings.FileLines,
		Bytes:     settings.FileBytes,
		LineBytes: int(settings.LineBytes),
		Nesting:   settings.Nesting,
		PartLines: settings.PartLines,
		Overdue:   settings.Overdue,
		Log:       log,
	})
	if err != nil {
		return handler{}, err
	}
	return handler{planner: planner, log: log, usage: meter.NewInvocations("plan", 0, getenv, log)}, nil
}
