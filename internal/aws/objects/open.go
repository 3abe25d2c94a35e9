package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/batch"
)

// Open implements batch.Objects. A zero-length range is answered without a call.
// The stream is for one goroutine; ending ctx ends a read that is under way.
func (s *Objects) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	if from < 0 || to < from {
		return nil, objectErr("open", o, fmt.Errorf("[%d, %d) is no range", from, to))
	}
	if from == to {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	body, end, err := s.get(ctx, o, from, to)
	if err != nil {
		cancel()
		return nil, objectErr("open", o, err)
	}
	return &stream{s: s, ctx: ctx, cancel: cancel, object: o, body: body, at: from, end: end, to: to}, nil
}

// get asks once for the bytes [from, to) of o, from < to. end is to or, where the
// object is shorter, its size. The body may end earlier than that, but holds no
// byte outside the range.
func (s *Objects) get(ctx context.Context, o batch.Object, from, to int64) (body io.ReadCloser, end int64, err error) {
	in := &s3.GetObjectInput{Bucket: &o.Bucket, Key: &o.Key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", from, to-1))}
	if o.ETag != "" {
		in.IfMatch = &o.ETag
	} else if o.Version != "" {
		in.VersionId = &o.Version
	}
	out, err := s.client.GetObject(ctx, in)
	if in.VersionId == nil && o.Version != "" && (changed(err) || gone(err)) {
		// Another object has the name now, or none. The one that was pinned is
		// still there under its version.
		in.IfMatch, in.VersionId = nil, &o.Version
		out, err = s.client.GetObject(ctx, in)
	}
	switch {
	case gone(err):
		return nil, 0, fmt.Errorf("%w: %w", batch.ErrNotFound, err)
	case changed(err):
		return nil, 0, fmt.Errorf("%w: %w", batch.ErrChanged, err)
	case err != nil:
		return nil, 0, err
	}
	if end, err = ranged(out, o, from, to); err != nil {
		out.Body.Close()
		return nil, 0, err
	}
	return limited{io.LimitReader(out.Body, end-from), out.Body}, end, nil
}

// ranged makes sure that an answer is the range asked for of the object pinned,
// and says where it ends: at to or with the object. Where the answer is the whole
// object instead, its body is read up to the range.
func ranged(out *s3.GetObjectOutput, o batch.Object, from, to int64) (end int64, err error) {
	// The ETag is compared under a version too: it proves the bytes, whatever
	// the store made of the request.
	if got := aws.ToString(out.ETag); o.ETag != "" && got != o.ETag {
		return 0, fmt.Errorf("%w: ETag is %s", batch.ErrChanged, got)
	}
	if got := aws.ToString(out.ContentRange); got != "" {
		var first, last, size int64
		n, err := fmt.Sscanf(got, "bytes %d-%d/%d", &first, &last, &size)
		if n != 3 || err != nil || first != from || last != min(to, size)-1 || o.Bytes > 0 && size != o.Bytes {
			return 0, fmt.Errorf("%w: asked for bytes %d-%d of %d, got %q", batch.ErrChanged, from, to-1, o.Bytes, got)
		}
		return last + 1, nil
	}
	// No word of a range: the store ignored it. Its size must say that this is
	// all of the object, and the ETag above which object it is.
	if o.ETag == "" || aws.ToInt64(out.ContentLength) != o.Bytes || from >= o.Bytes {
		return 0, fmt.Errorf("%w: the store ignored the range and sent %d bytes", batch.ErrChanged, aws.ToInt64(out.ContentLength))
	}
	if _, err := io.CopyN(io.Discard, out.Body, from); err != nil {
		return 0, fmt.Errorf("skip to byte %d: %w", from, err)
	}
	return min(to, o.Bytes), nil
}

type limited struct {
	io.Reader
	io.Closer
}

// changed reports that an object is another than was asked for, or so short that
// it must be.
func changed(err error) bool {
	c := code(err)
	return c == "PreconditionFailed" || c == "InvalidRange"
}

func gone(err error) bool {
	switch code(err) {
	case "NoSuchKey", "NoSuchVersion", "NotFound", "MethodNotAllowed": // the last: the version is a delete marker
		return true
	}
	return false
}

// reopenings bounds how often in a row a stream is taken up again without a
// byte having come.
const reopenings = 3

// stream reads a range and, when the connection tears, asks for the rest of it.
// A worker reads as slowly as its lines are answered, and a connection that
// waits for minutes doesn't always live.
type stream struct {
	s      *Objects
	ctx    context.Context // of Open: the stream lives as long
	cancel context.CancelFunc
	object batch.Object

	body io.ReadCloser
	at   int64 // the next byte
	end  int64 // where the object ends, if before to
	to   int64
	torn int   // tears since the last byte
	err  error // what every further Read answers
}

func (r *stream) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	switch {
	case r.at == r.to:
		return 0, io.EOF
	case r.at == r.end:
		return 0, objectErr("read", r.object, io.ErrUnexpectedEOF)
	case len(p) == 0:
		return 0, nil
	}
	for {
		n, err := r.body.Read(p)
		r.at += int64(n)
		switch {
		case n > 0:
			// An error that came along is met again, or not, by the next Read.
			r.torn = 0
			return n, nil
		case err == nil:
			return 0, nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if r.err = r.reopen(err); r.err != nil {
			return 0, r.err
		}
	}
}

// reopen asks for the rest after a tear, or says what to answer for good.
func (r *stream) reopen(cause error) error {
	if err := r.ctx.Err(); err != nil {
		return objectErr("read", r.object, err)
	}
	if r.torn++; r.torn > reopenings {
		return objectErr("read", r.object, cause)
	}
	body, _, err := r.s.get(r.ctx, r.object, r.at, r.end)
	if err != nil {
		return objectErr("read on", r.object, errors.Join(cause, err))
	}
	r.body.Close()
	r.body = body
	return nil
}

func (r *stream) Close() error {
	// First the cancel: closing alone might read the rest to save the connection.
	r.cancel()
	if r.err == nil {
		r.err = fmt.Errorf("read of a closed stream")
	}
	return r.body.Close()
}
