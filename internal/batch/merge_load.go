package batch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
)

// heldBytes is what is held of chunks while parts are merged, the part being
// merged included. A part of 500 lines with replies of 4 KB is 2.3 MB in 5 chunks:
// some parts are on their way while one is merged, which hides the store's
// latency. A part that is more than half of it is read through buffers.
const heldBytes = 12 << 20

// getsAtOnce bounds the chunks that are fetched side by side: 8 of 480 KB in some
// 45 ms each are what a function's network gives.
const getsAtOnce = 8

// merger merges parts, one after another. It is for one goroutine.
type merger struct {
	objects Objects
	bucket  string
	held    int           // bytes of chunks
	gets    chan struct{} // one element for each chunk that is being fetched
	room    *buffers
	scratch []byte // for a record longer than its buffer
}

func newMerger(objects Objects, bucket string, held int) *merger {
	return &merger{objects: objects, bucket: bucket, held: held, gets: make(chan struct{}, getsAtOnce), room: newBuffers(held)}
}

// loaded is a part whose chunks are there, or on their way, or (nil) too large
// for that.
type loaded struct {
	part   Part
	held   []byte   // all chunks, one behind the other
	chunks [][]byte // nil: to be streamed
	sums   [][]byte
	done   chan struct{} // closed when all have arrived
	err    error         // why they haven't; or why there is no part
}

// oneAfterAnother is a sequence of parts that are known.
func oneAfterAnother(parts ...Part) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		for _, p := range parts {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// each hands the parts to do in their order, loaded as far ahead as there is
// room. It ends with the first error, its own or do's, and with nothing under way.
func (m *merger) each(ctx context.Context, parts iter.Seq2[Part, error], do func(*loaded) error) error {
	ctx, cancel := context.WithCancel(ctx)
	next := make(chan *loaded, 16)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(next)
		for p, err := range parts {
			l := &loaded{part: p, err: err}
			if err != nil {
				l.err = fmt.Errorf("read the parts: %w", err)
			} else if !m.load(ctx, &wg, l) {
				return
			}
			select {
			case next <- l:
			case <-ctx.Done():
				return
			}
		}
	})
	for l := range next {
		if err := l.wait(); err != nil {
			return err
		}
		if err := do(l); err != nil {
			return err
		}
		m.room.give(l.held)
	}
	return context.Cause(ctx)
}

// load begins to fetch the part's chunks, once there is room for them. It is
// false when ctx ended before.
func (m *merger) load(ctx context.Context, wg *sync.WaitGroup, l *loaded) bool {
	var size int64
	for _, c := range l.part.Chunks {
		size += c.Bytes
	}
	if size > int64(m.held/2) || len(l.part.Chunks) == 0 {
		return true
	}
	held, ok := m.room.take(ctx, int(size))
	if !ok {
		return false
	}
	n := len(l.part.Chunks)
	l.held, l.done = held, make(chan struct{})
	l.chunks, l.sums = make([][]byte, n), make([][]byte, n)
	errs := make([]error, n)
	var fetches sync.WaitGroup
	for i, c := range l.part.Chunks {
		into := held[:c.Bytes:c.Bytes]
		held, l.chunks[i] = held[c.Bytes:], into
		m.gets <- struct{}{} // given back whatever happens
		fetches.Go(func() {
			defer func() { <-m.gets }()
			errs[i] = m.fetch(ctx, c, into)
			sum := sha256.Sum256(into)
			l.sums[i] = sum[:]
		})
	}
	wg.Go(func() {
		fetches.Wait()
		for i, err := range errs {
			if err == nil {
				err = checkSum(l.sums[i], l.part.Chunks[i])
			}
			if err != nil {
				c := chunkReader{chunk: l.part.Chunks[i]}
				l.err = errors.Join(l.err, c.fail(l.part.PartKey, err))
			}
		}
		close(l.done)
	})
	return true
}

// fetch reads one chunk whole.
func (m *merger) fetch(ctx context.Context, c Chunk, into []byte) error {
	src := newStream(ctx, m.objects, Object{Bucket: m.bucket, Key: c.Key, Bytes: c.Bytes}, 0, c.Bytes)
	defer src.Close()
	_, err := io.ReadFull(src, into)
	return err
}

// proven reports that the chunks are what their checkpoints said, before any
// record of theirs is handed on.
func (l *loaded) proven() bool { return l.chunks != nil }

// wait waits until the chunks have arrived.
func (l *loaded) wait() error {
	if l.done != nil {
		<-l.done
	}
	return l.err
}

// open gives a reader for each chunk, at its first line. They must be let go.
func (m *merger) open(ctx context.Context, l *loaded) ([]*chunkReader, error) {
	if l.chunks == nil {
		return m.stream(ctx, l.part)
	}
	readers := make([]*chunkReader, len(l.chunks))
	for i, c := range l.part.Chunks {
		readers[i] = &chunkReader{chunk: c, line: -1, text: &heldText{l.chunks[i]}, sum: func() []byte { return l.sums[i] }}
		if err := readers[i].advance(); err != nil {
			return readers, readers[i].fail(l.part.PartKey, err)
		}
	}
	return readers, nil
}
