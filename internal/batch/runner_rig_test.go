package batch_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

const (
	tenant   = "t1"
	batchID  = "batch_1"
	endpoint = "/v1/chat/completions"
	results  = "results"
)

// rig is one batch on in-process ports, and a poller that hands its messages to
// runners.
type rig struct {
	t      *testing.T
	m      *memory.Memory
	model  *memory.Model
	opts   batch.RunnerOptions
	bodies []string // by line
	ports  func(*batch.RunnerPorts)
}

type answerer = func(context.Context, batch.Call) (batch.Reply, error)

func newRig(t *testing.T, lines, partLines int, answer answerer) *rig {
	t.Helper()
	return newPaddedRig(t, lines, partLines, 0, answer)
}

// newPaddedRig makes every line so many bytes longer.
func newPaddedRig(t *testing.T, lines, partLines, pad int, answer answerer) *rig {
	t.Helper()
	return newModelRig(t, lines, partLines, pad, func(int) string { return "m" }, answer)
}

// newModelRig has lines for many models.
func newModelRig(t *testing.T, lines, partLines, pad int, model func(line int) string, answer answerer) *rig {
	t.Helper()
	r := &rig{t: t, m: memory.New(memory.Options{}), model: memory.NewModel(nil, answer)}
	var input bytes.Buffer
	var parts []batch.Part
	for i := range lines {
		if i%partLines == 0 {
			parts = append(parts, batch.Part{
				PartKey: batch.PartKey{Tenant: tenant, Batch: batchID, N: len(parts)}, State: batch.Pending,
				FirstLine: int64(i), FirstPhysical: int64(i + 1), From: int64(input.Len()),
			})
		}
		// Odd spacing, escapes and a number no float holds: byte for byte, or not.
		body := fmt.Sprintf(`{ "model":%q, "n":12345678901234567890.%d, "x": "é\u0041\/<&>%s" }`, model(i), i, strings.Repeat("x", pad))
		r.bodies = append(r.bodies, body)
		fmt.Fprintf(&input, `{"custom_id":"<id-%d>","method":"POST","url":%q,"body":%s}`+"\n", i, endpoint, body)
		p := &parts[len(parts)-1]
		p.Lines++
		p.To = int64(input.Len())
	}
	object, err := r.m.Objects.Put(t.Context(), batch.Object{Bucket: "inputs", Key: "files/t1/file-1"}, input.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r.m.Table.SeedBatch(batch.Batch{
		Tenant: tenant, ID: batchID, Status: batch.InProgress, Submitter: "alice", Endpoint: endpoint,
		Input: batch.Input{FileID: "file-1", Object: object}, Parts: len(parts), Lines: int64(lines),
	})
	for _, p := range parts {
		r.m.Table.SeedPart(p)
		r.sendMessage(p.N)
	}
	return r
}

func message(part int) batch.Message {
	return batch.Message{V: 1, Tenant: tenant, Batch: batchID, Part: part, TaskToken: fmt.Sprintf("task-%d", part)}
}

func (r *rig) sendMessage(part int) {
	r.t.Helper()
	if err := r.m.Queue.Send(r.t.Context(), message(part), 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) runner(f *memory.Faults) *batch.Runner {
	r.t.Helper()
	m := r.m.With(f)
	p := batch.RunnerPorts{
		Batches: m.Table.Batches, Parts: m.Table.Parts, Claims: m.Table.Claims, Steals: m.Table.Claims, Deaths: m.Table.Deaths, Events: m.Table.Events,
		Objects: m.Objects, Queue: m.Queue, Workflow: m.Workflow,
		Model: r.model.With(f), Log: slog.New(slog.DiscardHandler), Results: results,
	}
	if r.ports != nil {
		r.ports(&p)
	}
	o := r.opts
	if o.Floor == 0 && o.Ceiling == 0 {
		// A limit that stands still, unless a test is about its moves.
		o.Concurrency = cmp.Or(o.Concurrency, 32)
		o.Floor, o.Ceiling = o.Concurrency, o.Concurrency
	}
	runner, err := batch.NewRunner(p, &o)
	if err != nil {
		r.t.Fatal(err)
	}
	return runner
}

func (r *rig) receive() (batch.Delivery, bool) {
	r.t.Helper()
	d, err := r.m.Queue.Receive(r.t.Context())
	if errors.Is(err, batch.ErrEmpty) {
		return d, false
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return d, true
}

// run takes one message and runs it as the poller does: an acked message is
// deleted.
func (r *rig) run(f *memory.Faults, life time.Duration) batch.Outcome {
	r.t.Helper()
	d, ok := r.receive()
	if !ok {
		r.t.Fatal("no message to run")
	}
	return r.runDelivery(r.t.Context(), f, d, life)
}

func (r *rig) runDelivery(ctx context.Context, f *memory.Faults, d batch.Delivery, life time.Duration) batch.Outcome {
	r.t.Helper()
	out := r.runner(f).Run(ctx, d, time.Now().Add(life))
	if out.Ack {
		if err := r.m.Queue.Delete(context.Background(), d); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

const life = 15 * time.Minute

// runCrash is run by a process that a hook may end: its context ends with it.
func (r *rig) runCrash(f *memory.Faults, arm func(crash memory.Hook)) batch.Outcome {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	arm(func(hookCtx context.Context, p memory.Point) error {
		cancel()
		return f.Crash(hookCtx, p)
	})
	d, ok := r.receive()
	if !ok {
		r.t.Fatal("no message to run")
	}
	out := r.runner(f).Run(ctx, d, time.Now().Add(life))
	if ctx.Err() == nil && out.Ack {
		if err := r.m.Queue.Delete(context.Background(), d); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

// settle runs messages until none is left and no part is open, playing the
// reaper for holders that died. It fails when an hour passes without that.
func (r *rig) settle() {
	r.t.Helper()
	for range 3600 {
		r.reap()
		if r.over() && len(r.m.Queue.Messages()) == 0 {
			return
		}
		if d, ok := r.receive(); ok {
			r.runDelivery(r.t.Context(), nil, d, life)
			continue
		}
		r.pass(time.Second)
	}
	r.t.Fatalf("parts still open after an hour: %+v", r.m.Table.PartsOf(tenant, batchID))
}

// reap gives back parts whose holder's lease has lapsed (C11).
func (r *rig) reap() {
	for _, p := range r.m.Table.PartsOf(tenant, batchID) {
		if p.State == batch.Leased && time.Now().After(p.LeaseUntil.Add(5*time.Second)) {
			p.State, p.Owner = batch.Pending, ""
			p.Lapses++
			p.Ver++
			r.m.Table.SeedPart(p)
		}
	}
}

func (r *rig) over() bool {
	for _, p := range r.m.Table.PartsOf(tenant, batchID) {
		if !p.Over() {
			return false
		}
	}
	return true
}

// pass lets virtual time go by.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	if err := memory.Wait(r.t.Context(), d); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) part(n int) batch.Part {
	r.t.Helper()
	p, ok := r.m.Table.Part(batch.PartKey{Tenant: tenant, Batch: batchID, N: n})
	if !ok {
		r.t.Fatalf("no part %d", n)
	}
	return p
}

// record is a stored record, read back.
type record struct {
	batch.Record
	receipt batch.Receipt
	result  struct {
		ID       string          `json:"id"`
		CustomID string          `json:"custom_id"`
		Response json.RawMessage `json:"response"`
		Error    *struct {
			Code string `json:"code"`
		} `json:"error"`
	}
}

// records reads what the parts' chunks hold and proves them: sums, sizes,
// counts, order, bitmap, and that no line has two.
func (r *rig) records() map[int64]record {
	r.t.Helper()
	all := map[int64]record{}
	for _, p := range r.m.Table.PartsOf(tenant, batchID) {
		seen := batch.NewBitmap(p.Lines)
		for _, c := range p.Chunks {
			data := r.m.Objects.Bytes(results, c.Key)
			sum := sha256.Sum256(data)
			if hex.EncodeToString(sum[:]) != c.Sum || int64(len(data)) != c.Bytes {
				r.t.Errorf("chunk %s is not what the part says", c.Key)
			}
			ok, n, last := 0, 0, int64(-1)
			for raw := range bytes.Lines(data) {
				rec, err := batch.ParseRecord(raw)
				if err != nil {
					r.t.Fatal(err)
				}
				if rec.Line <= last {
					r.t.Errorf("chunk %s is not sorted", c.Key)
				}
				if _, twice := all[rec.Line]; twice {
					r.t.Errorf("line %d has two records", rec.Line)
				}
				last = rec.Line
				n++
				if rec.OK {
					ok++
				}
				x := record{Record: rec}
				if err := json.Unmarshal(rec.Receipt, &x.receipt); err != nil {
					r.t.Errorf("receipt of line %d: %v", rec.Line, err)
				}
				if err := json.Unmarshal(rec.Result, &x.result); err != nil {
					r.t.Errorf("result of line %d: %v", rec.Line, err)
				}
				all[rec.Line] = x
				seen.Set(int(rec.Line - p.FirstLine))
			}
			if n != c.N || ok != c.OK || n-ok != c.Err {
				r.t.Errorf("chunk %s has %d records, %d ok; the part says %+v", c.Key, n, ok, c)
			}
		}
		if p.Processed != seen.Count() || p.Processed > 0 && !bytes.Equal(seen, p.DoneLines) {
			r.t.Errorf("part %d: processed %d, bitmap %v, but the chunks hold %v", p.N, p.Processed, p.DoneLines, seen)
		}
	}
	return all
}

// conserved fails unless every line has exactly one record, every part is done,
// and what the model saw is the input's bodies.
func (r *rig) conserved() map[int64]record {
	r.t.Helper()
	all := r.records()
	for i := range r.bodies {
		x, ok := all[int64(i)]
		if !ok {
			r.t.Errorf("line %d has no record", i)
			continue
		}
		if want := fmt.Sprintf("<id-%d>", i); x.result.CustomID != want {
			r.t.Errorf("line %d has custom_id %q, want %q", i, x.result.CustomID, want)
		}
	}
	for _, p := range r.m.Table.PartsOf(tenant, batchID) {
		if p.State != batch.Done {
			r.t.Errorf("part %d is %s", p.N, p.State)
		}
	}
	r.bodiesIntact()
	return all
}

func (r *rig) bodiesIntact() {
	r.t.Helper()
	for _, c := range r.model.Calls() {
		if string(c.Body) != r.bodies[c.Line] {
			r.t.Errorf("line %d was sent as %q, want %q", c.Line, c.Body, r.bodies[c.Line])
		}
	}
}

// repeats is how many requests went beyond one a line.
func (r *rig) repeats() (n int) {
	for _, c := range r.model.Counts(tenant, batchID) {
		n += c - 1
	}
	return n
}

func (r *rig) reported(tokens ...string) {
	r.t.Helper()
	got := slices.Compact(slices.Sorted(slices.Values(r.m.Workflow.Reports())))
	if !slices.Equal(got, tokens) {
		r.t.Errorf("reported %v, want %v", got, tokens)
	}
}

func (r *rig) queueEmpty() {
	r.t.Helper()
	if left := r.m.Queue.Messages(); len(left) != 0 {
		r.t.Errorf("messages left: %+v", left)
	}
}

func expect(t *testing.T, out batch.Outcome, ack bool, why string) {
	t.Helper()
	if out.Ack != ack || out.Why != why {
		t.Errorf("outcome %+v, want ack %v, %s", out, ack, why)
	}
}

// after answers 200 after a latency.
func after(d time.Duration) answerer {
	return func(ctx context.Context, c batch.Call) (batch.Reply, error) {
		if err := memory.Wait(ctx, d); err != nil {
			return batch.Reply{}, err
		}
		return batch.Reply{Status: 200, Body: []byte(`{"ok":true}`)}, nil
	}
}
