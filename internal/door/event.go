package door

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// created is what S3 says to EventBridge of a new object, however it came to be.
const created = "Object Created"

// s3 is the source of S3's events.
const s3 = "aws.s3"

// event is what EventBridge sends for S3, in the members that matter here. Keys
// come as they are: it is the older notifications of S3 that escape them.
type event struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time"`
	Detail     struct {
		Bucket struct {
			Name string `json:"name"`
		} `json:"bucket"`
		Object struct {
			Key     string `json:"key"`
			Size    *int64 `json:"size"`
			ETag    string `json:"etag"` // without quotes
			Version string `json:"version-id"`
		} `json:"object"`
	} `json:"detail"`
}

func readEvent(body []byte) (event, *openai.Error) {
	var ev event
	if err := json.Unmarshal(body, &ev); err != nil {
		return event{}, openai.Invalid("invalid_event", "", "The event can't be read: %s.", where(err))
	}
	o := ev.Detail.Object
	switch {
	case ev.Source != s3:
		return event{}, openai.Invalid("invalid_event", "source", "The event comes from %q; this queue takes those of S3, and messages.", clip(ev.Source, 100))
	case ev.DetailType == "":
		return event{}, openai.Invalid("invalid_event", "detail-type", "The event doesn't say what it tells of: it has no detail-type.")
	case ev.DetailType == created && (ev.Detail.Bucket.Name == "" || o.Key == "" || o.Version == "" && o.ETag == ""):
		return event{}, openai.Invalid("invalid_event", "detail", "The event names no object: it needs bucket, key, and version-id or etag.")
	}
	return ev, nil
}

// object is what the event says of its object, by which it is found.
func (ev event) object() bridge.Object {
	o := ev.Detail.Object
	return bridge.Object{Bucket: ev.Detail.Bucket.Name, Key: o.Key, Version: o.Version, ETag: o.ETag}
}

// folder reports whether the object is the mark of a folder: empty, so that nobody has
// anything in it. Where the event doesn't say so, it may hold something.
func (ev event) folder() bool {
	o := ev.Detail.Object
	return strings.HasSuffix(o.Key, "/") && o.Size != nil && *o.Size == 0
}

// replaced reports whether what is stored under the event's version is not what it
// tells of any more. Only the version "null", of a bucket that keeps none at present,
// can be written twice.
func (ev event) replaced(o bridge.Object) bool {
	told := strings.Trim(ev.Detail.Object.ETag, `"`)
	return o.Version == "null" && told != "" && told != strings.Trim(o.ETag, `"`)
}

// among finds the version that an event without one is about: of those with its
// ETag the one stored nearest to its time. (S3 itself always names the version.)
func (ev event) among(versions []bridge.Object) (found bridge.Object, ok bool) {
	bare := func(etag string) string { return strings.Trim(etag, `"`) }
	same := slices.DeleteFunc(slices.Clone(versions), func(o bridge.Object) bool { return bare(o.ETag) != bare(ev.Detail.Object.ETag) })
	if len(same) == 0 {
		return bridge.Object{}, false
	}
	return slices.MinFunc(same, func(a, b bridge.Object) int {
		return cmp.Compare(ev.Time.Sub(a.StoredAt).Abs(), ev.Time.Sub(b.StoredAt).Abs())
	}), true
}
