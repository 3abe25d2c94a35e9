package config

import (
	"maps"
	"reflect"
	"strings"
	"testing"
)

var everything = map[string]string{
	EnvTable: "t", EnvInputsBucket: "in", EnvResultsBucket: "out",
	EnvWorkQueueURL:    "https://sqs.eu-west-1.amazonaws.com/1/q",
	EnvStateMachineARN: "arn:aws:states:eu-west-1:1:stateMachine:m",
	EnvDeadLettersURL:  "https://sqs.eu-west-1.amazonaws.com/1/d",

	EnvIngestQueueURL:       "https://sqs.eu-west-1.amazonaws.com/1/i",
	EnvIngestDeadLettersURL: "https://sqs.eu-west-1.amazonaws.com/1/r",
	EnvUpstreamURL:          "https://models.example.com/",
	EnvUpstreamSecret:       "holdfast/upstream",
}

func TestResourcesByRole(t *testing.T) {
	for _, role := range []Role{API, Plan, Work, Finish, Reap, Ingest, CommandLine, Deploy} {
		if _, err := ParseResources(env(everything), role); err != nil {
			t.Errorf("%s: %v", role.Name, err)
		}
		for _, name := range role.Required {
			without := maps.Clone(everything)
			delete(without, name)
			_, err := ParseResources(env(without), role)
			if err == nil || !strings.Contains(err.Error(), name+" is missing") || !strings.Contains(err.Error(), role.Name) {
				t.Errorf("%s without %s: %v", role.Name, name, err)
			}
		}
		_, err := ParseResources(env(nil), role)
		if values, _ := faults(t, err); len(values) != len(role.Required) {
			t.Errorf("%s with nothing: %d faults, want %d", role.Name, len(values), len(role.Required))
		}
	}
}

// A function is handed only what it needs, so the rest stays empty even where
// the variable is there.
func TestResourcesOfOthersStayEmpty(t *testing.T) {
	got, err := ParseResources(env(everything), Plan)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Resources{Table: "t", InputsBucket: "in", ResultsBucket: "out"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got, err = ParseResources(env(everything), Work)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Upstream, Upstream{URL: "https://models.example.com", Secret: "holdfast/upstream"}) || got.StateMachineARN != "" {
		t.Errorf("work got %+v", got)
	}
}

func TestResourcesRefuse(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{EnvTable, "a table"},
		{EnvWorkQueueURL, "q"},
		{EnvStateMachineARN, "m"},
		{EnvUpstreamURL, "models.example.com"},
		{EnvUpstreamURL, "ftp://models.example.com"},
		{EnvUpstreamURL, "https://models.example.com/v1"},
		{EnvUpstreamURL, "https://models.example.com/v1/"},
		{EnvUpstreamURL, "https://models.example.com:0"},
		{EnvUpstreamURL, "https://models.example.com:65536"},
		{EnvUpstreamURL, "https://models.example.com:99999999999999999999"},
		{EnvUpstreamSecret, "holdfast/*"},
		{EnvUpstreamSecret, "arn:aws:secretsmanager:eu-west-1:1:secret:s"},
	} {
		vars := maps.Clone(everything)
		vars[c.name] = c.value
		all := Role{Name: "all", Required: []string{EnvTable, EnvWorkQueueURL, EnvStateMachineARN, EnvUpstreamURL}, Optional: []string{EnvUpstreamSecret, EnvUpstreamKey}}
		_, err := ParseResources(env(vars), all)
		if err == nil || !strings.Contains(err.Error(), c.name+"="+c.value) {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
}

// A URL that is refused may hold a password, or a key in its query.
func TestURLsAreNotPrintedWithSecrets(t *testing.T) {
	for _, value := range []string{
		"https://user:word@models.example.com", "https://user:word@models.example.com/v1", "https://models.example.com?key=word", "https://models.example.com#word", "user:word@%zz",
	} {
		vars := maps.Clone(everything)
		vars[EnvUpstreamURL] = value
		_, err := ParseResources(env(vars), Work)
		if err == nil || strings.Contains(err.Error(), "word") || !strings.Contains(err.Error(), EnvUpstreamURL+"=(hidden)") || !strings.Contains(err.Error(), "credentials or query") {
			t.Errorf("%s: %v", value, err)
		}
	}
	vars := maps.Clone(everything)
	vars[EnvUpstreamURL] = "https://models.example.com:65535"
	if _, err := ParseResources(env(vars), Work); err != nil {
		t.Error(err)
	}
}

func TestUpstreamKeyIsNeverPrinted(t *testing.T) {
	vars := maps.Clone(everything)
	vars[EnvUpstreamKey] = "sk very secret"
	_, err := ParseResources(env(vars), Work)
	if err == nil || strings.Contains(err.Error(), "secret sk") || strings.Contains(err.Error(), "very") {
		t.Errorf("error %v", err)
	}
	vars[EnvUpstreamKey] = "sk-fine"
	_, err = ParseResources(env(vars), Work)
	if err == nil || strings.Contains(err.Error(), "sk-fine") || !strings.Contains(err.Error(), "only one of them") {
		t.Errorf("secret and key together: %v", err)
	}
}

// The external service is there or not: nothing of it is half there, and its token
// is printed no more than the upstream's.
func TestJobs(t *testing.T) {
	for _, role := range []Role{Ingest, Reap, Deploy} {
		with := func(more map[string]string) (Resources, error) {
			vars := maps.Clone(everything)
			maps.Copy(vars, more)
			return ParseResources(env(vars), role)
		}
		if got, err := with(nil); err != nil || got.Jobs != (Jobs{}) {
			t.Errorf("%s without one: %+v, %v", role.Name, got.Jobs, err)
		}
		got, err := with(map[string]string{EnvJobsURL: "https://jobs.example.com/base/", EnvJobsSecret: "holdfast/jobs"})
		if err != nil || got.Jobs != (Jobs{URL: "https://jobs.example.com/base", Secret: "holdfast/jobs"}) {
			t.Errorf("%s: %+v, %v", role.Name, got.Jobs, err)
		}
		for say, vars := range map[string]map[string]string{
			"only one of them":                {EnvJobsURL: "https://jobs.example.com", EnvJobsSecret: "s", EnvJobsKey: "sk-fine"},
			"neither may be set without":      {EnvJobsKey: "sk-fine"},
			EnvJobsKey + "=(hidden)":          {EnvJobsURL: "https://jobs.example.com", EnvJobsKey: "sk fine"},
			EnvJobsURL + "=https://j.test/v1": {EnvJobsURL: "https://j.test/v1"},
			EnvJobsSecret + "=arn:aws:x":      {EnvJobsURL: "https://jobs.example.com", EnvJobsSecret: "arn:aws:x"},
		} {
			_, err := with(vars)
			if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "sk-fine") || strings.Contains(err.Error(), "sk fine") {
				t.Errorf("%s, %s: %v", role.Name, say, err)
			}
			if values, broken := faults(t, err); len(values)+len(broken) != 1 {
				t.Errorf("%s, %s: %v", role.Name, say, err)
			}
		}
	}
	for _, role := range []Role{API, Plan, Work, Finish, CommandLine, Cost} {
		if role.Needs(EnvJobsURL) || role.Needs(EnvJobsSecret) || role.Needs(EnvJobsKey) || role.Needs(EnvIngestQueueURL) {
			t.Errorf("%s is given what only the doors need", role.Name)
		}
	}
}
