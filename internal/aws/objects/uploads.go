package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"holdfast/internal/batch"
)

// Begin implements batch.Uploads. The object's checksum is asked for as one of
// the whole, so that pieces are joined by their ETags alone.
func (s *Objects) Begin(ctx context.Context, o batch.Object) (string, error) {
	out, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &o.Bucket, Key: &o.Key, Tagging: s.tagging(o),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32, ChecksumType: types.ChecksumTypeFullObject,
	})
	if err != nil {
		return "", objectErr("begin upload of", o, err)
	}
	return aws.ToString(out.UploadId), nil
}

// PutPiece implements batch.Uploads. batch.ErrNotFound when the upload is gone.
func (s *Objects) PutPiece(ctx context.Context, o batch.Object, id string, n int, data []byte) (batch.Piece, error) {
	out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &o.Bucket, Key: &o.Key, UploadId: &id, PartNumber: aws.Int32(int32(n)),
		Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err != nil {
		return batch.Piece{}, objectErr(fmt.Sprintf("put piece %d of", n), o, noUpload(err))
	}
	return batch.Piece{N: n, ETag: aws.ToString(out.ETag)}, nil
}

// Complete implements batch.Uploads. S3 answers a second completion as it did the
// first, for a while: so a lost answer costs nothing while the SDK repeats the
// call, and whether the upload is still there has to be asked. A caller who
// repeats Complete after an error of unknown fate may find it gone although the
// object is there; assembling anew replaces it.
func (s *Objects) Complete(ctx context.Context, o batch.Object, id string, pieces []batch.Piece) (batch.Object, error) {
	size, err := s.stored(ctx, o, id, pieces)
	if err != nil {
		return batch.Object{}, objectErr("complete upload of", o, noUpload(err))
	}
	parts := make([]types.CompletedPart, len(pieces))
	for i := range pieces {
		parts[i] = types.CompletedPart{PartNumber: aws.Int32(int32(pieces[i].N)), ETag: &pieces[i].ETag}
	}
	out, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &o.Bucket, Key: &o.Key, UploadId: &id, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err != nil {
		return batch.Object{}, objectErr("complete upload of", o, noUpload(err))
	}
	return batch.Object{
		Bucket: o.Bucket, Key: o.Key, Version: aws.ToString(out.VersionId), ETag: aws.ToString(out.ETag), Bytes: size,
	}, nil
}

// stored asks for the pieces of an upload under way and sums up those named. One
// that isn't stored as named is an error: S3 would refuse it too.
func (s *Objects) stored(ctx context.Context, o batch.Object, id string, pieces []batch.Piece) (size int64, err error) {
	found, err := s.list(ctx, o, id)
	if err != nil {
		return 0, err
	}
	all := map[int]batch.StoredPiece{}
	for _, p := range found {
		all[p.N] = p
	}
	if len(pieces) == 0 {
		return 0, errors.New("no pieces")
	}
	for _, p := range pieces {
		f, there := all[p.N]
		if !there || f.Piece != p {
			return 0, fmt.Errorf("piece %d is not stored as %s", p.N, p.ETag)
		}
		size += f.Bytes
	}
	return size, nil
}

// Pieces implements batch.Uploads.
func (s *Objects) Pieces(ctx context.Context, o batch.Object, id string) ([]batch.StoredPiece, error) {
	all, err := s.list(ctx, o, id)
	if err != nil {
		return nil, objectErr("list pieces of", o, noUpload(err))
	}
	return all, nil
}

func (s *Objects) list(ctx context.Context, o batch.Object, id string) (all []batch.StoredPiece, err error) {
	pages := s3.NewListPartsPaginator(s.client, &s3.ListPartsInput{Bucket: &o.Bucket, Key: &o.Key, UploadId: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Parts {
			all = append(all, batch.StoredPiece{Piece: batch.Piece{N: int(aws.ToInt32(p.PartNumber)), ETag: aws.ToString(p.ETag)}, Bytes: aws.ToInt64(p.Size), StoredAt: aws.ToTime(p.LastModified)})
		}
	}
	return all, nil
}

// Stat implements batch.Uploads.
func (s *Objects) Stat(ctx context.Context, o batch.Object) (batch.Object, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &o.Bucket, Key: &o.Key})
	if gone(err) {
		err = fmt.Errorf("%w: %w", batch.ErrNotFound, err)
	}
	if err != nil {
		return batch.Object{}, objectErr("stat", o, err)
	}
	return batch.Object{
		Bucket: o.Bucket, Key: o.Key, Version: aws.ToString(out.VersionId), ETag: aws.ToString(out.ETag), Bytes: aws.ToInt64(out.ContentLength),
	}, nil
}

// Abort implements batch.Uploads.
func (s *Objects) Abort(ctx context.Context, o batch.Object, id string) error {
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &o.Bucket, Key: &o.Key, UploadId: &id})
	if err != nil && code(err) != "NoSuchUpload" {
		return objectErr("abort upload of", o, err)
	}
	return nil
}

func noUpload(err error) error {
	if code(err) == "NoSuchUpload" {
		return fmt.Errorf("%w: %w", batch.ErrNotFound, err)
	}
	return err
}
