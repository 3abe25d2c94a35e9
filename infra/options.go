package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdfast/internal/config"
	"holdfast/internal/deploy"
)

// options is everything that decides what the stack looks like.
type options struct {
	settings     config.Settings
	upstream     config.Upstream
	upstreams    []config.Upstream // chosen by model
	upstreamText string            // those as they were configured
	allowText    string            // where upstreams may be, as it was configured
	jobs         config.Jobs
	functions    string // folder of the built functions
	architecture string // arm64 or amd64
	destroy      bool   // table and buckets go with the stack
	alarmEmail   string // who is told of alarms, or empty
	doors        bool   // objects and messages start batches, beside HTTP

	gateway         bool // the OpenAI endpoints in front of the upstreams
	gatewayRequests int  // at most so many at once, or 0
	network         deploy.Network
}

// parseOptions reads the environment and the CDK context. The error joins every
// fault of both.
func parseOptions(getenv, context func(string) string) (options, error) {
	d, err := deploy.Parse(getenv, context)
	faults := []error{err}
	o := options{
		settings: d.Settings, upstream: d.Resources.Upstream, upstreams: d.Resources.Upstreams, jobs: d.Resources.Jobs,
		upstreamText: getenv(config.EnvUpstreams), allowText: getenv(config.EnvUpstreamAllow),
		architecture: d.Architecture, destroy: d.Destroy, alarmEmail: d.AlarmEmail, doors: d.Doors,
		gateway: d.Gateway, gatewayRequests: d.GatewayRequests, network: d.Network,
	}
	o.functions = context("functions")
	if o.functions == "" {
		o.functions = filepath.Join(".local", "build", o.architecture)
	}
	roles := []config.Role{config.API, config.Plan, config.Work, config.Finish, config.Reap}
	if o.doors {
		roles = append(roles, config.Ingest)
	}
	if o.gateway {
		roles = append(roles, config.Gateway)
	}
	for _, role := range roles {
		bootstrap := filepath.Join(o.functions, role.Name, "bootstrap")
		if info, err := os.Stat(bootstrap); err != nil || !info.Mode().IsRegular() {
			faults = append(faults, fmt.Errorf("context functions=%s: %s isn't there; build the functions first", o.functions, bootstrap))
		}
	}
	return o, errors.Join(faults...)
}

// allUpstreams are those of all models, the one for all other models first, whose URL
// may be empty.
func (o options) allUpstreams() []config.Upstream {
	return append([]config.Upstream{o.upstream}, o.upstreams...)
}

// upstreamSecrets are the names of the secrets that whoever calls models reads.
func (o options) upstreamSecrets() (names []string) {
	for _, u := range o.allUpstreams() {
		if u.Secret != "" && !slices.Contains(names, u.Secret) {
			names = append(names, u.Secret)
		}
	}
	return names
}
