package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/batch"
)

// maxPieces is how many pieces an upload has at most.
const maxPieces = 10_000

// multipart is an upload that was begun and is neither complete nor aborted.
type multipart struct {
	bucket, key string
	pieces      map[int]blob
}

// LeastPiece sets how many bytes every piece but the last must have: 5 MiB
// unless a test needs many small ones.
func (s *Objects) LeastPiece(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.least = n
}

// OpenUploads is a look at the ids of the uploads under way, sorted, that no
// fault can touch.
func (s *Objects) OpenUploads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.uploads))
}

// Begin is batch.Uploads.Begin.
func (s *Objects) Begin(ctx context.Context, o batch.Object) (string, error) {
	return call(ctx, s.faults, "Uploads.Begin", func() (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.begin(o), nil
	})
}

func (s *shelf) begin(o batch.Object) (id string) {
	s.ids++
	id = "upload-" + strconv.Itoa(s.ids)
	s.uploads[id] = &multipart{bucket: o.Bucket, key: o.Key, pieces: map[int]blob{}}
	return id
}

// PutPiece is batch.Uploads.PutPiece. The last of several pieces with one
// number counts. ErrNotFound when the upload is gone.
func (s *Objects) PutPiece(ctx context.Context, o batch.Object, id string, n int, data []byte) (batch.Piece, error) {
	return call(ctx, s.faults, "Uploads.PutPiece", func() (batch.Piece, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		u, err := s.under(o, id)
		if err != nil {
			return batch.Piece{}, err
		}
		if n < 1 || n > maxPieces {
			return batch.Piece{}, fmt.Errorf("upload %s: no piece %d", id, n)
		}
		b := newBlob(bytes.Clone(data))
		u.pieces[n] = b
		return batch.Piece{N: n, ETag: b.etag}, nil
	})
}

// Complete is batch.Uploads.Complete. No pieces, pieces that aren't in
// ascending order, that were never stored, or are too small, are an error.
func (s *Objects) Complete(ctx context.Context, o batch.Object, id string, pieces []batch.Piece) (batch.Object, error) {
	return call(ctx, s.faults, "Uploads.Complete", func() (batch.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		u, err := s.under(o, id)
		if !s.rules.must("uploads.open", err == nil) {
			return batch.Object{}, err
		}
		if u == nil { // only where the clause is dropped
			return s.store(o, nil), nil
		}
		var data []byte
		for i, p := range pieces {
			stored, ok := u.pieces[p.N]
			if !s.rules.must("uploads.pieces", ok && stored.etag == p.ETag) {
				return batch.Object{}, fmt.Errorf("upload %s: piece %d is not the one that was stored", id, p.N)
			}
			if i > 0 && pieces[i-1].N >= p.N {
				return batch.Object{}, fmt.Errorf("upload %s: piece %d comes after piece %d", id, p.N, pieces[i-1].N)
			}
			if i < len(pieces)-1 && len(stored.data) < s.least {
				return batch.Object{}, fmt.Errorf("upload %s: piece %d has %d bytes, at least %d", id, p.N, len(stored.data), s.least)
			}
			data = append(data, stored.data...)
		}
		if len(pieces) == 0 {
			return batch.Object{}, fmt.Errorf("upload %s: no pieces", id)
		}
		delete(s.uploads, id)
		return s.store(o, data), nil
	})
}

// Abort is batch.Uploads.Abort.
func (s *Objects) Abort(ctx context.Context, o batch.Object, id string) error {
	return effect(ctx, s.faults, "Uploads.Abort", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, err := s.under(o, id); err == nil {
			delete(s.uploads, id)
		}
		return nil
	})
}

// Pieces is batch.Uploads.Pieces.
func (s *Objects) Pieces(ctx context.Context, o batch.Object, id string) ([]batch.StoredPiece, error) {
	return call(ctx, s.faults, "Uploads.Pieces", func() ([]batch.StoredPiece, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		u, err := s.under(o, id)
		if err != nil {
			return nil, err
		}
		var pieces []batch.StoredPiece
		for _, n := range slices.Sorted(maps.Keys(u.pieces)) {
			pieces = append(pieces, batch.StoredPiece{Piece: batch.Piece{N: n, ETag: u.pieces[n].etag}, Bytes: int64(len(u.pieces[n].data)), StoredAt: time.Unix(0, 0).UTC()})
		}
		return pieces, nil
	})
}

// Stat is batch.Uploads.Stat.
func (s *Objects) Stat(ctx context.Context, o batch.Object) (batch.Object, error) {
	return call(ctx, s.faults, "Uploads.Stat", func() (batch.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, ok := s.buckets[o.Bucket][o.Key]
		if !ok {
			return batch.Object{}, fmt.Errorf("stat %s: %w", o.Key, batch.ErrNotFound)
		}
		return batch.Object{Bucket: o.Bucket, Key: o.Key, ETag: b.etag, Bytes: int64(len(b.data))}, nil
	})
}

// under finds an open upload of o.
func (s *shelf) under(o batch.Object, id string) (*multipart, error) {
	u := s.uploads[id]
	if u == nil || u.bucket != o.Bucket || u.key != o.Key {
		return nil, fmt.Errorf("upload %s of %s: %w", id, o.Key, batch.ErrNotFound)
	}
	return u, nil
}
