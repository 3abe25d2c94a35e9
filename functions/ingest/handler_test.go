package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"holdfast/internal/access"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/door"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

// house is a function over ports in process, in which is what the samples name.
type house struct {
	handler
	mem     *memory.Memory
	letters *memory.Letters
	out     bytes.Buffer // metrics
	log     bytes.Buffer
}

func newHouse(t *testing.T, f *memory.Faults) *house {
	t.Helper()
	h := &house{mem: memory.New(memory.Options{}).With(f), letters: memory.NewLetters(nil).With(f)}
	inputs := memory.NewInputs(nil).With(f)
	inputs.StoreAs(bridge.Object{Bucket: "holdfast-inputs", Key: "in/acme/weekly questions+answers é.jsonl", Version: "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e", StoredAt: start},
		[]byte("{}\n"), nil)
	inputs.Store("holdfast-inputs", "in/acme/ünï ✓+.jsonl", []byte("{}"), nil, time.Date(2026, 11, 30, 1, 51, 27, 0, time.UTC))
	inputs.StoreAs(bridge.Object{Bucket: "holdfast-inputs", Key: "in/acme/2026/large.jsonl", Version: "uhggCJ2_B6gU2JaXWXebnXFDstO0ID6G", StoredAt: start},
		[]byte("{}\n"), nil)
	for _, err := range []error{
		h.mem.Table.Tenants.Put(t.Context(), access.Tenant{Name: "acme", Drop: &access.Drop{Principal: "ann@example.com"}}),
		h.mem.Table.Files.Put(t.Context(), batch.File{Tenant: "acme", ID: "file-sample0000000000000001", Purpose: "batch", CreatedAt: start}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	creator, err := batch.NewCreator(h.mem.Table.Batches, h.mem.Table.Files, h.mem.Workflow, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.counts = metrics.New("ingest", &h.out, nil)
	h.handler.log = slog.New(slog.NewJSONHandler(&h.log, nil))
	claims, err := bridge.New(h.mem.Table.Bridge, batches.New(creator, h.mem.Table.Batches, h.mem.Table.Files, 100*365*24*time.Hour), &bridge.Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	site := door.Site{Inputs: "holdfast-inputs", Results: "holdfast-results", FileBytes: 1 << 20,
		Allow: openai.Allow{Endpoints: []string{"/v1/chat/completions"}, Windows: []string{"24h"}}}
	o := &door.Options{Observer: h.counts.Observer()}
	tenants := access.NewTenantCache(h.mem.Table.Tenants, nil)
	h.drain = bridge.NewDrainer(claims, door.NewRouter(
		door.NewDrops(door.DropPorts{
			Tenants: tenants, Inputs: inputs, Refusals: h.mem.Objects, Events: h.mem.Table.Events, Dead: h.letters,
		}, site, o),
		door.NewMessages(tenants, inputs, h.letters, site, o),
	), h.letters, nil).Drain
	return h
}

func sample(t *testing.T, name string) (ev events.SQSEvent) {
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

// answer is what the poller reads.
func (h *house) answer(t *testing.T, ev events.SQSEvent) string {
	t.Helper()
	out, err := h.handle(t.Context(), ev)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const none = `{"batchItemFailures":[]}`

func TestSamples(t *testing.T) {
	const object = "s3://holdfast-inputs/in/acme/weekly%20questions+answers%20%C3%A9.jsonl?versionId=IYV3p45BT0ac8hjHg1houSdS1a.Mro8e"
	for name, c := range map[string]struct {
		ids  []string // correlation ids of the batches
		dead string   // codes of dead letters
	}{
		"ingest-s3":        {[]string{object}, ""},
		"ingest-s3-local":  {[]string{"s3://holdfast-inputs/in/acme/%C3%BCn%C3%AF%20%E2%9C%93+.jsonl?versionId=v2"}, ""},
		"ingest-s3-tags":   {[]string{"s3://holdfast-inputs/in/acme/2026/large.jsonl?versionId=uhggCJ2_B6gU2JaXWXebnXFDstO0ID6G"}, ""},
		"ingest":           {[]string{"orders/2026-10-12/17"}, ""},
		"ingest-malformed": {nil, "invalid_message"},
		"ingest-mixed":     {[]string{object, "orders/2026-10-12/17", "orders/2026-10-12/18"}, "invalid_message"},
	} {
		h := newHouse(t, nil)
		ev := sample(t, name)
		if got := h.answer(t, ev); got != none && name != "ingest-mixed" {
			t.Errorf("%s: %s", name, got)
		}
		// Of two copies of one object the second may have lost to the first, and comes
		// again when that has won.
		if got := h.answer(t, ev); got != none {
			t.Errorf("%s again: %s", name, got)
		}
		for _, id := range c.ids {
			b, there := h.mem.Table.Batch("acme", bridge.BatchID("acme", id))
			if !there || b.Status != batch.Validating || b.Endpoint != "/v1/chat/completions" || b.Window != "24h" {
				t.Errorf("%s: %s started %+v", name, id, b)
			}
		}
		if n := len(h.mem.Workflow.Executions()); n != len(c.ids) {
			t.Errorf("%s: %d executions of %d", name, n, len(c.ids))
		}
		for _, l := range h.letters.Dead() {
			if l.Code != c.dead || l.Reason == "" {
				t.Errorf("%s: dead letter %+v", name, l)
			}
		}
		if n := len(h.letters.Dead()); (n == 0) != (c.dead == "") || len(h.mem.Objects.Keys("holdfast-results")) > 0 {
			t.Errorf("%s: %d dead letters, %v", name, n, h.mem.Objects.Keys("holdfast-results"))
		}
		if refused := strings.Contains(h.out.String(), `"Refused":1,`); refused != (c.dead != "") {
			t.Errorf("%s: metrics %s", name, h.out.String())
		}
	}
}

// A sample is what SQS sends: its digests are right, its receipts tell deliveries apart.
func TestSamplesAreAsSQSSendsThem(t *testing.T) {
	names, err := filepath.Glob("../../events/ingest*.json")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".schema.json") })
	if len(names) < 6 {
		t.Errorf("only %v", names)
	}
	for _, name := range names {
		receipts := map[string]string{}
		for _, m := range sample(t, strings.TrimSuffix(filepath.Base(name), ".json")).Records {
			if sum := md5.Sum([]byte(m.Body)); m.Md5OfBody != hex.EncodeToString(sum[:]) {
				t.Errorf("%s, %s: the body's md5 is %x", name, m.MessageId, sum)
			}
			if other, taken := receipts[m.ReceiptHandle]; taken || m.ReceiptHandle == "" {
				t.Errorf("%s: %s has the receipt of %q", name, m.MessageId, other)
			}
			receipts[m.ReceiptHandle] = m.MessageId
		}
	}
}

// Only what has to come again is named, and its copies come again each for itself.
func TestFailures(t *testing.T) {
	f := memory.NewFaults()
	f.Before("Files.Get", 0, memory.Fail(nil))
	h := newHouse(t, f)
	ev := sample(t, "ingest-mixed")
	got := h.answer(t, ev)
	for i, m := range ev.Records {
		if failed := strings.Contains(got, m.MessageId); failed != (i < 4) {
			t.Errorf("message %d: %s", i, got)
		}
	}
	if !strings.Contains(h.log.String(), `"later":3`) && !strings.Contains(h.log.String(), `"later":4`) {
		t.Errorf("log %s", h.log.String())
	}
}

// How often a message was received is Lambda's word, and its own name what is
// answered.
func TestLetters(t *testing.T) {
	h := newHouse(t, nil)
	var got []bridge.Letter
	h.drain = func(_ context.Context, letters []bridge.Letter, _ time.Time) ([]bridge.Letter, bridge.Drained) {
		got = letters
		return letters[1:2], bridge.Drained{}
	}
	h.receives = 2
	ev := sample(t, "ingest-mixed")
	delete(ev.Records[2].Attributes, "ApproximateReceiveCount")
	ev.Records[3].Attributes["ApproximateReceiveCount"] = "3" // the process died at its last try
	if answer := h.answer(t, ev); answer != `{"batchItemFailures":[{"itemIdentifier":"`+ev.Records[1].MessageId+`"}]}` {
		t.Errorf("%s", answer)
	}
	if len(got) != 6 || got[0].Last || !got[1].Last || got[2].Last || !got[3].Last || got[0].Receives != 1 || got[1].Receives != 2 || got[2].Receives != 1 ||
		got[0].ID != ev.Records[0].MessageId || got[0].Receipt != ev.Records[0].ReceiptHandle || string(got[0].Body) != ev.Records[0].Body {
		t.Errorf("%+v", got)
	}
	if answer := newHouse(t, nil).answer(t, events.SQSEvent{}); answer != none {
		t.Errorf("nothing: %s", answer)
	}
}

// The drain ends before the function does, with time left for what it does after that.
func TestDrainEndsBeforeTheFunction(t *testing.T) {
	h := newHouse(t, nil)
	var end time.Time
	h.drain = func(ctx context.Context, letters []bridge.Letter, _ time.Time) ([]bridge.Letter, bridge.Drained) {
		end, _ = ctx.Deadline()
		return letters, bridge.Drained{}
	}
	limit := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), limit)
	defer cancel()
	if _, err := h.handle(ctx, sample(t, "ingest")); err != nil || limit.Sub(end) <= bridge.DrainMargin || limit.Sub(end) > 20*time.Second {
		t.Errorf("it ends %s before: %v", limit.Sub(end), err)
	}
}

// Whatever a submit may take, by the setting's floor and its ceiling, there is time for it
// after an object and its settings were read, and for what a drain needs at its end.
func TestDrainHasTimeForASubmit(t *testing.T) {
	for _, submit := range []time.Duration{time.Second, 20 * time.Second, 45 * time.Second} {
		s := config.Default()
		s.SubmitTimeout = submit
		if left := s.IngestTimeout() - margin - submit; left < 20*time.Second {
			t.Errorf("with a submit of %s, %s are left for all before it", submit, left)
		}
	}
}

func TestWireReportsEveryFault(t *testing.T) {
	env := map[string]string{"HOLDFAST_SUBMIT_TIMEOUT": "soon"}
	_, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	for _, name := range []string{"HOLDFAST_SUBMIT_TIMEOUT", config.EnvTable, config.EnvInputsBucket, config.EnvResultsBucket, config.EnvStateMachineARN,
		config.EnvIngestQueueURL, config.EnvIngestDeadLettersURL} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}

func TestWire(t *testing.T) {
	env := map[string]string{
		config.EnvTable: "t", config.EnvInputsBucket: "in", config.EnvResultsBucket: "out", config.EnvIngestQueueURL: "https://sqs.test/1/i",
		config.EnvIngestDeadLettersURL: "https://sqs.test/1/d", config.EnvStateMachineARN: "arn:aws:states:us-east-1:1:stateMachine:m",
	}
	t.Setenv("AWS_REGION", "us-east-1")
	for _, url := range []string{"", "https://jobs.test"} {
		env[config.EnvJobsURL] = url
		if h, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler)); err != nil || h.drain == nil {
			t.Errorf("jobs at %q: %v", url, err)
		}
	}
}
