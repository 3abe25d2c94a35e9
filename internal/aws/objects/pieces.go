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
