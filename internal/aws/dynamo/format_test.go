package dynamo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"holdfast/internal/aws/queue"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// upgrade is a batch that an earlier release began, in the hands of this one. The
// table is the emulator's; everything else is in process.
type upgrade struct {
	fixture
	t       *testing.T
	r       raw
	s       *Store
	m       *memory.Memory
	model   *memory.Model
	results string
	now     time.Time // an hour after: every lease and every drain is over
}

func newUpgrade(t *testing.T, file string, shape *shape) *upgrade {
	t.Helper()
	f, there := fixtures(t)[file]
	if !there {
		t.Fatalf("no fixture %s", file)
	}
	client, name := newTable(t)
	u := &upgrade{fixture: f, t: t, r: raw{client, name}, s: New(shape.watch(t, client), name), results: "results"}
	u.m = f.load(t, u.r)
	for _, o := range f.Objects {
		if bytes.Contains([]byte(o.Bucket), []byte("results")) {
			u.results = o.Bucket
		}
	}
	u.model = memory.NewModel(nil, func(_ context.Context, c batch.Call) (batch.Reply, error) {
		return batch.Reply{Status: 200, RequestID: "new", Body: fmt.Appendf(nil, `{"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"line":%d}`, c.Line)}, nil
	})
	u.now = f.meta(t).CreatedAt.Add(time.Hour)
	return u
}

func (u *upgrade) plan() batch.Plan {
	u.t.Helper()
	var in struct{ Tenant, Batch string }
	ok(u.t, json.Unmarshal([]byte(u.Input), &in))
	p := must(batch.NewPlanner(u.s.Batches, u.s.Parts, u.m.Objects, u.results, &batch.PlannerOptions{PartLines: 6}))(u.t)
	return must(p.Plan(u.t.Context(), in.Tenant, in.Batch, u.now))(u.t)
}

// run works on every message until none is left.
func (u *upgrade) run() {
	u.t.Helper()
	runner := must(batch.NewRunner(batch.RunnerPorts{
		Batches: u.s.Batches, Parts: u.s.Parts, Claims: u.s.Claims, Steals: u.s.Claims, Deaths: u.s.Deaths, Events: u.s.Events,
		Objects: u.m.Objects, Queue: u.m.Queue, Workflow: u.m.Workflow,
		Model: u.model, Log: slog.New(slog.DiscardHandler), Results: u.results,
	}, &batch.RunnerOptions{CheckpointLines: 3}))(u.t)
	for {
		d, err := u.m.Queue.Receive(u.t.Context())
		if errors.Is(err, batch.ErrEmpty) {
			if len(u.m.Queue.Messages()) == 0 {
				return
			}
			ok(u.t, memory.Wait(u.t.Context(), 50*time.Millisecond)) // one was sent with a delay
			continue
		}
		ok(u.t, err)
		if o := runner.Run(u.t.Context(), d, time.Now().Add(time.Hour)); !o.Ack {
			u.t.Fatalf("part %d: %+v", d.Part, o)
		}
	}
}

func (u *upgrade) finish() batch.Batch {
	u.t.Helper()
	f := must(batch.NewFinisher(batch.FinisherPorts{
		Batches: u.s.Batches, Endings: u.s.Endings, Parts: u.s.Parts, Seals: u.s.Seals, Files: u.s.Files,
		Objects: u.m.Objects, Uploads: u.m.Objects,
	}, u.results, nil))(u.t)
	return must(f.Finish(u.t.Context(), "acme", u.Batch, u.now))(u.t)
}

func (u *upgrade) send(m batch.Message) {
	u.t.Helper()
	ok(u.t, u.m.Queue.Send(u.t.Context(), m, 0))
}

// file is a result file of the batch; nil: there is none.
func (u *upgrade) file(kind string) []byte {
	return u.m.Objects.Bytes(u.results, batch.ResultKey("acme", u.Batch, kind))
}

// TestBatchInMidRun: workers were killed by the upgrade. What they saved is in the
// files byte for byte, and is not asked for again.
func TestBatchInMidRun(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, "v1/midway.json", v1(t))
	d := must(queue.Decode(u.Messages[0], "receipt", 1))(t)
	if d.Part != 5 || d.TaskToken == "" {
		t.Fatalf("message %+v", d.Message)
	}
	u.send(d.Message)
	for _, p := range u.parts(t) {
		if p.State == batch.Leased {
			u.lapse(p)
			d.Part, d.TaskToken = p.N, p.TaskToken // what stands in the hidden message
			u.send(d.Message)
		}
	}
	u.run()
	b := u.finish()
	if b.Status != batch.Completed || b.Counts != (batch.Counts{Total: 35, Completed: 32, Failed: 3}) {
		t.Errorf("%s, %+v", b.Status, b.Counts)
	}
	u.check("")
	if got := len(u.m.Workflow.Reports()); got != 5 {
		t.Errorf("%d parts reported, want the 5 that were open", got)
	}
}

// lapse gives a part back whose worker died, as the reaper would (C11).
func (u *upgrade) lapse(p batch.Part) {
	u.t.Helper()
	ok(u.t, errOf(u.s.Reaps.Reap(u.t.Context(), p, u.now, u.now.Add(time.Hour), u.now)))
}

