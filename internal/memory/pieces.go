package memory

import (
	"context"
	"fmt"
	"net/url"
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

// Drop forgets an upload under way, as a lifecycle rule would.
func (s *Objects) Drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uploads, id)
}
