package server_test

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/functions/api/server"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

const anyBatch = "/v1/batches/batch_aaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestRefusals(t *testing.T) {
	h := newHouse(t)
	file := h.file()
	output := batch.File{Tenant: "acme", ID: "file-output", Purpose: "batch_output", Filename: "o"}
	if err := h.mem.Table.Files.Put(t.Context(), output); err != nil {
		t.Fatal(err)
	}
	post := func(body string) call {
		return call{method: "POST", path: "/v1/batches", as: "acme submit", body: body}
	}
	with := func(members string) call {
		return post(`{"input_file_id":"` + file + `","endpoint":"/v1/chat/completions","completion_window":"24h",` + members + `}`)
	}
	get := func(path string) call { return call{method: "GET", path: path, as: "acme read"} }
	for _, c := range []struct {
		name   string
		call   call
		status int
		code   string
		param  string
	}{
		{"no key", call{method: "GET", path: anyBatch}, 401, "invalid_api_key", ""},
		{"wrong key", call{method: "GET", path: anyBatch, header: map[string]string{"Authorization": "Bearer hf_" + strings.Repeat("a", 32)}}, 401, "invalid_api_key", ""},
		{"not a key", call{method: "GET", path: anyBatch, header: map[string]string{"Authorization": "Bearer sk-1"}}, 401, "invalid_api_key", ""},
		{"basic", call{method: "GET", path: anyBatch, header: map[string]string{"Authorization": "Basic aGY6"}}, 401, "invalid_api_key", ""},
		{"submit reads nothing", call{method: "GET", path: anyBatch, as: "acme submit"}, 403, "insufficient_permissions", ""},
		{"submit lists nothing", call{method: "GET", path: "/v1/batches", as: "acme submit"}, 403, "insufficient_permissions", ""},
		{"read creates nothing", call{method: "POST", path: "/v1/batches", as: "acme read"}, 403, "insufficient_permissions", ""},
		{"read uploads nothing", call{method: "POST", path: "/v1/files", as: "acme read"}, 403, "insufficient_permissions", ""},
		{"admin lends neither", call{method: "GET", path: "/v1/batches", as: "acme admin"}, 403, "insufficient_permissions", ""},
		{"unknown path", get("/v1/engines"), 404, "unknown_url", ""},
		{"root", get("/"), 404, "unknown_url", ""},
		{"below a batch", get(anyBatch + "/nothing"), 404, "unknown_url", ""},
		{"closing slash", get("/v1/batches/"), 404, "unknown_url", ""},
		{"double slash", get("/v1//batches"), 404, "unknown_url", ""},
		{"dots", get("/v1/files/../batches"), 404, "unknown_url", ""},
		{"method of a batch", call{method: "DELETE", path: anyBatch, as: "acme both"}, 405, "method_not_allowed", ""},
		{"method of files", call{method: "PUT", path: "/v1/files", as: "acme both"}, 405, "method_not_allowed", ""},
		{"method nobody knows", call{method: "BREW", path: "/v1/batches", as: "acme both"}, 405, "method_not_allowed", ""},
		{"unknown batch", get(anyBatch), 404, "batch_not_found", "batch_id"},
		{"no batch id", get("/v1/batches/x"), 404, "batch_not_found", "batch_id"},
		{"encoded slash", get("/v1/batches/a%2Fb"), 404, "batch_not_found", "batch_id"},
		{"NUL", get("/v1/batches/a%00b"), 404, "batch_not_found", "batch_id"},
		{"huge id", get("/v1/files/file-" + strings.Repeat("a", 5000)), 404, "file_not_found", "file_id"},
		{"no file id", get("/v1/files/x"), 404, "file_not_found", "file_id"},
		{"control characters", get("/v1/files/file-a%0d%0aX:1/content"), 404, "file_not_found", "file_id"},
		{"limit 0", get("/v1/batches?limit=0"), 400, "invalid_limit", "limit"},
		{"limit 101", get("/v1/batches?limit=101"), 400, "invalid_limit", "limit"},
		{"limit of words", get("/v1/batches?limit=ten"), 400, "invalid_limit", "limit"},
		{"cursor of nobody", get("/v1/batches?after=batch_aaaaaaaaaaaaaaaaaaaaaaaaaa"), 400, "invalid_cursor", "after"},
		{"cursor that is a number", get("/v1/batches?after=20"), 400, "invalid_cursor", "after"},
		{"oldest first", get("/v1/batches?order=asc"), 400, "invalid_order", "order"},
		{"no body", post(""), 400, "invalid_json", ""},
		{"no JSON", post("{"), 400, "invalid_json", ""},
		{"an array", post("[]"), 400, "invalid_json", ""},
		{"null", post("null"), 400, "missing_required_parameter", "input_file_id"},
		{"nothing in it", post("{}"), 400, "missing_required_parameter", "input_file_id"},
		{"no endpoint", post(`{"input_file_id":"` + file + `"}`), 400, "missing_required_parameter", "endpoint"},
		{"no window", post(`{"input_file_id":"` + file + `","endpoint":"/v1/embeddings"}`), 400, "missing_required_parameter", "completion_window"},
		{"a number for a string", post(`{"input_file_id":7}`), 400, "invalid_type", "input_file_id"},
		{"endpoint", post(`{"input_file_id":"` + file + `","endpoint":"/v1/nothing","completion_window":"24h"}`), 400, "invalid_endpoint", "endpoint"},
		{"window", post(`{"input_file_id":"` + file + `","endpoint":"/v1/embeddings","completion_window":"3h"}`), 400, "invalid_completion_window", "completion_window"},
		{"metadata of numbers", with(`"metadata":{"a":1}`), 400, "invalid_metadata", "metadata"},
		{"metadata list", with(`"metadata":[]`), 400, "invalid_metadata", "metadata"},
		{"output expiry", with(`"output_expires_after":{"anchor":"created_at","seconds":1}`), 400, "invalid_expires_after", "output_expires_after"},
		{"unknown file", createCall("file-none"), 400, "file_not_found", "input_file_id"},
		{"a result as input", createCall("file-output"), 400, "invalid_purpose", "input_file_id"},
		{"too large", post(`{"x":"` + strings.Repeat("y", 1<<20) + `"}`), 413, "request_too_large", ""},
		{"deep", post(strings.Repeat(`{"a":`, 100_000)), 400, "invalid_json", ""},
		{"empty idempotency key", func() call {
			c := createCall(file)
			c.header = map[string]string{"Idempotency-Key": ""}
			return c
		}(), 400, "invalid_idempotency_key", "Idempotency-Key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			h.do(c.call).refused(c.status, c.code, c.param)
		})
	}
	if n := len(h.mem.Workflow.Executions()); n != 0 {
		t.Errorf("%d executions started by refused requests", n)
	}
}

