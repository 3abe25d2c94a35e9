package batch_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// awkwardIDs are custom_ids as JSON texts that any re-encoding would change.
var awkwardIDs = []string{
	`"plain"`, `"\u0041\/<&>"`, `"\r\n\t\"\\"`, `"😀 \ud83d\ude00"`, `"\ud800"`, `"` + "\u2028\u00e9" + `"`,
	`"` + `\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00\ud83d\ude00` + `"`,
}

// ended is a batch that ends early, and what finishing it must give.
type ended struct {
	batch.Batch
	t        *testing.T
	w        *world
	rawIDs   []string
	physical []int
	done     map[int64]bool // has a checkpointed result
	code     string         // of every other line
}

// awkward makes a batch in progress of n lines, partLines a part, whose input
// has a byte order mark, blank lines, both line ends and awkward ids.
func (w *world) awkward(n, partLines int) *ended {
	w.t.Helper()
	e := &ended{t: w.t, w: w, done: map[int64]bool{}, code: openai.CodeBatchCancelled}
	b := bytes.NewBufferString("\ufeff")
	number := 0
	for i := range n {
		if i%4 == 2 {
			b.WriteString(" \t\n\r\n")
			number += 2
		}
		id := awkwardIDs[i%len(awkwardIDs)]
		id = id[:len(id)-1] + fmt.Sprintf(`%d"`, i)
		fmt.Fprintf(b, ` {"body": {"n":%d.0} ,"custom_id": %s, "url":%q,"method":"POST"}`, i, id, wEndpoint)
		b.WriteString([]string{"\n", "\r\n"}[i%2])
		number++
		e.rawIDs, e.physical = append(e.rawIDs, id), append(e.physical, number)
	}
	made := w.create(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	_, err := w.planner(&batch.PlannerOptions{PartLines: partLines}).Plan(w.t.Context(), wTenant, made.ID, wNow)
	must(w.t, err)
	e.Batch = w.batch(made.ID)
	return e
}

func (e *ended) parts() []batch.Part { return e.w.truth.Table.PartsOf(wTenant, e.ID) }

// hold claims part n and checkpoints the given lines of it, one chunk a list;
// lines count within the part.
func (e *ended) hold(n int, until time.Time, runs ...[]int) batch.Claim {
	e.t.Helper()
	p := e.parts()[n]
	c := batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}
	_, err := e.w.truth.Table.Claims.Claim(e.t.Context(), c, "", 3, until, wNow)
	must(e.t, err)
	for _, run := range runs {
		must(e.t, e.checkpoint(c, until, run...))
	}
	return c
}

// checkpoint commits lines of a held part.
func (e *ended) checkpoint(c batch.Claim, until time.Time, run ...int) error {
	e.t.Helper()
	p := e.parts()[c.N]
	var lines []int64
	done := append(p.DoneLines.Clone(), make(batch.Bitmap, (p.Lines+7)/8-len(p.DoneLines))...)
	for _, i := range run {
		done.Set(i)
		lines = append(lines, p.FirstLine+int64(i))
	}
	chunk := e.w.chunk(fmt.Sprintf("%s/parts/%s/%d/%s-%d.jsonl", p.Tenant, p.Batch, p.N, c.Token, len(p.Chunks)), lines, mixed)
	err := e.w.truth.Table.Claims.Checkpoint(e.t.Context(), c, batch.Checkpoint{From: p.Processed, To: p.Processed + len(run), Done: done, Chunk: chunk}, until, wNow)
	if err == nil {
		for _, l := range lines {
			e.done[l] = true
		}
	}
	return err
}

// end decides the ending.
func (e *ended) end(how batch.Status, at time.Time) {
	e.t.Helper()
	_, err := e.w.truth.Table.Endings.End(e.t.Context(), wTenant, e.ID, how, at)
	must(e.t, err)
	if how == batch.Expired {
		e.code = openai.CodeBatchExpired
	}
}

