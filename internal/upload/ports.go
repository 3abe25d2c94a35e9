package upload

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/batch"
)

// The ports. The rules of package batch's ports hold here too; its sentinel
// errors are used.

var (
	// ErrClosed: the upload is not in a status that this write leaves, or was
	// completed from other parts. Read again to learn what it is.
	ErrClosed = errors.New("upload is not open for this")
	// ErrFull: the upload has as many direct parts as it may.
	ErrFull = errors.New("upload has too many parts")
)

// Store keeps uploads up to their completion. Reads are strongly consistent;
// batch.ErrNotFound where there is no such upload, for all but Create. Every write
// answers the upload as it then is.
type Store interface {
	// Create inserts u, with status Pending. batch.ErrExists when the id is taken
	// for the tenant, except that a record that still is as this call would write it
	// is this write, whose answer was lost: success.
	Create(ctx context.Context, u Upload) error
	// Get reads one upload. Expiry is the caller's to judge.
	Get(ctx context.Context, tenant, id string) (Upload, error)
	// AddPart records a direct part (status=pending, no part of that id, and fewer
	// than most). An equal part there already is this write: success. ErrClosed;
	// ErrFull when there are most.
	AddPart(ctx context.Context, tenant, id, part string, p Part, most int) (Upload, error)
	// Begin records the multipart upload that presigned parts go to
	// (status=pending, and none recorded). The one recorded first stays, and its
	// upload is the answer. ErrClosed.
	Begin(ctx context.Context, tenant, id, multipart string) (Upload, error)
	// Cancel moves {pending, completing} to cancelled. A cancelled one counts as
	// success. ErrClosed.
	Cancel(ctx context.Context, tenant, id string) (Upload, error)
}

// Completions moves uploads through their completion. As for Store.
type Completions interface {
	// Start moves pending to completing and records the hash of the part ids. One
	// that is past pending with the same hash is success. ErrClosed.
	Start(ctx context.Context, tenant, id, hash string) (Upload, error)
	// Settle moves pending, or completing with the same hash, to settled, and
	// records the object, its md5 ("": not known) and when. One that is past that with the same hash is
	// success whatever its object: the answer tells whose completion counted.
	// ErrClosed.
	Settle(ctx context.Context, tenant, id, hash string, o batch.Object, md5 string, now time.Time) (Upload, error)
	// Finish moves settled to completed. A completed one counts as success.
	// ErrClosed.
	Finish(ctx context.Context, tenant, id string) (Upload, error)
}

// Pieces is what presigned parts need of the object store, beside batch.Uploads.
type Pieces interface {
	// BeginPieces begins a multipart upload of o whose pieces will come by URL.
	BeginPieces(ctx context.Context, o batch.Object) (id string, err error)
	// PieceURL returns a URL that takes piece n by PUT, without credentials, until
	// ttl has passed. The last of several PUTs counts. It does not look whether
	// the multipart upload exists.
	PieceURL(ctx context.Context, o batch.Object, id string, n int, ttl time.Duration) (string, error)
}
