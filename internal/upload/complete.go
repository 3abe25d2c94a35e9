package upload

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// errMoved: another call moved the upload on meanwhile; what it is now decides.
var errMoved = errors.New("upload was moved on by another call")

// turns bounds how often a completion starts over because of that. An upload
// moves on three times at most.
const turns = 4

// Complete makes a file of the parts, in the order of c.PartIDs. It may be
// repeated, also after it succeeded: the answer is the same for the same ids. An
// md5 is held against the file's every time.
func (s *Uploads) Complete(ctx context.Context, tenant, id string, c openai.CompleteUpload, now time.Time) (Upload, error) {
	var u Upload
	var err error
	for range turns {
		if u, err = s.find(ctx, tenant, id); err != nil {
			return u, err
		}
		if u, err = s.settle(ctx, u, c, now); err == nil {
			if err = s.verify(ctx, u, c.MD5); err == nil {
				return s.finish(ctx, u)
			}
		}
		if !errors.Is(err, errMoved) {
			return u, err
		}
	}
	return u, fmt.Errorf("complete %s: %w", id, err)
}

// settle takes an upload to settled, or further if it is there already.
func (s *Uploads) settle(ctx context.Context, u Upload, c openai.CompleteUpload, now time.Time) (Upload, error) {
	sum := fingerprint(c.PartIDs)
	switch u.Now(now) {
	case Settled, Completed, Completing:
		if u.PartsHash != sum {
			return u, u.closed(now)
		}
		if u.Status != Completing {
			return u, nil
		}
	case Cancelled, Expired:
		return u, u.closed(now)
	}
	direct, numbers, err := u.sort(c.PartIDs)
	if err != nil {
		return u, err
	}
	if direct != nil {
		return s.join(ctx, u, direct, c, now)
	}
	return s.assemble(ctx, u, numbers, c, now)
}

// named is a direct part with its id.
type named struct {
	id string
	Part
}

// sort finds what the ids name: direct parts, or presigned ones by number.
func (u Upload) sort(ids []string) (direct []named, numbers []int, err error) {
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			return nil, nil, openai.InvalidPart("duplicate_part_id", id, "is there twice")
		}
		seen[id] = true
		if p, ok := u.Parts[id]; ok {
			direct = append(direct, named{id, p})
		} else if n := u.pieceNumber(id); n > 0 {
			if len(numbers) > 0 && n < numbers[len(numbers)-1] {
				return nil, nil, openai.InvalidPart("invalid_part_order", id, "comes too late: parts that were sent to URLs are joined by number")
			}
			numbers = append(numbers, n)
		} else {
			return nil, nil, openai.InvalidPart("invalid_part_id", id, "is none of this upload's")
		}
		if len(direct) > 0 && len(numbers) > 0 {
			return nil, nil, openai.InvalidPart("mixed_parts", id, "came another way than those before it: send all to URLs, or all through the API")
		}
	}
	return direct, numbers, nil
}

func bytesMismatch(got, want int64) error {
	return openai.Invalid("bytes_mismatch", "part_ids", "The parts have %d bytes together; the upload was created for %d.", got, want)
}

func checkMD5(got, want string) error {
	if want != "" && got != want {
		return openai.Invalid("md5_mismatch", "md5", "The parts make a file whose md5 is %s, not %s.", got, want)
	}
	return nil
}

func fitsMD5(u Upload, md5 string) error {
	if md5 != "" && u.Bytes > MaxMD5 {
		return openai.Invalid("md5_unsupported", "md5", "An md5 is verified for files of up to %d bytes; complete this one without it.", MaxMD5)
	}
	return nil
}

// verify holds an md5 against the file of a settled upload: against the one that
// was recorded or, if that completion came without, against the bytes.
func (s *Uploads) verify(ctx context.Context, u Upload, md5 string) error {
	if md5 == "" || u.MD5 != "" {
		return checkMD5(u.MD5, md5)
	}
	if err := fitsMD5(u, md5); err != nil {
		return err
	}
	got, err := s.digest(ctx, u.Object)
	if errors.Is(err, batch.ErrNotFound) {
		return openai.Invalid("md5_unsupported", "md5", "The file has been completed without an md5, and its bytes are gone: nothing can be verified. Complete it without.")
	}
	if err != nil {
		return fmt.Errorf("verify the md5 of %s: %w", u.ID, err)
	}
	return checkMD5(got, md5)
}

// join makes the object of direct parts, under a name of this completion's own:
// of two at once the first to settle counts, and the other removes what it made.
// The upload stays as it is until the object is whole and right.
func (s *Uploads) join(ctx context.Context, u Upload, parts []named, c openai.CompleteUpload, now time.Time) (Upload, error) {
	if err := fitsJoin(u); err != nil {
		return u, err
	}
	var size int64
	for _, p := range parts {
		size += p.Bytes
	}
	if size != u.Bytes {
		return u, bytesMismatch(size, u.Bytes)
	}
	o := s.final(u)
	o.Key += "/" + strings.ToLower(rand.Text())
	o, whole, err := s.concat(ctx, u, parts, o, func(sum string) error { return checkMD5(sum, c.MD5) })
	if errors.Is(err, batch.ErrNotFound) {
		// Another completion, or a cancel, has removed the parts from under this one.
		if again, gone := s.find(ctx, u.Tenant, u.ID); gone == nil && again.Status != u.Status {
			return u, errMoved
		}
	}
	if err != nil {
		return u, err
	}
	got, err := s.p.Completions.Settle(ctx, u.Tenant, u.ID, fingerprint(c.PartIDs), o, whole, now)
	switch {
	case errors.Is(err, ErrClosed), err == nil && got.Object.Key != o.Key:
		if gone := s.drop(ctx, u, []string{o.Key}); gone != nil {
			return u, gone
		}
		if err != nil {
			err = errMoved
		}
	case err != nil:
		// It may be recorded, so the object has to stay.
		err = fmt.Errorf("settle %s: %w", u.ID, err)
	}
	return got, err
}

