package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda/messages"

	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/memory"
)

func sample(t *testing.T) event {
	t.Helper()
	raw, err := os.ReadFile("../../events/finish.json")
	if err != nil {
		t.Fatal(err)
	}
	var ev event
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// house is the handler over b, which belongs to the sample's tenant.
func house(t *testing.T, ev event, b batch.Batch, f *memory.Faults) (handler, *memory.Memory, *bytes.Buffer) {
	t.Helper()
	mem := memory.New(memory.Options{})
	b.Tenant, b.ID = ev.Tenant, ev.Batch
	mem.Table.SeedBatch(b)
	view := mem.With(f)
	finisher, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: view.Table.Batches, Endings: view.Table.Endings, Parts: view.Table.Parts, Seals: view.Table.Seals,
		Files: view.Table.Files, Objects: view.Objects, Uploads: view.Objects,
	}, "results", nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	return handler{finisher: finisher, log: slog.New(slog.NewJSONHandler(&log, nil))}, mem, &log
}

func TestSample(t *testing.T) {
	ev := sample(t)
	h, _, log := house(t, ev, batch.Batch{Status: batch.Completed, Counts: batch.Counts{Total: 3, Completed: 2, Failed: 1}}, nil)
	out, err := h.handle(t.Context(), ev)
	got, _ := json.Marshal(out)
	if err != nil || string(got) != `{"status":"completed"}` {
		t.Errorf("%s, %v", got, err)
	}
	for _, want := range []string{`"tenant":"acme"`, `"batch":"` + ev.Batch + `"`, `"completed":2`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %s: %s", want, log)
		}
	}
}

func TestErrorsHaveNames(t *testing.T) {
	running := batch.Batch{Status: batch.InProgress, Parts: 1, Lines: 1, CreatedAt: time.Now()}
	taken := running
	taken.Status, taken.Ending, taken.Finalizer, taken.FinalizerUntil = batch.Finalizing, batch.Completed, "somebody", time.Now().Add(time.Hour)
	cancelled := running
	cancelled.Ending, cancelled.EndingAt = batch.Cancelled, time.Now()
	live := batch.Part{State: batch.Leased, Lines: 1, LeaseUntil: time.Now().Add(time.Minute)}
	open := batch.Part{State: batch.Leased, Lines: 1}
	done := batch.Part{State: batch.Done, Lines: 1} // without a chunk: its line has no result
	for _, c := range []struct {
		name   string
		batch  batch.Batch
		part   batch.Part
		change func(*event)
		fail   string // the operation that fails
		want   string
	}{
		{"no version", running, done, func(ev *event) { ev.V = 0 }, "", permanent},
		{"higher version", running, done, func(ev *event) { ev.V = 2 }, "", permanent},
		{"no tenant", running, done, func(ev *event) { ev.Tenant = "A" }, "", permanent},
		{"no batch", running, done, func(ev *event) { ev.Batch = "b" }, "", permanent},
		{"unknown batch", running, done, func(ev *event) { ev.Batch = batch.NewID() }, "", permanent},
		{"still validating", batch.Batch{Status: batch.Validating}, done, nil, "", permanent},
		{"a line without a result", running, done, nil, "", permanent},
		{"a worker drains", cancelled, live, nil, "", draining},
		{"parts are open", running, open, nil, "", held},
		{"another finisher is alive", taken, done, nil, "", held},
		{"throttled", running, done, nil, "Batches.Get", transient},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := memory.NewFaults()
			if c.fail != "" {
				f.Before(c.fail, 0, memory.Fail(nil))
			}
			ev := sample(t)
			h, mem, log := house(t, ev, c.batch, f)
			c.part.PartKey = batch.PartKey{Tenant: ev.Tenant, Batch: ev.Batch}
			mem.Table.SeedPart(c.part)
			if c.change != nil {
				c.change(&ev)
			}
			_, err := h.handle(t.Context(), ev)
			named, ok := errors.AsType[messages.InvokeResponse_Error](err)
			if !ok || named.Type != c.want || named.Message == "" {
				t.Errorf("error %T %+v, want %s", err, err, c.want)
			}
			if !strings.Contains(log.String(), `"kind":"`+c.want+`"`) {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// A call that ran out of time goes on only if it got somewhere: one that didn't
// is trouble, of which the workflow has enough after a few times.
func TestOutOfTime(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&batch.OutOfTimeError{Line: 7_000_000, Saved: true}, continued},
		{&batch.OutOfTimeError{Line: 7_000_000}, transient},
	} {
		ev := sample(t)
		h, _, log := house(t, ev, batch.Batch{}, nil)
		err := h.told(t.Context(), ev, fmt.Errorf("finish: %w", c.err))
		if named, ok := errors.AsType[messages.InvokeResponse_Error](err); !ok || named.Type != c.want || !strings.Contains(named.Message, "7000000") {
			t.Errorf("%v is named %+v, want %s", c.err, err, c.want)
		}
		if level := `"level":"INFO"`; strings.Contains(log.String(), level) != (c.want == continued) {
			t.Errorf("log: %s", log)
		}
	}
}

func TestWireReportsEveryFault(t *testing.T) {
	env := map[string]string{"HOLDFAST_LEASE": "soon"}
	_, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	for _, name := range []string{"HOLDFAST_LEASE", config.EnvTable, config.EnvResultsBucket} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}
