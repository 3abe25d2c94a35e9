package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// Every code that the contract lists for HTTP, each through the real handler:
// status, type, code, param and headers. The wording is package openai's.
func TestEveryCodeOfTheContract(t *testing.T) {
	post := func(body string) func(*house) call {
		return func(*house) call {
			return call{method: "POST", path: "/v1/batches", as: "acme submit", body: body}
		}
	}
	create := func(members string) func(*house) call {
		return func(h *house) call {
			return call{method: "POST", path: "/v1/batches", as: "acme submit", body: `{"input_file_id":"` + h.file() + `",` + members + `}`}
		}
	}
	get := func(path string) func(*house) call {
		return func(*house) call { return call{method: "GET", path: path, as: "acme read"} }
	}
	const good = `"endpoint":"/v1/chat/completions","completion_window":"24h"`
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		code   string
		status int
		param  string
		call   func(*house) call
	}{
		{"missing_required_parameter", 400, "input_file_id", post(`{` + good + `}`)},
		{"missing_required_parameter", 400, "input_file_id", post(`{"input_file_id":"",` + good + `}`)},
		{"missing_required_parameter", 400, "input_file_id", post(`{"input_file_id":null,` + good + `}`)},
		{"missing_required_parameter", 400, "endpoint", create(`"completion_window":"24h"`)},
		{"missing_required_parameter", 400, "completion_window", create(`"endpoint":"/v1/chat/completions"`)},
		{"missing_required_parameter", 400, "purpose", func(*house) call { return upload(field{"file", "f", lines}) }},
		{"missing_required_parameter", 400, "file", func(*house) call { return upload(field{"purpose", "", "batch"}) }},
		{"invalid_purpose", 400, "purpose", func(*house) call { return upload(field{"file", "f", lines}, field{"purpose", "", "fine-tune"}) }},
		{"invalid_endpoint", 400, "endpoint", create(`"endpoint":"/v1/images/edits","completion_window":"24h"`)},
		{"invalid_endpoint", 400, "endpoint", create(`"endpoint":"v1/chat/completions","completion_window":"24h"`)},
		{"invalid_completion_window", 400, "completion_window", create(`"endpoint":"/v1/chat/completions","completion_window":"24 h"`)},
		{"invalid_metadata", 400, "metadata", create(good + `,"metadata":{"` + long(65) + `":"v"}`)},
		{"invalid_metadata", 400, "metadata", create(good + `,"metadata":{"k":"` + long(513) + `"}`)},
		{"invalid_metadata", 400, "metadata", create(good + `,"metadata":` + pairs(17, "k", "v"))},
		{"invalid_metadata", 400, "metadata", create(good + `,"metadata":{"k":null}`)},
		{"invalid_cursor", 400, "after", get("/v1/batches?after=batch_aaaaaaaaaaaaaaaaaaaaaaaaaa")},
		{"invalid_cursor", 400, "after", get("/v1/files?after=file-aaaaaaaaaaaaaaaaaaaaaaaaaa")},
		{"invalid_expires_after", 400, "expires_after", func(*house) call {
			return upload(field{"file", "f", lines}, field{"purpose", "", "batch"}, field{"expires_after[anchor]", "", "created_at"}, field{"expires_after[seconds]", "", "2592001"})
		}},
		{"invalid_expires_after", 400, "expires_after", func(*house) call {
			return upload(field{"file", "f", lines}, field{"purpose", "", "batch"}, field{"expires_after[seconds]", "", "3600"})
		}},
		{"invalid_expires_after", 400, "output_expires_after", create(good + `,"output_expires_after":{"anchor":"now","seconds":3600}`)},
		{"invalid_expires_after", 400, "output_expires_after", create(good + `,"output_expires_after":{"anchor":"created_at","seconds":3600.5}`)},
		{"file_in_use", 400, "file_id", func(h *house) call { return deleteCall(h.batch().InputFileID) }},
		{"invalid_api_key", 401, "", func(*house) call { return call{method: "GET", path: "/v1/files"} }},
		{"file_not_found", 404, "file_id", get("/v1/files/file-aaaaaaaaaaaaaaaaaaaaaaaaaa")},
		{"file_not_found", 400, "input_file_id", post(`{"input_file_id":"file-aaaaaaaaaaaaaaaaaaaaaaaaaa",` + good + `}`)},
		{"batch_not_found", 404, "batch_id", get(anyBatch)},
		{"model_not_found", 404, "model", get("/v1/models/none")},
		{"file_too_large_for_direct_upload", 413, "file", func(h *house) call {
			return upload(field{"file", "f", long(int(h.settings.DirectBytes) + 1)}, field{"purpose", "", "batch"})
		}},
	} {
		t.Run(c.code, func(t *testing.T) {
			h := newHouse(t)
			a := h.do(c.call(h))
			a.refused(c.status, c.code, c.param)
			for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
				if got := a.Header().Get(name); got != "" {
					t.Errorf("%s: %s on a refusal that stays one", name, got)
				}
			}
			if a.Header().Get("Content-Type") != "application/json" || a.Header().Get("X-Request-Id") == "" {
				t.Errorf("headers %v", a.Header())
			}
		})
	}
}

