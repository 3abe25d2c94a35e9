package objects

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/aws/awstest"
	"holdfast/internal/batch"
)

var content = []byte("0123456789abcdef")

// pinned is content as it was named when it was still the current object.
var pinned = batch.Object{Bucket: "inputs", Key: "files/acme/file-1", Version: "v1", ETag: `"one"`, Bytes: int64(len(content))}

// shop is an S3 with habits.
type shop struct {
	overwritten   bool // pinned is an older version now
	deleted       bool // a delete marker has the name
	noVersion     bool // and the version is gone too
	ignoreRange   bool // always
	ignoreVersion bool // Range, where a version is named (the emulator does)
	wrongRange    bool
	wrongETag     bool
	tear          int // the answer breaks off after so many bytes, where it is longer
	tears         int // how many answers do
	requests      []string
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version, etag := r.URL.Query().Get("versionId"), r.Header.Get("If-Match")
	s.requests = append(s.requests, strings.TrimSpace(version+" "+r.Header.Get("Range")))
	refuse := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
	}
	switch {
	case version != "" && (s.noVersion || version != pinned.Version):
		refuse(404, "NoSuchVersion")
		return
	case version == "" && s.deleted:
		refuse(404, "NoSuchKey")
		return
	case version == "" && s.overwritten && etag != "":
		refuse(412, "PreconditionFailed")
		return
	}
	var from, to int
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	if from >= len(content) {
		refuse(416, "InvalidRange")
		return
	}
	data, status := content[from:min(to+1, len(content))], http.StatusPartialContent
	if s.ignoreRange || s.ignoreVersion && version != "" {
		data, status = content, http.StatusOK
	} else {
		at := from
		if s.wrongRange {
			at++
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, at+len(data)-1, len(content)))
	}
	w.Header().Set("ETag", pinned.ETag)
	if s.wrongETag {
		w.Header().Set("ETag", `"two"`)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	if s.tears > 0 && len(data) > s.tear {
		s.tears--
		w.Write(data[:s.tear])
		w.(http.Flusher).Flush() // the head at least is out
		panic(http.ErrAbortHandler)
	}
	w.Write(data)
}

func TestOpen(t *testing.T) {
	unversioned := pinned
	unversioned.Version = ""
	short := pinned
	short.Bytes--
	for _, c := range []struct {
		name     string
		shop     shop
		object   batch.Object
		from, to int64
		want     string
		err      error // of Open or of Read
		requests int
	}{
		{"a range", shop{}, pinned, 4, 8, "4567", nil, 1},
		{"all", shop{}, pinned, 0, 16, string(content), nil, 1},
		{"nothing", shop{}, pinned, 5, 5, "", nil, 0},
		{"overwritten", shop{overwritten: true}, pinned, 4, 8, "4567", nil, 2},
		{"overwritten, no versions", shop{overwritten: true}, unversioned, 4, 8, "", batch.ErrChanged, 1},
		{"overwritten, version without ranges", shop{overwritten: true, ignoreVersion: true}, pinned, 4, 8, "4567", nil, 2},
		{"overwritten, another version", shop{overwritten: true, wrongETag: true}, pinned, 4, 8, "", batch.ErrChanged, 2},
		{"deleted", shop{deleted: true}, pinned, 4, 8, "4567", nil, 2},
		{"deleted, no versions", shop{deleted: true}, unversioned, 4, 8, "", batch.ErrNotFound, 1},
		{"deleted for good", shop{deleted: true, noVersion: true}, pinned, 4, 8, "", batch.ErrNotFound, 2},
		{"ranges ignored", shop{ignoreRange: true}, unversioned, 4, 8, "4567", nil, 1},
		{"ranges ignored, another size", shop{ignoreRange: true}, short, 4, 8, "", batch.ErrChanged, 1},
		{"another range", shop{wrongRange: true}, pinned, 4, 8, "", batch.ErrChanged, 1},
		{"another size", shop{}, short, 4, 8, "", batch.ErrChanged, 1},
		{"precondition ignored", shop{wrongETag: true}, unversioned, 4, 8, "", batch.ErrChanged, 1},
		{"beyond the end", shop{}, pinned, 12, 20, "cdef", io.ErrUnexpectedEOF, 1},
		{"after the end", shop{}, pinned, 16, 20, "", batch.ErrChanged, 2},
		{"torn once", shop{tear: 2, tears: 1}, pinned, 4, 12, "456789ab", nil, 2},
		{"torn again and again, yet moving", shop{tear: 1, tears: 7}, pinned, 4, 12, "456789ab", nil, 8},
		{"torn, overwritten meanwhile", shop{overwritten: true, tear: 2, tears: 1}, pinned, 4, 12, "456789ab", nil, 4},
		{"torn for good", shop{tear: 0, tears: 100}, pinned, 4, 8, "", io.ErrUnexpectedEOF, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(awstest.Server(t, &c.shop), nil)
			got, err := read(t, s, c.object, c.from, c.to)
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("read %q, %v; want %q, %v", got, err, c.want, c.err)
			}
			if len(c.shop.requests) != c.requests {
				t.Errorf("requests %q, want %d", c.shop.requests, c.requests)
			}
		})
	}
}

