package upload

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"holdfast/internal/batch"
)

// concat writes the parts, one behind the other, as o. check is asked with the
// md5 of it all before there is an object, and gives it. Memory is two pieces,
// whatever the size: one is read while the other is sent; of the parts that are
// open ahead at most their own bytes, 4 MiB each.
func (s *Uploads) concat(ctx context.Context, u Upload, parts []named, o batch.Object, check func(md5 string) error) (batch.Object, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	opening, stop := context.WithCancel(ctx)
	r := &reader{parts: parts, sum: md5.New(), stop: stop, open: func(p named) (io.ReadCloser, error) {
		return s.p.Objects.Open(opening, batch.Object{Bucket: s.bucket, Key: u.partKey(p.id), ETag: p.ETag, Bytes: p.Bytes}, 0, p.Bytes)
	}}
	pieces := make(chan read)
	empty := make(chan []byte, 2)
	size := int(min(int64(s.o.PieceBytes), u.Bytes))
	empty <- make([]byte, size)
	if u.Bytes > int64(size) {
		empty <- make([]byte, size)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.close()
		r.run(ctx, empty, pieces)
	}()
	// The reader is gone before its buffers and streams are.
	defer func() { cancel(); <-done }()

	// The pieces also end with ctx, and then these aren't all.
	var sum string
	whole := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		sum = r.digest()
		return check(sum)
	}

	if u.Bytes <= int64(size) {
		p := <-pieces
		if p.err == nil {
			p.err = whole()
		}
		if p.err != nil {
			return o, "", fmt.Errorf("join %s: %w", u.ID, p.err)
		}
		o, err := s.p.Objects.Put(ctx, o, p.data)
		if err != nil {
			err = fmt.Errorf("join %s: %w", u.ID, err)
		}
		return o, sum, err
	}

	id, err := s.p.Multiparts.Begin(ctx, o)
	if err != nil {
		return o, "", fmt.Errorf("join %s: %w", u.ID, err)
	}
	joined, err := s.send(ctx, o, id, pieces, empty, whole)
	if err != nil {
		// Without this the bucket's lifecycle does it.
		err = errors.Join(fmt.Errorf("join %s: %w", u.ID, err), s.p.Multiparts.Abort(context.WithoutCancel(ctx), o, id))
	}
	return joined, sum, err
}

// send sends pieces until they end, then completes them.
func (s *Uploads) send(ctx context.Context, o batch.Object, id string, pieces <-chan read, empty chan<- []byte, check func() error) (batch.Object, error) {
	var sent []batch.Piece
	for p := range pieces {
		if p.err != nil {
			return o, p.err
		}
		piece, err := s.p.Multiparts.PutPiece(ctx, o, id, len(sent)+1, p.data)
		if err != nil {
			return o, err
		}
		sent = append(sent, piece)
		empty <- p.data[:cap(p.data)]
	}
	if err := check(); err != nil {
		return o, err
	}
	return s.p.Multiparts.Complete(ctx, o, id, sent)
}

// read is a buffer full of bytes, or why there is none.
type read struct {
	data []byte
	err  error
}

// openAtOnce is how many parts are open or being opened at once, the one that is
// read included: a thousand answers of the store, awaited one after another,
// would take longer than a request may.
const openAtOnce = 8

// reader reads parts as one stream.
type reader struct {
	parts []named // that nobody opens yet
	open  func(named) (io.ReadCloser, error)
	stop  context.CancelFunc // ends every open, and what was opened
	ahead []<-chan opened    // the parts before those, in order
	now   io.ReadCloser
	sum   hash.Hash
}

// opened is a part's stream, or why there is none.
type opened struct {
	io.ReadCloser
	err error
}

// run fills empty buffers until the parts end, or one can't be read.
func (r *reader) run(ctx context.Context, empty <-chan []byte, full chan<- read) {
	defer close(full)
	for {
		var buffer []byte
		select {
		case buffer = <-empty:
		case <-ctx.Done():
			return
		}
		n, err := io.ReadFull(r, buffer)
		last := err == io.EOF || err == io.ErrUnexpectedEOF && r.now == nil && len(r.ahead)+len(r.parts) == 0
		if last {
			err = nil
			if n == 0 {
				return
			}
		}
		r.sum.Write(buffer[:n])
		select {
		case full <- read{buffer[:n], err}:
		case <-ctx.Done():
			return
		}
		if last || err != nil {
			return
		}
	}
}

// Read goes on from part to part.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.now == nil {
			r.openAhead()
			if len(r.ahead) == 0 {
				return 0, io.EOF
			}
			next := <-r.ahead[0]
			r.ahead = r.ahead[1:]
			if next.err != nil {
				return 0, fmt.Errorf("open a part: %w", next.err) // never io.EOF itself
			}
			r.now = next.ReadCloser
		}
		n, err := r.now.Read(p)
		if err == io.EOF {
			r.now.Close()
			r.now, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// openAhead starts opening the next parts, as many as may be; none is being read.
func (r *reader) openAhead() {
	for len(r.ahead) < openAtOnce && len(r.parts) > 0 {
		part, answer := r.parts[0], make(chan opened, 1)
		r.parts, r.ahead = r.parts[1:], append(r.ahead, answer)
		go func() {
			stream, err := r.open(part)
			answer <- opened{stream, err}
		}()
	}
}

// close ends and closes whatever is open or being opened.
func (r *reader) close() {
	r.stop()
	if r.now != nil {
		r.now.Close()
		r.now = nil
	}
	for _, answer := range r.ahead {
		if late := <-answer; late.err == nil {
			late.Close()
		}
	}
	r.ahead = nil
}

// digest is the md5 of everything read.
func (r *reader) digest() string { return hex.EncodeToString(r.sum.Sum(nil)) }
