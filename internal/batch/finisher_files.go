package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// resultFile is a file being written. Lines go into a buffer, whole buffers go to
// the store as pieces, all of one size: where they are cut depends on the bytes
// alone. A file that fits one piece is put at once; one without a line is not
// written at all, and nothing is visible before finish.
type resultFile struct {
	kind   string
	object Object // with its size, once finished
	piece  int
	bound  int // no file of the batch has more bytes, if that is less than a piece
	sender *sender

	buf      []byte
	bytes    int64
	upload   string // "" while no piece was sent
	recorded bool   // the upload's id may be what somebody else goes on with
	pieces   []Piece
	complete bool // the object was found
}

// line adds b and a newline.
func (r *resultFile) line(ctx context.Context, b []byte) error {
	if err := r.write(ctx, b); err != nil {
		return err
	}
	return r.write(ctx, newline)
}

var newline = []byte("\n")

func (r *resultFile) write(ctx context.Context, b []byte) error {
	r.bytes += int64(len(b))
	for len(b) > 0 {
		if len(r.buf) == r.piece {
			if err := r.sender.send(ctx, r); err != nil {
				return err
			}
		}
		r.grow()
		n := min(len(b), r.piece-len(r.buf))
		r.buf = append(r.buf, b[:n]...)
		b = b[n:]
	}
	return nil
}

// grow gives the file a buffer, once and as large as it can be needed: growing it
// by and by would leave as much garbage. What of it is never written costs no
// memory but address space.
func (r *resultFile) grow() {
	if r.buf == nil {
		r.buf = make([]byte, 0, min(r.piece, max(r.bound, 512)))
	}
}

// flush sends what is left of a file that has an upload.
func (r *resultFile) flush(ctx context.Context) error {
	if r.upload == "" || len(r.buf) == 0 {
		return nil
	}
	return r.sender.send(ctx, r)
}

// errUnusable: an upload or a tail that was recorded as stored is not there any
// more, or is another: what was assembled can't be gone on with.
var errUnusable = errors.New("what was recorded as stored can't be used")

