// Package deploy judges what a deploy is given: the settings, the services that are
// called, and what the CDK context says. The infra app asks it when it synthesizes the
// stack, and `holdfast config --deploy` asks it before anything is built, which takes
// minutes. So it imports neither CDK nor AWS, looks nothing up, and says all faults at
// once.
package deploy

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strconv"

	"holdfast/internal/config"
	"holdfast/internal/outbound"
)

// Options is everything that decides what a stack looks like, but for the files that
// are put into it.
type Options struct {
	Settings  config.Settings
	Resources config.Resources // the upstreams and the service of jobs

	Architecture string // arm64 or amd64
	Destroy      bool   // table and buckets go with the stack
	AlarmEmail   string // who is told of alarms, or empty
	Doors        bool   // objects and messages start batches, beside HTTP

	Gateway         bool // the OpenAI endpoints in front of the upstreams
	GatewayRequests int  // at most so many at once, or 0
	Network         Network
}

// MostRequests is how many the gateway can be held to: an account has 1,000 functions
// at once unless it asked for more, and more than this is no bound.
const MostRequests = 10_000

// ContextFault is a value of the CDK context that can't be used.
type ContextFault struct {
	Name, Value string
	Rule        string // what would do, in words
}

// Error names the context value and the variable of `make deploy` that it comes from.
func (f *ContextFault) Error() string {
	for variable, name := range contexts {
		if name == f.Name {
			return fmt.Sprintf("context %s=%s (%s of make deploy): %s", f.Name, f.Value, variable, f.Rule)
		}
	}
	return fmt.Sprintf("context %s=%s: %s", f.Name, f.Value, f.Rule)
}

// contexts are the variables that localstack/account.sh hands to CDK as context.
var contexts = map[string]string{
	"ALARM_EMAIL": "alarmEmail", "DOORS": "doors", "GATEWAY": "gateway",
	"VPC": "vpc", "SUBNETS": "subnets", "ROUTE_TABLES": "routeTables", "ENDPOINTS": "endpoints",
}

// Context is the CDK context that `make deploy` makes of an environment.
func Context(getenv func(string) string) func(string) string {
	return func(name string) string {
		for variable, context := range contexts {
			if context == name {
				return getenv(variable)
			}
		}
		return ""
	}
}

// Parse reads the environment and the CDK context. The error joins every fault of
// both; the options are usable only without one. Whether the functions were built is
// for who has them to see.
func Parse(getenv, context func(string) string) (Options, error) {
	settings, settingsErr := config.Parse(getenv)
	resources, resourcesErr := config.ParseResources(getenv, config.Deploy)
	o := Options{Settings: settings, Resources: resources}
	faults := []error{settingsErr, resourcesErr}
	faults = append(faults, localOnly(getenv, resources)...)
	faults = append(faults, refusedAddresses(resources)...)
	fault := func(name, rule string) { faults = append(faults, &ContextFault{name, context(name), rule}) }

	switch o.Architecture = context("architecture"); o.Architecture {
	case "":
		o.Architecture = "arm64"
	case "arm64", "amd64":
	default:
		fault("architecture", "must be arm64 or amd64")
	}
	switch context("removal") {
	case "", "retain":
	case "destroy":
		o.Destroy = true
	default:
		fault("removal", "must be retain or destroy")
	}
	switch context("doors") {
	case "", "on":
		o.Doors = true
	case "off":
	default:
		fault("doors", "must be on or off")
	}
	switch gateway := context("gateway"); gateway {
	case "", "on":
		o.Gateway = true
	case "off":
	default:
		if n, err := strconv.Atoi(gateway); err == nil && n >= 1 && n <= MostRequests {
			o.Gateway, o.GatewayRequests = true, n
		} else {
			fault("gateway", fmt.Sprintf("must be on, off, or how many requests at once (1-%d)", MostRequests))
		}
	}
	if o.AlarmEmail = context("alarmEmail"); o.AlarmEmail != "" && !plainEmail(o.AlarmEmail) {
		fault("alarmEmail", "must be one e-mail address and no more")
	}
	network, networkFaults := parseNetwork(context, resources)
	o.Network = network
	return o, errors.Join(append(faults, networkFaults...)...)
}

// localOnly refuses tokens in variables where the stack isn't a local one.
func localOnly(getenv func(string) string, resources config.Resources) (faults []error) {
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
	return faults
}

// refusedAddresses is what each function that calls upstreams would say at its start:
// a stack with one of these takes batches and runs none.
func refusedAddresses(resources config.Resources) (faults []error) {
	guard := outbound.Guard{Allow: resources.UpstreamAllow}
	for i, u := range resources.AllUpstreams() {
		variable := config.EnvUpstreamURL
		if i < len(resources.Upstreams) {
			variable = config.EnvUpstreams
		}
		parsed, err := url.Parse(u.URL)
		if err != nil || parsed.Hostname() == "" {
			continue // config has said so
		}
		if err := guard.CheckHost(parsed.Hostname()); err != nil {
			faults = append(faults, fmt.Errorf("%s: %s: %w (docs/upstreams.md; %s allows more)", variable, parsed.Hostname(), err, config.EnvUpstreamAllow))
		}
	}
	return faults
}

// plainEmail reports whether s is one plain address: SNS would take anything else,
// too, and then ask nobody to confirm.
func plainEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s
}