func TestTwoAuthorizationHeaders(t *testing.T) {
	h := newHouse(t)
	r := httptest.NewRequest("GET", "/v1/batches", nil)
	r.Header["Authorization"] = []string{"Bearer " + h.key["acme both"], "Bearer " + h.key["acme both"]}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	answer{w, t}.refused(401, "invalid_api_key", "")
}

func TestAllowAndOptions(t *testing.T) {
	h := newHouse(t)
	for path, allow := range map[string]string{
		"/v1/files":            "GET, HEAD, OPTIONS, POST",
		"/v1/files/x":          "DELETE, GET, HEAD, OPTIONS",
		"/v1/models":           "GET, HEAD, OPTIONS",
		"/v1/models/a/b":       "GET, HEAD, OPTIONS",
		"/v1/files/x/content":  "GET, HEAD, OPTIONS",
		"/v1/batches":          "GET, HEAD, OPTIONS, POST",
		"/v1/batches/batch_xx": "GET, HEAD, OPTIONS",
	} {
		if got := h.do(call{method: "PATCH", path: path}).Header().Get("Allow"); got != allow {
			t.Errorf("405 of %s allows %q, want %q", path, got, allow)
		}
		a := h.do(call{method: "OPTIONS", path: path})
		if a.Code != http.StatusNoContent || a.Header().Get("Allow") != allow || a.Body.Len() != 0 {
			t.Errorf("OPTIONS %s: %d, %q", path, a.Code, a.Header().Get("Allow"))
		}
	}
	h.do(call{method: "OPTIONS", path: "/nothing"}).refused(404, "unknown_url", "")
	if calls := h.faults.Calls(); len(calls) != 0 {
		t.Errorf("%v", calls)
	}
}

func TestHead(t *testing.T) {
	h := newHouse(t)
	ts := httptest.NewServer(h.handler)
	defer ts.Close()
	for as, status := range map[string]int{"acme read": 200, "acme submit": 403} {
		req, _ := http.NewRequestWithContext(t.Context(), "HEAD", ts.URL+"/v1/batches", nil)
		req.Header.Set("Authorization", "Bearer "+h.key[as])
		resp, err := ts.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status || resp.ContentLength <= 0 {
			t.Errorf("%s: %d, length %d", as, resp.StatusCode, resp.ContentLength)
		}
	}
}

