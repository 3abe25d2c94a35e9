// Command ingest is the Lambda of the doors beside HTTP: it starts batches from
// objects that somebody put, and from other systems' messages.
package main

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"holdfast/internal/access"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/objects"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/secrets"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/bridge/jobs"
	"holdfast/internal/config"
	"holdfast/internal/door"
	"holdfast/internal/limits"
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
	creator, err := batch.NewCreator(table.Batches, table.Files, workflow.New(cfg, res.StateMachineARN), &batch.CreatorOptions{
		Endpoints: settings.Endpoints, Windows: settings.Windows,
		Admit: limits.New(tenants, table.Batches, table.Parts, settings.LongestWindow()).Admit,
	})
	if err != nil {
		return handler{}, err
	}
	services := bridge.Services{"": batches.New(creator, table.Batches, table.Files, settings.FileExpiry)}
	site := door.Site{
		Inputs: res.InputsBucket, Results: res.ResultsBucket, FileBytes: settings.FileBytes,
		Allow:      openai.Allow{Endpoints: settings.Endpoints, Windows: settings.Windows},
		FileExpiry: settings.FileExpiry,
	}
	if res.Jobs.URL != "" {
		// Most stacks have no secret, and then nothing of Secrets Manager is set up.
		vault := sync.OnceValue(func() *secrets.Secrets { return secrets.New(cfg) })
		site.Service = jobs.Service
		services[jobs.Service], err = jobs.New(res.Jobs.URL, table.Files, &jobs.Options{Token: func(ctx context.Context) (string, error) {
			if res.Jobs.Secret == "" {
				return res.Jobs.Key, nil
			}
			return vault().Get(ctx, res.Jobs.Secret)
		}})
		if err != nil {
			return handler{}, err
		}
	}
	claims, err := bridge.New(table.Bridge, services, &bridge.Options{
		ClaimStale:    settings.ClaimStale,
		SubmitTimeout: settings.SubmitTimeout,
		Wait:          -1, // a letter waits where it lies
		Stolen:        func() { counts.Observer().Add(batch.MetricClaimSteals, 1) },
		Retaken:       func() { counts.Observer().Add(batch.MetricClaimRetries, 1) },
		Log:           log,
	})
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
	drainer := bridge.NewDrainer(claims, doors, letters, log)
	return handler{drain: drainer.Drain, receives: settings.IngestReceives, log: log, counts: counts, usage: meter.NewInvocations("ingest", 0, getenv, log)}, nil
}
