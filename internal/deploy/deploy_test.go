package deploy

import (
	"slices"
	"strings"
	"testing"

	"holdfast/internal/config"
	"holdfast/internal/deptest"
)

// Neither CDK nor AWS: it is asked before anything of them is built.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/config", "holdfast/internal/outbound")
}

func vars(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

func TestParse(t *testing.T) {
	o, err := Parse(vars(map[string]string{config.EnvUpstreamURL: "https://models.example.com/", "HOLDFAST_LEASE": "40s"}),
		vars(map[string]string{"doors": "off", "gateway": "12", "removal": "destroy", "architecture": "amd64", "alarmEmail": "ops@example.com", "vpc": "new"}))
	if err != nil {
		t.Fatal(err)
	}
	if o.Doors || !o.Gateway || o.GatewayRequests != 12 || !o.Destroy || o.Architecture != "amd64" || o.AlarmEmail != "ops@example.com" || !o.Network.Own() ||
		o.Settings.Lease.Seconds() != 40 || o.Resources.Upstream.URL != "https://models.example.com" {
		t.Errorf("%+v", o)
	}
	if o, err = Parse(vars(map[string]string{config.EnvUpstreamURL: "https://models.example.com"}), vars(nil)); err != nil || !o.Doors || !o.Gateway || o.Destroy || o.Architecture != "arm64" || o.Network.VPC != "" {
		t.Errorf("from nothing: %+v, %v", o, err)
	}
}

// What a person can set wrong is told before anything is built, all of it, and
// nothing else is.
func TestFaults(t *testing.T) {
	const service = "https://models.example.com"
	for _, c := range []struct {
		name string
		env  map[string]string // HOLDFAST_UPSTREAM_URL is good where it isn't here
		says []string
	}{
		{"nothing wrong", map[string]string{"VPC": "new", "DOORS": "off", "GATEWAY": "50", "ALARM_EMAIL": "ops@example.com"}, nil},
		{"no upstream", map[string]string{config.EnvUpstreamURL: ""}, []string{"HOLDFAST_UPSTREAM_URL is missing"}},
		{"only by model", map[string]string{config.EnvUpstreamURL: "", config.EnvUpstreams: `[{"models":["a"],"url":"https://a.example.com"}]`}, nil},
		{"loopback", map[string]string{config.EnvUpstreamURL: "http://127.0.0.1:9"}, []string{"HOLDFAST_UPSTREAM_URL: 127.0.0.1: address is refused: loopback"}},
		{"loopback, allowed", map[string]string{config.EnvUpstreamURL: "http://127.0.0.1:9", config.EnvUpstreamAllow: "127.0.0.1"}, nil},
		{"metadata by model", map[string]string{config.EnvUpstreams: `[{"models":["a"],"url":"http://169.254.169.254"}]`}, []string{"HOLDFAST_UPSTREAMS: 169.254.169.254: address is refused: metadata"}},
		{"with /v1", map[string]string{config.EnvUpstreamURL: service + "/v1"}, []string{"HOLDFAST_UPSTREAM_URL=https://models.example.com/v1: must be"}},
		{"misspelt member", map[string]string{config.EnvUpstreams: `[{"models":["a"],"url":"https://a.example.com","secrett":"x"}]`}, []string{`HOLDFAST_UPSTREAMS: entry 1: "secrett"`}},
		{"jobs", map[string]string{config.EnvJobsURL: "jobs.example.com"}, []string{"HOLDFAST_JOBS_URL=jobs.example.com"}},
		{"a token on AWS", map[string]string{config.EnvUpstreamKey: "sk-a"}, []string{"HOLDFAST_UPSTREAM_KEY is for a local AWS"}},
		{"a token on a local AWS", map[string]string{config.EnvUpstreamKey: "sk-a", "AWS_ENDPOINT_URL": "https://127.0.0.1:4566"}, nil},
		{"no address at all", map[string]string{"ALARM_EMAIL": "ops"}, []string{"context alarmEmail=ops (ALARM_EMAIL of make deploy)"}},
		{"a name beside it", map[string]string{"ALARM_EMAIL": "Ops <ops@example.com>"}, []string{"context alarmEmail="}},
		{"two addresses", map[string]string{"ALARM_EMAIL": "ops@example.com,b@example.com"}, []string{"context alarmEmail="}},
		{"many", map[string]string{
			"HOLDFAST_LEASE": "1s", config.EnvUpstreamURL: service + "/v1", config.EnvUpstreams: `[{"models":["a"],"url":"http://localhost"}]`,
			config.EnvJobsSecret: "holdfast/jobs", "DOORS": "maybe", "GATEWAY": "0", "VPC": "mine", "SUBNETS": "a", "ENDPOINTS": "s3", "ROUTE_TABLES": "b",
		}, []string{
			"HOLDFAST_LEASE=1s", "HOLDFAST_UPSTREAM_URL=", "HOLDFAST_UPSTREAMS: localhost", "HOLDFAST_JOBS_SECRET", "context doors=maybe (DOORS of make deploy)",
			"context gateway=0", "context vpc=mine", "context subnets=a", "context endpoints=s3", "context routeTables=b",
		}},
	} {
		env := map[string]string{config.EnvUpstreamURL: service}
		for name, value := range c.env {
			env[name] = value
		}
		_, err := Parse(vars(env), Context(vars(env)))
		if len(c.says) == 0 && err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, want := range c.says {
			if err == nil || !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return strings.Contains(line, want) }) {
				t.Errorf("%s: %v\nwithout a line with %q", c.name, err, want)
			}
		}
	}
}
