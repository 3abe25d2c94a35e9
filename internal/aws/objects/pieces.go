package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

var _ upload.Pieces = (*Objects)(nil)

// plain keeps the SDK from asking for checksums of its own: whoever PUTs a piece
// to a URL sends none, and S3 would refuse the piece of an upload that was begun
// with one. S3 then checks a Content-MD5 if the client sends it, and adds a
// checksum of the whole object itself.
func plain(o *s3.Options) { o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired }

// BeginPieces implements upload.Pieces.
func (s *Objects) BeginPieces(ctx context.Context, o batch.Object) (string, error) {
	out, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &o.Bucket, Key: &o.Key, Tagging: s.tagging(o),
	}, plain)
	if err != nil {
		return "", objectErr("begin upload by URL of", o, err)
	}
	return aws.ToString(out.UploadId), nil
}

// PieceURL implements upload.Pieces. Only the host is signed. The URL works no
// longer than the credentials that sign it.
func (s *Objects) PieceURL(ctx context.Context, o batch.Object, id string, n int, ttl time.Duration) (string, error) {
	signed, err := s.presign.PresignUploadPart(ctx, &s3.UploadPartInput{
		Bucket: &o.Bucket, Key: &o.Key, UploadId: &id, PartNumber: aws.Int32(int32(n)),
	}, s3.WithPresignExpires(ttl), s3.WithPresignClientFromClientOptions(plain))
	if err != nil {
		return "", objectErr(fmt.Sprintf("presign piece %d of", n), o, err)
	}
	return signed.URL, nil
}

// ListPieces implements upload.Pieces.
func (s *Objects) ListPieces(ctx context.Context, o batch.Object, id string) ([]upload.Piece, error) {
	var all []upload.Piece
	pages := s3.NewListPartsPaginator(s.client, &s3.ListPartsInput{Bucket: &o.Bucket, Key: &o.Key, UploadId: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, objectErr("list pieces of", o, noUpload(err))
		}
		for _, p := range page.Parts {
			all = append(all, upload.Piece{
				Piece: batch.Piece{N: int(aws.ToInt32(p.PartNumber)), ETag: aws.ToString(p.ETag)},
				Bytes: aws.ToInt64(p.Size), StoredAt: aws.ToTime(p.LastModified),
			})
		}
	}
	return all, nil
}

// Stat implements upload.Pieces.
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
