package objects

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
)

// put is a PUT by somebody without credentials.
func put(t *testing.T) func(ctx context.Context, to string, data []byte) error {
	client := awstest.Config(t).HTTPClient
	return func(ctx context.Context, to string, data []byte) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(data))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
}

// Nothing but the host is signed, and no checksum is asked of whoever holds the
// URL: an SDK's default would have one of the empty body in it.
func TestPieceURLAsksForNothing(t *testing.T) {
	s := New(awstest.Server(t, http.NotFoundHandler()), nil)
	to, err := s.PieceURL(t.Context(), batch.Object{Bucket: "b", Key: "files/acme/file-1"}, "upload", 3, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name := range q {
		switch name {
		case "partNumber", "uploadId", "x-id", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Signature", "X-Amz-SignedHeaders":
		default:
			t.Errorf("the URL has %s=%s", name, q.Get(name))
		}
	}
	if q.Get("X-Amz-SignedHeaders") != "host" || q.Get("X-Amz-Expires") != "3600" || q.Get("partNumber") != "3" {
		t.Errorf("URL %s", to)
	}
}

// The multipart upload is begun without a checksum algorithm: S3 would want one
// with each piece.
func TestBeginPiecesNamesNoChecksum(t *testing.T) {
	var header http.Header
	s := New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	})), nil)
	id, err := s.BeginPieces(t.Context(), batch.Object{Bucket: "b", Key: "k"})
	if err != nil || id != "u" {
		t.Fatal(id, err)
	}
	for name := range header {
		if len(name) > 15 && name[:15] == "X-Amz-Checksum-" {
			t.Errorf("asked with %s: %s", name, header.Get(name))
		}
	}
}
