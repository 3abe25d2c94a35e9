package config

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Variables that name deployed things.
const (
	EnvTable           = "HOLDFAST_TABLE"
	EnvInputsBucket    = "HOLDFAST_INPUTS_BUCKET"
	EnvResultsBucket   = "HOLDFAST_RESULTS_BUCKET"
	EnvWorkQueueURL    = "HOLDFAST_WORK_QUEUE_URL"
	EnvDeadLettersURL  = "HOLDFAST_DEAD_LETTERS_URL"
	EnvStateMachineARN = "HOLDFAST_STATE_MACHINE_ARN"
	EnvUpstreamURL     = "HOLDFAST_UPSTREAM_URL"
	EnvUpstreamSecret  = "HOLDFAST_UPSTREAM_SECRET"
	EnvUpstreamKey     = "HOLDFAST_UPSTREAM_KEY"

	EnvIngestQueueURL       = "HOLDFAST_INGEST_QUEUE_URL"
	EnvIngestDeadLettersURL = "HOLDFAST_INGEST_DEAD_LETTERS_URL"
	EnvJobsURL              = "HOLDFAST_JOBS_URL"
	EnvJobsSecret           = "HOLDFAST_JOBS_SECRET"
	EnvJobsKey              = "HOLDFAST_JOBS_KEY"
)

// Resources are the deployed things a program talks to. Only those its [Role]
// needs are set.
type Resources struct {
	Table           string
	InputsBucket    string
	ResultsBucket   string
	WorkQueueURL    string
	DeadLettersURL  string
	StateMachineARN string
	Upstream        Upstream // of all models that no other has; the zero value where there is none

	Upstreams     []Upstream     // chosen by the models they name
	UpstreamAllow []netip.Prefix // where upstreams may be though such addresses are refused otherwise

	IngestQueueURL       string // of the S3 and queue doors
	IngestDeadLettersURL string // of that queue: what was refused, with its reason
	Jobs                 Jobs
}

// Upstream is an OpenAI-compatible service that answers lines.
type Upstream struct {
	Models []string // whole names, or beginnings of names and a *; none: those that no other has
	URL    string   // base URL without /v1 and without a closing slash
	Secret string   // name of the Secrets Manager secret with the bearer token, or empty
	Key    string   // the token itself, local use only, or empty; never logged
}

// Jobs is the external service at which what comes by S3 or by a message is
// started instead of here; the zero value where there is none. Its members are as
// Upstream's: of the URL, <URL>/v1/jobs is called.
type Jobs struct{ URL, Secret, Key string }

// Role is a program and the resources it needs, by variable. The infra app hands
// a function exactly these.
type Role struct {
	Name     string
	Required []string
	Optional []string
}

// Programs and what each of them needs.
var (
	API         = Role{Name: "api", Required: []string{EnvTable, EnvInputsBucket, EnvResultsBucket, EnvStateMachineARN, EnvWorkQueueURL}}
	Plan        = Role{Name: "plan", Required: []string{EnvTable, EnvInputsBucket, EnvResultsBucket}}
	Work        = Role{Name: "work", Required: []string{EnvTable, EnvInputsBucket, EnvResultsBucket, EnvWorkQueueURL, EnvUpstreamURL}, Optional: upstreams}
	Finish      = Role{Name: "finish", Required: []string{EnvTable, EnvInputsBucket, EnvResultsBucket}}
	Reap        = Role{Name: "reap", Required: []string{EnvTable, EnvWorkQueueURL, EnvDeadLettersURL, EnvStateMachineARN}, Optional: jobs}
	Ingest      = Role{Name: "ingest", Required: []string{EnvTable, EnvInputsBucket, EnvResultsBucket, EnvStateMachineARN, EnvIngestQueueURL, EnvIngestDeadLettersURL}, Optional: jobs}
	Gateway     = Role{Name: "gateway", Required: []string{EnvTable, EnvUpstreamURL}, Optional: upstreams}
	CommandLine = Role{Name: "holdfast", Required: []string{EnvTable}}
	Cost        = Role{Name: "holdfast cost", Required: []string{EnvTable, EnvStateMachineARN}}

	// Deploy is the infra app at synth: everything else comes from the stack.
	Deploy = Role{Name: "deploy", Required: []string{EnvUpstreamURL}, Optional: slices.Concat(upstreams, jobs)}
)

// upstreams is what whoever calls models reads beside EnvUpstreamURL, which may be
// missing where EnvUpstreams names services: then other models have none.
var upstreams = []string{EnvUpstreamSecret, EnvUpstreamKey, EnvUpstreams, EnvUpstreamAllow}

// jobs is what whoever starts external jobs reads: ingest, and the reaper, which
// goes on where ingest died.
var jobs = []string{EnvJobsURL, EnvJobsSecret, EnvJobsKey}

