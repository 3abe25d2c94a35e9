package upload

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Status is what an upload's item says. See the package comment.
type Status string

// The statuses. Expired is never stored.
const (
	Pending    Status = "pending"
	Completing Status = "completing"
	Settled    Status = "settled"
	Completed  Status = "completed"
	Cancelled  Status = "cancelled"
	Expired    Status = "expired"
)

// Grace is how long an upload that was completing when its time ran out may
// still be completed.
const Grace = time.Hour

// MaxDirectParts bounds the direct parts of one upload: all are in its item.
const MaxDirectParts = 1000

// Upload is one upload as the table holds it.
type Upload struct {
	Tenant   string
	ID       string // "upload_…", URL-safe
	Status   Status
	Bytes    int64 // of the whole file, as announced
	Filename string
	Purpose  string
	// FileExpiry is how long the file will live, from its own creation.
	FileExpiry time.Duration

	CreatedAt time.Time // whole milliseconds, UTC, as all times here
	ExpiresAt time.Time

	// Parts are the direct parts, by id.
	Parts map[string]Part
	// Multipart is the store's id of the multipart upload that presigned parts
	// are pieces of; "" before the first URL was asked for.
	Multipart string

	PartsHash string       // of the part ids it is completed from, from Completing on
	Object    batch.Object // the file's bytes, from Settled on
	MD5       string       // of the file, in hex, from Settled on; "" where nobody computed it
	SettledAt time.Time    // the file's creation
	Ver       int64        // one higher at every write
}

// Part is a direct part.
type Part struct {
	Bytes     int64
	ETag      string
	CreatedAt time.Time
}

// NewID returns a fresh upload id: unguessable, and fit for keys and URLs.
func NewID() string { return prefix + strings.ToLower(rand.Text()) }

const (
	prefix     = "upload_"
	partPrefix = "part_"
)

// ValidID reports whether id has the form of an upload id: 26 lower-case letters
// and digits behind "upload_". It becomes part of object keys.
func ValidID(id string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	return ok && len(rest) == 26 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// FileID is the id of the file that the upload becomes.
func (u Upload) FileID() string { return "file-" + u.name() }

func (u Upload) name() string { return strings.TrimPrefix(u.ID, prefix) }

// PieceID is the id of the upload's presigned part n.
func (u Upload) PieceID(n int) string { return fmt.Sprintf("%s%s_%05d", partPrefix, u.name(), n) }

// pieceNumber is the number of a presigned part of this upload, 0 if id is not
// one's.
func (u Upload) pieceNumber(id string) int {
	digits, ok := strings.CutPrefix(id, partPrefix+u.name()+"_")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > openai.MaxUploadParts || u.PieceID(n) != id {
		return 0
	}
	return n
}

// newPartID returns a fresh id of a direct part. It can't be a presigned part's:
// those hold a '_' more.
func newPartID() string { return partPrefix + strings.ToLower(rand.Text()) }

// Now is the status at a time, Expired included.
func (u Upload) Now(now time.Time) Status {
	late := u.ExpiresAt
	switch u.Status {
	case Completing:
		late = late.Add(Grace)
	case Pending:
	default:
		return u.Status
	}
	if now.Before(late) {
		return u.Status
	}
	return Expired
}

// File is the record of the file that the upload has become, from Settled on.
func (u Upload) File() batch.File {
	return batch.File{
		Tenant: u.Tenant, ID: u.FileID(), Purpose: u.Purpose, Filename: u.Filename, Object: u.Object,
		CreatedAt: u.SettledAt, ExpiresAt: u.SettledAt.Add(u.FileExpiry),
	}
}

// partKey is where a direct part's bytes lie.
func (u Upload) partKey(part string) string { return "uploads/" + u.Tenant + "/" + u.ID + "/" + part }

// partKeys are those of every direct part, sorted.
func (u Upload) partKeys() []string {
	keys := make([]string, 0, len(u.Parts))
	for id := range u.Parts {
		keys = append(keys, u.partKey(id))
	}
	slices.Sort(keys)
	return keys
}

// fingerprint stands for the part ids of one completion. No id of ours holds a
// NUL.
func fingerprint(ids []string) string {
	sum := sha256.Sum256([]byte(strings.Join(ids, "\x00")))
	return hex.EncodeToString(sum[:])
}

// ToWire is the upload as the API shows it at a time.
func ToWire(u Upload, now time.Time) openai.Upload {
	w := openai.Upload{
		ID: u.ID, Bytes: u.Bytes, CreatedAt: u.CreatedAt.Unix(), ExpiresAt: u.ExpiresAt.Unix(),
		Filename: u.Filename, Purpose: u.Purpose, Status: openai.UploadPending,
	}
	switch u.Now(now) {
	case Completed:
		f := batch.FileToWire(u.File())
		w.Status, w.File = openai.UploadCompleted, &f
	case Cancelled:
		w.Status = openai.UploadCancelled
	case Expired:
		w.Status = openai.UploadExpired
	}
	return w
}
