package storetest

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"holdfast/internal/batch"
)

// UploadsPorts are what the suite of batch.Uploads needs: Objects reads what
// was uploaded. The bucket exists.
type UploadsPorts struct {
	Uploads batch.Uploads
	Objects batch.Objects
	Bucket  string
}

// RunUploads runs the suite of batch.Uploads.
func RunUploads(t *testing.T, open func(T) UploadsPorts) {
	t.Helper()
	run(t, UploadsCases(), open)
}

// UploadsCases is the suite of batch.Uploads.
func UploadsCases() []Case[UploadsPorts] {
	return []Case[UploadsPorts]{
		{"complete/pieces in order, stored in any", uploadPieces},
		{"complete/a single small piece", uploadSmall},
		{"complete/the last of several pieces with one number", uploadReplaced},
		{"complete/again finds the upload gone", uploadTwice},
		{"complete/one of many", uploadRace},
		{"complete/a piece that was never stored", uploadMissing},
		{"complete/replaces an object, not before", uploadOver},
		{"abort/drops the upload, however often", uploadAbort},
		{"pieces/what is stored, by number", uploadListed},
		{"pieces/of an upload that is gone", uploadListGone},
		{"stat/what is there, and what isn't", uploadStat},
		{"two uploads under one key are apart", uploadApart},
		{"a context that is over", uploadsInterrupted},
	}
}

const leastPiece = 5 << 20

func beginUpload(t T, p UploadsPorts, o batch.Object) string {
	t.Helper()
	id := value(p.Uploads.Begin(t.Context(), o))(t, "begin")
	if id == "" {
		t.Fatalf("an upload without an id")
	}
	return id
}

func piece(t T, p UploadsPorts, o batch.Object, id string, n int, data []byte) batch.Piece {
	t.Helper()
	got := value(p.Uploads.PutPiece(t.Context(), o, id, n, data))(t, "put piece")
	if got.N != n || got.ETag == "" {
		t.Errorf("piece %d is answered with %+v", n, got)
	}
	return got
}

// complete completes an upload and reads what became of it.
func complete(t T, p UploadsPorts, o batch.Object, id string, pieces []batch.Piece, want []byte) batch.Object {
	t.Helper()
	got := value(p.Uploads.Complete(t.Context(), o, id, pieces))(t, "complete")
	if got.Bucket != o.Bucket || got.Key != o.Key || got.Bytes != int64(len(want)) || got.ETag == "" {
		t.Errorf("%d bytes are completed as %+v", len(want), got)
	}
	reads(t, p.Objects, got, 0, int64(len(want)), want)
	return got
}

// absent demands that nothing is stored under o's key.
func absent(t T, p UploadsPorts, what string, o batch.Object) {
	t.Helper()
	refuses(t, what, fault(read(t.Context(), p.Objects, o, 0, 1)), batch.ErrNotFound)
}

// gone demands that an upload can't be completed.
func gone(t T, p UploadsPorts, what string, o batch.Object, id string, pieces []batch.Piece) {
	t.Helper()
	refuses(t, what, fault(p.Uploads.Complete(t.Context(), o, id, pieces)), batch.ErrNotFound)
}

func uploadPieces(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	data := pattern(2*leastPiece + 7)
	// Numbers needn't be consecutive, and what is stored last isn't last.
	tail := piece(t, p, o, id, 10_000, data[2*leastPiece+3:])
	first := piece(t, p, o, id, 1, data[:leastPiece+1])
	second := piece(t, p, o, id, 7, data[leastPiece+1:2*leastPiece+3])
	absent(t, p, "before it is complete", o)
	complete(t, p, o, id, []batch.Piece{first, second, tail}, data)
}

func uploadSmall(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	data := []byte("x")
	one := piece(t, p, o, id, 1, data)
	data[0] = 'y'
	complete(t, p, o, id, []batch.Piece{one}, []byte("x"))
}

func uploadReplaced(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	piece(t, p, o, id, 1, pattern(100))
	last := piece(t, p, o, id, 1, pattern(50))
	piece(t, p, o, id, 2, pattern(10)) // stored, but not asked for
	complete(t, p, o, id, []batch.Piece{last}, pattern(50))
}

func uploadTwice(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	pieces := []batch.Piece{piece(t, p, o, id, 1, pattern(100))}
	got := complete(t, p, o, id, pieces, pattern(100))
	gone(t, p, "complete again", o, id, pieces)
	if _, err := p.Uploads.PutPiece(t.Context(), o, id, 2, pattern(9)); err == nil {
		t.Errorf("a piece is stored after the upload was completed")
	}
	succeeds(t, "abort", p.Uploads.Abort(t.Context(), o, id))
	reads(t, p.Objects, got, 0, 100, pattern(100))
}

func uploadRace(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	pieces := []batch.Piece{piece(t, p, o, id, 1, pattern(100))}
	errs := race(8, func(int) error { return fault(p.Uploads.Complete(t.Context(), o, id, pieces)) })
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			refuses(t, "a loser", err, batch.ErrNotFound)
		}
	}
	if won == 0 {
		t.Errorf("nobody completed: %v", errs[0])
	}
	reads(t, p.Objects, o, 0, 100, pattern(100))
}

