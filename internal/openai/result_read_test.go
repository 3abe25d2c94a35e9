package openai

import (
	"errors"
	"strings"
	"testing"
)

// What Append writes is read back, the body as it is kept: deep, long, no JSON, or
// full of what looks like the line's own members.
func TestParseResultLine(t *testing.T) {
	deep := strings.Repeat("[", 9999) + strings.Repeat("]", 9999)
	for _, body := range []string{
		`{"a":1}`, "{ \"a\" :\t1 }", deep, `"},\"error\":null}`, `{"error":{"code":"x"},"id":"b","response":null}`, "<html>\n\"", "", "\xff", "null", "-1.5E+7", "[]",
		`{"a":"}]\u007d\\"}`, `{"usage":{"total_tokens":3},"usage":{}}`,
	} {
		l := Reply("batch_req_1", []byte(`"c\u0041\"}"`), Response{StatusCode: 203, RequestID: `r"},`, Body: []byte(body)})
		line, from, to := l.AppendKept([]byte("before"))
		line, from, to = line[6:], from-6, to-6
		got, err := ParseResultLine([]byte(strings.TrimSuffix(string(line), "\n")))
		if err != nil {
			t.Errorf("%.40q: %v", body, err)
			continue
		}
		wantCode := ""
		if l.Error != nil {
			wantCode = l.Error.Code
		}
		if got.ID != "batch_req_1" || string(got.RawCustomID) != `"c\u0041\"}"` || got.StatusCode != 203 || got.Code != wantCode || string(got.RawBody) != string(line[from:to]) {
			t.Errorf("%.40q: %+v", body, got)
		}
	}
	line := NoReply("batch_req_2", []byte(`"b"`), CodePartDead).Append(nil)
	got, err := ParseResultLine(line)
	if err != nil || got.ID != "batch_req_2" || got.StatusCode != 0 || got.RawBody != nil || got.Code != CodePartDead || !Unsent(got.Code) || Unsent(CodeLineCrashedWorker) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, from, to := NoReply("i", []byte(`"b"`), CodePartDead).AppendKept(nil); from != to {
		t.Errorf("a body from %d to %d of no response", from, to)
	}
}

func TestParseResultLineRefuses(t *testing.T) {
	const good = `{"id":"a","custom_id":"b","response":{"status_code":200,"request_id":"r","body":{}},"error":null}`
	if _, err := ParseResultLine([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"", "null", "[]", "{", good[:len(good)-1], good + "x", good + good, `{"id":"a"}`, `{"id":7,"custom_id":"b"}`, `{"id":"a","custom_id":7}`, `{"id":"a" "custom_id":"b"}`,
		`{"id":"a","custom_id":"b",}x`, `{"id":"a","custom_id":"b","response":7}`, `{"id":"a","custom_id":"b","response":{}}`, `{"id":"a","custom_id":"b","response":{"status_code":"200","body":{}}}`,
		`{"id":"a","custom_id":"b","response":{"status_code":200}}`, `{"id":"a","custom_id":"b","error":{}}`, `{"id":"a","custom_id":"b","error":"x"}`, `{"id":"a,"custom_id":"b"}`, `{"id":"a","custom_id":"b","x":}`,
		strings.TrimSuffix(good, "}") + `,"error":null}`, strings.TrimSuffix(good, "}") + `,"Error":{"code":"x"}}`, strings.TrimSuffix(good, "}") + `,"respon\u0073e":{"status_code":200,"body":{"x":1}}}`,
		strings.Replace(good, `"body"`, `"body":{"x":1},"body"`, 1), strings.Replace(good, `"body":{}`, `"body":{},"bod\u0079":{"x":1}`, 1),
	} {
		if _, err := ParseResultLine([]byte(line)); !errors.Is(err, ErrResultLine) {
			t.Errorf("%q is accepted", line)
		}
	}
}
