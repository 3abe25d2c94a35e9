package bridge

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxCorrelationID is the longest correlation id in bytes: an S3 object's bucket,
// key and version fit with room to spare.
const MaxCorrelationID = 4096

// Request is a batch that somebody wants, as every door brings it: checked for
// form and not yet for what it names.
type Request struct {
	Tenant string // whose it is
	// CorrelationID is the sender's own name for the request, opaque, UTF-8, at most
	// MaxCorrelationID bytes; "" only where nobody gave one ([Resends]).
	CorrelationID string
	RequestID     string // of the delivery, for tracing; no part of what was asked for

	Submitter    string // the principal every line will count for
	FileID       string
	Endpoint     string
	Window       string
	Metadata     map[string]string
	OutputExpiry time.Duration // whole milliseconds; 0: the installation's default

	// Object is the input where it is an object that no file record may stand for
	// yet; FileID is then [Object.FileID]. It is what makes the request whole, and
	// not part of what tells it from others: FileID says the same.
	Object *Object
	// Service is whose job it is ([Services]); "" is Holdfast's own batches. Whoever
	// submits the row later sends it there, whatever is configured by then. It is no
	// part of what tells requests apart either.
	Service string
}

// Object names one stored object, and which bytes under that name. Times are in
// whole seconds, as S3 has them.
type Object struct {
	Bucket   string
	Key      string
	Version  string // "" or "null" where the bucket keeps no versions, or none at present
	ETag     string // as the store gave it, quotes included
	Bytes    int64
	StoredAt time.Time
}

// FileID is the id of the file that the object is for a tenant: the same for
// everybody who comes upon that version of that object.
func (o Object) FileID(tenant string) string {
	h := sha256.New()
	version := o.ownVersion()
	for _, s := range []string{"object", tenant, o.Bucket, o.Key, version} {
		writeText(h, s)
	}
	if version == "" {
		writeText(h, strings.Trim(o.ETag, `"`)) // all that tells two objects of one name apart
	}
	return "file-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:20]))
}

// ownVersion is the version if it is this object's alone, else "". What is put while a
// bucket's versioning is suspended all has the version "null", each in place of the
// last.
func (o Object) ownVersion() string {
	if o.Version == "null" {
		return ""
	}
	return o.Version
}

// CorrelationID is the object's own name, for whoever starts a batch because it is
// there: printable ASCII, so that another door can be given the same.
func (o Object) CorrelationID() string {
	segments := strings.Split(o.Key, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	u := "s3://" + o.Bucket + "/" + strings.Join(segments, "/")
	if version := o.ownVersion(); version != "" {
		return u + "?versionId=" + url.QueryEscape(version)
	}
	return u + "?etag=" + url.QueryEscape(strings.Trim(o.ETag, `"`))
}

// writeText writes s with its length before it, so that no text can reach into the
// next one.
func writeText(w io.Writer, s string) { fmt.Fprintf(w, "%d:", len(s)); io.WriteString(w, s) }

// check refuses what can't be claimed: a fault of the door.
func (r Request) check() error {
	switch {
	case r.Tenant == "" || r.Submitter == "":
		return errors.New("bridge: a request needs a tenant and a submitter")
	case r.Object != nil && r.FileID != r.Object.FileID(r.Tenant):
		return errors.New("bridge: a request for an object goes by that object's file id")
	case r.CorrelationID == "" || len(r.CorrelationID) > MaxCorrelationID:
		return fmt.Errorf("bridge: a correlation id has 1 to %d bytes, not %d", MaxCorrelationID, len(r.CorrelationID))
	case !utf8.ValidString(r.CorrelationID):
		// A store gives back what it made of it, whose job would be another.
		return errors.New("bridge: a correlation id is text in UTF-8")
	}
	return nil
}

// Hash tells requests apart by what they ask for and on whose behalf: the same
// hash is the same request, whichever door it came by and however its JSON was
// written. It is 64 hex digits, and stored: what it is made of can only ever be
// added to, and an addition that is empty must not change it.
func (r Request) Hash() string {
	h := sha256.New()
	for _, s := range []string{r.Submitter, r.FileID, r.Endpoint, r.Window, strconv.FormatInt(r.OutputExpiry.Milliseconds(), 10), strconv.Itoa(len(r.Metadata))} {
		writeText(h, s)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		writeText(h, k)
		writeText(h, r.Metadata[k])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// BatchID is the id of the one batch that a correlation id of a tenant stands
// for. It has the form of a batch id and is fit for an execution's name. Tenants
// hold no NUL, so no two pairs read alike.
func BatchID(tenant, correlationID string) string {
	sum := sha256.Sum256([]byte("correlation id\x00" + tenant + "\x00" + correlationID))
	return "batch_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}
