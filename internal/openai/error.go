package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The types of an error body.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeRateLimit      = "rate_limit_error"
	TypeServer         = "server_error"
)

// internalMessage is all that a caller learns of a fault that is ours.
const internalMessage = "The server had an error while processing your request. Please retry; if it persists, report the x-request-id of this answer."

// Error is a refusal as the contract words it. Make one with a constructor; the
// zero value is written as a 500.
type Error struct {
	Status  int    // HTTP status
	Type    string // one of the Type constants
	Code    string // machine-readable; null on the wire when empty
	Message string // what was wrong and what to do about it
	Param   string // the parameter at fault; null on the wire when empty

	// RetryAfter asks the client to wait. It is sent rounded up to whole seconds,
	// and in milliseconds too. Zero sends neither header.
	RetryAfter time.Duration
	// Allow lists the methods that a 405 names.
	Allow []string
	// Err is the cause, for the log. It is never written to a client.
	Err error
}

// Error describes the refusal for a log, with its cause.
func (e *Error) Error() string {
	s := fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether sending the same request again can help. Official
// clients repeat a 409 and a 429 by themselves, so the answer is said aloud
// in x-should-retry wherever it is no.
func (e *Error) Retryable() bool {
	wait := e.Status == http.StatusConflict && e.RetryAfter > 0 // for somebody else, who will be done
	return wait || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests || e.Status < 400 || e.Status >= 500
}

// WriteError answers with err's status, headers and body. An err that neither is
// nor wraps an [*Error] is answered as a 500 with a fixed message: its text may
// hold what is nobody's business, so log it before.
func WriteError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e == nil || e.Status < 400 {
		e = Internal(err)
	}
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	out, merr := json.Marshal(map[string]body{"error": {e.Message, e.Type, orNull(e.Param), orNull(e.Code)}})
	if merr != nil { // strings only: cannot happen, and must not panic if it does
		out = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	out = append(out, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(out)))
	if !e.Retryable() {
		h.Set("X-Should-Retry", "false")
	} else if e.Status == http.StatusConflict {
		h.Set("X-Should-Retry", "true")
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(int64((e.RetryAfter+time.Millisecond-1)/time.Millisecond), 10))
	}
	if len(e.Allow) > 0 {
		h.Set("Allow", strings.Join(e.Allow, ", "))
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(out) // the client is gone: nobody is left to be told
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Invalid is a 400 for a parameter that is there but wrong.
func Invalid(code, param, format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, code, param, format, args...)
}

