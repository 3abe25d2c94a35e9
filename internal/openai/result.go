package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The codes of a line that has no reply, or one that can't be used.
const (
	CodeBatchExpired        = "batch_expired"
	CodeBatchCancelled      = "batch_cancelled"
	CodeBatchFailed         = "batch_failed"
	CodePartDead            = "part_dead"
	CodeLineCrashedWorker   = "line_crashed_worker"
	CodeRequestTimeout      = "request_timeout"
	CodeUpstreamUnreachable = "upstream_unreachable"
	CodeResponseTooLarge    = "response_too_large"
	CodeInvalidResponse     = "invalid_response"
	CodeModelNotFound       = "model_not_found"
	CodeUpstreamDenied      = "upstream_denied"
	CodeUpstreamRedirected  = "upstream_redirected"
)

// Unsent reports whether a line with this code was given up without a request that
// brought a result: no worker made a record of it, and it has no receipt.
func Unsent(code string) bool {
	switch code {
	case CodeBatchExpired, CodeBatchCancelled, CodeBatchFailed, CodePartDead:
		return true
	}
	return false
}

var failureMessages = map[string]string{
	CodeBatchExpired:        "This request could not be executed before the completion window expired.",
	CodeBatchCancelled:      "This request was not executed because the batch was cancelled.",
	CodeBatchFailed:         "This request was not executed because the batch failed.",
	CodePartDead:            "This request was not executed because its part of the batch failed repeatedly.",
	CodeLineCrashedWorker:   "This request was given up because the worker crashed repeatedly while only this request was being processed.",
	CodeRequestTimeout:      "The model did not answer this request in time.",
	CodeUpstreamUnreachable: "The model could not be reached for this request.",
	CodeResponseTooLarge:    "The model's reply to this request exceeds the size limit.",
	CodeInvalidResponse:     "The model's reply to this request is not valid JSON; it is kept in response.body as a string.",
	CodeModelNotFound:       "No configured upstream serves the model that this request names.",
	CodeUpstreamDenied:      deniedMessage,
	CodeUpstreamRedirected:  redirectedMessage,
}

// LineFailure says why a line has no usable reply.
type LineFailure struct {
	Code    string
	Message string
}

// Failure is the LineFailure of a Code constant above, with its fixed message.
func Failure(code string) *LineFailure {
	return &LineFailure{Code: code, Message: failureMessages[code]}
}

// Response is a model's reply. Body is what it sent, unaltered, whatever it is.
type Response struct {
	StatusCode int
	RequestID  string // of the model; the line's own id is written when it is empty
	Body       []byte
}

// ResultLine is one line of an output or error file.
type ResultLine struct {
	ID          string       // see RequestResultID
	RawCustomID []byte       // the JSON string as the input has it
	Response    *Response    // nil when there was no reply
	Error       *LineFailure // nil when there was one and it is JSON, whatever its status
}

// Reply is the result of a line that the model answered. The error is
// invalid_response if the status is 2xx and the body is no JSON, otherwise null: a
// refusal by the model is told by its status.
func Reply(id string, rawCustomID []byte, response Response) ResultLine {
	l := ResultLine{ID: id, RawCustomID: rawCustomID, Response: &response}
	if success(response.StatusCode) && !ValidJSON(response.Body) {
		l.Error = Failure(CodeInvalidResponse)
	}
	return l
}

// NoReply is the result of a line without a reply, for the reason of code, one of
// the Code constants.
func NoReply(id string, rawCustomID []byte, code string) ResultLine {
	return ResultLine{ID: id, RawCustomID: rawCustomID, Error: Failure(code)}
}

// Withheld is the result of a line whose answer had this status and is kept from the
// person, for the reason of code, CodeUpstreamDenied or CodeUpstreamRedirected. Its body
// is the error that the gateway answers with in such a case. One of 2xx is no success,
// and has the code in its error, too.
func Withheld(id string, rawCustomID []byte, status int, requestID, code string) ResultLine {
	body := `{"error":{"message":"` + failureMessages[code] + `","type":"server_error","param":null,"code":"` + code + `"}}`
	l := Reply(id, rawCustomID, Response{StatusCode: status, RequestID: requestID, Body: []byte(body)})
	if l.OK() {
		l.Error = Failure(code)
	}
	return l
}

// OK reports whether the line belongs to the output file; all others belong to the
// error file.
func (l ResultLine) OK() bool {
	return l.Error == nil && l.Response != nil && success(l.Response.StatusCode)
}

func success(status int) bool { return status >= 200 && status < 300 }

// Append appends the line to dst, with its newline, which is the only one in it.
// RawCustomID is copied byte for byte. A JSON body is copied without the white space
// between its tokens: numbers, key order and the spelling of strings stay. Any other
// body is written as a string, the empty one included; only there is invalid UTF-8
// replaced, by U+FFFD.
func (l ResultLine) Append(dst []byte) []byte {
	dst, _, _ = l.AppendKept(dst)
	return dst
}

// AppendKept is Append, and says where the body lies in what it returns, as it is
// kept: bytes from to to. They are none where there is no response.
func (l ResultLine) AppendKept(dst []byte) (line []byte, from, to int) {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, l.ID)
	dst = append(dst, `,"custom_id":`...)
	dst = append(dst, l.RawCustomID...)
	dst = append(dst, `,"response":`...)
	if r := l.Response; r == nil {
		dst = append(dst, "null"...)
	} else {
		requestID := r.RequestID
		if requestID == "" {
			requestID = l.ID
		}
		dst = append(dst, `{"status_code":`...)
		dst = strconv.AppendInt(dst, int64(r.StatusCode), 10)
		dst = append(dst, `,"request_id":`...)
		dst = appendString(dst, requestID)
		dst = append(dst, `,"body":`...)
		from = len(dst)
		dst = appendBody(dst, r.Body)
		to = len(dst)
		dst = append(dst, '}')
	}
	dst = append(dst, `,"error":`...)
	if e := l.Error; e == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, `{"code":`...)
		dst = appendString(dst, e.Code)
		dst = append(dst, `,"message":`...)
		dst = appendString(dst, e.Message)
		dst = append(dst, '}')
	}
	return append(dst, '}', '\n'), from, to
}

func appendBody(dst, body []byte) []byte {
	start := len(dst)
	if utf8.Valid(body) {
		out, err := jsontext.AppendFormat(dst, body, compactOptions...)
		if err == nil {
			return out
		}
		dst = out[:start]
	}
	return appendString(dst, string(body))
}

// appendString quotes s, replacing what is not UTF-8.
func appendString(dst []byte, s string) []byte {
	// The replacement is the only thing that can fail, and it is done first.
	dst, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\ufffd"))
	return dst
}

// A reply is the model's: duplicate names and lone surrogates are passed on.
var (
	replyOptions   = parserOptions
	compactOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true)}
)

// ValidJSON reports whether body is one JSON value in valid UTF-8.
func ValidJSON(body []byte) bool {
	return utf8.Valid(body) && jsontext.Value(body).IsValid(replyOptions...)
}

// RequestResultID is the id of the result of a batch's line (its physical number,
// from 1): the same for every run, so that a repeated line keeps its id.
func RequestResultID(batchID string, line int) string {
	var scratch [96]byte
	key := append(scratch[:0], batchID...)
	key = append(key, '\n')
	key = strconv.AppendInt(key, int64(line), 10)
	sum := sha256.Sum256(key)
	return "batch_req_" + hex.EncodeToString(sum[:16])
}
