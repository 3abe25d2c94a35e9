package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

func TestFinish(t *testing.T) {
	only := func(ok bool) func(int64) batch.Record {
		return func(i int64) batch.Record { r := mixed(i); r.OK = ok; return r }
	}
	for _, c := range []struct {
		name     string
		lines, p int
		result   func(int64) batch.Record
	}{
		{"many parts, both files", 95, 10, mixed},
		{"one line", 1, 500, mixed},
		{"every line succeeded: no error file", 20, 7, only(true)},
		{"every line failed: no output file", 20, 7, only(false)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.run(c.lines, c.p, c.result)
			w.restart()
			b, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow.Add(time.Minute))
			must(t, err)
			w.expectClosed(r)
			if stored := w.batch(r.ID); b.Status != stored.Status || b.Counts != stored.Counts || stored.CompletedAt.Before(wNow.Add(time.Minute)) {
				t.Errorf("answered %+v", b)
			}
			if left := w.chunks(); len(left) > 0 {
				t.Errorf("chunks are left: %v", left)
			}
			if open := w.truth.Objects.OpenUploads(); len(open) > 0 {
				t.Errorf("uploads are left: %v", open)
			}
		})
	}
}

func TestFinishSumsUsage(t *testing.T) {
	w := newWorld(t)
	r := w.run(10, 4, mixed) // lines 3 has none; the others 2 in, their number out
	_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
	must(t, err)
	if got, want := w.batch(r.ID).Usage, (openai.Usage{InputTokens: 18, OutputTokens: 42, TotalTokens: 60}); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

func TestFinishSetsTheExpiryOfItsFiles(t *testing.T) {
	for name, c := range map[string]struct{ own, want time.Duration }{"default": {0, 7 * time.Hour}, "the batch's": {2 * time.Hour, 2 * time.Hour}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.run(10, 4, mixed)
			b := w.batch(r.ID)
			b.OutputExpiry = c.own
			w.truth.Table.SeedBatch(b)
			_, err := w.finisher(&batch.FinisherOptions{FileExpiry: 7 * time.Hour}).Finish(t.Context(), wTenant, r.ID, wNow.Add(3*time.Hour))
			must(t, err)
			for _, f := range w.truth.Table.FilesOf(wTenant) {
				if f.Purpose != openai.PurposeBatchOutput {
					continue
				}
				if f.CreatedAt.Before(wNow.Add(3*time.Hour)) || f.ExpiresAt.Sub(f.CreatedAt) != c.want {
					t.Errorf("%s: created %s, expires %s", f.Filename, f.CreatedAt, f.ExpiresAt)
				}
			}
		})
	}
}

// A finisher of another installation's default has made the records already:
// they stay, and the batch is closed with them.
func TestFinishKeepsRecordsOfAnotherDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.run(10, 4, mixed)
		w.restart().Before("Endings.Close", 0, memory.Fail(errors.New("down")))
		if _, err := w.finisher(&batch.FinisherOptions{FileExpiry: 7 * time.Hour}).Finish(t.Context(), wTenant, r.ID, wNow); err == nil {
			t.Fatal("closed although the table was down")
		}
		w.restart()
		b, err := w.finisher(&batch.FinisherOptions{FileExpiry: 9 * time.Hour}).Finish(t.Context(), wTenant, r.ID, wNow.Add(time.Minute))
		must(t, err)
		seen := 0
		for _, f := range w.truth.Table.FilesOf(wTenant) {
			if f.Purpose == openai.PurposeBatchOutput {
				seen++
				if f.ExpiresAt.Sub(f.CreatedAt) != 7*time.Hour {
					t.Errorf("%s lives %v", f.Filename, f.ExpiresAt.Sub(f.CreatedAt))
				}
			}
		}
		if seen != 2 || b.Status != batch.Completed {
			t.Errorf("%d records, batch is %s", seen, b.Status)
		}
	})
}

