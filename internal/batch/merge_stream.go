package batch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"sync"
)

// Chunks of a part that is too large to be held are read through buffers. Of
// them, those whose lines come next have a connection: opensAhead are opened before
// they are needed, so that nobody waits for a store's first byte, and beyond
// streamsOpen the ones that are needed last are let go and taken up again later.
// A part whose replies are 1 MiB has chunks of 8 lines, which lie among some 64
// while 32 are under way: 8 chunks in turns, most of the time.
const (
	opensAhead  = 4
	streamsOpen = 16

	// The buffers of one part's chunks take together a third of what may be held,
	// between a least and a most for each. A part has from a handful of chunks to a
	// thousand.
	leastBuffer = 4 << 10
	mostBuffer  = 256 << 10
)

// stream opens every chunk of a part and looks at its first line. The readers are
// there to be let go even with an error.
func (m *merger) stream(ctx context.Context, p Part) ([]*chunkReader, error) {
	readers := make([]*chunkReader, len(p.Chunks))
	size := min(mostBuffer, max(leastBuffer, m.held/3/max(1, len(p.Chunks))))
	for i, c := range p.Chunks {
		// No ETag: a chunk's key is its writer's alone, and its sum is the proof.
		src := newRest(ctx, m.objects, Object{Bucket: m.bucket, Key: c.Key, Bytes: c.Bytes}, int64(size))
		sum := sha256.New()
		src.buf = bufio.NewReaderSize(io.TeeReader(src, sum), size)
		readers[i] = &chunkReader{chunk: c, line: -1, rest: src, text: src.buf, sum: func() []byte { return sum.Sum(nil) }}
	}
	var (
		wg   sync.WaitGroup
		errs = make([]error, len(readers))
	)
	for i, r := range readers {
		m.gets <- struct{}{}
		wg.Go(func() {
			defer func() { <-m.gets }()
			// Filling the buffer ends the request for it, and its connection is free.
			_, err := r.text.Peek(int(min(int64(size), r.chunk.Bytes)))
			if err == nil || err == io.EOF {
				err = r.advance()
			}
			if err != nil {
				errs[i] = r.fail(p.PartKey, err)
			}
		})
	}
	wg.Wait()
	return readers, errors.Join(errs...)
}

// turn says that another chunk comes next: it opens and lets go.
func turn(open []*chunkReader) {
	if len(open) == 0 || open[0].rest == nil {
		return
	}
	order := slices.SortedFunc(slices.Values(open), func(a, b *chunkReader) int { return cmp.Compare(a.line, b.line) })
	n := 0
	for _, c := range order {
		if c.rest.whole() {
			continue
		}
		if n++; n <= opensAhead && !c.rest.ready() {
			c.rest.open()
		} else if n > streamsOpen {
			c.rest.letGo()
		}
	}
}

// letGo ends the connections of all chunks.
func letGo(open []*chunkReader) {
	for _, c := range open {
		if c != nil && c.rest != nil {
			c.rest.letGo()
		}
	}
}

// rest reads an object in sequence over connections that come and go: first
// one for the object's head, then, from when open says so or a byte is needed,
// one for all that is left. For one goroutine.
type rest struct {
	ctx     context.Context
	objects Objects
	object  Object
	at, to  int64         // the next byte; where the connection's range ends
	buf     *bufio.Reader // what it is read through
	src     *stream       // nil while nothing is open
	opened  chan struct{} // closed once the store has answered
}

func newRest(ctx context.Context, objects Objects, o Object, head int64) *rest {
	return &rest{ctx: ctx, objects: objects, object: o, to: min(head, o.Bytes)}
}

// whole reports that nothing is left to be read from the store.
func (r *rest) whole() bool { return r.at == r.object.Bytes }

// ready reports that the next record needs nothing from the store.
func (r *rest) ready() bool {
	b, _ := r.buf.Peek(r.buf.Buffered()) // as much as it has: it reads nothing
	return bytes.IndexByte(b, '\n') >= 0
}

// Read gives the next bytes; io.EOF only at the object's end. Errors are those of
// [stream].
func (r *rest) Read(b []byte) (int, error) {
	if r.whole() {
		return 0, io.EOF
	}
	r.open()
	<-r.opened
	n, err := r.src.Read(b)
	if r.at += int64(n); r.at == r.to {
		r.letGo()
	}
	return n, err
}

// open asks the store for what comes next, if nobody did, and doesn't wait.
func (r *rest) open() {
	if r.src != nil || r.whole() {
		return
	}
	if r.at == r.to {
		r.to = r.object.Bytes
	}
	r.src, r.opened = newStream(r.ctx, r.objects, r.object, r.at, r.to), make(chan struct{})
	go func(s *stream, opened chan<- struct{}) {
		defer close(opened)
		// Reading tries again, and says what is wrong.
		if body, err := s.objects.Open(s.ctx, s.object, s.at, s.to); err == nil {
			s.body = body
		}
	}(r.src, r.opened)
}

// letGo ends the connection; what of its range wasn't read is asked for again.
func (r *rest) letGo() {
	if r.src == nil {
		return
	}
	<-r.opened
	r.src.Close()
	r.src = nil
}