func uploadMissing(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	stored := piece(t, p, o, id, 1, pattern(100))
	for what, pieces := range map[string][]batch.Piece{
		"of another number": {{N: 2, ETag: stored.ETag}},
		"of another ETag":   {{N: 1, ETag: `"00000000000000000000000000000000"`}},
		"none at all":       nil,
	} {
		if _, err := p.Uploads.Complete(t.Context(), o, id, pieces); err == nil {
			t.Errorf("pieces %s are completed", what)
		}
		absent(t, p, what, o)
	}
	complete(t, p, o, id, []batch.Piece{stored}, pattern(100))
}

func uploadOver(t T, p UploadsPorts) {
	old := put(t, p.Objects, object(p.Bucket), pattern(10))
	id := beginUpload(t, p, old)
	pieces := []batch.Piece{piece(t, p, old, id, 1, pattern(20))}
	reads(t, p.Objects, old, 0, 10, pattern(10))
	got := complete(t, p, old, id, pieces, pattern(20))
	if got.ETag == old.ETag {
		t.Errorf("the new object has the old one's ETag %s", got.ETag)
	}
}

func uploadAbort(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	pieces := []batch.Piece{piece(t, p, o, id, 1, pattern(100))}
	for range 2 {
		succeeds(t, "abort", p.Uploads.Abort(t.Context(), o, id))
		gone(t, p, "complete after abort", o, id, pieces)
	}
	absent(t, p, "after abort", o)
}

func uploadListed(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	if got := value(p.Uploads.Pieces(t.Context(), o, id))(t, "pieces of an empty upload"); len(got) > 0 {
		t.Errorf("nothing was stored, listed is %+v", got)
	}
	late := piece(t, p, o, id, 12, pattern(9))
	first := piece(t, p, o, id, 2, pattern(leastPiece))
	piece(t, p, o, id, 3, pattern(100))
	second := piece(t, p, o, id, 3, pattern(leastPiece+1)) // the last of one number is what counts
	got := value(p.Uploads.Pieces(t.Context(), o, id))(t, "pieces")
	want := []batch.StoredPiece{{Piece: first, Bytes: leastPiece}, {Piece: second, Bytes: leastPiece + 1}, {Piece: late, Bytes: 9}}
	if !slices.EqualFunc(got, want, func(a, b batch.StoredPiece) bool {
		return a.Piece == b.Piece && a.Bytes == b.Bytes && !a.StoredAt.IsZero()
	}) {
		t.Errorf("listed %+v, want %+v, each with its time", got, want)
	}
	var pieces []batch.Piece
	for _, s := range got {
		pieces = append(pieces, s.Piece)
	}
	complete(t, p, o, id, pieces, append(append(pattern(leastPiece), pattern(leastPiece+1)...), pattern(9)...))
}

func uploadListGone(t T, p UploadsPorts) {
	o := object(p.Bucket)
	aborted, completed := beginUpload(t, p, o), beginUpload(t, p, o)
	pieces := []batch.Piece{piece(t, p, o, completed, 1, pattern(9))}
	succeeds(t, "abort", p.Uploads.Abort(t.Context(), o, aborted))
	complete(t, p, o, completed, pieces, pattern(9))
	for _, id := range []string{aborted, completed} {
		refuses(t, "pieces", fault(p.Uploads.Pieces(t.Context(), o, id)), batch.ErrNotFound)
		refuses(t, "put a piece", fault(p.Uploads.PutPiece(t.Context(), o, id, 2, pattern(9))), batch.ErrNotFound)
	}
}

func uploadStat(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	pieces := []batch.Piece{piece(t, p, o, id, 1, pattern(100))}
	refuses(t, "stat before it is complete", fault(p.Uploads.Stat(t.Context(), o)), batch.ErrNotFound)
	want := complete(t, p, o, id, pieces, pattern(100))
	if got := value(p.Uploads.Stat(t.Context(), o))(t, "stat"); got != want {
		t.Errorf("stat is %+v, completed %+v", got, want)
	}
}

func uploadApart(t T, p UploadsPorts) {
	o := object(p.Bucket)
	a, b := beginUpload(t, p, o), beginUpload(t, p, o)
	if a == b {
		t.Fatalf("both uploads are %s", a)
	}
	inA, inB := piece(t, p, o, a, 1, pattern(100)), piece(t, p, o, b, 1, pattern(200))
	complete(t, p, o, a, []batch.Piece{inA}, pattern(100))
	got := complete(t, p, o, b, []batch.Piece{inB}, pattern(200))
	succeeds(t, "abort", p.Uploads.Abort(t.Context(), o, a))
	reads(t, p.Objects, got, 0, 200, pattern(200))
}

func uploadsInterrupted(t T, p UploadsPorts) {
	o := object(p.Bucket)
	id := beginUpload(t, p, o)
	pieces := []batch.Piece{piece(t, p, o, id, 1, pattern(100))}
	interrupts(t, map[string]func(context.Context) error{
		"Begin": func(ctx context.Context) error { return fault(p.Uploads.Begin(ctx, o)) },
		"PutPiece": func(ctx context.Context) error {
			return fault(p.Uploads.PutPiece(ctx, o, id, 1, bytes.Repeat([]byte("x"), 9)))
		},
		"Complete": func(ctx context.Context) error { return fault(p.Uploads.Complete(ctx, o, id, pieces)) },
		"Abort":    func(ctx context.Context) error { return p.Uploads.Abort(ctx, o, id) },
		"Pieces":   func(ctx context.Context) error { return fault(p.Uploads.Pieces(ctx, o, id)) },
		"Stat":     func(ctx context.Context) error { return fault(p.Uploads.Stat(ctx, o)) },
	})
	complete(t, p, o, id, pieces, pattern(100))
}