// expect checks the closed batch, and that nothing else is left of it.
func (e *ended) expect(how batch.Status) {
	e.t.Helper()
	e.expectFiles(how)
	if left := e.w.chunks(); len(left) > 0 {
		e.t.Errorf("chunks are left: %v", left)
	}
	if open := e.w.truth.Objects.OpenUploads(); len(open) > 0 {
		e.t.Errorf("uploads are left: %v", open)
	}
}

// expectFiles checks the closed batch: every line once, in one file, in its order.
func (e *ended) expectFiles(how batch.Status) {
	e.t.Helper()
	want := map[string][]byte{}
	var counts batch.Counts
	for i := range e.Lines {
		counts.Total++
		if !e.done[i] {
			counts.Failed++
			want[batch.ErrorFile] = fmt.Appendf(want[batch.ErrorFile], `{"id":%q,"custom_id":%s,"response":null,"error":{"code":%q,"message":%q}}`+"\n",
				openai.RequestResultID(e.ID, e.physical[i]), e.rawIDs[i], e.code, openai.Failure(e.code).Message)
			continue
		}
		r, kind := mixed(i), batch.ErrorFile
		if r.OK {
			kind = batch.OutputFile
			counts.Completed++
		} else {
			counts.Failed++
		}
		want[kind] = append(append(want[kind], r.Result...), '\n')
		want[batch.ReceiptsFile] = append(append(want[batch.ReceiptsFile], r.Receipt...), '\n')
	}
	b := e.w.batch(e.ID)
	if b.Status != how || b.Counts != counts || counts.Completed+counts.Failed != e.Lines {
		e.t.Fatalf("batch is %s with %+v, want %s with %+v", b.Status, b.Counts, how, counts)
	}
	for _, kind := range []string{batch.OutputFile, batch.ErrorFile, batch.ReceiptsFile} {
		if got := e.w.truth.Objects.Bytes(wResults, batch.ResultKey(wTenant, e.ID, kind)); !bytes.Equal(got, want[kind]) {
			e.t.Errorf("%s file\n%s\nwant\n%s", kind, got, want[kind])
		}
	}
	for kind, id := range map[string]string{batch.OutputFile: b.OutputFileID, batch.ErrorFile: b.ErrorFileID} {
		if (id != "") != (len(want[kind]) > 0) {
			e.t.Errorf("%s file id is %q for %d bytes", kind, id, len(want[kind]))
		}
	}
	for _, p := range e.parts() {
		if !p.Over() {
			e.t.Errorf("part %d is %s", p.N, p.State)
		}
	}
}

// everyState leaves a batch of 60 lines with a part of each kind: done, never
// touched, held by one that died, dead, handed over, held and without progress.
func (w *world) everyState() *ended {
	w.t.Helper()
	e := w.awkward(60, 10)
	ctx, claims := w.t.Context(), w.truth.Table.Claims
	past, table := wNow.Add(-time.Minute), w.truth.Table
	must(w.t, claims.Finish(ctx, e.hold(0, past, []int{1, 3, 5, 7, 9}, []int{0, 2, 4, 6, 8}), 10, wNow))
	e.hold(2, past, []int{9}, []int{0, 1, 2})
	e.hold(3, past, []int{4, 5})
	dead := e.parts()[3]
	dead.State, dead.Owner, dead.Attempts = batch.Dead, "", 3
	table.SeedPart(dead)
	must(w.t, claims.HandOver(ctx, e.hold(4, past, []int{2}, []int{7}, []int{3}), 0, wNow, wNow))
	e.hold(5, past)
	if states := slices.Collect(func(yield func(batch.State) bool) {
		for _, p := range e.parts() {
			if !yield(p.State) {
				return
			}
		}
	}); !slices.Equal(states, []batch.State{batch.Done, batch.Pending, batch.Leased, batch.Dead, batch.Pending, batch.Leased}) {
		w.t.Fatalf("parts are %v", states)
	}
	return e
}
