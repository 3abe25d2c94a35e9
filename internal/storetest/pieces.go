package storetest

import (
	"context"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

// PiecesPorts are what the suite of upload.Pieces needs: all over one store. Put
// is an HTTP PUT to a URL, by somebody without credentials. The bucket exists.
type PiecesPorts struct {
	Pieces     upload.Pieces
	Multiparts batch.Uploads
	Objects    batch.Objects
	Bucket     string
	Put        func(ctx context.Context, url string, data []byte) error
}

// RunPieces runs the suite of upload.Pieces.
func RunPieces(t *testing.T, open func(T) PiecesPorts) {
	t.Helper()
	run(t, PiecesCases(), open)
}

// PiecesCases is the suite of upload.Pieces.
func PiecesCases() []Case[PiecesPorts] {
	return []Case[PiecesPorts]{
		{"put by URL/pieces become the object", piecesJoined},
		{"put by URL/the last one counts", piecesReplaced},
		{"put by URL/after abort and complete it is refused", piecesGone},
		{"stat/what is there, and what isn't", objectStat},
		{"a context that is over", piecesInterrupted},
	}
}

func beginPieces(t T, p PiecesPorts, o batch.Object) string {
	t.Helper()
	return value(p.Pieces.BeginPieces(t.Context(), o))(t, "begin")
}

func putURL(t T, p PiecesPorts, o batch.Object, id string, n int, data []byte) error {
	t.Helper()
	return p.Put(t.Context(), value(p.Pieces.PieceURL(t.Context(), o, id, n, time.Minute))(t, "URL"), data)
}

func listedPieces(t T, p PiecesPorts, o batch.Object, id string, want map[int]int) []batch.Piece {
	t.Helper()
	var pieces []batch.Piece
	for _, got := range value(p.Multiparts.Pieces(t.Context(), o, id))(t, "list") {
		size, ok := want[got.N]
		if !ok || got.Bytes != int64(size) || got.ETag == "" || got.StoredAt.IsZero() || len(pieces) > 0 && pieces[len(pieces)-1].N >= got.N {
			t.Errorf("listed %+v behind %+v, want %v", got, pieces, want)
		}
		pieces = append(pieces, got.Piece)
	}
	if len(pieces) != len(want) {
		t.Errorf("%d pieces are listed, want %d", len(pieces), len(want))
	}
	return pieces
}

func piecesJoined(t T, p PiecesPorts) {
	o := object(p.Bucket)
	id := beginPieces(t, p, o)
	listedPieces(t, p, o, id, nil)
	data := pattern(leastPiece + 9)
	succeeds(t, "put", putURL(t, p, o, id, 12, data[leastPiece:]))
	succeeds(t, "put", putURL(t, p, o, id, 3, data[:leastPiece]))
	pieces := listedPieces(t, p, o, id, map[int]int{3: leastPiece, 12: 9})
	got := value(p.Multiparts.Complete(t.Context(), o, id, pieces))(t, "complete")
	reads(t, p.Objects, got, 0, int64(len(data)), data)
	refuses(t, "list when completed", fault(p.Multiparts.Pieces(t.Context(), o, id)), batch.ErrNotFound)
	stat := value(p.Multiparts.Stat(t.Context(), o))(t, "stat")
	if stat != got {
		t.Errorf("stat is %+v, completed %+v", stat, got)
	}
}

func piecesReplaced(t T, p PiecesPorts) {
	o := object(p.Bucket)
	id := beginPieces(t, p, o)
	succeeds(t, "put", putURL(t, p, o, id, 1, pattern(100)))
	succeeds(t, "put again", putURL(t, p, o, id, 1, pattern(50)))
	got := value(p.Multiparts.Complete(t.Context(), o, id, listedPieces(t, p, o, id, map[int]int{1: 50})))(t, "complete")
	reads(t, p.Objects, got, 0, 50, pattern(50))
}

func piecesGone(t T, p PiecesPorts) {
	aborted, completed := object(p.Bucket), object(p.Bucket)
	a, c := beginPieces(t, p, aborted), beginPieces(t, p, completed)
	succeeds(t, "put", putURL(t, p, completed, c, 1, pattern(9)))
	succeeds(t, "abort", p.Multiparts.Abort(t.Context(), aborted, a))
	value(p.Multiparts.Complete(t.Context(), completed, c, listedPieces(t, p, completed, c, map[int]int{1: 9})))(t, "complete")
	refuses(t, "list when aborted", fault(p.Multiparts.Pieces(t.Context(), aborted, a)), batch.ErrNotFound)
	if putURL(t, p, aborted, a, 1, pattern(9)) == nil || putURL(t, p, completed, c, 2, pattern(9)) == nil {
		t.Errorf("a piece is stored where no upload is open")
	}
}

func objectStat(t T, p PiecesPorts) {
	o := object(p.Bucket)
	refuses(t, "stat of nothing", fault(p.Multiparts.Stat(t.Context(), o)), batch.ErrNotFound)
	want := put(t, p.Objects, o, pattern(100))
	if got := value(p.Multiparts.Stat(t.Context(), o))(t, "stat"); got != want {
		t.Errorf("stat is %+v, put %+v", got, want)
	}
	succeeds(t, "delete", p.Objects.Delete(t.Context(), o.Bucket, []string{o.Key}))
	refuses(t, "stat of a deleted one", fault(p.Multiparts.Stat(t.Context(), o)), batch.ErrNotFound)
}

func piecesInterrupted(t T, p PiecesPorts) {
	o := object(p.Bucket)
	interrupts(t, map[string]func(context.Context) error{
		"BeginPieces": func(ctx context.Context) error { return fault(p.Pieces.BeginPieces(ctx, o)) },
	})
}
