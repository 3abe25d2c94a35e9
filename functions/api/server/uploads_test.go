package server_test

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/memory"
)

const anUpload = "/v1/uploads/upload_aaaaaaaaaaaaaaaaaaaaaaaaaa"

type wireUpload struct {
	ID, Object, Filename, Purpose, Status string
	Bytes                                 int64
	CreatedAt                             int64 `json:"created_at"`
	ExpiresAt                             int64 `json:"expires_at"`
	File                                  *struct {
		ID        string
		Bytes     int64
		ExpiresAt int64 `json:"expires_at"`
	}
	Parts []wirePart
}

type wirePart struct {
	ID, Object string
	UploadID   string `json:"upload_id"`
	CreatedAt  int64  `json:"created_at"`
	Number     int
	Bytes      int64
}

func postJSON(path, body string) call {
	return call{method: "POST", path: path, as: "acme submit", body: body, header: map[string]string{"Content-Type": "application/json"}}
}

func createUploadCall(bytes int) call {
	return postJSON("/v1/uploads", fmt.Sprintf(`{"filename":"in.jsonl","purpose":"batch","bytes":%d,"mime_type":"application/jsonl"}`, bytes))
}

func (h *house) upload(bytes int) wireUpload {
	h.t.Helper()
	var u wireUpload
	h.do(createUploadCall(bytes)).ok(&u)
	return u
}

func partCall(id string, fields ...field) call {
	body, kind := form(fields...)
	return call{method: "POST", path: "/v1/uploads/" + id + "/parts", as: "acme submit", body: body, header: map[string]string{"Content-Type": kind}}
}

func (h *house) part(id, data string) wirePart {
	h.t.Helper()
	var p wirePart
	h.do(partCall(id, field{"data", "blob", data})).ok(&p)
	return p
}

func completeCall(id, md5 string, parts ...string) call {
	body, _ := json.Marshal(map[string]any{"part_ids": parts, "md5": md5})
	if md5 == "" {
		body, _ = json.Marshal(map[string]any{"part_ids": parts})
	}
	return postJSON("/v1/uploads/"+id+"/complete", string(body))
}

func md5Of(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// An upload from its creation to a batch over its file, as an official client
// does it: parts in parallel, completed twice.
func TestUploadInParts(t *testing.T) {
	h := newHouse(t)
	data := strings.Repeat(lines, 100)
	u := h.upload(len(data))
	if u.Object != "upload" || u.Status != "pending" || u.File != nil || u.Bytes != int64(len(data)) || u.Filename != "in.jsonl" || u.Purpose != "batch" ||
		u.CreatedAt != start.Unix() || u.ExpiresAt != start.Add(24*time.Hour).Unix() {
		t.Errorf("created %+v", u)
	}
	var raw map[string]any
	h.do(call{method: "GET", path: "/v1/uploads/" + u.ID, as: "acme submit"}).ok(&raw)
	if file, there := raw["file"]; !there || file != nil {
		t.Errorf("file is %v, want null", file)
	}
	var ids [4]string
	var wg sync.WaitGroup
	size := len(data) / len(ids)
	for i := range ids {
		wg.Go(func() { ids[i] = h.part(u.ID, data[i*size:(i+1)*size]).ID })
	}
	wg.Wait()
	h.do(call{method: "GET", path: "/v1/uploads/" + u.ID, as: "acme submit"}).ok(&u)
	if len(u.Parts) != 4 || u.Parts[0].Object != "upload.part" || u.Parts[0].UploadID != u.ID || u.Parts[0].Bytes != int64(size) {
		t.Errorf("parts %+v", u.Parts)
	}
	for range 2 {
		var done wireUpload
		h.do(completeCall(u.ID, strings.ToUpper(md5Of(data)), ids[:]...)).ok(&done)
		if done.Status != "completed" || done.File == nil || done.File.Bytes != int64(len(data)) || done.File.ExpiresAt != start.Add(30*24*time.Hour).Unix() {
			t.Fatalf("completed %+v", done)
		}
		u = done
	}
	var b wireBatch
	h.do(createCall(u.File.ID)).ok(&b)
	if b.InputFileID != u.File.ID {
		t.Errorf("batch %+v", b)
	}
	h.do(call{method: "GET", path: "/v1/files/" + u.File.ID + "/content", as: "acme read"})
}

func TestUploadByURL(t *testing.T) {
	h := newHouse(t)
	h.settings.FileBytes = 1 << 40
	h.build()
	const part = 5 << 20
	data := strings.Repeat("0123456789abcdef", part/16) + "tail"
	u := h.upload(len(data))
	type urls struct {
		Object string
		Data   []struct {
			ID, URL   string
			Number    int
			ExpiresAt int64 `json:"expires_at"`
		}
	}
	var got urls
	a := h.do(postJSON("/v1/uploads/"+u.ID+"/part_urls", `{"part_numbers":[2,1]}`))
	a.ok(&got)
	if got.Object != "list" || len(got.Data) != 2 || got.Data[0].Number != 2 || got.Data[0].ExpiresAt != start.Add(time.Hour).Unix() || a.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("URLs %+v", got)
	}
	for i, bytes := range []string{data[part:], data[:part]} {
		if err := h.mem.Objects.PutURL(t.Context(), got.Data[i].URL, []byte(bytes)); err != nil {
			t.Fatal(err)
		}
	}
	h.do(call{method: "GET", path: "/v1/uploads/" + u.ID, as: "acme submit"}).ok(&u)
	if len(u.Parts) != 2 || u.Parts[0].Number != 1 || u.Parts[0].Bytes != part || u.Parts[1].ID != got.Data[0].ID {
		t.Errorf("parts %+v", u.Parts)
	}
	h.do(completeCall(u.ID, md5Of(data), got.Data[1].ID, got.Data[0].ID)).ok(&u)
	if u.File == nil || string(h.mem.Objects.Bytes(inputs, "files/acme/"+u.File.ID)) != data {
		t.Errorf("completed %+v", u)
	}
	if strings.Contains(h.log.String(), "objects.invalid") {
		t.Error("a URL is in the log")
	}
}

