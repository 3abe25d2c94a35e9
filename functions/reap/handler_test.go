package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/reap"
)

func sample(t *testing.T, name string) (ev event) {
	t.Helper()
	raw, err := os.ReadFile("../../events/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// house is a handler whose reaper only takes note, and answers report and err.
type house struct {
	handler
	asked []string
	log   bytes.Buffer
}

func newHouse(report reap.Report, err error) *house {
	h := &house{}
	h.handler = handler{
		round: func(_ context.Context, scope reap.Scope, now time.Time) (reap.Report, error) {
			h.asked = append(h.asked, "round "+scope.Tenant)
			return report, err
		},
		look: func(_ context.Context, tenant, id string, now time.Time) (reap.Report, error) {
			h.asked = append(h.asked, "look "+tenant+" "+id)
			return report, err
		},
		log: slog.New(slog.NewJSONHandler(&h.log, nil)),
	}
	return h
}

func TestSamples(t *testing.T) {
	for name, want := range map[string]string{
		"reap":           "round ",
		"reap-execution": "look acme batch_sample000000000000000001",
	} {
		h := newHouse(reap.Report{Reaped: 2, Started: 1}, nil)
		got, err := h.handle(t.Context(), sample(t, name))
		if err != nil || got != (reap.Report{Reaped: 2, Started: 1}) || strings.Join(h.asked, ", ") != want {
			t.Errorf("%s: %+v, %v, asked for %v", name, got, err, h.asked)
		}
	}
}

// The statuses that the rule lets through; what the execution was doesn't matter.
func TestExecutions(t *testing.T) {
	for _, status := range []string{"FAILED", "TIMED_OUT", "ABORTED"} {
		ev := sample(t, "reap-execution")
		ev.Detail.Status = status
		ev.Detail.Input = `{"v":1,"tenant":"acme","batch":"batch_sample000000000000000001","finish":true}`
		h := newHouse(reap.Report{}, nil)
		if _, err := h.handle(t.Context(), ev); err != nil || len(h.asked) != 1 {
			t.Errorf("%s: %v, asked for %v", status, err, h.asked)
		}
		if !strings.Contains(h.log.String(), status) {
			t.Errorf("log: %s", h.log.String())
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, change := range map[string]func(*event){
		"another event":      func(ev *event) { ev.DetailType = "AWS API Call via CloudTrail" },
		"nothing":            func(ev *event) { *ev = event{} },
		"no input":           func(ev *event) { ev.Detail.Input = "" },
		"a foreign input":    func(ev *event) { ev.Detail.Input = `[1]` },
		"no tenant":          func(ev *event) { ev.Detail.Input = `{"v":1,"batch":"batch_sample000000000000000001"}` },
		"a tenant too many":  func(ev *event) { ev.Detail.Input = `{"v":1,"tenant":"a/b","batch":"batch_sample000000000000000001"}` },
		"an id that is none": func(ev *event) { ev.Detail.Input = `{"v":1,"tenant":"acme","batch":"b"}` },
	} {
		ev := sample(t, "reap-execution")
		change(&ev)
		h := newHouse(reap.Report{}, nil)
		if _, err := h.handle(t.Context(), ev); !errors.Is(err, errEvent) || len(h.asked) > 0 || !strings.Contains(h.log.String(), `"ERROR"`) {
			t.Errorf("%s: %v, asked for %v, log %s", name, err, h.asked, h.log.String())
		}
	}
}

// Trouble is the function's: EventBridge sends a status event again.
func TestTrouble(t *testing.T) {
	trouble := errors.New("no table")
	for name, c := range map[string]struct{ err, want error }{
		"reap": {trouble, trouble}, "reap-execution": {trouble, trouble},
	} {
		h := newHouse(reap.Report{Reaped: 1}, c.err)
		if got, err := h.handle(t.Context(), sample(t, name)); !errors.Is(err, c.want) || got.Reaped != 1 || !strings.Contains(h.log.String(), "no table") {
			t.Errorf("%s: %+v, %v, log %s", name, got, err, h.log.String())
		}
	}
	h := newHouse(reap.Report{}, batch.ErrNotFound)
	if _, err := h.handle(t.Context(), sample(t, "reap-execution")); err != nil {
		t.Errorf("a batch that isn't there: %v", err)
	}
}

func TestWireReportsEveryFault(t *testing.T) {
	env := map[string]string{"HOLDFAST_LEASE": "soon"}
	_, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	for _, name := range []string{"HOLDFAST_LEASE", config.EnvTable, config.EnvWorkQueueURL, config.EnvDeadLettersURL, config.EnvStateMachineARN} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}

// With a service for external jobs or without: the reaper is wired, and calls
// nobody for that.
func TestWire(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	for url, good := range map[string]bool{"": true, "https://jobs.example/prefix": true, "ftp://jobs.example": false} {
		env := map[string]string{
			config.EnvTable: "table", config.EnvWorkQueueURL: "https://sqs.example/1/work", config.EnvDeadLettersURL: "https://sqs.example/1/dead",
			config.EnvStateMachineARN: "arn:aws:states:us-east-1:111122223333:stateMachine:m", config.EnvJobsURL: url,
		}
		var log bytes.Buffer
		env["HOLDFAST_CLAIM_STALE"] = "29s"
		_, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.NewJSONHandler(&log, nil)))
		if (err == nil) != good {
			t.Errorf("%q: %v", url, err)
		}
		if good && !strings.Contains(log.String(), "HOLDFAST_CLAIM_STALE") {
			t.Errorf("that the default holds isn't said: %s", &log)
		}
		// Not what a submit would outlast: that is refused, and doesn't fall back.
		env["HOLDFAST_CLAIM_STALE"], env["HOLDFAST_SUBMIT_TIMEOUT"] = "30s", "30s"
		if _, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "HOLDFAST_SUBMIT_TIMEOUT") {
			t.Errorf("%v", err)
		}
	}
}
