package memory

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

var _ upload.Pieces = (*Objects)(nil)

// BeginPieces is upload.Pieces.BeginPieces.
func (s *Objects) BeginPieces(ctx context.Context, o batch.Object) (string, error) {
	return call(ctx, s.faults, "Pieces.BeginPieces", func() (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.begin(o), nil
	})
}

// PieceURL is upload.Pieces.PieceURL. What a PUT to the URL does, PutURL does;
// nothing listens there.
func (s *Objects) PieceURL(ctx context.Context, o batch.Object, id string, n int, ttl time.Duration) (string, error) {
	return call(ctx, s.faults, "Pieces.PieceURL", func() (string, error) {
		if n < 1 || n > maxPieces || ttl <= 0 {
			return "", fmt.Errorf("upload %s: no URL for piece %d for %s", id, n, ttl)
		}
		q := url.Values{"bucket": {o.Bucket}, "key": {o.Key}, "uploadId": {id}, "partNumber": {strconv.Itoa(n)}, "ttl": {ttl.String()}}
		return "https://objects.invalid/?" + q.Encode(), nil
	})
}

// PutURL is a PUT to a URL of PieceURL's, by whoever holds it. No fault touches
// it, and no time passes for it.
func (s *Objects) PutURL(ctx context.Context, to string, data []byte) error {
	u, err := url.Parse(to)
	if err != nil {
		return err
	}
	q := u.Query()
	n, err := strconv.Atoi(q.Get("partNumber"))
	if err != nil {
		return err
	}
	_, err = s.With(nil).PutPiece(ctx, batch.Object{Bucket: q.Get("bucket"), Key: q.Get("key")}, q.Get("uploadId"), n, data)
	return err
}

// ListPieces is upload.Pieces.ListPieces.
func (s *Objects) ListPieces(ctx context.Context, o batch.Object, id string) ([]upload.Piece, error) {
	return call(ctx, s.faults, "Pieces.ListPieces", func() ([]upload.Piece, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		u, err := s.under(o, id)
		if err != nil {
			return nil, err
		}
		var pieces []upload.Piece
		for _, n := range slices.Sorted(maps.Keys(u.pieces)) {
			b := u.pieces[n]
			pieces = append(pieces, upload.Piece{Piece: batch.Piece{N: n, ETag: b.etag}, Bytes: int64(len(b.data)), StoredAt: time.Unix(0, 0).UTC()})
		}
		return pieces, nil
	})
}

// Stat is upload.Pieces.Stat.
func (s *Objects) Stat(ctx context.Context, o batch.Object) (batch.Object, error) {
	return call(ctx, s.faults, "Pieces.Stat", func() (batch.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, ok := s.buckets[o.Bucket][o.Key]
		if !ok {
			return batch.Object{}, fmt.Errorf("stat %s: %w", o.Key, batch.ErrNotFound)
		}
		return batch.Object{Bucket: o.Bucket, Key: o.Key, ETag: b.etag, Bytes: int64(len(b.data))}, nil
	})
}

// Drop forgets an upload under way, as a lifecycle rule would.
func (s *Objects) Drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uploads, id)
}