// Needs reports whether the role reads this variable.
func (r Role) Needs(variable string) bool {
	return slices.Contains(r.Required, variable) || slices.Contains(r.Optional, variable)
}

// ParseResources reads the variables that the role needs. The error joins one
// [*Fault] for each that is missing or malformed; values never hold a key.
func ParseResources(getenv func(string) string, role Role) (Resources, error) {
	var (
		res    Resources
		faults []error
	)
	for _, v := range []struct {
		name    string
		to      *string
		allowed string
		ok      func(string) bool
	}{
		{EnvTable, &res.Table, "the name of the table", plainName},
		{EnvInputsBucket, &res.InputsBucket, "the name of the inputs bucket", plainName},
		{EnvResultsBucket, &res.ResultsBucket, "the name of the results bucket", plainName},
		{EnvWorkQueueURL, &res.WorkQueueURL, "the URL of the work queue", httpURL},
		{EnvDeadLettersURL, &res.DeadLettersURL, "the URL of the dead-letter queue", httpURL},
		{EnvStateMachineARN, &res.StateMachineARN, "the ARN of the state machine", stateMachine},
		{EnvUpstreamURL, &res.Upstream.URL, "the http(s) base URL of an OpenAI-compatible service, without /v1, credentials or query", baseURL},
		{EnvUpstreamSecret, &res.Upstream.Secret, "the name of a Secrets Manager secret", secretName},
		{EnvUpstreamKey, &res.Upstream.Key, "a bearer token without spaces", bearerToken},
		{EnvIngestQueueURL, &res.IngestQueueURL, "the URL of the ingest queue", httpURL},
		{EnvIngestDeadLettersURL, &res.IngestDeadLettersURL, "the URL of the ingest queue's dead letters", httpURL},
		{EnvJobsURL, &res.Jobs.URL, "the http(s) base URL of a service with POST /v1/jobs, without /v1, credentials or query", baseURL},
		{EnvJobsSecret, &res.Jobs.Secret, "the name of a Secrets Manager secret", secretName},
		{EnvJobsKey, &res.Jobs.Key, "a bearer token without spaces", bearerToken},
	} {
		if !role.Needs(v.name) {
			continue
		}
		value := getenv(v.name)
		switch {
		case v.name == EnvUpstreamURL && value == "" && getenv(EnvUpstreams) != "" && role.Needs(EnvUpstreams):
		case value == "" && slices.Contains(role.Required, v.name):
			faults = append(faults, &Fault{Name: v.name, Allowed: v.allowed + " (needed by " + role.Name + ")"})
		case value == "":
		case !v.ok(value):
			if v.name == EnvUpstreamKey || v.name == EnvJobsKey || strings.ContainsAny(value, "@?#") { // a password, or a key in a query
				value = "(hidden)"
			}
			faults = append(faults, &Fault{Name: v.name, Value: value, Allowed: v.allowed})
		default:
			*v.to = value
		}
	}
	res.Upstream.URL = strings.TrimSuffix(res.Upstream.URL, "/")
	res.Jobs.URL = strings.TrimSuffix(res.Jobs.URL, "/")
	faults = append(faults, res.parseMore(getenv, role)...)
	for _, s := range []struct{ secret, key, secretName, keyName string }{
		{res.Upstream.Secret, res.Upstream.Key, EnvUpstreamSecret, EnvUpstreamKey},
		{res.Jobs.Secret, res.Jobs.Key, EnvJobsSecret, EnvJobsKey},
	} {
		if s.secret != "" && s.key != "" {
			faults = append(faults, &BrokenRelation{
				Values: s.secretName + ", " + s.keyName,
				Rule:   "only one of them may be set",
				Why:    "nobody could tell which token is sent",
			})
		}
	}
	if j := res.Jobs; j.URL == "" && (j.Secret != "" || j.Key != "") && getenv(EnvJobsURL) == "" {
		faults = append(faults, &BrokenRelation{
			Values: EnvJobsSecret + ", " + EnvJobsKey,
			Rule:   "neither may be set without " + EnvJobsURL,
			Why:    "whoever sets one means to have a service, and none would be called",
		})
	}
	return res, errors.Join(faults...)
}

func plainName(s string) bool { return !strings.ContainsAny(s, " \t\r\n/") }

func bearerToken(s string) bool { return !strings.ContainsAny(s, " \t\r\n") }

// secretName refuses an ARN: the grant is by name, so that it can be written
// down before the secret exists.
func secretName(s string) bool {
	return !strings.ContainsAny(s, " \t\r\n*?") && !strings.HasPrefix(s, "arn:")
}

func stateMachine(s string) bool {
	return strings.HasPrefix(s, "arn:") && strings.Contains(s, ":stateMachine:")
}

func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func baseURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || !httpURL(s) {
		return false
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	return u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		!strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
}
