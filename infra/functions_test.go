package main

import (
	"maps"
	"slices"
	"testing"

	"holdfast/internal/config"
)

func TestFunctions(t *testing.T) {
	for _, c := range []struct {
		stack           *synthesized
		name            string
		memory, timeout int
		architecture    string
	}{
		{&account, "Api", 512, 29, "arm64"},
		{&account, "Plan", 1024, 900, "arm64"},
		{&account, "Work", 512, 900, "arm64"},
		{&account, "Finish", 1024, 900, "arm64"},
		{&account, "Reap", 512, 60, "arm64"},
		{&account, "Ingest", 512, 60, "arm64"},
		{&account, "Gateway", 512, 900, "arm64"},
		{&local, "Work", 768, 300, "x86_64"},
	} {
		got := c.stack.lambda(t, c.name)
		same(t, c.name, []any{got["MemorySize"], got["Timeout"], got["Runtime"], got["Handler"], got["Architectures"]},
			[]any{c.memory, c.timeout, "provided.al2023", "bootstrap", []any{c.architecture}})
		if group := plain(got["LoggingConfig"].(object)["LogGroup"]); group != "${"+c.name+"Logs}" {
			t.Errorf("%s logs to %s", c.name, group)
		}
		if role := plain(got["Role"]); role != "${"+c.name+"Role.Arn}" {
			t.Errorf("%s runs as %s", c.name, role)
		}
	}
}

// lambda returns the function's properties; Work is also how WorkQueue begins, so
// the prefix alone won't do.
func (s *synthesized) lambda(t *testing.T, name string) map[string]any {
	t.Helper()
	for id, r := range s.resources {
		if r.Type == "AWS::Lambda::Function" && cut(id) == name {
			return r.Properties
		}
	}
	t.Fatalf("no function %s", name)
	return nil
}

// A part may be handed over any number of times, and each time the function sends
// a message to its own queue. Lambda stops such loops unless told otherwise.
func TestOnlyWorkMayLoop(t *testing.T) {
	for _, name := range []string{"Api", "Plan", "Work", "Finish", "Reap", "Ingest", "Gateway"} {
		want := any(nil)
		if name == "Work" {
			want = "Allow"
		}
		same(t, name, account.lambda(t, name)["RecursiveLoop"], want)
	}
}

func TestEnvironment(t *testing.T) {
	for _, stack := range []*synthesized{&account, &local} {
		for _, role := range []config.Role{config.API, config.Plan, config.Work, config.Finish, config.Reap, config.Ingest, config.Gateway} {
			want := map[string]string{}
			maps.Copy(want, stack.opts.settings.Env())
			for name, value := range map[string]string{
				config.EnvTable: "${Table}", config.EnvInputsBucket: "${Inputs}", config.EnvResultsBucket: "${Results}",
				config.EnvWorkQueueURL: "${WorkQueue}", config.EnvDeadLettersURL: "${DeadLetters}", config.EnvStateMachineARN: "${Workflow}",
				config.EnvUpstreamURL: stack.opts.upstream.URL, config.EnvUpstreamSecret: stack.opts.upstream.Secret,
				config.EnvUpstreamKey: stack.opts.upstream.Key, config.EnvUpstreams: stack.opts.upstreamText, config.EnvUpstreamAllow: stack.opts.allowText,
				config.EnvJobsURL: stack.opts.jobs.URL, config.EnvJobsSecret: stack.opts.jobs.Secret,
				config.EnvJobsKey: stack.opts.jobs.Key, config.EnvIngestQueueURL: "${IngestQueue}", config.EnvIngestDeadLettersURL: "${IngestDeadLetters}",
			} {
				if role.Needs(name) && value != "" {
					want[name] = value
				}
			}
			got := map[string]string{}
			id := map[string]string{"api": "Api", "plan": "Plan", "work": "Work", "finish": "Finish", "reap": "Reap", "ingest": "Ingest", "gateway": "Gateway"}[role.Name]
			for name, value := range stack.lambda(t, id)["Environment"].(object)["Variables"].(object) {
				got[name] = plain(value)
			}
			same(t, role.Name, got, want)
			// What the function will do with it at its start.
			get := func(name string) string { return got[name] }
			if parsed, err := config.Parse(get); err != nil {
				t.Errorf("%s can't start: %v", role.Name, err)
			} else {
				same(t, role.Name+" settings", parsed, stack.opts.settings)
			}
		}
	}
}

func TestLogGroups(t *testing.T) {
	var names []string
	for _, r := range account.resources {
		if r.Type != "AWS::Logs::LogGroup" {
			continue
		}
		names = append(names, plain(r.Properties["LogGroupName"]))
		same(t, "retention", r.Properties["RetentionInDays"], 30)
	}
	slices.Sort(names)
	same(t, "log groups", names, []string{
		"/aws/vendedlogs/http-api/holdfast/access", "/aws/vendedlogs/states/holdfast/workflow",
		"/holdfast/api", "/holdfast/finish", "/holdfast/gateway", "/holdfast/ingest", "/holdfast/plan", "/holdfast/reap", "/holdfast/work",
	})
}
