package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// A torn stream is opened anew this often without a single byte of progress
// before its reader is told.
const streamTries = 6

// stream reads bytes [at, to) of an object in sequence. Where the connection
// tears it goes on at the byte it had reached, so that its reader sees one whole
// stream: reading 10 GB takes minutes, which no connection promises to live.
// The object's ETag, where there is one, keeps the pieces of one file together.
type stream struct {
	ctx     context.Context
	objects Objects
	object  Object
	at, to  int64
	body    io.ReadCloser // nil while nothing is open
	fails   int           // since the last byte
}

func newStream(ctx context.Context, objects Objects, o Object, from, to int64) *stream {
	return &stream{ctx: ctx, objects: objects, object: o, at: from, to: to}
}

// Read returns io.EOF at the end of the range and nowhere before it. ErrNotFound
// and ErrChanged are final.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.at < s.to {
		n, err := s.read(p[:min(int64(len(p)), s.to-s.at)])
		s.at += int64(n)
		if n > 0 {
			s.fails = 0
		}
		if err != nil {
			s.Close()
		}
		if n > 0 || err == nil {
			return n, nil
		}
		s.fails++
		if decided(err) || s.fails >= streamTries {
			return 0, fmt.Errorf("read %s at byte %d of %d: %w", s.object.Key, s.at, s.to, err)
		}
		if err := pauseUpTo(s.ctx, portPause<<(s.fails-1)); err != nil {
			return 0, fmt.Errorf("read %s at byte %d of %d: %w", s.object.Key, s.at, s.to, err)
		}
	}
	s.Close()
	return 0, io.EOF
}

// read reads once, and makes an end that comes too early an error.
func (s *stream) read(p []byte) (int, error) {
	if s.body == nil {
		if err := context.Cause(s.ctx); err != nil {
			return 0, err
		}
		body, err := s.objects.Open(s.ctx, s.object, s.at, s.to)
		if err != nil {
			return 0, err
		}
		s.body = body
	}
	n, err := s.body.Read(p)
	if errors.Is(err, io.EOF) {
		err = nil
		if n == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// Close lets the connection go. The stream can be read on, by a new one.
func (s *stream) Close() {
	if s.body != nil {
		_ = s.body.Close() // only read from: nothing can be lost
		s.body = nil
	}
}
