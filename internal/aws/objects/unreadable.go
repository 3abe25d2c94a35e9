package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// archived reports that an object's bytes lie in an archive, and that no restored copy
// of them is there. A HEAD is answered all the same.
func archived(out *s3.HeadObjectOutput) bool {
	switch {
	case out.ArchiveStatus != "": // of Intelligent-Tiering, which moves a restored object out of it
		return true
	case out.StorageClass != types.StorageClassGlacier && out.StorageClass != types.StorageClassDeepArchive:
		return false // also of Glacier Instant Retrieval, which is read at once
	}
	return !strings.Contains(aws.ToString(out.Restore), `ongoing-request="false"`)
}

// unreadable adds to the error of a read what never passes by itself. A refusal of
// access is none of it: the grant of a bucket or of a key may be given.
func unreadable(err error) error {
	e, ok := errors.AsType[smithy.APIError](err)
	switch {
	case !ok:
		return err
	case e.ErrorCode() == "InvalidObjectState":
		return fmt.Errorf("%w: %w", batch.ErrArchived, err)
	case e.ErrorCode() == "InvalidRequest" && strings.Contains(e.ErrorMessage(), "Server Side Encryption"):
		// S3 has no code of its own for "the key that it was stored with is missing".
		return fmt.Errorf("%w: %w", batch.ErrCustomerKey, err)
	}
	return err
}

// whatIsBad finds out what S3 means by a bare 400, which is all that it says to a HEAD
// of a version that has no version's form, of an object under its owner's own key, and
// of other things, credentials that ran out among them. It adds to err only what is
// certain.
func (s Inputs) whatIsBad(ctx context.Context, o batch.Object, err error) error {
	if o.Version != "" {
		all, listErr := s.Versions(ctx, o.Bucket, o.Key)
		if listErr != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(v bridge.Object) bool { return v.Version == o.Version }) {
			return fmt.Errorf("%w: %w", batch.ErrNotFound, err)
		}
	}
	// A GET is answered in words.
	if _, readErr := s.Peek(ctx, bridge.Object{Bucket: o.Bucket, Key: o.Key, Version: o.Version}, 1); errors.Is(readErr, batch.ErrCustomerKey) {
		return readErr
	}
	return err
}
