package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// networkOptions say which VPC the functions that call upstreams are in; the zero
// value is none. They are CDK context, ids and never names: looking one up would need
// an account at synth.
type networkOptions struct {
	vpc         string   // "", "new", or the id of one that is there
	subnets     []string // of that one, one a zone
	routeTables []string // of those subnets, for the endpoints of S3 and DynamoDB
	endpoints   []string // services, in the order of services below
}

// own reports whether the VPC is the stack's.
func (n networkOptions) own() bool { return n.vpc == "new" }

// Services that work and gateway call, by their endpoints' names. Those of routed
// cost nothing and are entries of route tables; the others are interfaces. Lambda
// itself writes the logs and polls the queue, from outside the VPC.
const bedrock = "bedrock-runtime"

var (
	routed   = []string{"s3", "dynamodb"}
	services = []string{"s3", "dynamodb", "sqs", "states", "secretsmanager"}
)

var (
	vpcID        = regexp.MustCompile(`^vpc-[0-9a-f]{8,17}$`)
	subnetID     = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	routeTableID = regexp.MustCompile(`^rtb-[0-9a-f]{8,17}$`)
	bedrockHost  = regexp.MustCompile(`^bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com$`)
)

// parseNetwork reads context vpc, subnets, routeTables and endpoints, for a stack with
// these upstreams. Lists are separated by commas.
func parseNetwork(context func(string) string, o options) (n networkOptions, faults []error) {
	fault := func(name, rule string) {
		faults = append(faults, fmt.Errorf("context %s=%s: %s", name, context(name), rule))
	}
	n.vpc = context("vpc")
	if !vpcID.MatchString(n.vpc) {
		if n.vpc != "" && !n.own() {
			fault("vpc", "must be new, or the id of a VPC (vpc-…)")
		}
		for _, name := range []string{"subnets", "routeTables", "endpoints"} {
			if context(name) != "" {
				fault(name, "is for a VPC that is there already, which context vpc must name by its id")
			}
		}
		if n.own() {
			n.endpoints = o.wantedServices()
			if slices.ContainsFunc(o.upstreamURLs(), func(u *url.URL) bool { return bedrockHost.MatchString(u.Hostname()) }) {
				n.endpoints = append(n.endpoints, bedrock)
			}
		}
		return n, faults
	}
	ids := func(name string, form *regexp.Regexp) []string {
		all := split(context(name))
		for i, id := range all {
			if !form.MatchString(id) || slices.Contains(all[:i], id) {
				fault(name, fmt.Sprintf("%q must be an id, and there once", id))
			}
		}
		return all
	}
	if n.subnets = ids("subnets", subnetID); len(n.subnets) == 0 {
		fault("subnets", "must name the private subnets that the functions are put into, one of each zone")
	}
	switch named := split(context("endpoints")); {
	case len(named) == 0:
		n.endpoints = o.wantedServices()
	case context("endpoints") != "none":
		for i, service := range named {
			if !slices.Contains(services, service) || slices.Contains(named[:i], service) {
				fault("endpoints", fmt.Sprintf("%q must be one of %s, and there once; none for none at all", service, strings.Join(services, ", ")))
			}
		}
		n.endpoints = slices.DeleteFunc(slices.Clone(services), func(s string) bool { return !slices.Contains(named, s) })
	}
	tables := slices.ContainsFunc(n.endpoints, func(s string) bool { return slices.Contains(routed, s) })
	switch n.routeTables = ids("routeTables", routeTableID); {
	case tables && len(n.routeTables) == 0:
		fault("routeTables", "must name the route tables of the subnets, for the endpoints of s3 and dynamodb (or leave those out of context endpoints, if they are there already)")
	case !tables && len(n.routeTables) > 0:
		fault("routeTables", "is for endpoints of s3 and dynamodb, and none is asked for")
	}
	return n, faults
}

// wantedServices are those that work or gateway calls: Secrets Manager only where
// there is a secret.
func (o options) wantedServices() []string {
	if len(o.upstreamSecrets()) > 0 {
		return slices.Clone(services)
	}
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return s == "secretsmanager" })
}

// upstreamURLs are the base URLs of all upstreams.
func (o options) upstreamURLs() (all []*url.URL) {
	for _, u := range o.allUpstreams() {
		if parsed, err := url.Parse(u.URL); err == nil && u.URL != "" {
			all = append(all, parsed)
		}
	}
	return all
}

// upstreamPort is where an upstream listens: at this address, or if that is not valid
// at any that its name may mean.
type upstreamPort struct {
	address netip.Addr
	port    uint16
}

// upstreamPorts are those of upstreams at other ports than 443, each once.
func (o options) upstreamPorts() (all []upstreamPort) {
	for _, u := range o.upstreamURLs() {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			port = map[string]uint64{"http": 80, "https": 443}[u.Scheme]
		}
		address, _ := netip.ParseAddr(u.Hostname())
		if address = address.Unmap(); !address.Is4() {
			address = netip.Addr{}
		}
		if at := (upstreamPort{address, uint16(port)}); port != 443 && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}

func split(list string) (all []string) {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}
