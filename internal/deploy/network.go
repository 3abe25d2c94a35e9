package deploy

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"holdfast/internal/config"
)

// Network says which VPC the functions that call upstreams are in; the zero value is
// none. It is CDK context, ids and never names: looking one up would need an account
// at synth.
type Network struct {
	VPC         string   // "", "new", or the id of one that is there
	Subnets     []string // of that one, one a zone
	RouteTables []string // of those subnets, for the endpoints of S3 and DynamoDB
	Endpoints   []string // services, in the order of services below, and Bedrock
}

// Own reports whether the VPC is the stack's.
func (n Network) Own() bool { return n.VPC == "new" }

// Services that work and gateway call, by their endpoints' names. Those of Routed cost
// nothing and are entries of route tables; the others are interfaces. Lambda itself
// writes the logs and polls the queue, from outside the VPC.
const Bedrock = "bedrock-runtime"

var services = []string{"s3", "dynamodb", "sqs", "states", "secretsmanager"}

// Routed reports whether the service's endpoint is an entry of route tables.
func Routed(service string) bool { return service == "s3" || service == "dynamodb" }

var (
	vpcID        = regexp.MustCompile(`^vpc-[0-9a-f]{8,17}$`)
	subnetID     = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	routeTableID = regexp.MustCompile(`^rtb-[0-9a-f]{8,17}$`)
	bedrockHost  = regexp.MustCompile(`^bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com$`)
)

// parseNetwork reads context vpc, subnets, routeTables and endpoints, for a stack with
// these upstreams. Lists are separated by commas.
func parseNetwork(context func(string) string, resources config.Resources) (n Network, faults []error) {
	fault := func(name, rule string) {
		faults = append(faults, &ContextFault{name, context(name), rule})
	}
	n.VPC = context("vpc")
	if !vpcID.MatchString(n.VPC) {
		if n.VPC != "" && !n.Own() {
			fault("vpc", "must be new, or the id of a VPC (vpc-…)")
		}
		for _, name := range []string{"subnets", "routeTables", "endpoints"} {
			if context(name) != "" {
				fault(name, "is for a VPC that is there already, which context vpc must name by its id")
			}
		}
		if n.Own() {
			n.Endpoints = wanted(resources)
			if slices.ContainsFunc(resources.AllUpstreams(), isBedrock) {
				n.Endpoints = append(n.Endpoints, Bedrock)
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
	if n.Subnets = ids("subnets", subnetID); len(n.Subnets) == 0 {
		fault("subnets", "must name the private subnets that the functions are put into, one of each zone")
	}
	switch named := split(context("endpoints")); {
	case len(named) == 0:
		n.Endpoints = wanted(resources)
	case context("endpoints") != "none":
		for i, service := range named {
			if !slices.Contains(services, service) || slices.Contains(named[:i], service) {
				fault("endpoints", fmt.Sprintf("%q must be one of %s, and there once; none for none at all", service, strings.Join(services, ", ")))
			}
		}
		n.Endpoints = slices.DeleteFunc(slices.Clone(services), func(s string) bool { return !slices.Contains(named, s) })
	}
	tables := slices.ContainsFunc(n.Endpoints, Routed)
	switch n.RouteTables = ids("routeTables", routeTableID); {
	case tables && len(n.RouteTables) == 0:
		fault("routeTables", "must name the route tables of the subnets, for the endpoints of s3 and dynamodb (or leave those out of context endpoints, if they are there already)")
	case !tables && len(n.RouteTables) > 0:
		fault("routeTables", "is for endpoints of s3 and dynamodb, and none is asked for")
	}
	return n, faults
}

// wanted are the services that work or gateway calls: Secrets Manager only where there
// is a secret.
func wanted(resources config.Resources) []string {
	if slices.ContainsFunc(resources.AllUpstreams(), func(u config.Upstream) bool { return u.Secret != "" }) {
		return slices.Clone(services)
	}
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool { return s == "secretsmanager" })
}

func isBedrock(u config.Upstream) bool {
	parsed, err := url.Parse(u.URL)
	return err == nil && bedrockHost.MatchString(parsed.Hostname())
}

func split(list string) (all []string) {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}
