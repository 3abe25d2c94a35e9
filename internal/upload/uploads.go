package upload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Ports is what Uploads stand on; all are required.
type Ports struct {
	Store       Store
	Completions Completions
	Files       Files
	Objects     batch.Objects
	Multiparts  batch.Uploads // of the same store as Objects and Pieces
	Pieces      Pieces
}

// Files is what a completion asks of batch.Files.
type Files interface {
	// Put is batch.Files.Put.
	Put(ctx context.Context, f batch.File) error
	// Get is batch.Files.Get.
	Get(ctx context.Context, tenant, id string) (batch.File, error)
}

// Options adjust Uploads. The zero value works.
type Options struct {
	Expiry     time.Duration // life of an upload; 24 h
	FileExpiry time.Duration // life of a file that nobody gave an expiry; 30 days
	PieceBytes int           // of the pieces that direct parts are joined in; 8 MiB, at least 5
}

const (
	// MaxJoined is the most bytes that direct parts are joined to: the join is one
	// request's work.
	MaxJoined = 512 << 20
	// MaxMD5 is the most bytes that an md5 is verified over, for the same reason.
	MaxMD5 = 1 << 30
	// LeastPiece is the least that every presigned part but the last must have:
	// the store's own bound.
	LeastPiece = 5 << 20
	// LinkTime is how long a part's URL works.
	LinkTime = time.Hour
)

// Uploads is the Uploads API without its wire. Its refusals are [*openai.Error];
// any other error is trouble that may pass, and the same call may be repeated.
// Safe for concurrent use.
type Uploads struct {
	p      Ports
	bucket string
	o      Options
}

// New returns Uploads whose files lie in a bucket; o may be nil.
func New(p Ports, bucket string, o *Options) (*Uploads, error) {
	s := &Uploads{p: p, bucket: bucket}
	if o != nil {
		s.o = *o
	}
	if s.o.Expiry == 0 {
		s.o.Expiry = 24 * time.Hour
	}
	if s.o.FileExpiry == 0 {
		s.o.FileExpiry = 30 * 24 * time.Hour
	}
	if s.o.PieceBytes == 0 {
		s.o.PieceBytes = 8 << 20
	}
	if s.o.PieceBytes < LeastPiece || s.o.Expiry < 0 || s.o.FileExpiry < 0 || bucket == "" {
		return nil, errors.New("upload: options out of bounds")
	}
	return s, nil
}

// Create opens an upload. The form of the request has been checked.
func (s *Uploads) Create(ctx context.Context, tenant string, c openai.CreateUpload, now time.Time) (Upload, error) {
	at := now.UTC().Truncate(time.Millisecond)
	u := Upload{
		Tenant: tenant, ID: NewID(), Status: Pending, Bytes: c.Bytes, Filename: c.Filename, Purpose: c.Purpose,
		FileExpiry: s.o.FileExpiry, CreatedAt: at, ExpiresAt: at.Add(s.o.Expiry),
	}
	if c.ExpiresAfter != nil {
		u.FileExpiry = time.Duration(c.ExpiresAfter.Seconds) * time.Second
	}
	if err := s.p.Store.Create(ctx, u); err != nil {
		return Upload{}, fmt.Errorf("create %s: %w", u.ID, err)
	}
	return u, nil
}

// find reads an upload; what is unknown and what is another tenant's are one.
func (s *Uploads) find(ctx context.Context, tenant, id string) (Upload, error) {
	if !ValidID(id) {
		return Upload{}, openai.UploadNotFound(id)
	}
	u, err := s.p.Store.Get(ctx, tenant, id)
	if errors.Is(err, batch.ErrNotFound) {
		return Upload{}, openai.UploadNotFound(id)
	}
	return u, err
}

// Pending reads an upload that parts may be added to now.
func (s *Uploads) Pending(ctx context.Context, tenant, id string, now time.Time) (Upload, error) {
	u, err := s.find(ctx, tenant, id)
	if err == nil && u.Now(now) != Pending {
		err = u.closed(now)
	}
	return u, err
}

