// Command ingest is the Lambda of the doors beside HTTP: it starts batches from
// objects that somebody put, and from other systems' messages.
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
	"holdfast/internal/aws/objects"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/jobs"
	"holdfast/internal/config"
	"holdfast/internal/door"
	"holdfast/internal/openai"
)

func main() {
	function.Run(wire, func(h handler) any { return h.handle })
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.Ingest)
	if err != nil {
		return handler{}, err
	}
	for _, fault := range config.Fallbacks(getenv) {
		log.Warn("setting ignored, its default holds", "error", fault)
	}
	table := dynamo.Open(cfg, res.Table)
	store := objects.New(cfg, &objects.Options{ResultsBucket: res.ResultsBucket})
	inputs := objects.NewInputs(store)
	letters := queue.NewIngest(cfg, res.IngestQueueURL, res.IngestDeadLettersURL)
	counts := metrics.New("ingest", os.Stdout, nil)
	tenants := access.NewTenantCache(table.Tenants, nil)
	own, err := claims.Own(claims.Ports{
		Batches: table.Batches, Parts: table.Parts, Files: table.Files, Workflow: workflow.New(cfg, res.StateMachineARN), Tenants: tenants,
	}, settings)
	if err != nil {
		return handler{}, err
	}
	services, err := claims.Services(own, table.Files, res.Jobs, cfg)
	if err != nil {
		return handler{}, err
	}
	site := door.Site{
		Inputs: res.InputsBucket, Results: res.ResultsBucket, FileBytes: settings.FileBytes,
		Allow:      openai.Allow{Endpoints: settings.Endpoints, Windows: settings.Windows},
		FileExpiry: settings.FileExpiry,
	}
	if res.Jobs.URL != "" {
		site.Service = jobs.Service
	}
	lives := claims.Options(settings, counts.Observer(), log)
	lives.Wait = -1 // a letter waits where it lies
	drained, err := bridge.New(table.Bridge, services, lives)
	if err != nil {
		return handler{}, err
	}
	o := &door.Options{Observer: counts.Observer(), Log: log}
	doors := door.NewRouter(
		door.NewDrops(door.DropPorts{
			Tenants: tenants, Inputs: inputs, Refusals: store, Events: table.Events, Dead: letters,
		}, site, o),
		door.NewMessages(tenants, inputs, letters, site, o),
	)
	drainer := bridge.NewDrainer(drained, doors, letters, log)
	return handler{drain: drainer.Drain, receives: settings.IngestReceives, log: log, counts: counts, usage: meter.NewInvocations("ingest", 0, getenv, log)}, nil
}
