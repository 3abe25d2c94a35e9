// Command plan is the Lambda that validates a batch's input and cuts it into
// parts.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/aws/aws-lambda-go/lambda"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/objects"
	"holdfast/internal/batch"
	"holdfast/internal/config"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	h, err := wire(context.Background(), os.Getenv, log)
	if err != nil {
		log.Error("can't start", "error", err)
		os.Exit(1)
	}
	debug.SetGCPercent(batch.PlanGCPercent)
	lambda.Start(h.handle)
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, err := config.Parse(getenv)
	res, resErr := config.ParseResources(getenv, config.Plan)
	if err := errors.Join(err, resErr); err != nil {
		return handler{}, err
	}
	cfg, err := awsconf.Load(ctx)
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
