package main

import (
	"errors"
	"fmt"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"holdfast/internal/config"
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
	network         networkOptions
}

// parseOptions reads the environment and the CDK context. The error joins every
// fault of both.
func parseOptions(getenv, context func(string) string) (options, error) {
	settings, settingsErr := config.Parse(getenv)
	resources, resourcesErr := config.ParseResources(getenv, config.Deploy)
	faults := []error{settingsErr, resourcesErr}

	for _, token := range []struct{ value, key, secret string }{
		{resources.Upstream.Key, config.EnvUpstreamKey, config.EnvUpstreamSecret},
		{resources.Jobs.Key, config.EnvJobsKey, config.EnvJobsSecret},
	} {
		if token.value != "" && getenv("AWS_ENDPOINT_URL") == "" {
			faults = append(faults, fmt.Errorf(
				"%s is for a local AWS (AWS_ENDPOINT_URL) only: a function's variables are readable by everybody who may describe it; name a secret in %s instead",
				token.key, token.secret))
		}
	}

	o := options{settings: settings, upstream: resources.Upstream, jobs: resources.Jobs, architecture: context("architecture")}
	o.upstreams, o.upstreamText, o.allowText = resources.Upstreams, getenv(config.EnvUpstreams), getenv(config.EnvUpstreamAllow)
	switch o.architecture {
	case "":
		o.architecture = "arm64"
	case "arm64", "amd64":
	default:
		faults = append(faults, fmt.Errorf("context architecture=%s: must be arm64 or amd64", o.architecture))
	}
	switch removal := context("removal"); removal {
	case "", "retain":
	case "destroy":
		o.destroy = true
	default:
		faults = append(faults, fmt.Errorf("context removal=%s: must be retain or destroy", removal))
	}
	switch doors := context("doors"); doors {
	case "", "on":
		o.doors = true
	case "off":
	default:
		faults = append(faults, fmt.Errorf("context doors=%s: must be on or off", doors))
	}
	switch gateway := context("gateway"); gateway {
	case "", "on":
		o.gateway = true
	case "off":
	default:
		if n, err := strconv.Atoi(gateway); err == nil && n >= 1 && n <= mostRequests {
			o.gateway, o.gatewayRequests = true, n
		} else {
			faults = append(faults, fmt.Errorf("context gateway=%s: must be on, off, or how many requests at once (1-%d)", gateway, mostRequests))
		}
	}
	network, networkFaults := parseNetwork(context, o)
	o.network, faults = network, append(faults, networkFaults...)
	if o.alarmEmail = context("alarmEmail"); o.alarmEmail != "" {
		faults = append(faults, checkEmail(o.alarmEmail))
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

// mostRequests is how many the gateway can be held to: an account has 1,000 functions
// at once unless it asked for more, and more than this is no bound.
const mostRequests = 10_000

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

// checkEmail refuses what is not one plain address: SNS would take it, and then
// ask nobody to confirm.
func checkEmail(s string) error {
	if a, err := mail.ParseAddress(s); err != nil || a.Address != s {
		return fmt.Errorf("context alarmEmail=%s: must be one e-mail address and no more", s)
	}
	return nil
}
