package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
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
	raw, err := os.ReadFile("../../events/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	var ev event
	if err := json.Unmarshal(raw, &ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// house is the handler over a validating batch of this input, two lines a part.
func house(t *testing.T, ev event, input string, f *memory.Faults) (handler, *memory.Memory, *bytes.Buffer) {
	t.Helper()
	mem := memory.New(memory.Options{})
	o, err := mem.Objects.Put(t.Context(), batch.Object{Bucket: "in", Key: "k"}, []byte(input))
	if err != nil {
		t.Fatal(err)
	}
	mem.Table.SeedBatch(batch.Batch{Tenant: ev.Tenant, ID: ev.Batch, Status: batch.Validating, Endpoint: "/v1/embeddings",
		Input: batch.Input{FileID: "file-1", Object: o}, CreatedAt: time.Now(), Deadline: time.Now().Add(time.Hour)})
	view := mem.With(f)
	planner, err := batch.NewPlanner(view.Table.Batches, view.Table.Parts, view.Objects, "results", &batch.PlannerOptions{PartLines: 2})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	return handler{planner: planner, log: slog.New(slog.NewJSONHandler(&log, nil))}, mem, &log
}

func line(id string) string {
	return `{"custom_id":"` + id + `","method":"POST","url":"/v1/embeddings","body":{"model":"m"}}` + "\n"
}

// wide is an input of 41 parts.
func wide(id string) string {
	var input strings.Builder
	for n := range 2*batch.InlineParts + 1 {
		input.WriteString(line(id + strconv.Itoa(n)))
	}
	return input.String()
}

func TestSample(t *testing.T) {
	ev := sample(t)
	h, _, _ := house(t, ev, line("a")+line("b")+line("c"), nil)
	for range 2 { // planning again answers the same
		out, err := h.handle(t.Context(), ev)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(out)
		want := `{"v":1,"tenant":"acme","batch":"` + ev.Batch + `","status":"planned","parts":[{"part":0},{"part":1}],"wide":false}`
		if string(got) != want {
			t.Errorf("answer %s, want %s", got, want)
		}
	}
}

// A wide plan is in an object, if the workflow says that it reads one. An
// execution from before that was possible gets its parts in the list.
func TestWidePlan(t *testing.T) {
	ev := sample(t)
	if !ev.Wide {
		t.Error("the sample is an old workflow's")
	}
	h, mem, _ := house(t, ev, wide("w"), nil)
	out, err := h.handle(t.Context(), ev)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(out)
	key := batch.PlanKey(ev.Tenant, ev.Batch)
	want := `{"v":1,"tenant":"acme","batch":"` + ev.Batch + `","status":"planned","parts":[],"wide":true,"plan":{"bucket":"results","key":"` + key + `"}}`
	if string(got) != want {
		t.Errorf("answer %s, want %s", got, want)
	}
	if list := mem.Objects.Bytes("results", key); bytes.Count(list, []byte("\n")) != 41 || !bytes.HasPrefix(list, []byte(`{"part":0}`+"\n"+`{"part":1}`+"\n")) {
		t.Errorf("list %s", list)
	}
	ev.Wide = false
	out, err = h.handle(t.Context(), ev)
	if err != nil || out.Wide || out.Plan != nil || len(out.Parts) != 41 || out.Parts[40].Part != 40 {
		t.Errorf("%+v, %v: an old workflow must get its parts", out, err)
	}
}

// A refused input is an answer, not an error; its parts are a list, not null.
func TestRefusedInput(t *testing.T) {
	ev := sample(t)
	h, mem, _ := house(t, ev, "not JSON\n", nil)
	out, err := h.handle(t.Context(), ev)
	got, _ := json.Marshal(out)
	if err != nil || !strings.Contains(string(got), `"status":"failed","parts":[]`) {
		t.Errorf("%s, %v", got, err)
	}
	if b, _ := mem.Table.Batch(ev.Tenant, ev.Batch); b.Status != batch.Failed {
		t.Errorf("batch is %s", b.Status)
	}
}

func TestBatchThatIsOver(t *testing.T) {
	ev := sample(t)
	h, mem, _ := house(t, ev, line("a"), nil)
	b, _ := mem.Table.Batch(ev.Tenant, ev.Batch)
	b.Status = batch.Cancelled
	mem.Table.SeedBatch(b)
	out, err := h.handle(t.Context(), ev)
	if err != nil || out.Status == "planned" || len(out.Parts) != 0 {
		t.Errorf("%+v, %v: there is nothing to run", out, err)
	}
}

// A batch that is told to cancel while it validates is planned, so that its lines
// can be answered, and the workflow goes on to its finish.
func TestCancelledWhileValidating(t *testing.T) {
	ev := sample(t)
	h, mem, _ := house(t, ev, line("a")+line("b")+line("c"), nil)
	if _, err := mem.Table.Endings.End(t.Context(), ev.Tenant, ev.Batch, batch.Cancelled, time.Now()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := h.handle(t.Context(), ev)
		if err != nil || out.Status != "ended" || len(out.Parts) != 0 {
			t.Errorf("%+v, %v", out, err)
		}
	}
	if b, _ := mem.Table.Batch(ev.Tenant, ev.Batch); b.Status != batch.InProgress || b.Lines != 3 || len(mem.Table.PartsOf(ev.Tenant, ev.Batch)) != 2 {
		t.Errorf("batch %+v", b)
	}
}

func TestErrorsHaveNames(t *testing.T) {
	throttled := errors.New("throttled")
	for _, c := range []struct {
		name   string
		change func(*event)
		faults func(*memory.Faults)
		want   string
	}{
		{"no version", func(ev *event) { ev.V = 0 }, nil, permanent},
		{"higher version", func(ev *event) { ev.V = 2 }, nil, permanent},
		{"no tenant", func(ev *event) { ev.Tenant = "" }, nil, permanent},
		{"tenant with a slash", func(ev *event) { ev.Tenant = "a/b" }, nil, permanent},
		{"no batch", func(ev *event) { ev.Batch = "" }, nil, permanent},
		{"unknown batch", func(ev *event) { ev.Batch = batch.NewID() }, nil, permanent},
		{"throttled", func(*event) {}, func(f *memory.Faults) { f.Before("Batches.Get", 0, memory.Fail(throttled)) }, transient},
		{"parts not listed", func(*event) {}, func(f *memory.Faults) { f.Before("Objects.Put", 0, memory.Fail(throttled)) }, transient},
		{"parts not inserted", func(*event) {}, func(f *memory.Faults) { f.Before("Parts.Insert", 0, memory.Fail(throttled)) }, transient},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := memory.NewFaults()
			if c.faults != nil {
				c.faults(f)
			}
			ev := sample(t)
			h, _, log := house(t, ev, wide("PLANTED"), f)
			c.change(&ev)
			_, err := h.handle(t.Context(), ev)
			named, ok := errors.AsType[messages.InvokeResponse_Error](err)
			if !ok || named.Type != c.want || named.Message == "" {
				t.Errorf("error %T %+v, want %s", err, err, c.want)
			}
			if !strings.Contains(log.String(), `"kind":"`+c.want+`"`) || strings.Contains(log.String(), "PLANTED") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// A part size changed between two plannings is not for a retry to heal.
func TestAnotherCut(t *testing.T) {
	ev := sample(t)
	h, mem, _ := house(t, ev, line("a")+line("b"), nil)
	mem.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: ev.Tenant, Batch: ev.Batch, N: 1}, State: batch.Pending, Lines: 1})
	_, err := h.handle(t.Context(), ev)
	if named, ok := errors.AsType[messages.InvokeResponse_Error](err); !ok || named.Type != permanent {
		t.Errorf("%v", err)
	}
}

func TestWireReportsEveryFault(t *testing.T) {
	env := map[string]string{"HOLDFAST_LEASE": "soon"}
	_, err := wire(t.Context(), func(name string) string { return env[name] }, slog.New(slog.DiscardHandler))
	for _, name := range []string{"HOLDFAST_LEASE", config.EnvTable, config.EnvInputsBucket} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}
