package objects

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// What can't ever be read is told from what nobody may read at present.
func TestUnreadable(t *testing.T) {
	const (
		inArchive = `<Error><Code>InvalidObjectState</Code><Message>The operation is not valid for the object's storage class</Message></Error>`
		ownKey    = `<Error><Code>InvalidRequest</Code><Message>The object was stored using a form of Server Side Encryption. The correct parameters must be provided to retrieve the object.</Message></Error>`
		badToken  = `<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`
		keyDenied = `<Error><Code>AccessDenied</Code><Message>User is not authorized to perform: kms:Decrypt</Message></Error>`
		listed    = `<ListVersionsResult><Version><Key>k</Key><VersionId>v</VersionId></Version></ListVersionsResult>`
	)
	for name, c := range map[string]struct {
		head           map[string]string // headers of a HEAD that is answered
		headStatus     int
		get            string // "": the object
		getStatus      int
		headIs, peekIs error
	}{
		"archived":             {map[string]string{"x-amz-storage-class": "GLACIER"}, 200, inArchive, 403, batch.ErrArchived, batch.ErrArchived},
		"deeply":               {map[string]string{"x-amz-storage-class": "DEEP_ARCHIVE"}, 200, inArchive, 403, batch.ErrArchived, batch.ErrArchived},
		"being restored":       {map[string]string{"x-amz-storage-class": "GLACIER", "x-amz-restore": `ongoing-request="true"`}, 200, inArchive, 403, batch.ErrArchived, batch.ErrArchived},
		"restored":             {map[string]string{"x-amz-storage-class": "GLACIER", "x-amz-restore": `ongoing-request="false", expiry-date="Fri, 21 Dec 2029 00:00:00 GMT"`}, 200, "", 200, nil, nil},
		"a tier's archive":     {map[string]string{"x-amz-storage-class": "INTELLIGENT_TIERING", "x-amz-archive-status": "ARCHIVE_ACCESS"}, 200, inArchive, 403, batch.ErrArchived, batch.ErrArchived},
		"another tier":         {map[string]string{"x-amz-storage-class": "INTELLIGENT_TIERING"}, 200, "", 200, nil, nil},
		"instant":              {map[string]string{"x-amz-storage-class": "GLACIER_IR"}, 200, "", 200, nil, nil},
		"under a key":          {nil, 400, ownKey, 400, batch.ErrCustomerKey, batch.ErrCustomerKey},
		"credentials ran out":  {nil, 400, badToken, 400, errTrouble, errTrouble},
		"a key that we mayn't": {nil, 200, keyDenied, 403, nil, errTrouble},
		"not allowed":          {nil, 403, keyDenied, 403, errTrouble, errTrouble},
	} {
		s := NewInputs(New(awstest.Server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Query().Has("versions"):
				io.WriteString(w, listed)
			case r.Method == http.MethodHead:
				for k, v := range c.head {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.headStatus)
			default:
				w.WriteHeader(c.getStatus)
				io.WriteString(w, c.get)
			}
		})), nil))
		_, _, headErr := s.Head(t.Context(), "b", "k", "v")
		_, peekErr := s.Peek(t.Context(), bridge.Object{Bucket: "b", Key: "k", Version: "v"}, 10)
		for what, got := range map[string]struct{ err, want error }{"head": {headErr, c.headIs}, "peek": {peekErr, c.peekIs}} {
			switch {
			case got.want == nil && got.err == nil, got.want != errTrouble && got.want != nil && errors.Is(got.err, got.want):
			case got.want == errTrouble && got.err != nil && !errors.Is(got.err, batch.ErrArchived) && !errors.Is(got.err, batch.ErrCustomerKey) && !errors.Is(got.err, batch.ErrNotFound):
			default:
				t.Errorf("%s, %s: %v, want %v", name, what, got.err, got.want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := NewInputs(New(awstest.Server(t, http.NotFoundHandler()), nil)).Head(ctx, "b", "k", ""); err == nil || errors.Is(err, batch.ErrNotFound) {
		t.Errorf("a context that is over: %v", err)
	}
}

var errTrouble = errors.New("trouble that may pass")
