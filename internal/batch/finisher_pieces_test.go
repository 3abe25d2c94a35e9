package batch_test

import (
	"slices"
	"testing"

	"holdfast/internal/batch"
)

// S3 takes 10,000 pieces of an upload. Results that are more than that many of the
// usual size get larger ones, and all of them arrive.
func TestPiecesGrowWithTheResults(t *testing.T) {
	w := newWorld(t)
	r := w.run(300, 50, mixed)
	w.truth.Objects.LeastPiece(1)
	f := w.restart()
	_, err := w.finisher(&batch.FinisherOptions{LeastPiece: 1, PieceBytes: 1}).Finish(t.Context(), wTenant, r.ID, wNow)
	must(t, err)
	w.expectClosed(r)
	var bytes int
	for _, file := range r.want {
		bytes += len(file)
	}
	// All files together: the bytes that the pieces are planned for are theirs, too.
	if n := f.Count("Uploads.PutPiece"); n < 1000 || n >= 10_000 || bytes < 20_000 {
		t.Errorf("%d bytes in %d pieces", bytes, n)
	}
}

// What is held of chunks is bounded by default: a part of more than half of it is
// read through buffers, one of just that much is fetched whole, each chunk at once.
func TestHeldByDefault(t *testing.T) {
	const held = 12 << 20
	for name, c := range map[string]struct {
		size   int // of all chunks
		opened bool
	}{
		"half of it":       {held / 2, false},
		"a kilobyte above": {held/2 + 1024, true},
	} {
		t.Run(name, func(t *testing.T) {
			const lines = 8
			w := newWorld(t)
			p := w.partOf(0, lines, slices.Collect(slices.Chunk([]int64{0, 1, 2, 3, 4, 5, 6, 7}, 1)), func(i int64) batch.Record {
				r := mixed(i)
				r.Result = slices.Concat([]byte(`{"x":"`), slices.Repeat([]byte{'x'}, c.size/lines), []byte(`"}`))
				spare := len(r.Append(nil)) - c.size/lines
				r.Result = slices.Delete(r.Result, 10, 10+spare)
				return r
			})
			size := int64(0)
			for _, chunk := range p.Chunks {
				size += chunk.Bytes
			}
			if size != int64(c.size) {
				t.Fatalf("the part has %d bytes, not %d", size, c.size)
			}
			f := w.restart()
			n := 0
			must(t, batch.Merge(t.Context(), w.m.Objects, wResults, p, func(batch.Record) error { n++; return nil }))
			if opens := f.Count("Objects.Open"); n != lines || (opens > lines) != c.opened || opens < lines {
				t.Errorf("%d lines, %d requests for %d chunks", n, opens, len(p.Chunks))
			}
		})
	}
}
