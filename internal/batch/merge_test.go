package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// partOf is a part over [first, first+lines) whose chunks hold these runs of
// lines, written as they are.
func (w *world) partOf(first int64, lines int, runs [][]int64, result func(int64) batch.Record) batch.Part {
	w.t.Helper()
	p := batch.Part{PartKey: batch.PartKey{Tenant: wTenant, Batch: "batch_m", N: 3}, State: batch.Done, FirstLine: first, Lines: lines}
	for i, run := range runs {
		p.Chunks = append(p.Chunks, w.chunk(fmt.Sprintf("c/%d", i), run, result))
	}
	return p
}

func (w *world) merge(p batch.Part) (lines []int64, err error) { return w.mergeHolding(p, wholeParts) }

// Parts of the tests are held whole, or read through the least buffers.
const wholeParts, noParts = 12 << 20, 1

func (w *world) mergeHolding(p batch.Part, held int) (lines []int64, err error) {
	err = batch.MergeHolding(w.t.Context(), w.m.Objects, wResults, p, held, func(r batch.Record) error {
		if want := mixed(r.Line); r.OK != want.OK || !bytes.Equal(r.Result, want.Result) || !bytes.Equal(r.Receipt, want.Receipt) {
			return fmt.Errorf("line %d: %s %s", r.Line, r.Receipt, r.Result)
		}
		lines = append(lines, r.Line)
		return nil
	})
	return lines, err
}

// Whatever lines went to whatever chunks, the merge gives all of them in order;
// and with one line taken away, or given twice, it gives an error.
func TestMergeProperty(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(rt *rapid.T) {
		first := rapid.Int64Range(0, 1<<40).Draw(rt, "first")
		n := rapid.IntRange(1, 200).Draw(rt, "lines")
		chunks := rapid.IntRange(1, min(n, 40)).Draw(rt, "chunks")
		runs := make([][]int64, chunks)
		var want []int64
		for i := range n {
			to := i % chunks
			if i >= chunks {
				to = rapid.IntRange(0, chunks-1).Draw(rt, "to")
			}
			runs[to] = append(runs[to], first+int64(i))
			want = append(want, first+int64(i))
		}
		held := rapid.SampledFrom([]int{wholeParts, noParts}).Draw(rt, "held")
		got, err := w.mergeHolding(w.partOf(first, n, runs, mixed), held)
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("merged %v: %v", got, err)
		}

		victim := rapid.Int64Range(first, first+int64(n)-1).Draw(rt, "victim")
		broken := make([][]int64, chunks)
		if rapid.Bool().Draw(rt, "lost, not doubled") {
			for i := range runs {
				broken[i] = slices.DeleteFunc(slices.Clone(runs[i]), func(l int64) bool { return l == victim })
			}
		} else {
			copy(broken, runs)
			broken = append(broken, []int64{victim})
		}
		broken = slices.DeleteFunc(broken, func(r []int64) bool { return len(r) == 0 })
		_, err = w.mergeHolding(w.partOf(first, n, broken, mixed), held)
		if c, ok := errors.AsType[*batch.ConservationError](err); !ok || c.Line != victim || c.N != 3 || !errors.Is(err, batch.ErrConservation) {
			rt.Fatalf("line %d is wrong, but: %v", victim, err)
		}
	})
}