func refuse(status int, code, param, format string, args ...any) *Error {
	return &Error{Status: status, Type: TypeInvalidRequest, Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

// clip quotes a caller's value for a message, cut to a readable length.
func clip[T ~string | ~[]byte](v T) string {
	const most = 80
	s := string(v[:min(len(v), 4*most)])
	if r := []rune(s); len(r) > most || len(s) < len(v) {
		return strconv.Quote(string(r[:min(len(r), most)])) + "…"
	}
	return strconv.Quote(s)
}

// MissingParameter is the 400 for a required parameter that is absent, null or
// empty.
func MissingParameter(param string) *Error {
	return Invalid("missing_required_parameter", param, "Missing required parameter: '%s'.", param)
}

// DuplicateParameter is the 400 for a parameter that was sent twice.
func DuplicateParameter(param string) *Error {
	return Invalid("duplicate_parameter", param, "The parameter '%s' was sent more than once; send it once.", param)
}

// InvalidType is the 400 for a parameter of the wrong JSON type.
func InvalidType(param, want string) *Error {
	return Invalid("invalid_type", param, "Invalid type for '%s': expected %s.", param, want)
}

// InvalidJSON is the 400 for a request body that isn't the JSON it should be.
func InvalidJSON(reason string) *Error {
	return Invalid("invalid_json", "", "The request body is not valid JSON: %s.", reason)
}

// InvalidMultipart is the 400 for a form that can't be read, or not to its end.
func InvalidMultipart(reason string, cause error) *Error {
	e := Invalid("invalid_multipart", "", "The multipart/form-data body can't be read: %s.", reason)
	e.Err = cause
	return e
}

// InvalidPurpose is the 400 for a file purpose other than batch.
func InvalidPurpose(purpose string) *Error {
	return Invalid("invalid_purpose", "purpose", "Invalid purpose %s: only 'batch' is supported.", clip(purpose))
}

// InvalidInputPurpose is the 400 for a batch over a file that is no batch input.
func InvalidInputPurpose(id, purpose string) *Error {
	return Invalid("invalid_purpose", "input_file_id", "The file %s has the purpose %s; upload the input with the purpose 'batch'.", clip(id), clip(purpose))
}

// InvalidEndpoint is the 400 for an endpoint that is not on the allow-list.
func InvalidEndpoint(endpoint string, allowed []string) *Error {
	return Invalid("invalid_endpoint", "endpoint", "Invalid endpoint %s: supported are %s.", clip(endpoint), strings.Join(allowed, ", "))
}

// InvalidCompletionWindow is the 400 for a window that is not on the allow-list.
func InvalidCompletionWindow(window string, allowed []string) *Error {
	return Invalid("invalid_completion_window", "completion_window", "Invalid completion_window %s: supported are %s.", clip(window), strings.Join(allowed, ", "))
}

// InvalidMetadata is the 400 for metadata outside its bounds.
func InvalidMetadata(reason string) *Error {
	return Invalid("invalid_metadata", "metadata", "Invalid metadata: %s.", reason)
}

// InvalidCursor is the 400 for an after that names nothing of the caller's.
func InvalidCursor(after string) *Error {
	return Invalid("invalid_cursor", "after", "Unknown cursor %s: 'after' must be the id of an object of this list.", clip(after))
}

// InvalidExpiresAfter is the 400 for an expiry policy outside its bounds. param is
// expires_after or output_expires_after, or one of its members.
func InvalidExpiresAfter(param, reason string) *Error {
	return Invalid("invalid_expires_after", param, "Invalid '%s': %s.", param, reason)
}

// FileInUse is the 400 for deleting a file that the live batch reads or writes.
// It is no 409, because official clients repeat those.
func FileInUse(id, batch string) *Error {
	return Invalid("file_in_use", "file_id", "The file %s belongs to the batch %s, which is not over yet; cancel it or wait for it to end.", clip(id), clip(batch))
}

// IdempotencyConflict is the 400 for an Idempotency-Key that stands for another
// request already: that of the batch, whose id the client may look at.
func IdempotencyConflict(key, batch string) *Error {
	return Invalid("idempotency_conflict", IdempotencyKey, "The Idempotency-Key %s was used with a different request (the submitter counts, too) and stands for %s; use a new key for a new request.", clip(key), batch)
}

// IdempotencyInProgress is the 409 for a request whose Idempotency-Key is being
// worked on by another copy of it. It is the one 409 to send again: after is when.
func IdempotencyInProgress(key string, after time.Duration, cause error) *Error {
	e := refuse(http.StatusConflict, "idempotency_in_progress", "Idempotency-Key",
		"A request with the Idempotency-Key %s is still in progress; send this one again after the time in the retry-after header.", clip(key))
	e.RetryAfter, e.Err = max(after, time.Millisecond), cause
	return e
}

// InputFileNotFound is the 400 for creating a batch over an unknown file.
func InputFileNotFound(id string) *Error {
	return Invalid("file_not_found", "input_file_id", "No such file: %s. Upload it with POST /v1/files and the purpose 'batch'.", clip(id))
}

// InvalidAPIKey is the 401 for a missing, unknown, expired or disabled key, which
// are not told apart.
func InvalidAPIKey() *Error {
	return refuse(http.StatusUnauthorized, "invalid_api_key", "", "Incorrect or missing API key. Send it as 'Authorization: Bearer <key>'.")
}

// InsufficientScope is the 403 for a key that may not do this.
func InsufficientScope(scope string) *Error {
	return refuse(http.StatusForbidden, "insufficient_permissions", "", "This API key lacks the scope '%s'.", scope)
}

// FileNotFound is the 404 for a file that is unknown, expired or another
// tenant's, which are not told apart.
func FileNotFound(id string) *Error {
	return refuse(http.StatusNotFound, "file_not_found", "file_id", "No such file: %s.", clip(id))
}

// BatchNotFound is the 404 for a batch that is unknown or another tenant's.
func BatchNotFound(id string) *Error {
	return refuse(http.StatusNotFound, "batch_not_found", "batch_id", "No such batch: %s.", clip(id))
}

// ReceiptsNotReady is the 404 for the receipts of a batch that is not over.
func ReceiptsNotReady(id, status string) *Error {
	return refuse(http.StatusNotFound, "receipts_not_ready", "batch_id", "Batch %s is %s; its receipts are there once it has ended.", clip(id), status)
}

// ReceiptsNotFound is the 404 for the receipts of a batch that has none.
func ReceiptsNotFound(id string) *Error {
	return refuse(http.StatusNotFound, "receipts_not_found", "batch_id", "Batch %s has no receipts: no line of it was sent, or it is older than receipts are kept.", clip(id))
}

// UploadNotFound is the 404 for an upload that is unknown or another tenant's.
func UploadNotFound(id string) *Error {
	return refuse(http.StatusNotFound, "upload_not_found", "upload_id", "No such upload: %s.", clip(id))
}

// UnknownURL is the 404 for a path that is not part of this API; elsewhere, if it isn't
// "", is a sentence that says whose it is.
func UnknownURL(method, path, elsewhere string) *Error {
	if elsewhere != "" {
		elsewhere = " " + elsewhere
	}
	return refuse(http.StatusNotFound, "unknown_url", "", "Unknown request URL: %s %s.%s", clip(method), clip(path), elsewhere)
}

// MethodNotAllowed is the 405 for a path that has other methods.
func MethodNotAllowed(method string, allow ...string) *Error {
	e := refuse(http.StatusMethodNotAllowed, "method_not_allowed", "", "The method %s is not allowed here; use %s.", clip(method), strings.Join(allow, " or "))
	e.Allow = allow
	return e
}

// FileTooLarge is the 413 for a file above the limit of bytes, by any way.
func FileTooLarge(limit int64) *Error {
	return refuse(http.StatusRequestEntityTooLarge, "file_too_large", "file", "The file is larger than the limit of %d bytes; split it into several batches.", limit)
}

// FileTooLargeForDirectUpload is the 413 for a file that must be uploaded in parts
// because a multipart request can carry only limit bytes.
func FileTooLargeForDirectUpload(limit int64) *Error {
	return refuse(http.StatusRequestEntityTooLarge, "file_too_large_for_direct_upload", "file",
		"The file is larger than the %d bytes that POST /v1/files can take; send it in parts with POST /v1/uploads.", limit)
}

// RequestTooLarge is the 413 for a JSON body above limit bytes.
func RequestTooLarge(limit int64) *Error {
	return refuse(http.StatusRequestEntityTooLarge, "request_too_large", "", "The request body is larger than the limit of %d bytes.", limit)
}

// RateLimited is the 429 for too many requests; after is when to come again.
func RateLimited(after time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Type: TypeRateLimit, Code: "rate_limit_exceeded", RetryAfter: after,
		Message: "Too many requests; slow down and retry after the time in the retry-after header."}
}

// EnqueuedLimit is the 429 for a tenant with too much work waiting.
func EnqueuedLimit(limit int, after time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Type: TypeRateLimit, Code: "enqueued_limit_exceeded", RetryAfter: after,
		Message: fmt.Sprintf("The limit of %d enqueued requests is reached; retry when running batches have ended.", limit)}
}

// RunningLimit is EnqueuedLimit for a tenant with as many batches running as it may
// have.
func RunningLimit(limit int, after time.Duration) *Error {
	e := EnqueuedLimit(limit, after)
	e.Message = fmt.Sprintf("The limit of %d running batches is reached; retry when one of them has ended.", limit)
	return e
}

// Unavailable is the 503 for a fault that will pass; cause is for the log.
func Unavailable(after time.Duration, cause error) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: TypeServer, Code: "service_unavailable", RetryAfter: after, Err: cause,
		Message: "The service is temporarily unavailable; please retry."}
}

// Internal is the 500 for a fault of ours; cause is for the log.
func Internal(cause error) *Error {
	return &Error{Status: http.StatusInternalServerError, Type: TypeServer, Code: "server_error", Message: internalMessage, Err: cause}
}