func TestUploadRefusals(t *testing.T) {
	h := newHouse(t)
	u := h.upload(2000)
	part := h.part(u.ID, strings.Repeat("x", 1000)).ID
	path := "/v1/uploads/" + u.ID
	create := func(members string) call { return postJSON("/v1/uploads", "{"+members+"}") }
	const rest = `"purpose":"batch","bytes":1,"mime_type":"a/b"`
	data := field{"data", "blob", "x"}
	as := func(key string, c call) call { c.as = key; return c }
	cut := partCall(u.ID, data)
	cut.body = cut.body[:len(cut.body)-20]
	coded := partCall(u.ID, data)
	coded.body = strings.Replace(coded.body, "Content-Type:", "Content-Transfer-Encoding: base64\r\nContent-Type:", 1)
	for _, c := range []struct {
		name   string
		call   call
		status int
		code   string
		param  string
	}{
		{"no key", as("", createUploadCall(1)), 401, "invalid_api_key", ""},
		{"read creates nothing", as("acme read", createUploadCall(1)), 403, "insufficient_permissions", ""},
		{"read adds nothing", as("acme read", partCall(u.ID, data)), 403, "insufficient_permissions", ""},
		{"read gets no URL", as("acme read", postJSON(path+"/part_urls", `{"part_numbers":[1]}`)), 403, "insufficient_permissions", ""},
		{"read completes nothing", as("acme read", completeCall(u.ID, "", part)), 403, "insufficient_permissions", ""},
		{"read cancels nothing", as("acme read", call{method: "POST", path: path + "/cancel"}), 403, "insufficient_permissions", ""},
		{"read looks at none", as("acme read", call{method: "GET", path: path}), 403, "insufficient_permissions", ""},
		{"another tenant's", as("other both", call{method: "GET", path: path}), 404, "upload_not_found", "upload_id"},
		{"add to another's", as("other both", partCall(u.ID, data)), 404, "upload_not_found", "upload_id"},
		{"complete another's", as("other both", completeCall(u.ID, "", part)), 404, "upload_not_found", "upload_id"},
		{"cancel another's", as("other both", call{method: "POST", path: path + "/cancel"}), 404, "upload_not_found", "upload_id"},
		{"URLs of another's", as("other both", postJSON(path+"/part_urls", `{"part_numbers":[1]}`)), 404, "upload_not_found", "upload_id"},
		{"unknown", call{method: "GET", path: anUpload, as: "acme submit"}, 404, "upload_not_found", "upload_id"},
		{"no id", call{method: "GET", path: "/v1/uploads/x", as: "acme submit"}, 404, "upload_not_found", "upload_id"},
		{"method", call{method: "GET", path: "/v1/uploads", as: "acme submit"}, 405, "method_not_allowed", ""},
		{"method of parts", call{method: "GET", path: path + "/parts", as: "acme submit"}, 405, "method_not_allowed", ""},

		{"no body", postJSON("/v1/uploads", ""), 400, "invalid_json", ""},
		{"no JSON", postJSON("/v1/uploads", "{"), 400, "invalid_json", ""},
		{"an array", postJSON("/v1/uploads", "[]"), 400, "invalid_json", ""},
		{"huge body", postJSON("/v1/uploads", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`), 413, "request_too_large", ""},
		{"no filename", create(rest), 400, "missing_required_parameter", "filename"},
		{"empty filename", create(`"filename":"",` + rest), 400, "missing_required_parameter", "filename"},
		{"a number for a filename", create(`"filename":7,` + rest), 400, "invalid_type", "filename"},
		{"long filename", create(`"filename":"` + strings.Repeat("é", 256) + `",` + rest), 400, "invalid_filename", "filename"},
		{"lone surrogate in a filename", create(`"filename":"\ud800",` + rest), 400, "invalid_json", ""},
		{"no purpose", create(`"filename":"f","bytes":1,"mime_type":"a/b"`), 400, "missing_required_parameter", "purpose"},
		{"other purpose", create(`"filename":"f","purpose":"fine-tune","bytes":1,"mime_type":"a/b"`), 400, "invalid_purpose", "purpose"},
		{"no bytes", create(`"filename":"f","purpose":"batch","mime_type":"a/b"`), 400, "missing_required_parameter", "bytes"},
		{"bytes of text", create(`"filename":"f","purpose":"batch","bytes":"1","mime_type":"a/b"`), 400, "invalid_type", "bytes"},
		{"0 bytes", createUploadCall(0), 400, "invalid_bytes", "bytes"},
		{"negative bytes", createUploadCall(-1), 400, "invalid_bytes", "bytes"},
		{"half a byte", create(`"filename":"f","purpose":"batch","bytes":1.5,"mime_type":"a/b"`), 400, "invalid_bytes", "bytes"},
		{"too many bytes", createUploadCall(int(h.settings.FileBytes) + 1), 413, "file_too_large", "bytes"},
		{"more than a number holds", create(`"filename":"f","purpose":"batch","bytes":99999999999999999999,"mime_type":"a/b"`), 400, "invalid_bytes", "bytes"},
		{"no MIME type", create(`"filename":"f","purpose":"batch","bytes":1`), 400, "missing_required_parameter", "mime_type"},
		{"expiry", create(`"filename":"f","expires_after":{"anchor":"created_at","seconds":1},` + rest), 400, "invalid_expires_after", "expires_after"},

		{"part: JSON", postJSON(path+"/parts", "{}"), 400, "invalid_multipart", ""},
		{"part: cut off", cut, 400, "invalid_multipart", ""},
		{"part: nothing in it", partCall(u.ID, field{"other", "", "x"}), 400, "missing_required_parameter", "data"},
		{"part: empty", partCall(u.ID, field{"data", "blob", ""}), 400, "empty_part", "data"},
		{"part: twice", partCall(u.ID, data, data), 400, "duplicate_parameter", "data"},
		{"part: too large", partCall(u.ID, field{"data", "blob", strings.Repeat("x", int(h.settings.DirectBytes)+1)}), 413, "part_too_large", "data"},
		{"part: much too large", partCall(u.ID, field{"data", "blob", strings.Repeat("x", 1<<20)}), 413, "part_too_large", "data"},
		{"part: too large a field", partCall(u.ID, field{"other", "", strings.Repeat("x", 1<<20)}, data), 413, "part_too_large", "data"},
		{"part: coded", coded, 400, "invalid_multipart", ""},

		{"URLs: none", postJSON(path+"/part_urls", `{"part_numbers":[]}`), 400, "missing_required_parameter", "part_numbers"},
		{"URLs: nothing", postJSON(path+"/part_urls", `{}`), 400, "missing_required_parameter", "part_numbers"},
		{"URLs: a number", postJSON(path+"/part_urls", `{"part_numbers":1}`), 400, "invalid_type", "part_numbers"},
		{"URLs: text", postJSON(path+"/part_urls", `{"part_numbers":["1"]}`), 400, "invalid_type", "part_numbers"},
		{"URLs: 0", postJSON(path+"/part_urls", `{"part_numbers":[0]}`), 400, "invalid_part_number", "part_numbers"},
		{"URLs: 10,001", postJSON(path+"/part_urls", `{"part_numbers":[10001]}`), 400, "invalid_part_number", "part_numbers"},
		{"URLs: beyond the file", postJSON(path+"/part_urls", `{"part_numbers":[2]}`), 400, "invalid_part_number", "part_numbers"},
		{"URLs: twice", postJSON(path+"/part_urls", `{"part_numbers":[1,1]}`), 400, "duplicate_part_number", "part_numbers"},
		{"URLs: 101", postJSON(path+"/part_urls", `{"part_numbers":[`+strings.Repeat("1,", 100)+`1]}`), 400, "too_many_part_numbers", "part_numbers"},

		{"complete: no body", postJSON(path+"/complete", ""), 400, "invalid_json", ""},
		{"complete: no parts", postJSON(path+"/complete", "{}"), 400, "missing_required_parameter", "part_ids"},
		{"complete: none", completeCall(u.ID, "", []string{}...), 400, "missing_required_parameter", "part_ids"},
		{"complete: a string", postJSON(path+"/complete", `{"part_ids":"part_1"}`), 400, "invalid_type", "part_ids"},
		{"complete: numbers", postJSON(path+"/complete", `{"part_ids":[1]}`), 400, "invalid_type", "part_ids"},
		{"complete: 10,001", postJSON(path+"/complete", `{"part_ids":[`+strings.Repeat(`"a",`, 10_000)+`"a"]}`), 400, "too_many_parts", "part_ids"},
		{"complete: unknown part", completeCall(u.ID, "", "part_x"), 400, "invalid_part_id", "part_ids"},
		{"complete: twice the same", completeCall(u.ID, "", part, part), 400, "duplicate_part_id", "part_ids"},
		{"complete: too few bytes", completeCall(u.ID, "", part), 400, "bytes_mismatch", "part_ids"},
		{"complete: md5 of another length", completeCall(u.ID, "abc", part), 400, "invalid_md5", "md5"},
		{"complete: md5 that is none", completeCall(u.ID, strings.Repeat("g", 32), part), 400, "invalid_md5", "md5"},
		{"complete: md5 of a number", postJSON(path+"/complete", `{"part_ids":["a"],"md5":1}`), 400, "invalid_type", "md5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			h.do(c.call).refused(c.status, c.code, c.param)
		})
	}
	h.t = t
	if n := len(h.mem.Objects.Keys(inputs)); n != 1 {
		t.Errorf("%d objects: a refused part left its bytes", n)
	}
	// And after all that it still works.
	second := h.part(u.ID, strings.Repeat("y", 1000)).ID
	h.do(completeCall(u.ID, md5Of(strings.Repeat("y", 1000)+strings.Repeat("x", 1000)), second, part)).ok(&u)
	h.do(completeCall(u.ID, "", part, second)).refused(400, "upload_completed", "upload_id")
	h.do(partCall(u.ID, data)).refused(400, "upload_completed", "upload_id")
	h.do(call{method: "POST", path: path + "/cancel", as: "acme submit"}).refused(400, "upload_completed", "upload_id")
}

func TestUploadCancelAndExpiry(t *testing.T) {
	h := newHouse(t)
	u := h.upload(10)
	part := h.part(u.ID, "0123456789").ID
	for range 2 {
		h.do(call{method: "POST", path: "/v1/uploads/" + u.ID + "/cancel", as: "acme submit"}).ok(&u)
		if u.Status != "cancelled" {
			t.Errorf("cancelled %+v", u)
		}
	}
	h.do(completeCall(u.ID, "", part)).refused(400, "upload_cancelled", "upload_id")
	h.do(partCall(u.ID, field{"data", "blob", "x"})).refused(400, "upload_cancelled", "upload_id")
	if n := len(h.mem.Objects.Keys(inputs)); n != 0 {
		t.Errorf("%d objects left", n)
	}
	u = h.upload(10)
	part = h.part(u.ID, "0123456789").ID
	h.now = start.Add(24 * time.Hour)
	h.do(completeCall(u.ID, "", part)).refused(400, "upload_expired", "upload_id")
	h.do(partCall(u.ID, field{"data", "blob", "x"})).refused(400, "upload_expired", "upload_id")
	h.do(call{method: "POST", path: "/v1/uploads/" + u.ID + "/cancel", as: "acme submit"}).refused(400, "upload_expired", "upload_id")
	h.do(call{method: "GET", path: "/v1/uploads/" + u.ID, as: "acme submit"}).ok(&u)
	if u.Status != "expired" {
		t.Errorf("shown as %+v", u)
	}
}

// A port's trouble is a 503 that may be sent again, and sending again works.
func TestUploadTrouble(t *testing.T) {
	h := newHouse(t)
	u := h.upload(10)
	part := h.part(u.ID, "0123456789").ID
	h.faults.Before("Files.Put", 1, memory.Fail(nil))
	h.do(completeCall(u.ID, "", part)).refused(503, "service_unavailable", "")
	h.do(completeCall(u.ID, "", part)).ok(&u)
	if u.Status != "completed" {
		t.Errorf("completed %+v", u)
	}
}
