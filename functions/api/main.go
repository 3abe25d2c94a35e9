// Command api is the Lambda behind the HTTP API: files and batches over HTTP.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"holdfast/functions/api/server"
	"holdfast/internal/access"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/objects"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/limits"
	"holdfast/internal/reap"
	"holdfast/internal/upload"
)

func main() {
	function.Run(wire, func(h handler) any { return h.handle })
}

// longestSubmit ends a submit here, whatever HOLDFAST_SUBMIT_TIMEOUT says: an HTTP
// request has 29 s, and waiting for somebody else's claim and giving back one's own are
// to fit in as well. What takes longer is the reaper's.
const longestSubmit = 20 * time.Second

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.API)
	if err != nil {
		return handler{}, err
	}
	for _, fault := range config.Fallbacks(getenv) {
		log.Warn("setting ignored, its default holds", "error", fault)
	}
	table := dynamo.Open(cfg, res.Table)
	store := objects.New(cfg, &objects.Options{ResultsBucket: res.ResultsBucket})
	machine := workflow.New(cfg, res.StateMachineARN)
	// For who asks for limits alone, a door that is off is no reason to read.
	tenants := access.NewTenantCache(table.Tenants, &access.TenantCacheOptions{Off: time.Minute})
	creator, err := batch.NewCreator(table.Batches, table.Files, machine, &batch.CreatorOptions{
		Endpoints: settings.Endpoints, Windows: settings.Windows,
		Admit: limits.New(tenants, table.Batches, table.Parts, settings.LongestWindow()).Admit,
	})
	if err != nil {
		return handler{}, err
	}
	jobs := batches.New(creator, table.Batches, table.Files, settings.FileExpiry)
	counts := metrics.New("api", os.Stdout, nil)
	claims, err := bridge.New(table.Bridge, bridge.Services{"": jobs}, &bridge.Options{
		ClaimStale: settings.ClaimStale, SubmitTimeout: min(settings.SubmitTimeout, longestSubmit),
		Stolen:  func() { counts.Observer().Add(batch.MetricClaimSteals, 1) },
		Retaken: func() { counts.Observer().Add(batch.MetricClaimRetries, 1) }, Log: log,
	})
	if err != nil {
		return handler{}, err
	}
	uploads, err := upload.New(upload.Ports{
		Store: table.Uploads, Completions: table.Uploads, Files: table.Files, Objects: store, Multiparts: store, Pieces: store,
	}, res.InputsBucket, &upload.Options{Expiry: settings.UploadExpiry, FileExpiry: settings.FileExpiry})
	if err != nil {
		return handler{}, err
	}
	ender := batch.NewEnder(table.Batches, table.Endings, machine)
	reaper, err := reap.New(reap.Ports{
		Batches: table.Batches, Parts: table.Parts, Reaps: table.Reaps, Deaths: table.Deaths, Seals: table.Seals, Events: table.Events,
		Queue: queue.New(cfg, res.WorkQueueURL), Workflow: machine, Ender: ender, Claims: claims,
	}, &reap.Options{
		Skew: settings.Skew, MaxAttempts: settings.MaxAttempts, DeadGrace: settings.DeadGrace,
		Overdue: settings.Overdue, Waiting: settings.Waiting(), Observer: counts.Observer(), Log: log,
	})
	if err != nil {
		return handler{}, err
	}
	routes := server.New(server.Ports{
		Keys: access.NewCache(table.Keys, &access.CacheOptions{
			WrongKeys: settings.WrongKeys, Log: log, Tenants: tenants, Pairs: table.Keys,
		}),
		KeyBook: table.Keys,
		Tenants: tenants,
		Batches: table.Batches,
		Parts:   table.Parts,
		Files:   table.Files,
		Objects: store,
		Links:   store,
		Uploads: uploads,

		Ender:  ender,
		Events: table.Events,
		Reaper: reaper,

		Receipts: server.Receipts{Bucket: res.ResultsBucket, Objects: store},
		Calls:    table.Receipts,

		Jobs:    jobs,
		Bridge:  claims,
		Resends: bridge.NewResends(table.Sends, batch.NewID),
	}, settings, res.InputsBucket, &server.Options{Log: log, Observer: counts.Observer()})
	return handler{counted{routes, meter.NewInvocations("api", 0, getenv, log), counts}}, nil
}