// Every call fails, loses its reply, keeps failing, or is the last thing the process does;
// then another process finishes. The files are the same bytes, every line is in
// one of them, and until the batch is closed no chunk is gone.
func TestFinishSurvivesEveryCall(t *testing.T) {
	clean := newWorld(t)
	want := clean.run(40, 9, mixed)
	clean.restart()
	_, err := clean.finisher(nil).Finish(t.Context(), wTenant, want.ID, wNow)
	must(t, err)
	for _, p := range clean.faults.Calls() {
		for when, arm := range timings {
			t.Run(p.String()+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					r := w.run(40, 9, mixed)
					before := w.chunks()
					arm(w.restart(), p)
					_, firstErr := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
					if !w.batch(r.ID).Status.Terminal() {
						if firstErr == nil {
							t.Error("success without an end")
						}
						if left := w.chunks(); !slices.Equal(left, before) {
							t.Errorf("not closed, and of %d chunks %d are left", len(before), len(left))
						}
					}
					w.restart()
					// A crash can't give the right back: come when it has lapsed.
					now := wNow.Add(time.Second)
					if errors.Is(firstErr, memory.ErrCrashed) {
						now = wNow.Add(10 * time.Minute)
					}
					_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, now)
					must(t, err)
					w.expectClosed(r)
					if left := w.chunks(); len(left) > 0 {
						t.Errorf("chunks are left: %v", left)
					}
				})
			})
		}
	}
}

func TestFinishOpenParts(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(20))
	_, err := w.planner(&batch.PlannerOptions{PartLines: 1}).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	w.work(w.truth.Table.PartsOf(wTenant, b.ID)[1], [][]int64{{1}}, mixed)
	w.restart()
	_, err = w.finisher(nil).Finish(t.Context(), wTenant, b.ID, wNow)
	open, ok := errors.AsType[*batch.PartsOpenError](err)
	if !ok || !errors.Is(err, batch.ErrPartsOpen) || open.Count != 19 || fmt.Sprint(open.First) != "[0 2 3 4 5 6 7 8 9 10]" {
		t.Errorf("got %v", err)
	}
	if got := w.batch(b.ID); got.Status != batch.InProgress || got.Ending != "" {
		t.Errorf("batch is %s, ending %q", got.Status, got.Ending)
	}
}

func TestFinishOfABatchThatHasNothingToFinish(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(5))
	if _, err := w.finisher(nil).Finish(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, batch.ErrStatus) {
		t.Errorf("validating: %v", err)
	}
	if _, err := w.finisher(nil).Finish(t.Context(), wTenant, "batch_none", wNow); !errors.Is(err, batch.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	b.Status = batch.Failed
	w.truth.Table.SeedBatch(b)
	if got, err := w.finisher(nil).Finish(t.Context(), wTenant, b.ID, wNow); err != nil || got.Status != batch.Failed {
		t.Errorf("failed: %+v, %v", got, err)
	}
	r := w.run(10, 3, mixed)
	for range 2 {
		_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
		must(t, err)
	}
	w.expectClosed(r)
}

// A cancel that came before the end stands; the results there are kept.
func TestFinishKeepsAnEndingDecidedBefore(t *testing.T) {
	for _, when := range []string{"before", "meanwhile"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t)
			r := w.run(30, 8, mixed)
			cancel := func(ctx context.Context, _ memory.Point) error {
				_, err := w.truth.Table.Endings.End(ctx, wTenant, r.ID, batch.Cancelled, wNow)
				return err
			}
			if f := w.restart(); when == "before" {
				must(t, cancel(t.Context(), memory.Point{}))
			} else {
				f.Before("Endings.End", 1, cancel)
			}
			b, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
			must(t, err)
			if b.Status != batch.Cancelled || b.Counts.Completed != r.ok || b.Counts.Failed != r.err {
				t.Errorf("%s %+v", b.Status, b.Counts)
			}
		})
	}
}