// closed is the refusal for an upload that isn't pending.
func (u Upload) closed(now time.Time) error {
	status := u.Now(now)
	if status == Settled { // as good as completed: nothing undoes it
		status = Completed
	}
	return openai.UploadClosed(u.ID, string(status))
}

// refused words the errors by which the store says that the upload has moved on
// since it was read.
func (s *Uploads) refused(ctx context.Context, u Upload, err error, now time.Time) error {
	switch {
	case errors.Is(err, ErrFull):
		return openai.Invalid("too_many_parts", "upload_id", "The upload has %d parts already; the most is that.", MaxDirectParts)
	case !errors.Is(err, ErrClosed):
		return err
	}
	if u, err = s.find(ctx, u.Tenant, u.ID); err != nil {
		return err
	}
	return u.closed(now)
}

// Add keeps a direct part of an upload that [Uploads.Pending] gave, and returns
// the part's id. The bytes are stored before the upload is told of them; a part
// that it refuses is removed again.
func (s *Uploads) Add(ctx context.Context, u Upload, data []byte, now time.Time) (id string, p Part, err error) {
	if err := fitsJoin(u); err != nil {
		return "", Part{}, err
	}
	id = newPartID()
	o, err := s.p.Objects.Put(ctx, batch.Object{Bucket: s.bucket, Key: u.partKey(id)}, data)
	if err != nil {
		return "", Part{}, fmt.Errorf("store a part of %s: %w", u.ID, err)
	}
	p = Part{Bytes: o.Bytes, ETag: o.ETag, CreatedAt: now.UTC().Truncate(time.Millisecond)}
	_, err = s.p.Store.AddPart(ctx, u.Tenant, u.ID, id, p, MaxDirectParts)
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrFull) {
		if gone := s.p.Objects.Delete(ctx, s.bucket, []string{o.Key}); gone != nil {
			return "", Part{}, fmt.Errorf("remove a refused part of %s: %w", u.ID, gone)
		}
		return "", Part{}, s.refused(ctx, u, err, now)
	}
	if err != nil {
		return "", Part{}, fmt.Errorf("record a part of %s: %w", u.ID, err)
	}
	return id, p, nil
}

func fitsJoin(u Upload) error {
	if u.Bytes > MaxJoined {
		return openai.UploadTooLargeForParts(MaxJoined)
	}
	return nil
}

// URLs are where the parts of these numbers go, by PUT.
func (s *Uploads) URLs(ctx context.Context, tenant, id string, numbers []int, now time.Time) ([]openai.PartURL, error) {
	u, err := s.Pending(ctx, tenant, id, now)
	if err != nil {
		return nil, err
	}
	// All but the last have LeastPiece, so there can't be more.
	most := int((u.Bytes + LeastPiece - 1) / LeastPiece)
	if n := slices.Max(numbers); n > most {
		return nil, openai.Invalid("invalid_part_number", "part_numbers",
			"There is no part %d: of %d bytes in parts of at least %d there are %d at most.", n, u.Bytes, LeastPiece, most)
	}
	if u.Multipart == "" {
		if u, err = s.begin(ctx, u, now); err != nil {
			return nil, err
		}
	}
	ttl := min(LinkTime, u.ExpiresAt.Sub(now))
	urls := make([]openai.PartURL, len(numbers))
	for i, n := range numbers {
		url, err := s.p.Pieces.PieceURL(ctx, s.final(u), u.Multipart, n, ttl)
		if err != nil {
			return nil, fmt.Errorf("link to part %d of %s: %w", n, u.ID, err)
		}
		urls[i] = openai.PartURL{ID: u.PieceID(n), Number: n, URL: url, ExpiresAt: now.Add(ttl).Unix()}
	}
	return urls, nil
}

