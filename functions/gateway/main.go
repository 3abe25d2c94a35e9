// Command gateway is the Lambda behind the function URL: models over HTTP, for people
// and for workers elsewhere, with replies that stream.
package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/function"
	"holdfast/internal/aws/meter"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/aws/secrets"
	"holdfast/internal/config"
	"holdfast/internal/gateway"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

func main() {
	function.Run(wire, func(h handler) any { return h.handle })
}

// wire reads the environment, every fault of which it reports, and makes no
// call.
func wire(ctx context.Context, getenv func(string) string, log *slog.Logger) (handler, error) {
	settings, res, cfg, err := function.Load(ctx, getenv, config.Gateway)
	if err != nil {
		return handler{}, err
	}
	var services []upstream.Service
	for _, u := range res.AllUpstreams() {
		services = append(services, upstream.Service(u))
	}
	// Most stacks have no secret, and then nothing of Secrets Manager is set up.
	vault := sync.OnceValue(func() upstream.Secrets { return secrets.New(cfg) })
	models, err := upstream.Open(services, vault, &upstream.Options{Guard: outbound.Guard{Allow: res.UpstreamAllow}, Connections: 4, Idle: settings.LineTimeout})
	if err != nil {
		return handler{}, err
	}
	table := dynamo.Open(cfg, res.Table)
	// For who asks for limits alone, a door that is off is no reason to read.
	tenants := access.NewTenantCache(table.Tenants, &access.TenantCacheOptions{Off: time.Minute})
	counts := metrics.New("gateway", os.Stdout, nil)
	g := gateway.New(gateway.Ports{
		Keys: access.NewCache(table.Keys, &access.CacheOptions{
			WrongKeys: settings.WrongKeys, Log: log, Tenants: tenants, Pairs: table.Keys,
		}),
		Tenants:  tenants,
		Batches:  table.Batches,
		Replays:  table.Keys,
		Receipts: table.Receipts,
		Upstream: models,
	}, settings, &gateway.Options{Log: log, Observer: counts.Observer()})
	return handler{counted{g, counts}, meter.NewInvocations("gateway", 0, getenv, log)}, nil
}
