package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"holdfast/internal/batch"
)

var (
	_ batch.Objects = (*Objects)(nil)
	_ batch.Uploads = (*Objects)(nil)
)

// Options are the rest. The zero value works.
type Options struct {
	// ResultsBucket is the bucket whose objects are tagged for its lifecycle
	// rules; "": none is. Its writer needs s3:PutObjectTagging.
	ResultsBucket string
}

// Objects is batch.Objects and batch.Uploads over S3, any bucket. It is safe for
// concurrent use.
type Objects struct {
	client  *s3.Client
	presign *s3.PresignClient
	results string
}

// New returns objects over S3. It makes no call. o may be nil.
func New(cfg aws.Config, o *Options) *Objects {
	client := s3.NewFromConfig(cfg, func(c *s3.Options) {
		// An endpoint of one's own rarely has a host name for each bucket.
		c.UsePathStyle = c.BaseEndpoint != nil
		// A checksum is of the whole object, and nearly every read is of a range.
		c.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		c.DisableLogOutputChecksumValidationSkipped = true
	})
	s := &Objects{client: client, presign: s3.NewPresignClient(client)}
	if o != nil {
		s.results = o.ResultsBucket
	}
	return s
}

// Put implements batch.Objects.
func (s *Objects) Put(ctx context.Context, o batch.Object, data []byte) (batch.Object, error) {
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &o.Bucket, Key: &o.Key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32, Tagging: s.tagging(o),
	})
	if err != nil {
		return batch.Object{}, objectErr("put", o, err)
	}
	return batch.Object{
		Bucket: o.Bucket, Key: o.Key, Version: aws.ToString(out.VersionId), ETag: aws.ToString(out.ETag), Bytes: int64(len(data)),
	}, nil
}

// maxDelete is how many keys S3 deletes at once.
const maxDelete = 1000

// Delete implements batch.Objects. The error joins one for each key that S3
// refused to delete; the others are gone.
func (s *Objects) Delete(ctx context.Context, bucket string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	if len(keys) > maxDelete {
		return fmt.Errorf("delete from %s: %d keys are more than %d", bucket, len(keys), maxDelete)
	}
	ids := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		ids[i].Key = &keys[i]
	}
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: &bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
	})
	if err != nil {
		return fmt.Errorf("delete %d objects from %s: %w", len(keys), bucket, err)
	}
	var refused []error
	for _, e := range out.Errors {
		if code := aws.ToString(e.Code); code != "NoSuchKey" {
			refused = append(refused, fmt.Errorf("delete %s/%s: %s: %s", bucket, aws.ToString(e.Key), code, aws.ToString(e.Message)))
		}
	}
	return errors.Join(refused...)
}

// Presign returns a URL under which anybody can GET the object for ttl (at most
// 7 days, and not longer than the signing credentials live), as a download with
// this name and type. The name may be any text; see [disposition]. Only the host
// is signed, so that clients may send any header of their own.
func (s *Objects) Presign(ctx context.Context, o batch.Object, filename, contentType string, ttl time.Duration) (string, error) {
	in := &s3.GetObjectInput{
		Bucket: &o.Bucket, Key: &o.Key,
		ResponseContentDisposition: aws.String(disposition(filename)),
		ResponseContentType:        &contentType,
	}
	if o.Version != "" {
		in.VersionId = &o.Version
	}
	signed, err := s.presign.PresignGetObject(ctx, in, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", objectErr("presign", o, err)
	}
	return signed.URL, nil
}

func objectErr(op string, o batch.Object, err error) error {
	return fmt.Errorf("%s %s/%s: %w", op, o.Bucket, o.Key, err)
}

// code is the S3 error code of err, "" for any other error. S3 answers some of
// its errors without a body, which leaves the status in words.
func code(err error) string {
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	return e.ErrorCode()
}