// begin opens the multipart upload of the file itself, once.
func (s *Uploads) begin(ctx context.Context, u Upload, now time.Time) (Upload, error) {
	mine, err := s.p.Pieces.BeginPieces(ctx, s.final(u))
	if err != nil {
		return u, fmt.Errorf("begin %s: %w", u.ID, err)
	}
	got, err := s.p.Store.Begin(ctx, u.Tenant, u.ID, mine)
	if err == nil && got.Multipart == mine {
		return got, nil
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		// It may be recorded. One that isn't is dropped by the bucket's lifecycle.
		return u, fmt.Errorf("begin %s: %w", u.ID, err)
	}
	if abort := s.p.Multiparts.Abort(ctx, s.final(u), mine); abort != nil {
		return u, fmt.Errorf("drop the second multipart upload of %s: %w", u.ID, abort)
	}
	if err != nil {
		return u, s.refused(ctx, u, err, now)
	}
	return got, nil
}

// final is where the file lies that is made of presigned parts.
func (s *Uploads) final(u Upload) batch.Object {
	return batch.Object{Bucket: s.bucket, Key: "files/" + u.Tenant + "/" + u.FileID()}
}

// Get shows an upload and, while it is open, the parts that have arrived: the
// direct ones by age, the presigned ones by number.
func (s *Uploads) Get(ctx context.Context, tenant, id string, now time.Time) (openai.Upload, error) {
	u, err := s.find(ctx, tenant, id)
	if err != nil {
		return openai.Upload{}, err
	}
	w := ToWire(u, now)
	if status := u.Now(now); status != Pending && status != Completing {
		return w, nil
	}
	parts := []openai.UploadPart{}
	for id, p := range u.Parts {
		parts = append(parts, openai.UploadPart{ID: id, UploadID: u.ID, CreatedAt: p.CreatedAt.Unix(), Bytes: p.Bytes})
	}
	slices.SortFunc(parts, func(a, b openai.UploadPart) int {
		if c := u.Parts[a.ID].CreatedAt.Compare(u.Parts[b.ID].CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	pieces, err := s.pieces(ctx, u)
	if err != nil && !errors.Is(err, batch.ErrNotFound) {
		return openai.Upload{}, err
	}
	for _, p := range pieces {
		parts = append(parts, openai.UploadPart{ID: u.PieceID(p.N), UploadID: u.ID, CreatedAt: p.StoredAt.Unix(), Number: p.N, Bytes: p.Bytes})
	}
	w.Parts = &parts
	return w, nil
}

// pieces are the presigned parts that have arrived. batch.ErrNotFound when there
// is no multipart upload, or no longer.
func (s *Uploads) pieces(ctx context.Context, u Upload) ([]batch.StoredPiece, error) {
	if u.Multipart == "" {
		return nil, batch.ErrNotFound
	}
	pieces, err := s.p.Multiparts.Pieces(ctx, s.final(u), u.Multipart)
	if err != nil {
		return nil, fmt.Errorf("list the parts of %s: %w", u.ID, err)
	}
	return pieces, nil
}

// Cancel drops an upload and its parts. Cancelling again finishes what a crash
// interrupted.
func (s *Uploads) Cancel(ctx context.Context, tenant, id string, now time.Time) (Upload, error) {
	u, err := s.find(ctx, tenant, id)
	if err != nil {
		return u, err
	}
	if u.Now(now) == Expired {
		return u, u.closed(now)
	}
	if u, err = s.p.Store.Cancel(ctx, tenant, id); err != nil {
		return u, s.refused(ctx, Upload{Tenant: tenant, ID: id}, err, now)
	}
	keys := u.partKeys()
	if u.Multipart != "" {
		// First this, so that no completion under way can make the object once it is
		// deleted. One that was about to answer deletes what it made itself.
		if err := s.p.Multiparts.Abort(ctx, s.final(u), u.Multipart); err != nil {
			return u, fmt.Errorf("cancel %s: %w", u.ID, err)
		}
		keys = append(keys, s.final(u).Key)
	}
	return u, s.drop(ctx, u, keys)
}

// maxDelete is how many keys one Delete takes.
const maxDelete = 1000

// drop deletes objects, as many as there are.
func (s *Uploads) drop(ctx context.Context, u Upload, keys []string) error {
	for some := range slices.Chunk(keys, maxDelete) {
		if err := s.p.Objects.Delete(ctx, s.bucket, some); err != nil {
			return fmt.Errorf("remove the parts of %s: %w", u.ID, err)
		}
	}
	return nil
}