func TestMergeRefuses(t *testing.T) {
	rewrite := func(w *world, c *batch.Chunk, change func([]byte) []byte, seal bool) {
		o := batch.Object{Bucket: wResults, Key: c.Key}
		data := change(bytes.Clone(w.truth.Objects.Bytes(wResults, c.Key)))
		_, err := w.truth.Objects.Put(w.t.Context(), o, data)
		must(w.t, err)
		if seal { // as a worker with a bug would have written it
			c.Bytes, c.Sum = int64(len(data)), sum(data)
		}
	}
	for _, c := range []struct {
		name   string
		runs   [][]int64 // of a part with lines 10-15
		change func(*world, *batch.Part)
		line   int64
	}{
		{"a missing line at the start", [][]int64{{11, 12, 13, 14, 15}}, nil, 10},
		{"a missing line at the end", [][]int64{{10, 11, 12}, {13, 14}}, nil, 15},
		{"no chunk at all", nil, nil, 10},
		{"a line of the part before", [][]int64{{9, 10, 11, 12, 13, 14, 15}}, nil, 9},
		{"a line of the part behind", [][]int64{{10, 11, 12, 13, 14, 15, 16}}, nil, 16},
		{"a line of the part behind, while one is missing", [][]int64{{10, 11, 12, 13, 14, 16}}, nil, 16},
		{"a line twice in a chunk", [][]int64{{10, 11, 12, 12, 13, 14, 15}}, nil, -1},
		{"a chunk out of order", [][]int64{{10, 12, 11, 13, 14, 15}}, nil, 11},
		{"a flipped bit", [][]int64{{10, 11, 12}, {13, 14, 15}}, func(w *world, p *batch.Part) {
			rewrite(w, &p.Chunks[1], func(b []byte) []byte { b[len(b)-4] ^= 1; return b }, false)
		}, -1},
		{"a chunk with more records than its checkpoint said", [][]int64{{10, 11, 12, 13, 14, 15}}, func(w *world, p *batch.Part) { p.Chunks[0].N, p.Chunks[0].OK = 5, 4 }, -1},
		{"outputs connections as errors", [][]int64{{10, 11, 12, 13, 14, 15}}, func(w *world, p *batch.Part) { p.Chunks[0].OK--; p.Chunks[0].Err++ }, -1},
		{"a record without an end", [][]int64{{10, 11, 12, 13, 14, 15}}, func(w *world, p *batch.Part) {
			rewrite(w, &p.Chunks[0], func(b []byte) []byte { return b[:len(b)-1] }, true)
		}, -1},
		{"a record without a number", [][]int64{{10, 11, 12, 13, 14, 15}}, func(w *world, p *batch.Part) {
			rewrite(w, &p.Chunks[0], func(b []byte) []byte { return append([]byte("x"), b...) }, true)
		}, -1},
		{"a record of three fields", [][]int64{{10, 11, 12, 13, 14, 15}}, func(w *world, p *batch.Part) {
			rewrite(w, &p.Chunks[0], func(b []byte) []byte { return append([]byte("10\to\t{}\n"), b...) }, true)
		}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.partOf(10, 6, c.runs, mixed)
			if c.change != nil {
				c.change(w, &p)
			}
			for _, held := range []int{wholeParts, noParts} {
				err := batch.MergeHolding(t.Context(), w.m.Objects, wResults, p, held, func(batch.Record) error { return nil })
				got, ok := errors.AsType[*batch.ConservationError](err)
				if !ok || !errors.Is(err, batch.ErrConservation) || got.Line != c.line {
					t.Errorf("holding %d: got %v, want line %d", held, err, c.line)
				}
			}
		})
	}
	t.Run("a chunk that is gone", func(t *testing.T) {
		w := newWorld(t)
		p := w.partOf(10, 6, [][]int64{{10, 11, 12}, {13, 14, 15}}, mixed)
		must(t, w.truth.Objects.Delete(t.Context(), wResults, []string{p.Chunks[1].Key}))
		if _, err := w.merge(p); !errors.Is(err, batch.ErrConservation) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a chunk that is short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // it is asked for again a few times
			w := newWorld(t)
			p := w.partOf(10, 6, [][]int64{{10, 11, 12, 13, 14, 15}}, mixed)
			p.Chunks[0].Bytes++
			if _, err := w.merge(p); err == nil {
				t.Error("it counts as whole")
			}
		})
	})
	t.Run("what emit refuses", func(t *testing.T) {
		w := newWorld(t)
		p := w.partOf(10, 6, [][]int64{{10, 11, 12, 13, 14, 15}}, mixed)
		no := errors.New("no")
		if err := batch.Merge(t.Context(), w.m.Objects, wResults, p, func(batch.Record) error { return no }); err != no {
			t.Errorf("got %v", err)
		}
	})
}

