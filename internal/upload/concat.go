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
// md5 of it all before there is an object. Memory is two pieces, whatever the
// size: one is read while the other is sent.
func (s *Uploads) concat(ctx context.Context, u Upload, parts []named, o batch.Object, check func(md5 string) error) (batch.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &reader{parts: parts, sum: md5.New(), open: func(p named) (io.ReadCloser, error) {
		return s.p.Objects.Open(ctx, batch.Object{Bucket: s.bucket, Key: u.partKey(p.id), ETag: p.ETag, Bytes: p.Bytes}, 0, p.Bytes)
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

	if u.Bytes <= int64(size) {
		p := <-pieces
		if p.err != nil {
			return o, fmt.Errorf("join %s: %w", u.ID, p.err)
		}
		if err := check(r.digest()); err != nil {
			return o, err
		}
		o, err := s.p.Objects.Put(ctx, o, p.data)
		if err != nil {
			err = fmt.Errorf("join %s: %w", u.ID, err)
		}
		return o, err
	}

	id, err := s.p.Multiparts.Begin(ctx, o)
	if err != nil {
		return o, fmt.Errorf("join %s: %w", u.ID, err)
	}
	joined, err := s.send(ctx, o, id, pieces, empty, func() error { return check(r.digest()) })
	if err != nil {
		// Without this the bucket's lifecycle does it.
		err = errors.Join(fmt.Errorf("join %s: %w", u.ID, err), s.p.Multiparts.Abort(context.WithoutCancel(ctx), o, id))
	}
	return joined, err
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

// reader reads parts as one stream.
type reader struct {
	parts []named
	open  func(named) (io.ReadCloser, error)
	now   io.ReadCloser
	sum   hash.Hash
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
		last := err == io.EOF || err == io.ErrUnexpectedEOF && len(r.parts) == 0 && r.now == nil
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
			if len(r.parts) == 0 {
				return 0, io.EOF
			}
			next, err := r.open(r.parts[0])
			if err != nil {
				return 0, err
			}
			r.now, r.parts = next, r.parts[1:]
		}
		n, err := r.now.Read(p)
		if err == io.EOF {
			r.close()
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (r *reader) close() {
	if r.now != nil {
		r.now.Close()
		r.now = nil
	}
}

// digest is the md5 of everything read.
func (r *reader) digest() string { return hex.EncodeToString(r.sum.Sum(nil)) }
