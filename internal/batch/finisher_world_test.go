package batch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// What the tests of creating, planning and finishing share: one installation in
// process, and a batch walked through it.
const (
	wTenant   = "acme"
	wEndpoint = "/v1/chat/completions"
	wInputs   = "inputs"
	wResults  = "results"
)

var wNow = time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)

// world is an installation; m is what the process under test sees of it, with
// its faults, and truth is the same without any.
type world struct {
	t        *testing.T
	truth, m *memory.Memory
	faults   *memory.Faults
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, truth: memory.New(memory.Options{})}
	w.restart()
	return w
}

// restart is a new process on the same stores, without faults yet.
func (w *world) restart() *memory.Faults {
	w.faults = memory.NewFaults()
	w.m = w.truth.With(w.faults)
	return w.faults
}

// upload stores an input and its record.
func (w *world) upload(id string, input []byte) batch.File {
	w.t.Helper()
	o, err := w.truth.Objects.Put(w.t.Context(), batch.Object{Bucket: wInputs, Key: "files/" + wTenant + "/" + id}, input)
	must(w.t, err)
	f := batch.File{Tenant: wTenant, ID: id, Purpose: openai.PurposeBatch, Filename: "in.jsonl", Object: o, CreatedAt: wNow, ExpiresAt: wNow.Add(time.Hour)}
	must(w.t, w.truth.Table.Files.Put(w.t.Context(), f))
	return f
}

// create makes a validating batch over an input.
func (w *world) create(input []byte) batch.Batch {
	w.t.Helper()
	f := w.upload("file-"+hex.EncodeToString([]byte{byte(len(w.truth.Table.FilesOf(wTenant)))}), input)
	b, err := w.creator(nil).Create(w.t.Context(), batch.Request{Tenant: wTenant, Submitter: "ann", FileID: f.ID, Endpoint: wEndpoint, Window: "24h"}, wNow)
	must(w.t, err)
	return b
}

func (w *world) creator(o *batch.CreatorOptions) *batch.Creator {
	w.t.Helper()
	c, err := batch.NewCreator(w.m.Table.Batches, w.m.Table.Files, w.m.Workflow, o)
	must(w.t, err)
	return c
}

func (w *world) planner(o *batch.PlannerOptions) *batch.Planner {
	w.t.Helper()
	p, err := batch.NewPlanner(w.m.Table.Batches, w.m.Table.Parts, w.m.Objects, wResults, o)
	must(w.t, err)
	return p
}

func (w *world) finisher(o *batch.FinisherOptions) *batch.Finisher {
	w.t.Helper()
	f, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: w.m.Table.Batches, Endings: w.m.Table.Endings, Parts: w.m.Table.Parts, Seals: w.m.Table.Seals, Files: w.m.Table.Files,
		Objects: w.m.Objects, Uploads: w.m.Objects,
	}, wResults, o)
	must(w.t, err)
	return f
}

// batch is the batch as it is stored.
func (w *world) batch(id string) batch.Batch {
	w.t.Helper()
	b, ok := w.truth.Table.Batch(wTenant, id)
	if !ok {
		w.t.Fatalf("no batch %s", id)
	}
	return b
}

