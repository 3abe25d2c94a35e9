package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdfast/internal/config"
)

// The app is run as the CDK command line runs it. It names every fault, makes
// nothing and shows no stack trace.
func TestRefusesBadConfiguration(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	command := exec.Command(self)
	command.Env = append(os.Environ(),
		"HOLDFAST_TEST_RUN_APP=1", "CDK_OUTDIR="+out, `CDK_CONTEXT_JSON={"architecture":"mips","removal":"later","functions":"/nowhere","alarmEmail":"me","doors":"ajar","gateway":"0","vpc":"10.0.0.0/16","subnets":"a"}`,
		"HOLDFAST_LEASE=10s", "HOLDFAST_HEARTBEAT=5s", "HOLDFAST_WINDOWS=never",
		"HOLDFAST_UPSTREAM_URL=", "HOLDFAST_UPSTREAM_KEY=sk-hidden", "HOLDFAST_UPSTREAM_SECRET=", "AWS_ENDPOINT_URL=",
		"HOLDFAST_SUBMIT_TIMEOUT=45s", "HOLDFAST_CLAIM_STALE=50s", "HOLDFAST_JOBS_URL=https://jobs.example.com", "HOLDFAST_JOBS_KEY=sk-hidden", "HOLDFAST_JOBS_SECRET=",
	)
	text, err := command.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
	for _, fault := range []string{
		"the lease must be at least 4 heartbeats", "HOLDFAST_WINDOWS=never", "HOLDFAST_UPSTREAM_URL is missing", "HOLDFAST_UPSTREAM_KEY", "HOLDFAST_JOBS_KEY is for a local AWS",
		"a claim must turn stale", "doors=ajar", "gateway=0", "vpc=10.0.0.0/16", "subnets=a",
		"architecture=mips", "removal=later", "alarmEmail=me", "/nowhere/api/bootstrap", "/nowhere/work/bootstrap",
	} {
		if !strings.Contains(string(text), fault) {
			t.Errorf("doesn't say %q:\n%s", fault, text)
		}
	}
	for _, never := range []string{"goroutine ", "panic", "    at ", "sk-hidden"} {
		if strings.Contains(string(text), never) {
			t.Errorf("says %q:\n%s", never, text)
		}
	}
	if made, err := os.ReadDir(out); err != nil || len(made) != 0 {
		t.Errorf("made %v (%v)", made, err)
	}
}

func TestUpstreamKeyIsLocalOnly(t *testing.T) {
	get := map[string]string{config.EnvUpstreamURL: "https://models.example.com", config.EnvUpstreamKey: "sk-a"}
	context := vars(map[string]string{"functions": account.opts.functions})
	if _, err := parseOptions(vars(get), context); err == nil || !strings.Contains(err.Error(), config.EnvUpstreamSecret) {
		t.Errorf("on AWS: %v, want a refusal that names the secret", err)
	}
	get["AWS_ENDPOINT_URL"] = "https://127.0.0.1:4566"
	if _, err := parseOptions(vars(get), context); err != nil {
		t.Errorf("locally: %v", err)
	}
}
