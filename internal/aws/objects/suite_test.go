package objects

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
	"holdfast/internal/storetest"
)

// newBucket makes a bucket of the test's own: one that keeps versions, like the
// one for inputs, or one whose objects are tagged, like the one for results.
func newBucket(t *testing.T, versions bool) (s *Objects, bucket string) {
	t.Helper()
	bucket = awstest.Name("bucket")
	o := &Options{ResultsBucket: bucket}
	if versions {
		o = nil
	}
	s = New(awstest.Config(t), o)
	if _, err := s.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dropBucket(t, s, bucket) })
	if versions {
		_, err := s.client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
			Bucket: &bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s, bucket
}

// dropBucket deletes every version of every object, then the bucket.
func dropBucket(t *testing.T, s *Objects, bucket string) {
	ctx := context.WithoutCancel(t.Context()) // the test's own is over
	pages := s3.NewListObjectVersionsPaginator(s.client, &s3.ListObjectVersionsInput{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			t.Errorf("list %s: %v", bucket, err)
			return
		}
		var ids []types.ObjectIdentifier
		for _, v := range page.Versions {
			ids = append(ids, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			ids = append(ids, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		for len(ids) > 0 {
			n := min(len(ids), maxDelete)
			if _, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{Objects: ids[:n]}}); err != nil {
				t.Errorf("empty %s: %v", bucket, err)
				return
			}
			ids = ids[n:]
		}
	}
	if _, err := s.client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket}); err != nil {
		t.Errorf("delete %s: %v", bucket, err)
	}
}

func TestSuites(t *testing.T) {
	for name, versions := range map[string]bool{"a bucket that keeps versions": true, "one that doesn't": false} {
		t.Run(name, func(t *testing.T) {
			s, bucket := newBucket(t, versions)
			t.Run("Objects", func(t *testing.T) {
				storetest.RunObjects(t, func(storetest.T) storetest.ObjectsPorts {
					return storetest.ObjectsPorts{Objects: s, Bucket: bucket}
				})
			})
			t.Run("Uploads", func(t *testing.T) {
				storetest.RunUploads(t, func(storetest.T) storetest.UploadsPorts {
					return storetest.UploadsPorts{Uploads: s, Objects: s, Bucket: bucket}
				})
			})
			t.Run("Pieces", func(t *testing.T) {
				storetest.RunPieces(t, func(storetest.T) storetest.PiecesPorts {
					return storetest.PiecesPorts{Pieces: s, Multiparts: s, Objects: s, Bucket: bucket, Put: put(t)}
				})
			})
		})
	}
}

func TestTagIsStored(t *testing.T) {
	s, bucket := newBucket(t, false)
	chunk, err := s.Put(t.Context(), batch.Object{Bucket: bucket, Key: "acme/parts/batch_1/0/T-1.jsonl"}, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.client.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: &bucket, Key: &chunk.Key})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.TagSet) != 1 || *got.TagSet[0].Key != "keep" || *got.TagSet[0].Value != "chunk" {
		t.Errorf("tags %v, want keep=chunk", got.TagSet)
	}
}

func TestPresign(t *testing.T) {
	s, bucket := newBucket(t, true)
	const name = "Zoë's \"results\"; x=1.jsonl"
	first, err := s.Put(t.Context(), batch.Object{Bucket: bucket, Key: "files/acme/file-1"}, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Put(t.Context(), first, []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	client := awstest.Config(t).HTTPClient
	for _, c := range []struct {
		object batch.Object
		want   string
	}{{first, "one"}, {second, "two"}, {batch.Object{Bucket: bucket, Key: first.Key}, "two"}} {
		url, err := s.Presign(t.Context(), c.object, name, "application/jsonl", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(url, "X-Amz-SignedHeaders=host&") {
			t.Errorf("more than the host is signed: %s", url)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/binary") // as one official client does
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !bytes.Equal(body, []byte(c.want)) {
			t.Errorf("%s: %d %q, %v; want %q", url, resp.StatusCode, body, err, c.want)
		}
		if c.object.Version != "" {
			continue // the emulator overrides no headers of a version
		}
		if got := resp.Header.Get("Content-Type"); got != "application/jsonl" {
			t.Errorf("content type %q", got)
		}
		if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err != nil || params["filename"] != name {
			t.Errorf("disposition %q: filename %q, %v", resp.Header.Get("Content-Disposition"), params["filename"], err)
		}
	}
	expired, err := s.Presign(t.Context(), second, name, "application/jsonl", -time.Minute)
	if err == nil {
		t.Errorf("signed for less than no time: %s", expired)
	}
}
