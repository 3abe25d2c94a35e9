package bridge_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/internal/bridge"
)

func object() bridge.Object {
	return bridge.Object{Bucket: "inputs", Key: "in/acme/a b+ü/x.jsonl", Version: "v1", ETag: `"0123"`, Bytes: 7, StoredAt: start}
}

// Everybody who comes upon a version of an object gives it one id, and no other
// object, version or tenant has that.
func TestFileIDOfAnObject(t *testing.T) {
	ids := map[string]string{object().FileID("other"): "another tenant"}
	for what, change := range map[string]func(*bridge.Object){
		"as it is":             func(*bridge.Object) {},
		"bucket":               func(o *bridge.Object) { o.Bucket = "inputs2" },
		"key":                  func(o *bridge.Object) { o.Key += "x" },
		"version":              func(o *bridge.Object) { o.Version = "v2" },
		"no version":           func(o *bridge.Object) { o.Version = "" },
		"another tag":          func(o *bridge.Object) { o.Version, o.ETag = "", `"4567"` },
		"no version, in words": func(o *bridge.Object) { o.Version, o.ETag = "null", `"89ab"` },
		"moved":                func(o *bridge.Object) { o.Bucket, o.Key = "input", "s"+o.Key },
	} {
		o := object()
		change(&o)
		id := o.FileID("acme")
		if twin, is := ids[id]; is || len(id) != len("file-")+32 || !strings.HasPrefix(id, "file-") {
			t.Errorf("%s: %s, which is that of %q", what, id, twin)
		}
		ids[id] = what
	}
	// A version says which bytes; what else is known of it depends on the door.
	o := object()
	o.ETag, o.Bytes, o.StoredAt = "", 0, time.Time{}
	if o.FileID("acme") != object().FileID("acme") {
		t.Error("the id depends on what a door may not know")
	}
	// Stored, and handed out: it must never change.
	if got := object().FileID("acme"); got != goldenFileID {
		t.Errorf("%s", got)
	}
}

// While a bucket's versioning is suspended whatever is put has the version "null", which
// tells nothing apart: then the ETag does, as where there are no versions.
func TestSuspendedVersions(t *testing.T) {
	first, without := object(), object()
	first.Version, without.Version = "null", ""
	second := first
	second.ETag = `"4567"`
	if first.FileID("acme") == second.FileID("acme") || first.CorrelationID() == second.CorrelationID() {
		t.Errorf("two objects are one: %s", first.CorrelationID())
	}
	if first.FileID("acme") != without.FileID("acme") || first.CorrelationID() != without.CorrelationID() ||
		!strings.HasSuffix(first.CorrelationID(), "?etag=0123") {
		t.Errorf("%s, %s", first.CorrelationID(), without.CorrelationID())
	}
	// An event has the ETag without its quotes.
	bare := first
	bare.ETag = "0123"
	if bare.FileID("acme") != first.FileID("acme") {
		t.Error("the id depends on the quotes of an ETag")
	}
}

const goldenFileID = "file-pyiybur4vbsyfau2rqoxv2xrjvf4rquh"

// It is fit for a header, and read back it names the object.
func TestCorrelationIDOfAnObject(t *testing.T) {
	o := object()
	for _, key := range []string{o.Key, "in/acme/%2F?x=y&z#f", "in/acme//a/../b", "in/acme/\n", "in/acme/日本/ ", strings.Repeat("é", 512)} {
		o.Key = key
		id := o.CorrelationID()
		u, err := url.Parse(id)
		if err != nil || u.Scheme != "s3" || u.Host != "inputs" || u.Path != "/"+key || u.Query().Get("versionId") != "v1" || u.Fragment != "" {
			t.Errorf("%q: %s is read as %+v, %v", key, id, u, err)
		}
		if strings.Trim(id, " ") != id || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) || len(id) > bridge.MaxCorrelationID {
			t.Errorf("%q: %s", key, id)
		}
	}
	if got := object().CorrelationID(); got != "s3://inputs/in/acme/a%20b+%C3%BC/x.jsonl?versionId=v1" {
		t.Error(got)
	}
	o = object()
	o.Version = ""
	if got := o.CorrelationID(); !strings.HasSuffix(got, "?etag=0123") {
		t.Error(got)
	}
}

// A request for an object is the same request by each door, whether that knows the
// object or only its file id, and whosever the job is; and it goes by no other id.
func TestRequestForAnObject(t *testing.T) {
	r, o := newRig(t), object()
	q := request(o.CorrelationID())
	q.Object, q.FileID, q.Service = &o, o.FileID("acme"), "jobs"
	plain := q
	plain.Object, plain.Service = nil, ""
	if q.Hash() != plain.Hash() {
		t.Error("the doors' hashes differ")
	}
	for _, q := range []bridge.Request{q, plain} {
		if _, err := r.bridge(nil).Submit(t.Context(), q, start); err != nil {
			t.Error(err)
		}
	}
	q.FileID = "file-1"
	if _, err := r.bridge(nil).Submit(t.Context(), q, start); err == nil || errors.Is(err, bridge.ErrConflict) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("an object by another's id: %v", err)
	}
	if got := r.jobs.started[bridge.BatchID("acme", o.CorrelationID())]; r.jobs.submits != 1 || got.Object == nil || *got.Object != o || got.Service != "jobs" {
		t.Errorf("%d submits, of %+v", r.jobs.submits, got)
	}
}
