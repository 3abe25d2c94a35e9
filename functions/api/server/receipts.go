package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Receipts is where the receipts of batches are.
type Receipts struct {
	Bucket  string // of results
	Objects interface {
		// Stat names an object with its size. batch.ErrNotFound.
		Stat(ctx context.Context, o batch.Object) (batch.Object, error)
	}
}

// getReceipts is our extension: the receipts of a batch that is over, one JSON
// object a line, in input order, handed out as a file's content is. They are no file
// of the person's: nobody deletes them but time.
//
//	not over yet                            404 receipts_not_ready
//	no line of it has one, or they are      404 receipts_not_found
//	  older than receipts are kept
func (s *Server) getReceipts(w http.ResponseWriter, r *request) error {
	b, err := s.find(r, r.PathValue("id"))
	if err != nil {
		return err
	}
	if !b.Status.Terminal() {
		return openai.ReceiptsNotReady(b.ID, string(b.Status))
	}
	key := batch.ResultKey(b.Tenant, b.ID, batch.ReceiptsFile)
	found, err := s.ports.Receipts.Objects.Stat(r.Context(), batch.Object{Bucket: s.ports.Receipts.Bucket, Key: key})
	if err == nil {
		// Neither version nor ETag, as in the records of the other two: whoever wrote the
		// object last, its bytes are these.
		o := batch.Object{Bucket: s.ports.Receipts.Bucket, Key: key, Bytes: found.Bytes}
		err = s.handOut(w, r, o, b.ID+"_"+batch.ReceiptsFile+".jsonl")
	}
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return openai.ReceiptsNotFound(b.ID)
	case err != nil:
		return fmt.Errorf("receipts of %s: %w", b.ID, err)
	}
	return nil
}