// requests is an input of n lines.
func requests(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"c-%d","method":"POST","url":"%s","body":{"model":"m-1","n":%d}}`+"\n", i, wEndpoint, i)
	}
	return b.Bytes()
}

// ran is a batch in progress whose every line has a result, and the files that
// finishing it must give.
type ran struct {
	batch.Batch
	want map[string][]byte // by kind
	ok   int64
	err  int64
}

// run makes a batch of n lines in parts of partLines and does the work of its
// parts: result i is result(i), spread at random over chunks. Every part is done.
func (w *world) run(n, partLines int, result func(i int64) batch.Record) ran {
	w.t.Helper()
	b := w.create(requests(n))
	_, err := w.planner(&batch.PlannerOptions{PartLines: partLines}).Plan(w.t.Context(), wTenant, b.ID, wNow)
	must(w.t, err)
	r := ran{Batch: w.batch(b.ID), want: map[string][]byte{}}
	for i := range int64(n) {
		rec, kind := result(i), batch.OutputFile
		if r.ok++; !rec.OK {
			kind = batch.ErrorFile
			r.ok--
			r.err++
		}
		r.want[kind] = append(append(r.want[kind], rec.Result...), '\n')
		r.want[batch.ReceiptsFile] = append(append(r.want[batch.ReceiptsFile], rec.Receipt...), '\n')
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for _, p := range w.truth.Table.PartsOf(wTenant, b.ID) {
		w.work(p, spread(rng, p, 1+rng.IntN(5)), result)
	}
	return r
}

// spread deals a part's lines to so many chunks, none of them empty.
func spread(rng *rand.Rand, p batch.Part, chunks int) [][]int64 {
	chunks = min(chunks, p.Lines)
	dealt := make([][]int64, chunks)
	for i, l := range rng.Perm(p.Lines) {
		to := i
		if i >= chunks {
			to = rng.IntN(chunks)
		}
		dealt[to] = append(dealt[to], p.FirstLine+int64(l))
	}
	for _, d := range dealt {
		slices.Sort(d)
	}
	return dealt
}

// work claims the part, checkpoints a chunk for each run of lines, and finishes.
func (w *world) work(p batch.Part, runs [][]int64, result func(int64) batch.Record) {
	w.t.Helper()
	ctx, claims := w.t.Context(), w.truth.Table.Claims
	c := batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}
	until := wNow.Add(time.Minute)
	_, err := claims.Claim(ctx, c, "", 3, until, wNow)
	must(w.t, err)
	done, processed := batch.NewBitmap(p.Lines), 0
	for seq, run := range runs {
		chunk := w.chunk(fmt.Sprintf("%s/parts/%s/%d/%s-%d.jsonl", p.Tenant, p.Batch, p.N, c.Token, seq), run, result)
		for _, i := range run {
			done.Set(int(i - p.FirstLine))
		}
		must(w.t, claims.Checkpoint(ctx, c, batch.Checkpoint{From: processed, To: processed + len(run), Done: done.Clone(), Chunk: chunk}, until, wNow))
		processed += len(run)
	}
	must(w.t, claims.Finish(ctx, c, p.Lines, wNow))
}

// chunk writes a chunk of these lines, in this order.
func (w *world) chunk(key string, lines []int64, result func(int64) batch.Record) batch.Chunk {
	w.t.Helper()
	c := batch.Chunk{Key: key, N: len(lines)}
	var data []byte
	for _, i := range lines {
		r := result(i)
		if c.OK++; !r.OK {
			c.OK--
			c.Err++
		}
		data = r.Append(data)
	}
	c.Bytes, c.Sum = int64(len(data)), sum(data)
	_, err := w.truth.Objects.Put(w.t.Context(), batch.Object{Bucket: wResults, Key: key}, data)
	must(w.t, err)
	return c
}

// mixed is a result: every seventh line failed, all others used tokens.
func mixed(i int64) batch.Record {
	r := batch.Receipt{Time: wNow, Tenant: wTenant, Line: i, CustomID: json.RawMessage(fmt.Sprintf(`"c-%d"`, i)), OnBehalfOf: "ann", Attempt: 1, Status: 200}
	ok := i%7 != 3
	if ok {
		r.Usage = &openai.Usage{InputTokens: 2, OutputTokens: i, TotalTokens: i + 2}
	}
	receipt, err := json.Marshal(r)
	if err != nil {
		panic(err) // of plain values: can't be
	}
	return batch.Record{Line: i, OK: ok, Receipt: receipt, Result: fmt.Appendf(nil, `{"custom_id":"c-%d","ok":%t}`, i, ok)}
}

// expectClosed checks all that promise 1 says about a closed batch.
func (w *world) expectClosed(r ran) {
	w.t.Helper()
	b := w.batch(r.ID)
	if b.Status != batch.Completed || b.Counts != (batch.Counts{Total: r.ok + r.err, Completed: r.ok, Failed: r.err}) {
		w.t.Fatalf("batch is %s with %+v, want completed with %d and %d", b.Status, b.Counts, r.ok, r.err)
	}
	for kind, id := range map[string]string{batch.OutputFile: b.OutputFileID, batch.ErrorFile: b.ErrorFileID, batch.ReceiptsFile: ""} {
		key := batch.ResultKey(wTenant, b.ID, kind)
		got, want := w.truth.Objects.Bytes(wResults, key), r.want[kind]
		if sum(got) != sum(want) {
			w.t.Fatalf("%s has %d bytes, want %d: %.200s", key, len(got), len(want), got)
		}
		if there := slices.Contains(w.truth.Objects.Keys(wResults), key); there != (len(want) > 0) {
			w.t.Errorf("%s exists: %t; want %d bytes", key, there, len(want))
		}
		if kind == batch.ReceiptsFile {
			continue
		}
		if (id != "") != (len(want) > 0) {
			w.t.Errorf("%s file id is %q for %d bytes", kind, id, len(want))
		}
		if id == "" {
			continue
		}
		f, err := w.truth.Table.Files.Get(w.t.Context(), wTenant, id)
		must(w.t, err)
		if f.Purpose != openai.PurposeBatchOutput || f.Filename != b.ID+"_"+kind+".jsonl" ||
			f.Object != (batch.Object{Bucket: wResults, Key: key, Bytes: int64(len(want))}) {
			w.t.Errorf("%s file: %+v", kind, f)
		}
	}
}

// chunks are the keys of the chunks that are left.
func (w *world) chunks() (keys []string) {
	for _, k := range w.truth.Objects.Keys(wResults) {
		if bytes.Contains([]byte(k), []byte("/parts/")) {
			keys = append(keys, k)
		}
	}
	return keys
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
