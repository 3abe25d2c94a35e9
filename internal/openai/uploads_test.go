package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

// Every member that the contract names is there, null where there is nothing.
func TestUploadWire(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{Upload{ID: "upload_1", Bytes: 5, CreatedAt: 1, ExpiresAt: 2, Filename: "f", Purpose: "batch", Status: UploadPending},
			`{"id":"upload_1","object":"upload","bytes":5,"created_at":1,"expires_at":2,"filename":"f","purpose":"batch","status":"pending","file":null}`},
		{Upload{Parts: &[]UploadPart{{ID: "part_1", Number: 2, Bytes: 3, UploadID: "u"}}},
			`{"id":"","object":"upload","bytes":0,"created_at":0,"expires_at":0,"filename":"","purpose":"","status":"","file":null,` +
				`"parts":[{"id":"part_1","object":"upload.part","created_at":0,"upload_id":"u","number":2,"bytes":3}]}`},
		{UploadPart{ID: "part_1", CreatedAt: 1, UploadID: "u"}, `{"id":"part_1","object":"upload.part","created_at":1,"upload_id":"u"}`},
		{PartURLs{}, `{"object":"list","data":[]}`},
	} {
		got, err := json.Marshal(c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestParseCreateUpload(t *testing.T) {
	got, err := ParseCreateUpload(strings.NewReader(`{"bytes":10,"unknown":[{}],"mime_type":"a/b","filename":"é \"q\".jsonl","purpose":"batch",
		"expires_after":{"anchor":"created_at","seconds":3600}}`), 10)
	want := CreateUpload{Filename: `é "q".jsonl`, Purpose: "batch", Bytes: 10, MimeType: "a/b", ExpiresAfter: &ExpiresAfter{"created_at", 3600}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func partForm(body, boundary string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	return r
}

// The data come as a file or as a field, behind others or alone.
func TestReadPartForm(t *testing.T) {
	for _, body := range []string{
		"--b\r\nContent-Disposition: form-data; name=\"data\"; filename=\"x\"\r\nContent-Type: application/octet-stream\r\n\r\n\x00\xff\r\nok\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n\x00\xff\r\nok\r\n--b--",
		"--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n\x00\xff\r\nok\r\n--b--\r\n",
	} {
		if got, err := ReadPartForm(partForm(body, "b"), 6); err != nil || string(got) != "\x00\xff\r\nok" {
			t.Errorf("%q, %v of %q", got, err, body)
		}
		if _, err := ReadPartForm(partForm(body, "b"), 5); err == nil {
			t.Errorf("a byte above the limit passes: %q", body)
		}
		for cut := range len(body) - 4 {
			if got, err := ReadPartForm(partForm(body[:cut], "b"), 6); err == nil {
				t.Errorf("%q is taken of the first %d bytes of %q", got, cut, body)
			}
		}
	}
}

// Whatever a body is, it is data within the limit or a refusal in the 400s.
func FuzzReadPartForm(f *testing.F) {
	f.Add("--b\r\nContent-Disposition: form-data; name=\"data\"; filename=\"x\"\r\n\r\nok\r\n--b--\r\n", "b")
	f.Add("--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\n\r\n--b--", "b")
	f.Add("--b\r\nContent-Disposition: form-data; name=data\r\nContent-Transfer-Encoding: base64\r\n\r\nb2s=\r\n--b--", "b")
	f.Add("--b--", "b")
	f.Add(strings.Repeat("--b\r\n\r\n\r\n", 40), "b")
	f.Fuzz(func(t *testing.T, body, boundary string) {
		const limit = 16
		data, err := ReadPartForm(partForm(body, boundary), limit)
		if err == nil && (len(data) == 0 || len(data) > limit || !strings.Contains(body, string(data))) {
			t.Errorf("read %q", data)
		}
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Status/100 != 4) {
			t.Errorf("%v", err)
		}
	})
}

func FuzzUploadBodies(f *testing.F) {
	for _, s := range []string{`{"part_ids":["part_a"],"md5":"0123456789abcdef0123456789ABCDEF"}`, `{"part_numbers":[1,2]}`, `{"part_numbers":[1e1]}`,
		`{"filename":"f","purpose":"batch","bytes":1,"mime_type":"a/b"}`, `{"part_ids":["\ud800"]}`, `{}`, `[`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, err1 := ParseCreateUpload(bytes.NewReader(body), 100)
		complete, err2 := ParseCompleteUpload(bytes.NewReader(body))
		numbers, err3 := ParsePartURLs(bytes.NewReader(body))
		for _, err := range []error{err1, err2, err3} {
			if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Status/100 != 4) {
				t.Errorf("%v", err)
			}
		}
		if err2 == nil && (len(complete.PartIDs) == 0 || len(complete.MD5) != 0 && len(complete.MD5) != 32) {
			t.Errorf("%+v", complete)
		}
		for _, n := range numbers {
			if err3 == nil && (n < 1 || n > MaxUploadParts) {
				t.Errorf("%v", numbers)
			}
		}
	})
}
