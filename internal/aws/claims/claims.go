// Package claims sets up what functions that claim correlation ids have in common:
// the services that a claim may be of, Holdfast's own first, and how a claim lives.
package claims

import (
	"context"
	"log/slog"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"holdfast/internal/aws/secrets"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/bridge/jobs"
	"holdfast/internal/config"
	"holdfast/internal/limits"
)

// Ports are what Holdfast's own batches are created with.
type Ports struct {
	Batches interface {
		batch.Batches
		limits.Batches
	}
	Parts    batch.Parts
	Files    batch.Files
	Workflow batch.Workflow
	Tenants  limits.Tenants
}

// Own starts Holdfast's own batches, those that the settings offer and their tenants'
// limits have room for: whoever submits a claim, a door or the reaper after it, is held
// to the same.
func Own(p Ports, s config.Settings) (*batches.Submitter, error) {
	creator, err := batch.NewCreator(p.Batches, p.Files, p.Workflow, &batch.CreatorOptions{
		Endpoints: s.Endpoints, Windows: s.Windows,
		Admit: limits.New(p.Tenants, p.Batches, p.Parts, s.LongestWindow()).Admit,
	})
	if err != nil {
		return nil, err
	}
	return batches.New(creator, p.Batches, p.Files, s.FileExpiry), nil
}

// Services are Holdfast's own batches and, where one is configured, the external
// service. It makes no call. The error says what is wrong with that one's URL.
func Services(own bridge.Submitter, files batch.Files, to config.Jobs, cfg aws.Config) (bridge.Services, error) {
	services := bridge.Services{"": own}
	if to.URL == "" {
		return services, nil
	}
	// Most stacks have no secret, and then nothing of Secrets Manager is set up.
	vault := sync.OnceValue(func() *secrets.Secrets { return secrets.New(cfg) })
	external, err := jobs.New(to.URL, files, &jobs.Options{Token: func(ctx context.Context) (string, error) {
		if to.Secret == "" {
			return to.Key, nil
		}
		return vault().Get(ctx, to.Secret)
	}})
	if err != nil {
		return nil, err
	}
	services[jobs.Service] = external
	return services, nil
}

// Options are a bridge's, as the settings have them, its steals told to observer.
func Options(s config.Settings, observer batch.Observer, log *slog.Logger) *bridge.Options {
	return &bridge.Options{
		ClaimStale:    s.ClaimStale,
		SubmitTimeout: s.SubmitTimeout,
		Stolen:        func() { observer.Add(batch.MetricClaimSteals, 1) },
		Retaken:       func() { observer.Add(batch.MetricClaimRetries, 1) },
		Log:           log,
	}
}
