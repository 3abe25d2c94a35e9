package objects

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
)

// TestUploadHeaders: what the emulator takes no notice of.
func TestUploadHeaders(t *testing.T) {
	var head http.Header
	s := New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head = r.Header
		if r.Method == http.MethodPost {
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>")
		}
		w.Header().Set("ETag", `"one"`)
	})), &Options{ResultsBucket: "results"})
	o := batch.Object{Bucket: "results", Key: "acme/out/batch_1_output.jsonl"}
	if id, err := s.Begin(t.Context(), o); id != "id" || err != nil {
		t.Fatal(id, err)
	}
	for name, want := range map[string]string{"X-Amz-Tagging": "keep=result", "X-Amz-Checksum-Algorithm": "CRC32", "X-Amz-Checksum-Type": "FULL_OBJECT"} {
		if got := head.Get(name); got != want {
			t.Errorf("begin: %s is %q, want %q", name, got, want)
		}
	}
	if p, err := s.PutPiece(t.Context(), o, "id", 3, []byte("123456789")); p != (batch.Piece{N: 3, ETag: `"one"`}) || err != nil {
		t.Fatal(p, err)
	}
	// The check value of CRC-32, in base64.
	if got := head.Get("X-Amz-Checksum-Crc32"); got != "y/Q5Jg==" && head.Get("X-Amz-Trailer") != "x-amz-checksum-crc32" {
		t.Errorf("put piece: no checksum: %v", head)
	}
}

func TestDeleteReportsEachKey(t *testing.T) {
	s := New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<DeleteResult>
			<Error><Key>a</Key><Code>AccessDenied</Code><Message>no</Message></Error>
			<Error><Key>b</Key><Code>NoSuchKey</Code><Message>gone</Message></Error>
			<Error><Key>c</Key><Code>InternalError</Code><Message>later</Message></Error>
		</DeleteResult>`)
	})), nil)
	err := s.Delete(t.Context(), "results", []string{"a", "b", "c", "d"})
	if err == nil || !strings.Contains(err.Error(), "results/a: AccessDenied") || !strings.Contains(err.Error(), "results/c: InternalError") ||
		strings.Contains(err.Error(), "results/b") {
		t.Errorf("error %v: want a and c", err)
	}
}

func TestDeleteBounds(t *testing.T) {
	s := New(awstest.Server(t, http.NotFoundHandler()), nil)
	if err := s.Delete(t.Context(), "results", nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	if err := s.Delete(t.Context(), "results", make([]string, 1001)); err == nil || !strings.Contains(err.Error(), "1001") {
		t.Errorf("1,001 keys: %v", err)
	}
}

// TestUploadGone: by whichever call it is met.
func TestUploadGone(t *testing.T) {
	s := New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>")
	})), nil)
	o := batch.Object{Bucket: "results", Key: "acme/out/batch_1_output.jsonl"}
	if _, err := s.PutPiece(t.Context(), o, "id", 1, nil); !errors.Is(err, batch.ErrNotFound) {
		t.Errorf("put piece: %v", err)
	}
	if _, err := s.Complete(t.Context(), o, "id", []batch.Piece{{N: 1, ETag: `"one"`}}); !errors.Is(err, batch.ErrNotFound) {
		t.Errorf("complete: %v", err)
	}
	if err := s.Abort(t.Context(), o, "id"); err != nil {
		t.Errorf("abort: %v", err)
	}
}
