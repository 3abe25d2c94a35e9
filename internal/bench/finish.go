package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// FinishBucket is the bucket of chunks and result files.
const FinishBucket = "results"

// FinishRun is what finishing a batch, or copying its chunks, came to.
type FinishRun struct {
	Bytes   int64   `json:"bytes"` // of all chunks
	Seconds float64 `json:"seconds"`
	Peak    int64   `json:"peak"` // most resident memory of the process, in bytes
	Saves   int64   `json:"saves"`
	// Resumed is how often a chunk was read on from somewhere within: never, unless
	// its part was too large to be held. Counted by FinishMade alone.
	Resumed int64 `json:"resumed"`
}

// Finish finishes a batch whose parts are these on the given store; the table is
// in this process. Run it in a process of its own.
func Finish(objects batch.Objects, uploads batch.Uploads, parts batch.Parts) (run FinishRun, err error) {
	table := memory.NewTable(nil)
	b := batch.Batch{Tenant: tenant, ID: id, Status: batch.InProgress, Submitter: "bench", Endpoint: "/v1/chat/completions"}
	for p, err := range parts.All(context.Background(), tenant, id) {
		if err != nil {
			return run, err
		}
		b.Parts++
		b.Lines += int64(p.Lines)
		for _, c := range p.Chunks {
			run.Bytes += c.Bytes
		}
	}
	table.SeedBatch(b)
	f, err := batch.NewFinisher(batch.FinisherPorts{Batches: table.Batches, Endings: table.Endings, Parts: parts, Seals: table.Seals,
		Files: table.Files, Objects: objects, Uploads: uploads}, FinishBucket, nil)
	if err != nil {
		return run, err
	}
	begun := time.Now()
	if b, err = f.Finish(context.Background(), tenant, id, begun); err != nil {
		return run, err
	}
	run.Seconds = time.Since(begun).Seconds()
	if b.Status != batch.Completed || b.Counts.Total != b.Lines || b.OutputFileID == "" || b.ErrorFileID == "" {
		return run, fmt.Errorf("the batch is %s with %+v", b.Status, b.Counts)
	}
	run.Saves = b.Progress.Step
	run.Peak, err = peakRSS()
	return run, err
}

// PartList is batch.Parts of one batch, of parts that are over.
type PartList []batch.Part

// Insert is not possible.
func (l PartList) Insert(context.Context, []batch.Part) error { return errors.ErrUnsupported }

// Get is the part of that number.
func (l PartList) Get(_ context.Context, key batch.PartKey) (batch.Part, error) { return l[key.N], nil }

// All are all of them, whatever the batch.
func (l PartList) All(context.Context, string, string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		for _, p := range l {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// madeParts are batch.Parts that are made as they are read: a table doesn't hold
// them in the finisher's process either.
type madeParts struct{ *Results }

func (m madeParts) Insert(context.Context, []batch.Part) error { return errors.ErrUnsupported }

func (m madeParts) Get(_ context.Context, key batch.PartKey) (batch.Part, error) {
	return m.Part(key.N), nil
}

func (m madeParts) All(context.Context, string, string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		for n := range m.Count() {
			if !yield(m.Part(n), nil) {
				return
			}
		}
	}
}

// Copy is what finishing is compared with: it streams the chunks, one after
// another, into one object of the same pieces, and looks at nothing.
func Copy(objects batch.Objects, uploads batch.Uploads, parts []batch.Part) (run FinishRun, err error) {
	ctx := context.Background()
	begun := time.Now()
	o := batch.Object{Bucket: FinishBucket, Key: "copy"}
	upload, err := uploads.Begin(ctx, o)
	if err != nil {
		return run, err
	}
	piece := make([]byte, 0, 8<<20)
	var pieces []batch.Piece
	send := func() error {
		p, err := uploads.PutPiece(ctx, o, upload, len(pieces)+1, piece)
		pieces, piece = append(pieces, p), piece[:0]
		return err
	}
	for _, p := range parts {
		for _, c := range p.Chunks {
			body, err := objects.Open(ctx, batch.Object{Bucket: FinishBucket, Key: c.Key, Bytes: c.Bytes}, 0, c.Bytes)
			if err != nil {
				return run, err
			}
			for left := c.Bytes; left > 0; {
				n, err := io.ReadFull(body, piece[len(piece):][:min(left, int64(cap(piece)-len(piece)))])
				if err != nil {
					return run, err
				}
				piece, left, run.Bytes = piece[:len(piece)+n], left-int64(n), run.Bytes+int64(n)
				if len(piece) == cap(piece) {
					if err := send(); err != nil {
						return run, err
					}
				}
			}
			if err := body.Close(); err != nil {
				return run, err
			}
		}
	}
	if len(piece) > 0 {
		if err := send(); err != nil {
			return run, err
		}
	}
	if _, err := uploads.Complete(ctx, o, upload, pieces); err != nil {
		return run, err
	}
	run.Seconds = time.Since(begun).Seconds()
	return run, nil
}

// FinishMade finishes so many lines whose chunks are made as they are read, and
// whose result files are discarded: what is left is the finisher's own memory.
func FinishMade(lines, reply int) (FinishRun, error) {
	r, err := NewResults(lines, reply)
	if err != nil {
		return FinishRun{}, err
	}
	store := &madeStore{Objects: memory.NewObjects(nil), results: r, uploads: map[string]map[int]int64{}}
	run, err := Finish(store, store, madeParts{r})
	run.Resumed = store.again.Load()
	return run, err
}

// madeStore makes chunks, and of what is written counts the bytes. It is for one
// finisher that dies at no time, and which sends a piece at a time.
type madeStore struct {
	*memory.Objects
	results *Results
	uploads map[string]map[int]int64
	again   atomic.Int64
}

func (s *madeStore) Open(_ context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	path := strings.Split(strings.TrimSuffix(o.Key, ".jsonl"), "/")
	n, err := strconv.Atoi(path[len(path)-2])
	_, number, _ := strings.Cut(path[len(path)-1], "-")
	c, noChunk := strconv.Atoi(number)
	if err != nil || noChunk != nil || from < 0 || from >= to || to > o.Bytes {
		return nil, fmt.Errorf("no chunk %s [%d, %d)", o.Key, from, to)
	}
	chunk := s.results.Open(s.results.outline(n), c)
	if from > 0 {
		s.again.Add(1)
		if _, err := io.CopyN(io.Discard, chunk, from); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(io.LimitReader(chunk, to-from)), nil
}

func (s *madeStore) Put(_ context.Context, o batch.Object, data []byte) (batch.Object, error) {
	o.Bytes = int64(len(data))
	return o, nil
}

func (s *madeStore) Begin(_ context.Context, o batch.Object) (string, error) {
	s.uploads[o.Key] = map[int]int64{}
	return o.Key, nil
}

func (s *madeStore) PutPiece(_ context.Context, _ batch.Object, id string, n int, data []byte) (batch.Piece, error) {
	s.uploads[id][n] = int64(len(data))
	return batch.Piece{N: n, ETag: fmt.Sprint(crc32.ChecksumIEEE(data))}, nil
}

func (s *madeStore) Complete(_ context.Context, o batch.Object, id string, pieces []batch.Piece) (batch.Object, error) {
	for _, p := range pieces {
		size, ok := s.uploads[id][p.N]
		if !ok {
			return batch.Object{}, errors.New("a piece is missing")
		}
		o.Bytes += size
	}
	return o, nil
}
