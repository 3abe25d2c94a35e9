package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Inputs is door.Inputs over S3: it looks at what others put there. Who uses it
// needs s3:ListBucket, without which S3 says of what isn't there that it is
// forbidden. Safe for concurrent use.
type Inputs struct{ *Objects }

// NewInputs returns inputs over the same client.
func NewInputs(s *Objects) Inputs { return Inputs{s} }

// Head implements door.Inputs.
func (s Inputs) Head(ctx context.Context, bucket, key, version string) (bridge.Object, map[string]string, error) {
	named := batch.Object{Bucket: bucket, Key: key, Version: version}
	in := &s3.HeadObjectInput{Bucket: &bucket, Key: &key}
	if version != "" {
		in.VersionId = &version
	}
	out, err := s.client.HeadObject(ctx, in)
	switch {
	case code(err) == "BadRequest":
		err = s.whatIsBad(ctx, named, err)
	case gone(err):
		err = fmt.Errorf("%w: %w", batch.ErrNotFound, err)
	case err == nil && archived(out):
		err = batch.ErrArchived
	}
	if err != nil {
		return bridge.Object{}, nil, objectErr("head", named, err)
	}
	o := bridge.Object{
		Bucket: bucket, Key: key, Version: aws.ToString(out.VersionId), ETag: aws.ToString(out.ETag),
		Bytes: aws.ToInt64(out.ContentLength), StoredAt: stored(out.LastModified),
	}
	if o.Version == "" {
		o.Version = version
	}
	return o, out.Metadata, nil
}

// maxVersions is how many S3 lists in one answer.
const maxVersions = 1000

// Versions implements door.Inputs.
func (s Inputs) Versions(ctx context.Context, bucket, key string) ([]bridge.Object, error) {
	// Of all keys that begin with this one it comes first itself. URL encoding, because
	// XML can't hold every character of a key.
	out, err := s.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{
		Bucket: &bucket, Prefix: &key, MaxKeys: aws.Int32(maxVersions), EncodingType: types.EncodingTypeUrl,
	})
	if err != nil {
		return nil, objectErr("list versions of", batch.Object{Bucket: bucket, Key: key}, err)
	}
	var found []bridge.Object
	for _, v := range out.Versions {
		name := aws.ToString(v.Key)
		if out.EncodingType == types.EncodingTypeUrl {
			if decoded, err := url.QueryUnescape(name); err == nil {
				name = decoded
			}
		}
		if name == key {
			found = append(found, bridge.Object{
				Bucket: bucket, Key: key, Version: aws.ToString(v.VersionId), ETag: aws.ToString(v.ETag),
				Bytes: aws.ToInt64(v.Size), StoredAt: aws.ToTime(v.LastModified).UTC(),
			})
		}
	}
	return found, nil
}

// Peek implements door.Inputs.
func (s Inputs) Peek(ctx context.Context, o bridge.Object, most int64) ([]byte, error) {
	named := batch.Object{Bucket: o.Bucket, Key: o.Key, Version: o.Version}
	in := &s3.GetObjectInput{Bucket: &o.Bucket, Key: &o.Key, Range: aws.String(fmt.Sprintf("bytes=0-%d", most-1))}
	if o.Version != "" {
		in.VersionId = &o.Version
	}
	out, err := s.client.GetObject(ctx, in)
	switch {
	case gone(err):
		return nil, objectErr("peek into", named, fmt.Errorf("%w: %w", batch.ErrNotFound, err))
	case code(err) == "InvalidRange":
		return nil, nil // the range of an empty object
	case err != nil:
		return nil, objectErr("peek into", named, unreadable(err))
	}
	defer out.Body.Close()
	if got := aws.ToString(out.ContentRange); got != "" && !strings.HasPrefix(got, "bytes 0-") {
		return nil, objectErr("peek into", named, fmt.Errorf("asked for its beginning, got %q", got))
	}
	// A store that ignores the range sends everything.
	data, err := io.ReadAll(io.LimitReader(out.Body, most))
	if err != nil {
		return nil, objectErr("peek into", named, errors.Join(err, ctx.Err()))
	}
	return data, nil
}

// stored is when S3 stored an object, which HEAD says in whole seconds.
func stored(t *time.Time) time.Time { return aws.ToTime(t).UTC().Truncate(time.Second) }
