package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/batch"
	"holdfast/internal/config"
)

func sample(t *testing.T) events.SQSEvent {
	t.Helper()
	raw, err := os.ReadFile("../../events/work.json")
	if err != nil {
		t.Fatal(err)
	}
	var ev events.SQSEvent
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// house is a handler whose runner answers o and remembers what it was given.
func house(o batch.Outcome) (h handler, ran *[]batch.Delivery, until *time.Time, log *bytes.Buffer) {
	ran, until, log = new([]batch.Delivery), new(time.Time), new(bytes.Buffer)
	return handler{
		run: func(_ context.Context, d batch.Delivery, t time.Time) batch.Outcome {
			*ran, *until = append(*ran, d), t
			return o
		},
		log: slog.New(slog.NewJSONHandler(log, nil)),
	}, ran, until, log
}

func TestSample(t *testing.T) {
	for name, c := range map[string]struct {
		outcome batch.Outcome
		want    string
	}{
		"dealt with":     {batch.Outcome{Ack: true, Why: "done", Tally: batch.Tally{Parts: 1, Done: 1, Lines: 500}}, `{"batchItemFailures":[]}`},
		"to come again":  {batch.Outcome{Why: "held"}, `{"batchItemFailures":[{"itemIdentifier":"059f36b4-87a3-44ab-83d2-661975830a7d"}]}`},
		"nothing at all": {batch.Outcome{}, `{"batchItemFailures":[{"itemIdentifier":"059f36b4-87a3-44ab-83d2-661975830a7d"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			h, ran, until, log := house(c.outcome)
			deadline := time.Now().Add(90 * time.Second)
			ctx, cancel := context.WithDeadline(t.Context(), deadline)
			defer cancel()
			ev := sample(t)
			out, err := h.handle(ctx, ev)
			got, _ := json.Marshal(out)
			if err != nil || string(got) != c.want {
				t.Errorf("answer %s, %v; want %s", got, err, c.want)
			}
			want := batch.Delivery{
				Message: batch.Message{V: 1, Tenant: "acme", Batch: "batch_sample000000000000000001", TaskToken: "AAAAKgAAAAIAAAAA-sample"},
				Receipt: ev.Records[0].ReceiptHandle, Receives: 1,
			}
			if len(*ran) != 1 || (*ran)[0] != want {
				t.Errorf("ran %+v, want %+v", *ran, want)
			}
			if !until.Equal(deadline) {
				t.Errorf("until %v, the function ends at %v", until, deadline)
			}
			for _, secret := range []string{want.TaskToken, want.Receipt} {
				if strings.Contains(log.String(), secret) {
					t.Errorf("the log holds a capability: %s", log)
				}
			}
			for _, field := range []string{`"tenant":"acme"`, `"batch":"batch_sample000000000000000001"`, `"part":0`, `"why":"` + c.outcome.Why + `"`} {
				if !strings.Contains(log.String(), field) {
					t.Errorf("log lacks %s: %s", field, log)
				}
			}
		})
	}
}

func TestMessagesNotUnderstood(t *testing.T) {
	for name, body := range map[string]string{
		"empty":          "",
		"no JSON":        "PLANTED",
		"higher version": `{"v":2,"tenant":"acme","batch":"b","part":0,"task_token":"PLANTED"}`,
		"no part":        `{"v":1,"tenant":"acme","batch":"b","task_token":"PLANTED"}`,
		"null":           "null",
	} {
		t.Run(name, func(t *testing.T) {
			h, ran, _, log := house(batch.Outcome{Ack: true})
			ev := sample(t)
			ev.Records[0].Body = body
			out, err := h.handle(t.Context(), ev)
			if err != nil || len(out.BatchItemFailures) != 1 || len(*ran) != 0 {
				t.Errorf("%+v, %v, ran %v: it must come again, and not run", out, err, *ran)
			}
			if !strings.Contains(log.String(), ev.Records[0].MessageId) || strings.Contains(log.String(), "PLANTED") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

func TestRecordsAreJudgedOneByOne(t *testing.T) {
	h, ran, until, _ := house(batch.Outcome{Ack: true})
	ev := sample(t)
	bad := ev.Records[0]
	bad.MessageId, bad.Body = "bad", "?"
	ev.Records = append(ev.Records, bad, ev.Records[0])
	ev.Records[2].Attributes = nil
	out, err := h.handle(t.Context(), ev)
	if err != nil || len(out.BatchItemFailures) != 1 || out.BatchItemFailures[0].ItemIdentifier != "bad" || len(*ran) != 2 {
		t.Errorf("%+v, %v, ran %d", out, err, len(*ran))
	}
	if (*ran)[1].Receives != 1 {
		t.Errorf("receives %d where the count is absent", (*ran)[1].Receives)
	}
	if time.Until(*until) <= 0 {
		t.Error("without a deadline there must be some time")
	}
}

func TestNoRecords(t *testing.T) {
	h, _, _, _ := house(batch.Outcome{})
	out, err := h.handle(t.Context(), events.SQSEvent{})
	if got, _ := json.Marshal(out); err != nil || string(got) != `{"batchItemFailures":[]}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestWire(t *testing.T) {
	env := map[string]string{
		config.EnvTable: "t", config.EnvInputsBucket: "in", config.EnvResultsBucket: "out",
		config.EnvWorkQueueURL: "https://queue.example/1/q", config.EnvUpstreamURL: "https://model.example", "AWS_REGION": "eu-central-1",
	}
	getenv := func(name string) string { return env[name] }
	log := slog.New(slog.DiscardHandler)
	if h, err := wire(t.Context(), getenv, log); err != nil || h.run == nil {
		t.Errorf("%v", err)
	}
	if limit := debug.SetMemoryLimit(-1); limit < 460<<20 || limit > 461<<20 {
		t.Errorf("the collector's limit is %d bytes, want nine tenths of 512 MiB", limit)
	}
	// Upstreams by model alone; where one may not be connected to, that is told at once.
	env[config.EnvUpstreamURL], env[config.EnvUpstreams] = "", `[{"models":["m"],"url":"http://127.0.0.1:1","secret":"s"}]`
	if _, err := wire(t.Context(), getenv, log); err == nil || !strings.Contains(err.Error(), "address is refused: loopback") {
		t.Errorf("%v", err)
	}
	env[config.EnvUpstreamAllow] = "127.0.0.0/8"
	if _, err := wire(t.Context(), getenv, log); err != nil {
		t.Errorf("%v", err)
	}
	env["HOLDFAST_LEASE"], env[config.EnvUpstreamURL], env[config.EnvTable], env[config.EnvUpstreams] = "soon", "model", "", "x"
	_, err := wire(t.Context(), getenv, log)
	for _, name := range []string{"HOLDFAST_LEASE", config.EnvUpstreamURL, config.EnvTable, config.EnvUpstreams} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}

// The template and the reaper see only the settings, and count with this.
func TestHeldParts(t *testing.T) {
	if config.HeldParts != batch.MaxHands {
		t.Errorf("config says that a worker holds %d parts, it holds %d", config.HeldParts, batch.MaxHands)
	}
}