// No key, no entry: whatever is asked for, and however wrongly.
func TestNothingIsReadWithoutAKey(t *testing.T) {
	h := newHouse(t)
	for _, c := range []call{
		{method: "GET", path: anyBatch}, {method: "GET", path: "/v1/batches?limit=bad"}, {method: "POST", path: "/v1/batches", body: "{"},
		{method: "POST", path: "/v1/files", body: "x"}, {method: "GET", path: "/v1/files/x"}, {method: "GET", path: "/v1/files/x/content"},
		{method: "HEAD", path: "/v1/batches"},
	} {
		h.do(c).refused(401, "invalid_api_key", "")
	}
	if calls := h.faults.Calls(); len(calls) != 0 {
		t.Errorf("read before a key was shown: %v", calls)
	}
	r := httptest.NewRequest("POST", "/v1/files", unreadable{t})
	h.handler.ServeHTTP(httptest.NewRecorder(), r)
}

type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("read")
}

// Every port's trouble is a 503 that says when to come again, with the cause in
// the log and not in the answer.
func TestTroubleOfPorts(t *testing.T) {
	trouble := errors.New("throttled by shard 7")
	for _, c := range []struct {
		op   string
		call func(h *house) call
	}{
		{"Keys.Get", func(*house) call { return call{method: "GET", path: anyBatch, as: "acme read"} }},
		{"Files.Get", func(h *house) call { return call{method: "GET", path: "/v1/files/" + h.file(), as: "acme read"} }},
		{"Files.Get", func(h *house) call { return createCall(h.file()) }},
		{"Files.Put", func(*house) call { return upload(field{"file", "f", lines}, field{"purpose", "", "batch"}) }},
		{"Objects.Put", func(*house) call { return upload(field{"file", "f", lines}, field{"purpose", "", "batch"}) }},
		{"Batches.Create", func(h *house) call { return createCall(h.file()) }},
		{"Batches.Get", func(*house) call { return call{method: "GET", path: anyBatch, as: "acme read"} }},
		{"Batches.List", func(*house) call { return call{method: "GET", path: "/v1/batches", as: "acme read"} }},
		{"Files.List", func(*house) call { return call{method: "GET", path: "/v1/files", as: "acme read"} }},
		{"Batches.Reading", func(h *house) call { return deleteCall(h.file()) }},
		{"Objects.Delete", func(h *house) call { return deleteCall(h.file()) }},
		{"Files.Delete", func(h *house) call { return deleteCall(h.file()) }},
	} {
		t.Run(c.op, func(t *testing.T) {
			h := newHouse(t)
			request := c.call(h)
			h.faults = memory.NewFaults()
			h.faults.Before(c.op, 0, memory.Fail(trouble))
			h.build()
			a := h.do(request)
			a.refused(503, "service_unavailable", "")
			if a.Header().Get("Retry-After") != "1" {
				t.Errorf("retry-after %q", a.Header().Get("Retry-After"))
			}
			if strings.Contains(a.Body.String(), "shard") {
				t.Error("the cause is in the answer")
			}
			if !strings.Contains(h.log.String(), "shard 7") || !strings.Contains(h.log.String(), a.Header().Get("X-Request-Id")) {
				t.Errorf("the cause is not in the log: %s", &h.log)
			}
		})
	}
	t.Run("Presign", func(t *testing.T) {
		h := newHouse(t)
		h.links.err = trouble
		h.build()
		h.do(call{method: "GET", path: "/v1/files/" + h.file() + "/content", as: "acme read"}).refused(503, "service_unavailable", "")
	})
}

func TestPanicIsAnswered(t *testing.T) {
	h := newHouse(t)
	id := h.file()
	h.handler = server.New(server.Ports{Keys: nil}, h.settings, inputs, &server.Options{Log: slog.New(slog.NewJSONHandler(&h.log, nil))})
	h.do(call{method: "GET", path: "/v1/files/" + id, as: "acme read"}).refused(500, "server_error", "")
	if s := h.log.String(); !strings.Contains(s, "panic") || !strings.Contains(s, "server.go") && !strings.Contains(s, "server.(*Server)") {
		t.Errorf("log doesn't say where: %s", s)
	}
	if strings.Contains(h.log.String(), h.key["acme read"]) {
		t.Error("the key is in the log")
	}
}