// finish makes the file visible. Its pieces have landed. An upload that is gone
// was completed, by us without our hearing of it or by another finisher, if the
// object has the size that it must have: all of us write the same bytes, and
// nobody else writes under this key.
func (r *resultFile) finish(ctx context.Context, objects Objects) error {
	if r.bytes == 0 || r.complete {
		return nil
	}
	if r.upload == "" {
		done, err := objects.Put(ctx, r.object, r.buf)
		if err == nil {
			r.object, r.buf = done, nil
		}
		return err
	}
	err := tryAgain(ctx, func() error {
		done, err := r.sender.uploads.Complete(ctx, r.object, r.upload, r.pieces)
		if err == nil && done.Bytes != r.bytes {
			err = fmt.Errorf("the store has %d bytes of %d", done.Bytes, r.bytes)
		}
		if err == nil {
			r.object, r.complete = done, true
		}
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return r.look(ctx)
	}
	return err
}

// look finds the object that became of an upload which is gone.
func (r *resultFile) look(ctx context.Context) error {
	var found Object
	err := tryAgain(ctx, func() (err error) {
		found, err = r.sender.uploads.Stat(ctx, r.object)
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: the upload of %s is gone, and there is no object", errUnusable, r.object.Key)
	case err != nil:
		return err
	case found.Bytes != r.bytes:
		return fmt.Errorf("%w: the upload of %s is gone, and the object has %d bytes, not %d", errUnusable, r.object.Key, found.Bytes, r.bytes)
	}
	r.object, r.complete = found, true
	return nil
}

// progress is how far the file is, once its pieces have landed.
func (r *resultFile) progress() FileProgress {
	f := FileProgress{Upload: r.upload, Pieces: len(r.pieces), Bytes: r.bytes}
	if len(r.buf) > 0 {
		f.Tail = hexSum(r.buf)
	}
	return f
}

// saveTail stores what is behind the pieces.
func (r *resultFile) saveTail(ctx context.Context, objects Objects, b Batch) error {
	if len(r.buf) == 0 {
		return nil
	}
	o := Object{Bucket: r.object.Bucket, Key: TailKey(b.Tenant, b.ID, r.kind, r.bytes-int64(len(r.buf)), r.bytes)}
	return tryAgain(ctx, func() error {
		_, err := objects.Put(ctx, o, r.buf)
		return err
	})
}

// resume takes a file up where f says that it is. atEnd says that all lines are in
// it, so that its upload may be complete already.
func (r *resultFile) resume(ctx context.Context, m *merger, b Batch, f FileProgress, atEnd bool) error {
	r.bytes, r.upload, r.recorded = f.Bytes, f.Upload, f.Upload != ""
	if f.Upload != "" {
		if err := r.list(ctx, f, atEnd); err != nil || r.complete {
			return err
		}
	}
	n := f.tail(int64(r.piece))
	if n == 0 {
		return nil
	}
	r.grow()
	if int64(cap(r.buf)) < n {
		return fmt.Errorf("%w: a tail of %d bytes", errUnusable, n)
	}
	r.buf = r.buf[:n]
	err := m.fetch(ctx, Chunk{Key: TailKey(b.Tenant, b.ID, r.kind, f.Bytes-n, f.Bytes), Bytes: n}, r.buf)
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: the tail of %s: %v", errUnusable, r.object.Key, err)
	case err != nil:
		return fmt.Errorf("read the tail of %s: %w", r.object.Key, err)
	case hexSum(r.buf) != f.Tail:
		return fmt.Errorf("%w: the tail of %s has another sum", errUnusable, r.object.Key)
	}
	return nil
}

// list looks for the pieces that were recorded.
func (r *resultFile) list(ctx context.Context, f FileProgress, atEnd bool) error {
	var stored []StoredPiece
	err := tryAgain(ctx, func() (err error) {
		stored, err = r.sender.uploads.Pieces(ctx, r.object, f.Upload)
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound) && atEnd:
		return r.look(ctx)
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: the upload of %s: %v", errUnusable, r.object.Key, err)
	case err != nil:
		return fmt.Errorf("list the pieces of %s: %w", r.object.Key, err)
	}
	for i := range f.Pieces {
		size := min(int64(r.piece), f.Bytes-int64(i)*int64(r.piece))
		if i >= len(stored) || stored[i].N != i+1 || stored[i].Bytes != size {
			return fmt.Errorf("%w: piece %d of %s", errUnusable, i+1, r.object.Key)
		}
		r.pieces = append(r.pieces, stored[i].Piece)
	}
	return nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sender sends one piece at a time while the next ones are being filled. All
// files of a batch share it: one buffer more, instead of one more each.
type sender struct {
	uploads Uploads
	flight  chan error // of the piece under way; nil without one
	buf     []byte     // of the piece under way, or to spare
}

// send sends the file's buffer as its next piece and gives it another buffer. An
// error may be that of the piece before.
func (s *sender) send(ctx context.Context, r *resultFile) error {
	if err := s.land(); err != nil {
		return err
	}
	if r.upload == "" {
		id, err := s.uploads.Begin(ctx, r.object)
		if err != nil {
			return fmt.Errorf("begin %s: %w", r.object.Key, err)
		}
		r.upload = id
	}
	n := len(r.pieces) + 1
	r.pieces = append(r.pieces, Piece{})
	data, into := r.buf, &r.pieces[n-1]
	r.buf, s.buf = s.buf[:0], data
	s.flight = make(chan error, 1)
	go func(o Object, id string, recorded bool, landed chan<- error) {
		err := tryAgain(ctx, func() (err error) {
			*into, err = s.uploads.PutPiece(ctx, o, id, n, data)
			return err
		})
		if errors.Is(err, ErrNotFound) && recorded {
			err = fmt.Errorf("%w: %v", errUnusable, err)
		}
		if err != nil {
			err = fmt.Errorf("send piece %d of %s: %w", n, o.Key, err)
		}
		landed <- err
	}(r.object, r.upload, r.recorded, s.flight)
	return nil
}

// land waits for the piece under way.
func (s *sender) land() error {
	if s.flight == nil {
		return nil
	}
	err := <-s.flight
	s.flight = nil
	return err
}
