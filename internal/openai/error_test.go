package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// checkRefusal checks an error's kind; code "" expects none.
func checkRefusal(t *testing.T, what string, err error, status int, code, param string) {
	t.Helper()
	if code == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != status || e.Code != code || e.Param != param || e.Message == "" {
		t.Errorf("%s: got %v (%+v), want %d %s of %q", what, err, e, status, code, param)
	}
}

func TestWriteError(t *testing.T) {
	secret := errors.New("dynamodb: table holdfast-secret: access denied")
	tests := []struct {
		err                   error
		status                int
		kind, code, param     string
		noRetry               bool
		after, afterMs, allow string
	}{
		{MissingParameter("purpose"), 400, TypeInvalidRequest, "missing_required_parameter", "purpose", true, "", "", ""},
		{DuplicateParameter("file"), 400, TypeInvalidRequest, "duplicate_parameter", "file", true, "", "", ""},
		{InvalidType("endpoint", "a string"), 400, TypeInvalidRequest, "invalid_type", "endpoint", true, "", "", ""},
		{InvalidJSON("x"), 400, TypeInvalidRequest, "invalid_json", "", true, "", "", ""},
		{InvalidMultipart("x", secret), 400, TypeInvalidRequest, "invalid_multipart", "", true, "", "", ""},
		{InvalidPurpose("fine-tune"), 400, TypeInvalidRequest, "invalid_purpose", "purpose", true, "", "", ""},
		{InvalidInputPurpose("file-1", "batch_output"), 400, TypeInvalidRequest, "invalid_purpose", "input_file_id", true, "", "", ""},
		{InvalidEndpoint("/v1/x", []string{"/v1/y"}), 400, TypeInvalidRequest, "invalid_endpoint", "endpoint", true, "", "", ""},
		{InvalidCompletionWindow("7d", []string{"24h"}), 400, TypeInvalidRequest, "invalid_completion_window", "completion_window", true, "", "", ""},
		{InvalidMetadata("x"), 400, TypeInvalidRequest, "invalid_metadata", "metadata", true, "", "", ""},
		{InvalidCursor("x"), 400, TypeInvalidRequest, "invalid_cursor", "after", true, "", "", ""},
		{InvalidExpiresAfter("expires_after", "x"), 400, TypeInvalidRequest, "invalid_expires_after", "expires_after", true, "", "", ""},
		{FileInUse("file-1", "batch_1"), 400, TypeInvalidRequest, "file_in_use", "file_id", true, "", "", ""},
		{IdempotencyConflict("k", "batch_1"), 400, TypeInvalidRequest, "idempotency_conflict", "Idempotency-Key", true, "", "", ""},
		{InputFileNotFound("file-1"), 400, TypeInvalidRequest, "file_not_found", "input_file_id", true, "", "", ""},
		{InvalidAPIKey(), 401, TypeInvalidRequest, "invalid_api_key", "", true, "", "", ""},
		{InsufficientScope("submit"), 403, TypeInvalidRequest, "insufficient_permissions", "", true, "", "", ""},
		{FileNotFound("file-1"), 404, TypeInvalidRequest, "file_not_found", "file_id", true, "", "", ""},
		{BatchNotFound("batch_1"), 404, TypeInvalidRequest, "batch_not_found", "batch_id", true, "", "", ""},
		{UploadNotFound("upload_1"), 404, TypeInvalidRequest, "upload_not_found", "upload_id", true, "", "", ""},
		{UnknownURL("GET", "/v2", ""), 404, TypeInvalidRequest, "unknown_url", "", true, "", "", ""},
		{MethodNotAllowed("PUT", "GET", "POST"), 405, TypeInvalidRequest, "method_not_allowed", "", true, "", "", "GET, POST"},
		{FileTooLarge(5), 413, TypeInvalidRequest, "file_too_large", "file", true, "", "", ""},
		{FileTooLargeForDirectUpload(5), 413, TypeInvalidRequest, "file_too_large_for_direct_upload", "file", true, "", "", ""},
		{RequestTooLarge(5), 413, TypeInvalidRequest, "request_too_large", "", true, "", "", ""},
		{RateLimited(1500 * time.Millisecond), 429, TypeRateLimit, "rate_limit_exceeded", "", false, "2", "1500", ""},
		{EnqueuedLimit(10, time.Minute), 429, TypeRateLimit, "enqueued_limit_exceeded", "", false, "60", "60000", ""},
		{Unavailable(50*time.Millisecond, secret), 503, TypeServer, "service_unavailable", "", false, "1", "50", ""},
		{Internal(secret), 500, TypeServer, "server_error", "", false, "", "", ""},
		{secret, 500, TypeServer, "server_error", "", false, "", "", ""},
		{nil, 500, TypeServer, "server_error", "", false, "", "", ""},
		{(*Error)(nil), 500, TypeServer, "server_error", "", false, "", "", ""},
		{&Error{}, 500, TypeServer, "server_error", "", false, "", "", ""},
		{fmt.Errorf("create: %w", BatchNotFound("b")), 404, TypeInvalidRequest, "batch_not_found", "batch_id", true, "", "", ""},
		{Invalid("c", "p", "%s", "\xff<\n"), 400, TypeInvalidRequest, "c", "p", true, "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.code+" "+tt.param, func(t *testing.T) {
			w := httptest.NewRecorder()
			WriteError(w, tt.err)
			var body map[string]map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			e := body["error"]
			orNil := func(s string) any {
				if s == "" {
					return nil
				}
				return s
			}
			message, _ := e["message"].(string)
			if w.Code != tt.status || len(body) != 1 || len(e) != 4 || e["type"] != tt.kind || e["code"] != orNil(tt.code) || e["param"] != orNil(tt.param) || message == "" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the cause leaked: %s", w.Body)
			}
			h := w.Header()
			if got := h.Get("X-Should-Retry"); (got == "false") != tt.noRetry || got != "" && got != "false" {
				t.Errorf("x-should-retry is %q", got)
			}
			if h.Get("Retry-After") != tt.after || h.Get("Retry-After-Ms") != tt.afterMs || h.Get("Allow") != tt.allow || h.Get("Content-Type") != "application/json" {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func TestIdempotencyConflictSaysWhatCounts(t *testing.T) {
	const want = `The Idempotency-Key "k" was used with a different request (the submitter counts, too) and stands for batch_1; use a new key for a new request.`
	if got := IdempotencyConflict("k", "batch_1").Message; got != want {
		t.Errorf("%s", got)
	}
}

func TestErrorKeepsItsCauseForTheLog(t *testing.T) {
	cause := errors.New("cause")
	err := Unavailable(0, cause)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "cause") {
		t.Errorf("got %v", err)
	}
}

func TestParseCreateBatch(t *testing.T) {
	allow := Allow{Endpoints: []string{"/v1/chat/completions", "/v1/embeddings"}, Windows: []string{"24h", "1h"}}
	with := func(more string) string {
		return `{"input_file_id":"file-1","endpoint":"/v1/embeddings","completion_window":"24h"` + more + `}`
	}
	pairs := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":"v"`, i)
		}
		return `,"metadata":{` + strings.TrimPrefix(b.String(), ",") + `}`
	}
	tests := []struct {
		name, body  string
		code, param string
	}{
		{"least", with(``), "", ""},
		{"unknown fields", with(`,"x":{"y":[1]},"prompt":null`), "", ""},
		{"optional null", with(`,"metadata":null,"output_expires_after":null`), "", ""},
		{"metadata empty", with(`,"metadata":{}`), "", ""},
		{"16 pairs", with(pairs(16)), "", ""},
		{"longest key and value", with(`,"metadata":{"` + strings.Repeat("é", 64) + `":"` + strings.Repeat("😀", 512) + `"}`), "", ""},
		{"shortest expiry", with(`,"output_expires_after":{"anchor":"created_at","seconds":3600}`), "", ""},
		{"longest expiry", with(`,"output_expires_after":{"seconds":2592000,"anchor":"created_at","x":1}`), "", ""},

		{"nothing", ``, "invalid_json", ""},
		{"not JSON", `{"input_file_id":`, "invalid_json", ""},
		{"an array", `[]`, "invalid_json", ""},
		{"a field twice", with(`,"endpoint":"/v1/embeddings"`), "invalid_json", ""},
		{"trailing data", with(``) + `{}`, "invalid_json", ""},
		{"invalid UTF-8", with(",\"x\":\"\xff\""), "invalid_json", ""},
		{"no file", `{"endpoint":"/v1/embeddings","completion_window":"24h"}`, "missing_required_parameter", "input_file_id"},
		{"file null", `{"input_file_id":null,"endpoint":"/v1/embeddings","completion_window":"24h"}`, "missing_required_parameter", "input_file_id"},
		{"file empty", `{"input_file_id":"","endpoint":"/v1/embeddings","completion_window":"24h"}`, "missing_required_parameter", "input_file_id"},
		{"file a number", `{"input_file_id":1,"endpoint":"/v1/embeddings","completion_window":"24h"}`, "invalid_type", "input_file_id"},
		{"no endpoint", `{"input_file_id":"file-1","completion_window":"24h"}`, "missing_required_parameter", "endpoint"},
		{"null", `null`, "missing_required_parameter", "input_file_id"},
		{"no window", `{"input_file_id":"file-1","endpoint":"/v1/embeddings"}`, "missing_required_parameter", "completion_window"},
		{"window a number", `{"input_file_id":"file-1","endpoint":"/v1/embeddings","completion_window":24}`, "invalid_type", "completion_window"},
		{"unknown endpoint", `{"input_file_id":"file-1","endpoint":"/v1/videos","completion_window":"24h"}`, "invalid_endpoint", "endpoint"},
		{"unknown window", `{"input_file_id":"file-1","endpoint":"/v1/embeddings","completion_window":"7d"}`, "invalid_completion_window", "completion_window"},
		{"metadata with an empty key", with(`,"metadata":{"":"a"}`), "invalid_metadata", "metadata"},
		{"metadata a string", with(`,"metadata":"a"`), "invalid_metadata", "metadata"},
		{"metadata an array", with(`,"metadata":[]`), "invalid_metadata", "metadata"},
		{"metadata of numbers", with(`,"metadata":{"a":1}`), "invalid_metadata", "metadata"},
		{"metadata of null", with(`,"metadata":{"a":null}`), "invalid_metadata", "metadata"},
		{"half a surrogate pair as value", with(`,"metadata":{"a":"\ud800"}`), "invalid_json", ""},
		{"half a surrogate pair as key", with(`,"metadata":{"\udfff":"a"}`), "invalid_json", ""},
		{"17 pairs", with(pairs(17)), "invalid_metadata", "metadata"},
		{"key of 65", with(`,"metadata":{"` + strings.Repeat("é", 65) + `":""}`), "invalid_metadata", "metadata"},
		{"value of 513", with(`,"metadata":{"a":"` + strings.Repeat("é", 513) + `"}`), "invalid_metadata", "metadata"},
		{"expiry a number", with(`,"output_expires_after":3600`), "invalid_expires_after", "output_expires_after"},
		{"expiry without anchor", with(`,"output_expires_after":{"seconds":3600}`), "invalid_expires_after", "output_expires_after"},
		{"another anchor", with(`,"output_expires_after":{"anchor":"completed_at","seconds":3600}`), "invalid_expires_after", "output_expires_after"},
		{"expiry without seconds", with(`,"output_expires_after":{"anchor":"created_at"}`), "invalid_expires_after", "output_expires_after"},
		{"too short", with(`,"output_expires_after":{"anchor":"created_at","seconds":3599}`), "invalid_expires_after", "output_expires_after"},
		{"too long", with(`,"output_expires_after":{"anchor":"created_at","seconds":2592001}`), "invalid_expires_after", "output_expires_after"},
		{"seconds a string", with(`,"output_expires_after":{"anchor":"created_at","seconds":"3600"}`), "invalid_expires_after", "output_expires_after"},
		{"seconds a fraction", with(`,"output_expires_after":{"anchor":"created_at","seconds":3600.5}`), "invalid_expires_after", "output_expires_after"},
		{"deep", with(`,"x":` + strings.Repeat("[", 100_000)), "invalid_json", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseCreateBatch(strings.NewReader(tt.body), allow)
			checkRefusal(t, tt.name, err, 400, tt.code, tt.param)
			if err == nil && (c.InputFileID != "file-1" || c.Endpoint != "/v1/embeddings" || c.CompletionWindow != "24h") {
				t.Errorf("got %+v", c)
			}
		})
	}
	c, err := ParseCreateBatch(strings.NewReader(with(`,"metadata":{"a":"\u0062"},"output_expires_after":{"anchor":"created_at","seconds":7200}`)), allow)
	if err != nil || c.Metadata["a"] != "b" || *c.OutputExpiresAfter != (ExpiresAfter{"created_at", 7200}) {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = ParseCreateBatch(strings.NewReader(with(``)), allow)
	if err != nil || c.Metadata != nil || c.OutputExpiresAfter != nil {
		t.Errorf("got %+v, %v", c, err)
	}
	_, err = ParseCreateBatch(strings.NewReader(with(`,"x":"`+strings.Repeat("x", 1<<20)+`"`)), allow)
	checkRefusal(t, "too large", err, 413, "request_too_large", "")
	_, err = ParseCreateBatch(iotest.ErrReader(errors.New("reset")), allow)
	checkRefusal(t, "torn", err, 400, "invalid_json", "")
}

// One 409 is worth sending again, and says so: official clients are told no by
// every other.
func TestConflictThatPasses(t *testing.T) {
	w := httptest.NewRecorder()
	WriteError(w, fmt.Errorf("create: %w", IdempotencyInProgress("k", 1500*time.Millisecond, errors.New("secret"))))
	h := w.Header()
	if w.Code != 409 || h.Get("X-Should-Retry") != "true" || h.Get("Retry-After") != "2" || h.Get("Retry-After-Ms") != "1500" {
		t.Errorf("%d %v", w.Code, h)
	}
	for _, part := range []string{`"type":"invalid_request_error"`, `"code":"idempotency_in_progress"`, `"param":"Idempotency-Key"`} {
		if !strings.Contains(w.Body.String(), part) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s lacks %s", w.Body, part)
		}
	}
	if !IdempotencyInProgress("k", 0, nil).Retryable() || IdempotencyConflict("k", "batch_1").Retryable() || (&Error{Status: 409}).Retryable() {
		t.Error("the wrong ones are worth a retry")
	}
}