// assemble makes the object of presigned parts. The pieces are used up by it, so
// the upload is told before.
func (s *Uploads) assemble(ctx context.Context, u Upload, numbers []int, c openai.CompleteUpload, now time.Time) (Upload, error) {
	if err := fitsMD5(u, c.MD5); err != nil {
		return u, err
	}
	sum, o := fingerprint(c.PartIDs), s.final(u)
	all, err := s.pieces(ctx, u)
	if err == nil {
		var chosen []batch.Piece
		if chosen, err = u.choose(all, numbers); err != nil {
			return u, err
		}
		if u, err = s.p.Completions.Start(ctx, u.Tenant, u.ID, sum); errors.Is(err, ErrClosed) {
			return u, errMoved
		} else if err != nil {
			return u, fmt.Errorf("start completing: %w", err)
		}
		if u.Status != Completing {
			return u, nil // another completion was faster
		}
		o, err = s.p.Multiparts.Complete(ctx, s.final(u), u.Multipart, chosen)
	}
	if errors.Is(err, batch.ErrNotFound) {
		// The pieces are used up already, or somebody cancelled.
		if o, err = s.p.Multiparts.Stat(ctx, s.final(u)); errors.Is(err, batch.ErrNotFound) {
			return u, s.vanished(ctx, u, numbers, now)
		}
	}
	if err != nil {
		return u, fmt.Errorf("complete %s: %w", u.ID, err)
	}
	if o.Bytes != u.Bytes {
		return u, bytesMismatch(o.Bytes, u.Bytes)
	}
	if c.MD5 != "" {
		got, err := s.digest(ctx, o)
		if err != nil {
			return u, fmt.Errorf("verify the md5 of %s: %w", u.ID, err)
		}
		if err := checkMD5(got, c.MD5); err != nil {
			return u, err
		}
	}
	got, err := s.p.Completions.Settle(ctx, u.Tenant, u.ID, sum, o, c.MD5, now)
	if errors.Is(err, ErrClosed) {
		if again, gone := s.find(ctx, u.Tenant, u.ID); gone == nil && again.Status == Cancelled {
			if gone := s.drop(ctx, u, []string{o.Key}); gone != nil {
				return u, gone
			}
		}
		return u, errMoved
	}
	if err != nil {
		return u, fmt.Errorf("settle %s: %w", u.ID, err)
	}
	return got, nil
}

// vanished is why there are neither pieces nor an object.
func (s *Uploads) vanished(ctx context.Context, u Upload, numbers []int, now time.Time) error {
	again, err := s.find(ctx, u.Tenant, u.ID)
	switch {
	case err != nil:
		return err
	case again.Status != u.Status:
		return errMoved
	case u.Status == Completing:
		return openai.UploadClosed(u.ID, openai.UploadExpired)
	}
	return openai.InvalidPart("invalid_part_id", u.PieceID(numbers[0]), "has not arrived")
}

// choose finds the pieces of these numbers, which are in order, and holds them to
// what the store asks of pieces and the upload of their sum.
func (u Upload) choose(all []batch.StoredPiece, numbers []int) ([]batch.Piece, error) {
	stored := make(map[int]batch.StoredPiece, len(all))
	for _, p := range all {
		stored[p.N] = p
	}
	chosen := make([]batch.Piece, len(numbers))
	var size int64
	for i, n := range numbers {
		p, ok := stored[n]
		if !ok {
			return nil, openai.InvalidPart("invalid_part_id", u.PieceID(n), "has not arrived")
		}
		if p.Bytes < LeastPiece && i < len(numbers)-1 {
			return nil, openai.InvalidPart("part_too_small", u.PieceID(n),
				fmt.Sprintf("has %d bytes; every part but the last must have at least %d", p.Bytes, LeastPiece))
		}
		chosen[i] = p.Piece
		size += p.Bytes
	}
	if size != u.Bytes {
		return nil, bytesMismatch(size, u.Bytes)
	}
	return chosen, nil
}

func (s *Uploads) digest(ctx context.Context, o batch.Object) (string, error) {
	r, err := s.p.Objects.Open(ctx, o, 0, o.Bytes)
	if err != nil {
		return "", err
	}
	defer r.Close()
	sum := md5.New()
	if _, err := io.CopyBuffer(sum, r, make([]byte, 256<<10)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// finish records the file of a settled upload, then removes what it was made of.
// A file that a crash kept from being told of, and that was deleted since, stays so.
func (s *Uploads) finish(ctx context.Context, u Upload) (Upload, error) {
	if u.Status == Completed {
		return u, nil
	}
	err := s.p.Files.Put(ctx, u.File())
	if errors.Is(err, batch.ErrExists) {
		if _, gone := s.p.Files.Get(ctx, u.Tenant, u.FileID()); errors.Is(gone, batch.ErrDeleted) {
			err = nil
		}
	}
	if err != nil {
		return u, fmt.Errorf("record the file of %s: %w", u.ID, err)
	}
	if err := s.drop(ctx, u, u.partKeys()); err != nil {
		return u, err
	}
	if u.Multipart != "" && u.Object.Key != s.final(u).Key {
		if err := s.p.Multiparts.Abort(ctx, s.final(u), u.Multipart); err != nil {
			return u, fmt.Errorf("drop the presigned parts of %s: %w", u.ID, err)
		}
	}
	u, err = s.p.Completions.Finish(ctx, u.Tenant, u.ID)
	if err != nil {
		return u, fmt.Errorf("finish: %w", err)
	}
	return u, nil
}
