package awsconf

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"

	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// last is what net/http does with a request whose answer has begun: it has sent the
// body, the SDK closes it, and it looks once more for its end.
type last struct{ err error }

func (l *last) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if n, err := io.CopyN(io.Discard, r.Body, r.ContentLength); n != r.ContentLength {
		return nil, err
	}
	r.Body.Close()
	_, l.err = io.Copy(io.Discard, r.Body)
	return nil, nil
}

// A body that was closed has ended, and did not fail: else the connection is cut in the
// middle of the answer.
func TestBodyThatWasClosed(t *testing.T) {
	send := func(text []byte, to interface {
		Do(*http.Request) (*http.Response, error)
	}) {
		t.Helper()
		r, err := smithyhttp.NewStackRequest().(*smithyhttp.Request).SetStream(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.URL, r.ContentLength = &url.URL{Scheme: "https", Host: "aws.example"}, int64(len(text))
		if _, err := to.Do(r.Build(t.Context())); err != nil {
			t.Error(err)
		}
	}
	text := bytes.Repeat([]byte("x"), 100_000)
	var bare, ours last
	send(text, &bare)
	if !errors.Is(bare.err, io.EOF) {
		t.Errorf("the SDK's own body ends with %v: where that is nil, client and body may go", bare.err)
	}
	send(text, client{&ours})
	if ours.err != nil {
		t.Errorf("ours ends with %v", ours.err)
	}
	send(nil, client{&ours})
}