func TestRequestID(t *testing.T) {
	h := newHouse(t)
	r := httptest.NewRequest("GET", "/v1/nothing", nil)
	r = r.WithContext(server.WithRequestID(r.Context(), "JKJaXmPLvHcESHA="))
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	if got := w.Header().Get("X-Request-Id"); got != "JKJaXmPLvHcESHA=" {
		t.Errorf("x-request-id %q is not the door's", got)
	}
	a, b := h.do(call{method: "GET", path: "/"}), h.do(call{method: "GET", path: "/"})
	if a.Header().Get("X-Request-Id") == b.Header().Get("X-Request-Id") {
		t.Error("two requests have one id")
	}
}

func TestIdempotencyKey(t *testing.T) {
	h := newHouse(t)
	id := h.file()
	keyed := func(as, key string) call {
		c := createCall(id)
		c.as, c.header = as, map[string]string{"Idempotency-Key": key}
		return c
	}
	var first, second, other wireBatch
	h.do(keyed("acme submit", "order 7")).ok(&first)
	h.now = h.now.Add(time.Hour)
	h.do(keyed("acme submit", "order 7")).ok(&second)
	h.do(keyed("acme submit", "order 8")).ok(&other)
	if first.ID != second.ID || first.ID == other.ID {
		t.Errorf("batches %s, %s, %s", first.ID, second.ID, other.ID)
	}
	// The id names an execution, and executions know no tenants.
	other = wireBatch{}
	c := createCall(h.fileOf("other both"))
	c.as, c.header = "other both", map[string]string{"Idempotency-Key": "order 7"}
	h.do(c).ok(&other)
	if other.ID == first.ID {
		t.Error("two tenants' keys give one id")
	}
	changed := keyed("acme submit", "order 7")
	changed.body = strings.Replace(changed.body, "24h", "1h", 1)
	a := h.do(changed)
	a.refused(400, "idempotency_conflict", "Idempotency-Key")
	if key, id := strings.Index(a.Body.String(), "order 7"), strings.LastIndex(a.Body.String(), first.ID); key < 0 || id < key {
		t.Errorf("doesn't name the key, and then the batch: %s", a.Body)
	}
}

// A batch that is recorded is answered, although its workflow didn't start: a
// client that is told to come again would make another one.
func TestWorkflowThatDoesNotStart(t *testing.T) {
	h := newHouse(t)
	id := h.file()
	h.faults = memory.NewFaults()
	h.faults.Before("Workflow.Start", 0, memory.Fail(errors.New("throttled")))
	h.build()
	var b wireBatch
	h.do(createCall(id)).ok(&b)
	if _, ok := h.mem.Table.Batch("acme", b.ID); !ok || b.Status != "validating" {
		t.Errorf("batch %+v", b)
	}
	if !strings.Contains(h.log.String(), "workflow not started") || !strings.Contains(h.log.String(), b.ID) {
		t.Errorf("log: %s", &h.log)
	}
}

// Nothing that a caller sends or stores gets into the log, whatever comes of it.
func TestLogHoldsNothingOfTheCallers(t *testing.T) {
	const planted = "PLANTED"
	h := newHouse(t)
	file := h.file()
	for _, c := range []call{
		upload(field{"file", planted, planted}, field{"purpose", "", "batch"}),
		upload(field{"file", planted, planted}, field{"purpose", "", planted}),
		upload(field{planted, "", planted}),
		{method: "POST", path: "/v1/batches", as: "acme submit", body: `{"` + planted},
		{method: "POST", path: "/v1/batches", as: "acme submit", body: `{"input_file_id":"` + planted + `","endpoint":"` + planted + `","completion_window":"24h"}`},
		{method: "POST", path: "/v1/batches", as: "acme submit", body: `{"input_file_id":"` + file + `","endpoint":"/v1/embeddings","completion_window":"24h","metadata":{"` + planted + `":"` + planted + `"}}`},
		{method: "GET", path: "/v1/batches?after=" + planted + "&limit=1", as: "acme read"},
		{method: "GET", path: "/v1/files/" + planted, as: "acme read"},
		{method: "GET", path: "/" + planted, as: "acme read"},
		{method: planted, path: "/v1/files", as: "acme read"},
		{method: "GET", path: anyBatch, header: map[string]string{"Authorization": "Bearer " + planted, "User-Agent": planted, "Cookie": planted}},
		{method: "GET", path: "/v1/files/" + file + "/content", as: "acme read"},
	} {
		h.do(c)
	}
	for _, secret := range append(slices.Collect(maps.Values(h.key)), planted, "objects.example") {
		if strings.Contains(strings.ToLower(h.log.String()), strings.ToLower(secret)) {
			t.Errorf("the log holds %q", secret)
		}
	}
	if n := strings.Count(h.log.String(), `"msg":"request"`); n != 13 {
		t.Errorf("%d log lines for 13 requests", n)
	}
}