// pairs is an object of n members.
func pairs(n int, key, value string) string {
	m := map[string]string{}
	for i := range n {
		m[string(rune('a'+i))+key] = value
	}
	b, _ := json.Marshal(m)
	return string(b)
}

// What says "later" says when, in both headers, and nothing that keeps an
// official client from coming again.
func TestRetryLater(t *testing.T) {
	for _, c := range []struct {
		err         error
		status      int
		kind, code  string
		after, msec string
	}{
		{openai.RateLimited(1500 * time.Millisecond), 429, "rate_limit_error", "rate_limit_exceeded", "2", "1500"},
		{openai.EnqueuedLimit(7, time.Minute), 429, "rate_limit_error", "enqueued_limit_exceeded", "60", "60000"},
		{openai.Unavailable(250*time.Millisecond, errors.New("x")), 503, "server_error", "service_unavailable", "1", "250"},
		{errors.New("whatever a port says"), 503, "server_error", "service_unavailable", "1", "1000"},
	} {
		h := newHouse(t)
		h.faults = memory.NewFaults()
		h.faults.Before("Files.List", 0, memory.Fail(c.err))
		h.build()
		a := h.do(call{method: "GET", path: "/v1/files", as: "acme read"})
		var body struct {
			Error struct{ Type, Code string }
		}
		if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		head := a.Header()
		if a.Code != c.status || body.Error.Type != c.kind || body.Error.Code != c.code || head.Get("Retry-After") != c.after || head.Get("Retry-After-Ms") != c.msec {
			t.Errorf("%v: %d %s, headers %v", c.err, a.Code, a.Body, head)
		}
		if got := head.Get("X-Should-Retry"); got == "false" {
			t.Errorf("%v: x-should-retry %s", c.err, got)
		}
	}
}