// Nothing may be closed, written or deleted when results don't add up.
func TestFinishRefusesWhatDoesNotAddUp(t *testing.T) {
	for name, spoil := range map[string]func(w *world, p *batch.Part){
		"a chunk's record is missing": func(w *world, p *batch.Part) {
			p.Chunks[0] = w.chunk(p.Chunks[0].Key, []int64{p.FirstLine}, mixed)
			p.Chunks = p.Chunks[:1]
		},
		"a chunk counts twice": func(w *world, p *batch.Part) { p.Chunks = append(p.Chunks, p.Chunks[0]) },
		"a chunk is damaged": func(w *world, p *batch.Part) {
			c := p.Chunks[len(p.Chunks)-1]
			data := slices.Clone(w.truth.Objects.Bytes(wResults, c.Key))
			data[len(data)-5] ^= 4
			_, err := w.truth.Objects.Put(w.t.Context(), batch.Object{Bucket: wResults, Key: c.Key}, data)
			must(w.t, err)
		},
		"a receipt is none": func(w *world, p *batch.Part) {
			lines := make([]int64, p.Lines)
			for i := range lines {
				lines[i] = p.FirstLine + int64(i)
			}
			p.Chunks = []batch.Chunk{w.chunk(p.Chunks[0].Key, lines, func(i int64) batch.Record {
				r := mixed(i)
				r.Receipt = []byte(`{"usage":7}`)
				return r
			})}
		},
		"a part has fewer lines":  func(w *world, p *batch.Part) { p.Lines-- },
		"a part begins elsewhere": func(w *world, p *batch.Part) { p.FirstLine++ },
		"a part and its results are of other lines": func(w *world, p *batch.Part) {
			p.FirstLine++ // the first is nobody's now, and the next part's first has two results
			var lines []int64
			for i := range int64(p.Lines) {
				lines = append(lines, p.FirstLine+i)
			}
			p.Chunks = []batch.Chunk{w.chunk(p.Chunks[0].Key, lines, mixed)}
		},
		"a part is there too many":  func(w *world, p *batch.Part) { p.N = 5; p.FirstLine = 40 },
		"the batch has more lines":  func(w *world, p *batch.Part) { b := w.batch(p.Batch); b.Lines++; w.truth.Table.SeedBatch(b) },
		"the batch has fewer parts": func(w *world, p *batch.Part) { b := w.batch(p.Batch); b.Parts--; w.truth.Table.SeedBatch(b) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.run(40, 8, mixed)
			p := w.truth.Table.PartsOf(wTenant, r.ID)[3]
			spoil(w, &p)
			w.truth.Table.SeedPart(p)
			chunks := w.chunks()
			w.restart()
			_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow)
			if !errors.Is(err, batch.ErrConservation) {
				t.Errorf("got %v", err)
			}
			if got := w.batch(r.ID); got.Status.Terminal() {
				t.Errorf("batch is %s", got.Status)
			}
			if keys := w.truth.Objects.Keys(wResults); !slices.Equal(keys, chunks) {
				t.Errorf("objects %v, want the chunks %v", keys, chunks)
			}
			if open := w.truth.Objects.OpenUploads(); len(open) > 0 {
				t.Errorf("uploads are left: %v", open)
			}
		})
	}
}

func TestFinishHeldByAnother(t *testing.T) {
	w := newWorld(t)
	r := w.run(10, 3, mixed)
	_, err := w.truth.Table.Endings.End(t.Context(), wTenant, r.ID, batch.Completed, wNow)
	must(t, err)
	_, err = w.truth.Table.Endings.Finalize(t.Context(), wTenant, r.ID, lease.NewToken(), wNow.Add(time.Minute), wNow, wNow)
	must(t, err)
	for _, at := range []time.Duration{0, time.Minute, time.Minute + 5*time.Second} {
		_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow.Add(at-time.Second))
		if held, ok := errors.AsType[*batch.HeldError](err); !ok || !held.Until.Equal(wNow.Add(time.Minute)) {
			t.Errorf("%s later: %v", at-time.Second, err)
		}
	}
	_, err = w.finisher(nil).Finish(t.Context(), wTenant, r.ID, wNow.Add(time.Minute+6*time.Second))
	must(t, err)
	w.expectClosed(r)
}

func TestFinisherOptions(t *testing.T) {
	for name, o := range map[string]*batch.FinisherOptions{
		"small pieces": {PieceBytes: 1 << 20}, "negative skew": {Skew: -1}, "no lease to speak of": {Lease: 1}, "negative margin": {Margin: -1}, "negative expiry": {FileExpiry: -1},
		"negative saves": {SaveBytes: -1}, "negative pauses": {SaveEvery: -1}, "negative memory": {HeldBytes: -1}, "smaller than the store takes": {PieceBytes: 10, LeastPiece: 11},
	} {
		if _, err := batch.NewFinisher(batch.FinisherPorts{}, wResults, o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