// TestBatchInMidPlan: a planner died between its inserts.
func TestBatchInMidPlan(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, "v1/validating.json", v1(t))
	p := u.plan()
	if p.Status != batch.Planned {
		t.Fatalf("plan %+v", p)
	}
	for n := range 4 {
		u.send(batch.Message{V: 1, Tenant: "acme", Batch: u.Batch, Part: n, TaskToken: fmt.Sprint("task ", n)})
	}
	u.run()
	if b := u.finish(); b.Status != batch.Completed || b.Counts != (batch.Counts{Total: 20, Completed: 20}) {
		t.Errorf("%s, %+v", b.Status, b.Counts)
	}
	u.check("")
}

// TestBatchInMidFinish: a finisher died with one file of two complete. The other
// release writes the same bytes.
func TestBatchInMidFinish(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, "v1/finalizing.json", v1(t))
	old := u.object(t, batch.ResultKey("acme", u.Batch, batch.OutputFile))
	b := u.finish()
	if b.Status != batch.Completed || b.Counts != (batch.Counts{Total: 14, Completed: 12, Failed: 2}) {
		t.Errorf("%s, %+v", b.Status, b.Counts)
	}
	if got := u.file(batch.OutputFile); !bytes.Equal(got, old) {
		t.Errorf("the output file has changed:\n%s\nit was\n%s", got, old)
	}
	u.check("")
}

// TestBatchInMidCancel: told to end, nothing sealed. What was saved stays a
// result; every other line is answered.
func TestBatchInMidCancel(t *testing.T) {
	t.Parallel()
	u := newUpgrade(t, "v1/cancelled.json", v1(t))
	saved := 0
	for _, p := range u.parts(t) {
		saved += int(p.OK())
	}
	b := u.finish()
	if b.Status != batch.Cancelled || b.Counts.Total != b.Lines || b.Counts.Completed != int64(saved) || b.Counts.Completed+b.Counts.Failed != b.Lines {
		t.Errorf("%s, %+v, %d saved", b.Status, b.Counts, saved)
	}
	u.check("batch_cancelled")
}

// check holds the result files to the input and to what the fixture's records say:
// every line once, in order, under its own id, those records byte for byte, and
// nobody asked the model again. Lines without a record have a reply of this
// program's or, when code is set, that error.
func (u *upgrade) check(code string) {
	u.t.Helper()
	b := u.meta(u.t)
	ids := inputIDs(u.t, u.object(u.t, b.Input.Object.Key))
	records := map[int64]batch.Record{}
	for _, p := range u.parts(u.t) {
		for _, c := range p.Chunks {
			for line := range bytes.Lines(u.object(u.t, c.Key)) {
				r := must(batch.ParseRecord(line))(u.t)
				records[r.Line] = r
			}
			if u.m.Objects.Bytes(u.results, c.Key) != nil {
				u.t.Errorf("%s is left", c.Key)
			}
		}
	}
	if len(records) == 0 && u.fixture.meta(u.t).Status != batch.Validating {
		u.t.Fatal("the fixture has no records")
	}
	files := map[bool]*bytes.Buffer{true: bytes.NewBuffer(u.file(batch.OutputFile)), false: bytes.NewBuffer(u.file(batch.ErrorFile))}
	for n, id := range ids {
		r, saved := records[int64(n)]
		good := saved && r.OK || !saved && code == ""
		line, err := files[good].ReadBytes('\n')
		if err != nil {
			u.t.Fatalf("line %d is missing", n)
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		var got struct {
			CustomID json.RawMessage `json:"custom_id"`
			Response *struct {
				Body struct{ Line int } `json:"body"`
			} `json:"response"`
			Error *struct{ Code string } `json:"error"`
		}
		ok(u.t, json.Unmarshal(line, &got))
		sent := u.model.Count("acme", u.Batch, int64(n))
		switch {
		case string(got.CustomID) != id:
			u.t.Fatalf("line %d has the id %s, want %s", n, got.CustomID, id)
		case saved && !bytes.Equal(line, r.Result):
			u.t.Errorf("line %d is\n%s\nits record is\n%s", n, line, r.Result)
		case saved && sent != 0, code != "" && sent != 0:
			u.t.Errorf("line %d was sent again", n)
		case !saved && code != "" && (got.Error == nil || got.Error.Code != code):
			u.t.Errorf("line %d: %s", n, line)
		case !saved && code == "" && (sent != 1 || got.Response == nil || got.Response.Body.Line != n):
			u.t.Errorf("line %d, sent %d times: %s", n, sent, line)
		}
	}
	for good, f := range files {
		if f.Len() > 0 {
			u.t.Errorf("more lines than there were (output file: %v): %s", good, f)
		}
	}
	receipts := u.file(batch.ReceiptsFile)
	for _, r := range records {
		if !bytes.Contains(receipts, append(bytes.Clone(r.Receipt), '\n')) {
			u.t.Errorf("the receipt of line %d is not there as it was", r.Line)
		}
	}
}

// inputIDs are the custom_ids of an input, as they are written in it.
func inputIDs(t *testing.T, input []byte) (ids []string) {
	t.Helper()
	for line := range bytes.Lines(input) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l struct {
			CustomID json.RawMessage `json:"custom_id"`
		}
		ok(t, json.Unmarshal(line, &l))
		ids = append(ids, string(l.CustomID))
	}
	return ids
}