// A batch's largest metadata, in characters of four bytes, is stored and comes
// back: in the answer, alone and in a list of as many as a page may have.
func TestLargestMetadata(t *testing.T) {
	h := newHouse(t)
	metadata := map[string]string{}
	for i := range 16 {
		metadata[strings.Repeat("𝔘", 63)+string(rune('a'+i))] = strings.Repeat("𝔘", 511) + string(rune('a'+i))
	}
	m, _ := json.Marshal(metadata)
	id := h.file()
	for i := range 100 {
		h.now = start.Add(time.Duration(i) * time.Second)
		c := createCall(id)
		c.body = c.body[:len(c.body)-1] + `,"metadata":` + string(m) + `}`
		var b wireBatch
		h.do(c).ok(&b)
		h.do(call{method: "GET", path: "/v1/batches/" + b.ID, as: "acme read"}).ok(&b)
		if len(b.Metadata) != 16 {
			t.Fatalf("metadata %v", b.Metadata)
		}
		for k, v := range metadata {
			if b.Metadata[k] != v {
				t.Fatalf("metadata %q is %q", k, b.Metadata[k])
			}
		}
	}
	seen, after := 0, ""
	for more := true; more; {
		a := h.do(call{method: "GET", path: "/v1/batches?limit=100&after=" + after, as: "acme read"})
		if a.Body.Len() > 3<<20 {
			t.Fatalf("page of %d bytes", a.Body.Len())
		}
		var l struct {
			Data    []wireBatch
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		a.ok(&l)
		seen, after, more = seen+len(l.Data), l.LastID, l.HasMore
	}
	if seen != 100 {
		t.Errorf("%d batches on all pages", seen)
	}
}

func TestModels(t *testing.T) {
	h := newHouse(t)
	var none struct {
		Object string
		Data   []openai.Model
	}
	h.do(call{method: "GET", path: "/v1/models", as: "acme read"}).ok(&none)
	if none.Object != "list" || none.Data == nil || len(none.Data) != 0 {
		t.Errorf("none configured: %+v", none)
	}
	h.settings.Models = []string{"sim", "meta-llama/Llama-3.3-70B:free"}
	h.build()
	a := h.do(call{method: "GET", path: "/v1/models", as: "acme read"})
	if got := strings.TrimSpace(a.Body.String()); got != `{"object":"list","data":[{"id":"sim","object":"model","created":0,"owned_by":"upstream"},{"id":"meta-llama/Llama-3.3-70B:free","object":"model","created":0,"owned_by":"upstream"}]}` {
		t.Errorf("list %s", got)
	}
	for _, path := range []string{"meta-llama/Llama-3.3-70B:free", "meta-llama%2FLlama-3.3-70B:free", "meta-llama%2FLlama-3.3-70B%3Afree"} {
		var m openai.Model
		h.do(call{method: "GET", path: "/v1/models/" + path, as: "acme read"}).ok(&m)
		if m.ID != "meta-llama/Llama-3.3-70B:free" || m.Object != "model" {
			t.Errorf("%s is %+v", path, m)
		}
	}
	h.do(call{method: "GET", path: "/v1/models/meta-llama", as: "acme read"}).refused(404, "model_not_found", "model")
	h.do(call{method: "GET", path: "/v1/models/", as: "acme read"}).refused(404, "unknown_url", "")
	h.do(call{method: "DELETE", path: "/v1/models/sim", as: "acme both"}).refused(405, "method_not_allowed", "")
	h.do(call{method: "GET", path: "/v1/models", as: "acme submit"}).refused(403, "insufficient_permissions", "")
	h.do(call{method: "GET", path: "/v1/models"}).refused(401, "invalid_api_key", "")
}

// HEAD is GET without a body: the same status and headers, refusals too.
func TestHeadIsGetWithoutABody(t *testing.T) {
	h := newHouse(t)
	b := h.batch()
	for _, path := range []string{
		"/v1/files", "/v1/files/" + b.InputFileID, "/v1/files/" + b.InputFileID + "/content", "/v1/batches", "/v1/batches/" + b.ID, "/v1/models",
		"/v1/files/file-none", "/v1/models/none", "/v1/nothing", "/v1/files?limit=0",
	} {
		get, head := h.do(call{method: "GET", path: path, as: "acme read"}), h.do(call{method: "HEAD", path: path, as: "acme read"})
		// A recorder keeps the body that net/http and the door drop.
		if get.Code != head.Code || get.Header().Get("Content-Type") != head.Header().Get("Content-Type") || get.Header().Get("Location") != head.Header().Get("Location") {
			t.Errorf("%s: GET %d %v, HEAD %d %v", path, get.Code, get.Header(), head.Code, head.Header())
		}
	}
}

// forever is a body that never ends.
type forever struct {
	pattern string
	read    int
	most    int
	t       *testing.T
}

func (f *forever) Read(p []byte) (int, error) {
	if f.read > f.most {
		f.t.Fatalf("read %d bytes of a body that is too large", f.read)
	}
	n := 0
	for n < len(p) {
		n += copy(p[n:], f.pattern[(f.read+n)%len(f.pattern):])
	}
	f.read += n
	return n, nil
}

// A body without an end is read as far as its route allows, and no further.
func TestBodyWithoutEnd(t *testing.T) {
	for _, c := range []struct {
		name, method, path, kind, pattern string
		most                              int
		status                            int
		code, param                       string
	}{
		{"JSON", "POST", "/v1/batches", "application/json", `{"a":"b",`, 1<<20 + 64<<10, 413, "request_too_large", ""},
		{"file", "POST", "/v1/files", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx", 4096 + 256<<10, 413, "file_too_large_for_direct_upload", "file"},
		{"fields", "POST", "/v1/files", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ny\r\n", 4096 + 256<<10, 400, "invalid_multipart", ""},
		{"headers of a part", "POST", "/v1/files", "multipart/form-data; boundary=b", "--b\r\nX: y\r\nA", 4096 + 256<<10, 400, "invalid_multipart", ""},
		{"nothing of a form", "POST", "/v1/files", "multipart/form-data; boundary=b", "noise", 4096 + 256<<10, 400, "invalid_multipart", ""},
		{"GET", "GET", "/v1/files", "", "x", 0, 200, "", ""},
		{"DELETE", "DELETE", "/v1/files/file-none", "", "x", 0, 404, "file_not_found", "file_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			body := &forever{pattern: c.pattern, most: c.most, t: t}
			r, err := http.NewRequestWithContext(t.Context(), c.method, "http://api.example"+c.path, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+h.key["acme both"])
			if c.kind != "" {
				r.Header.Set("Content-Type", c.kind)
			}
			a := h.send(r)
			if c.code == "" && a.Code != c.status {
				t.Errorf("status %d: %s", a.Code, a.Body)
			}
			if c.code != "" {
				a.refused(c.status, c.code, c.param)
			}
			if n := len(h.mem.Objects.Keys(inputs)) + len(h.mem.Table.FilesOf("acme")); n != 0 {
				t.Errorf("%d things left", n)
			}
		})
	}
}
