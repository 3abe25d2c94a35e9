// Command reap is the Lambda that looks each minute for what nobody looks after
// any more, and sets it going again.
package main

import (
	"context"
	"log/slog"
	"os"

	"holdfast/internal/access"
	"holdfast/internal/aws/claims"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/config"
	"holdfast/internal/reap"
)

func main() {
	function.Run(wire, func(h handler) any { return h.handle })
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.Reap)
	if err != nil {
		return handler{}, err
	}
	for _, fault := range config.Fallbacks(getenv) {
		log.Warn("setting ignored, its default holds", "error", fault)
	}
	table := dynamo.Open(cfg, res.Table)
	machine := workflow.New(cfg, res.StateMachineARN)
	counts := metrics.New("reap", os.Stdout, nil)
	own, err := claims.Own(claims.Ports{
		Batches: table.Batches, Parts: table.Parts, Files: table.Files, Workflow: machine, Tenants: access.NewTenantCache(table.Tenants, nil),
	}, settings)
	if err != nil {
		return handler{}, err
	}
	services, err := claims.Services(own, table.Files, res.Jobs, cfg)
	if err != nil {
		return handler{}, err
	}
	stale, err := bridge.New(table.Bridge, services, claims.Options(settings, counts.Observer(), log))
	if err != nil {
		return handler{}, err
	}
	reaper, err := reap.New(reap.Ports{
		Batches:  table.Batches,
		Parts:    table.Parts,
		Reaps:    table.Reaps,
		Deaths:   table.Deaths,
		Seals:    table.Seals,
		Events:   table.Events,
		Queue:    queue.New(cfg, res.WorkQueueURL),
		Workflow: machine,
		Ender:    batch.NewEnder(table.Batches, table.Endings, machine),
		Letters:  queue.NewLetters(cfg, res.DeadLettersURL),
		Claims:   stale,
	}, &reap.Options{
		Skew:        settings.Skew,
		MaxAttempts: settings.MaxAttempts,
		DeadGrace:   settings.DeadGrace,
		Overdue:     settings.Overdue,
		Waiting:     settings.Waiting(),
		Observer:    counts.Observer(),
		Log:         log,
	})
	if err != nil {
		return handler{}, err
	}
	return handler{round: reaper.Round, look: reaper.Look, log: log, counts: counts, usage: meter.NewInvocations("reap", 0, getenv, log)}, nil
}
