package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
	"holdfast/internal/storetest"
)

var (
	_ door.Inputs   = Inputs{}
	_ door.Refusals = (*Objects)(nil)
)

func TestInputs(t *testing.T) {
	s, bucket := newBucket(t, true)
	storetest.RunInputs(t, func(storetest.T) storetest.InputsPorts {
		return storetest.InputsPorts{
			Inputs: NewInputs(s), Bucket: bucket,
			Put: func(ctx context.Context, key string, data []byte, metadata map[string]string) error {
				_, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data), Metadata: metadata})
				return err
			},
			Delete: func(ctx context.Context, key, version string) error {
				in := &s3.DeleteObjectInput{Bucket: &bucket, Key: &key}
				if version != "" {
					in.VersionId = &version
				}
				_, err := s.client.DeleteObject(ctx, in)
				return err
			},
		}
	})
}

// S3 says no more of a version that has no version's form than that the request was
// bad. The list of versions tells it from a request that was bad.
func TestHeadOfNoVersion(t *testing.T) {
	for name, c := range map[string]struct {
		listed string
		want   error
	}{
		"not listed": {"another", batch.ErrNotFound},
		"listed":     {"mine", nil},
	} {
		s := NewInputs(New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			io.WriteString(w, `<ListVersionsResult><Version><Key>in/acme/k</Key><VersionId>`+c.listed+`</VersionId></Version></ListVersionsResult>`)
		})), nil))
		_, _, err := s.Head(t.Context(), "b", "in/acme/k", "mine")
		if got := errors.Is(err, batch.ErrNotFound); err == nil || got != (c.want != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What AWS answers and an emulator doesn't: keys that are escaped, and an empty
// object, which has no range.
func TestAnswersOfS3(t *testing.T) {
	s := NewInputs(New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("versions") {
			io.WriteString(w, `<ListVersionsResult><EncodingType>url</EncodingType>`+
				`<Version><Key>in/acme/a+b%2Bc%2520.jsonl</Key><VersionId>v1</VersionId></Version>`+
				`<Version><Key>in/acme/a+b%2Bc%2520.jsonl2</Key><VersionId>v2</VersionId></Version></ListVersionsResult>`)
			return
		}
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		io.WriteString(w, `<Error><Code>InvalidRange</Code></Error>`)
	})), nil))
	got, err := s.Versions(t.Context(), "b", "in/acme/a b+c%20.jsonl")
	if err != nil || len(got) != 1 || got[0].Version != "v1" {
		t.Errorf("%+v, %v", got, err)
	}
	if data, err := s.Peek(t.Context(), bridge.Object{Bucket: "b", Key: "k"}, 10); err != nil || len(data) > 0 {
		t.Errorf("%q, %v", data, err)
	}
}

func TestErrorObjectsAreKeptAsResults(t *testing.T) {
	s := New(awstest.Server(t, http.NotFoundHandler()), &Options{ResultsBucket: "results"})
	got := s.tagging(batch.Object{Bucket: "results", Key: door.ErrorKey("acme", bridge.Object{Key: "in/acme/a b.jsonl", Version: "v1"})})
	if got == nil || *got != "keep=result" {
		t.Errorf("tags %v", got)
	}
}