func read(t *testing.T, s *Objects, o batch.Object, from, to int64) ([]byte, error) {
	r, err := s.Open(t.Context(), o, from, to)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var got bytes.Buffer
	_, err = io.Copy(&got, r)
	return got.Bytes(), err
}

func TestOpenRefusesWhatIsNoRange(t *testing.T) {
	s := New(awstest.Server(t, &shop{}), nil)
	for _, c := range [][2]int64{{-1, 4}, {4, 3}} {
		if _, err := s.Open(t.Context(), pinned, c[0], c[1]); err == nil {
			t.Errorf("[%d, %d) opened", c[0], c[1])
		}
	}
}

func TestDisposition(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `attachment`,
		"results.jsonl":          `attachment; filename="results.jsonl"; filename*=UTF-8''results.jsonl`,
		"Zoë's.jsonl":            `attachment; filename="Zo_'s.jsonl"; filename*=UTF-8''Zo%C3%AB%27s.jsonl`,
		"a\"; filename=\"x":      `attachment; filename="a__ filename=_x"; filename*=UTF-8''a%22%3B%20filename%3D%22x`,
		"a\r\nX-Evil: 1":         `attachment; filename="a__X-Evil: 1"; filename*=UTF-8''a%0D%0AX-Evil%3A%201`,
		`..\..\x/y%41`:           `attachment; filename=".._.._x_y_41"; filename*=UTF-8''..%5C..%5Cx%2Fy%2541`,
		"\xff":                   `attachment; filename="_"; filename*=UTF-8''_`,
		strings.Repeat("ä", 200): `attachment; filename="` + strings.Repeat("_", 127) + `"; filename*=UTF-8''` + strings.Repeat("%C3%A4", 127),
	} {
		if got := disposition(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestTag(t *testing.T) {
	s := &Objects{results: "results"}
	for key, want := range map[string]string{
		"acme/parts/batch_1/0/TOKEN-1.jsonl":         "keep=chunk",
		"acme/plan/batch_1.jsonl":                    "keep=plan",
		"acme/parts/batch_1/finish/output-0-9.jsonl": "keep=chunk",
		"acme/out/batch_1_output.jsonl":              "keep=result",
		"acme/out/batch_1_error.jsonl":               "keep=result",
		"acme/out/batch_1_receipts.jsonl":            "keep=receipt",
		"parts/out/batch_1_output.jsonl":             "keep=result", // a tenant of that name
		"acme/else":                                  "",
		"x":                                          "",
	} {
		var got string
		if tag := s.tagging(batch.Object{Bucket: "results", Key: key}); tag != nil {
			got = *tag
		}
		if got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
		if s.tagging(batch.Object{Bucket: "inputs", Key: key}) != nil {
			t.Errorf("%s: tagged in another bucket", key)
		}
	}
}