// Records are as large as a reply may be, beside small ones.
func TestMergeOfALargeRecord(t *testing.T) {
	const size = 16 << 20
	result := func(i int64) batch.Record {
		r := mixed(i)
		if i%2 == 1 {
			r.Result = fmt.Appendf(nil, `{"body":"%s"}`, bytes.Repeat([]byte{'a' + byte(i)}, size))
		}
		return r
	}
	w := newWorld(t)
	p := w.partOf(0, 5, [][]int64{{0, 3}, {1, 2, 4}}, result)
	next := int64(0)
	must(t, batch.Merge(t.Context(), w.m.Objects, wResults, p, func(r batch.Record) error {
		if r.Line != next || !bytes.Equal(r.Result, result(next).Result) {
			t.Errorf("line %d, %d bytes", r.Line, len(r.Result))
		}
		next++
		return nil
	}))
}

// Several hundred chunks, as a part gets that was poisoned or had slow lines.
func TestMergeOfManyChunks(t *testing.T) {
	w := newWorld(t)
	var runs [][]int64
	for i := range int64(500) {
		runs = append(runs, []int64{i, 999 - i})
	}
	p := w.partOf(0, 1000, runs, mixed)
	for _, held := range []int{wholeParts, noParts} {
		got, err := w.mergeHolding(p, held)
		must(t, err)
		if len(got) != 1000 || !slices.IsSorted(got) {
			t.Errorf("%d lines", len(got))
		}
	}
}

// connections counts the streams that are open at once.
type connections struct {
	batch.Objects
	mu             sync.Mutex
	now, most, all int
}

func (c *connections) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	s, err := c.Objects.Open(ctx, o, from, to)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.all++
	c.most = max(c.most, c.now)
	return &connection{s, c}, nil
}

type connection struct {
	io.ReadCloser
	c *connections
}

func (s *connection) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.now--
	return s.ReadCloser.Close()
}

// Chunks larger than their buffers, whose lines lie between one another: more of
// them than may be open at once, and all of them let go.
func TestMergeBoundsItsConnections(t *testing.T) {
	w := newWorld(t)
	const chunks, lines = 50, 5000
	runs := make([][]int64, chunks)
	for i := range int64(lines) {
		runs[i%chunks] = append(runs[i%chunks], i)
	}
	p := w.partOf(0, lines, runs, mixed)
	objects, next := &connections{Objects: w.m.Objects}, int64(0)
	must(t, batch.MergeHolding(t.Context(), objects, wResults, p, noParts, func(r batch.Record) error {
		if want := mixed(next); r.Line != next || !bytes.Equal(r.Result, want.Result) {
			t.Fatalf("line %d comes where %d should", r.Line, next)
		}
		next++
		return nil
	}))
	if next != lines || objects.most > 17 || objects.now != 0 {
		t.Errorf("%d lines over %d connections at most, %d left", next, objects.most, objects.now)
	}
	// A buffer holds a dozen records: nobody asks the store for each.
	if objects.all > lines/4 {
		t.Errorf("%d requests for %d lines in %d chunks", objects.all, lines, chunks)
	}
}

func TestMergeReadsOnAfterTears(t *testing.T) {
	for name, held := range map[string]int{"held": wholeParts, "through buffers": noParts} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var a, b []int64
				for i := range int64(4000) {
					if i%3 == 0 {
						a = append(a, i)
					} else {
						b = append(b, i)
					}
				}
				p := w.partOf(0, 4000, [][]int64{a, b}, mixed)
				f := w.restart()
				f.Before("Objects.Read", 0, func(_ context.Context, at memory.Point) error {
					if at.N%3 == 0 || at.N == 1 {
						return io.ErrUnexpectedEOF
					}
					return nil
				})
				got, err := w.mergeHolding(p, held)
				must(t, err)
				if len(got) != 4000 || f.Count("Objects.Read") < 3 {
					t.Errorf("%d lines in %d reads", len(got), f.Count("Objects.Read"))
				}
			})
		})
	}
}
