package openai

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestResultLine(t *testing.T) {
	const id = `"r\u002d1\ud800"`
	ok := func(body string) ResultLine {
		return Reply("batch_req_1", []byte(id), Response{StatusCode: 200, RequestID: "req_1", Body: []byte(body)})
	}
	tests := []struct {
		name string
		line ResultLine
		want string // without the shared beginning
		ok   bool
	}{
		{"a reply", ok(`{"a":1}`), `{"status_code":200,"request_id":"req_1","body":{"a":1}},"error":null}`, true},
		{"white space goes, strings, numbers and order stay", ok("{\n  \"z\" : [ 1.0, 1e400, -0,\r\n\t12345678901234567890.10 ],\n  \"a\":\"\\u0061\\/ \\ud800 <é\u2028\"\n}\n"),
			`{"status_code":200,"request_id":"req_1","body":{"z":[1.0,1e400,-0,12345678901234567890.10],"a":"\u0061\/ \ud800 <é` + "\u2028" + `"}},"error":null}`, true},
		{"duplicate names", ok(`{"a":1,"a":2}`), `{"status_code":200,"request_id":"req_1","body":{"a":1,"a":2}},"error":null}`, true},
		{"JSON that is no object", ok(`[1]`), `{"status_code":200,"request_id":"req_1","body":[1]},"error":null}`, true},
		{"no JSON", ok("<html>\n</html>"), `{"status_code":200,"request_id":"req_1","body":"<html>\n</html>"},"error":{"code":"invalid_response","message":"` + failureMessages[CodeInvalidResponse] + `"}}`, false},
		{"two values", ok("{}{}"), `{"status_code":200,"request_id":"req_1","body":"{}{}"},"error":{"code":"invalid_response","message":"` + failureMessages[CodeInvalidResponse] + `"}}`, false},
		{"JSON cut off", ok(`{"a":`), `{"status_code":200,"request_id":"req_1","body":"{\"a\":"},"error":{"code":"invalid_response","message":"` + failureMessages[CodeInvalidResponse] + `"}}`, false},
		{"nothing", ok(""), `{"status_code":200,"request_id":"req_1","body":""},"error":{"code":"invalid_response","message":"` + failureMessages[CodeInvalidResponse] + `"}}`, false},
		{"JSON that is no UTF-8", ok("{\"a\":\"\xff\"}"), `{"status_code":200,"request_id":"req_1","body":"{\"a\":\"` + "\ufffd" + `\"}"},"error":{"code":"invalid_response","message":"` + failureMessages[CodeInvalidResponse] + `"}}`, false},
		{"refused by the model", Reply("batch_req_1", []byte(id), Response{StatusCode: 400, RequestID: "q", Body: []byte(`{"error":{"code":null}}`)}),
			`{"status_code":400,"request_id":"q","body":{"error":{"code":null}}},"error":null}`, false},
		{"an error that is no JSON", Reply("batch_req_1", []byte(id), Response{StatusCode: 502, RequestID: "q", Body: []byte("bad\tgateway\x00")}),
			`{"status_code":502,"request_id":"q","body":"bad\tgateway\u0000"},"error":null}`, false},
		{"no request id", Reply("batch_req_1", []byte(id), Response{StatusCode: 204, Body: []byte("1")}),
			`{"status_code":204,"request_id":"batch_req_1","body":1},"error":null}`, true},
		{"a request id with a line end", Reply("batch_req_1", []byte(id), Response{StatusCode: 200, RequestID: "a\r\n\"\xff", Body: []byte("1")}),
			`{"status_code":200,"request_id":"a\r\n\"` + "\ufffd" + `","body":1},"error":null}`, true},
	}
	for _, code := range []string{CodeBatchExpired, CodeBatchCancelled, CodeBatchFailed, CodePartDead, CodeLineCrashedWorker, CodeRequestTimeout, CodeUpstreamUnreachable, CodeResponseTooLarge, CodeModelNotFound} {
		if failureMessages[code] == "" {
			t.Errorf("%s has no message", code)
		}
		tests = append(tests, struct {
			name string
			line ResultLine
			want string
			ok   bool
		}{code, NoReply("batch_req_1", []byte(id), code), `null,"error":{"code":"` + code + `","message":"` + failureMessages[code] + `"}}`, false})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := string(tt.line.Append([]byte("before\n")))
			want := "before\n" + `{"id":"batch_req_1","custom_id":` + id + `,"response":` + tt.want + "\n"
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if tt.line.OK() != tt.ok {
				t.Errorf("OK is %v", tt.line.OK())
			}
			if !json.Valid([]byte(strings.TrimPrefix(got, "before\n"))) {
				t.Error("not JSON")
			}
		})
	}
}

// FuzzResultLine holds that a result is one line of valid JSON in valid UTF-8,
// whatever the model sent, and that JSON keeps its meaning.
func FuzzResultLine(f *testing.F) {
	for _, s := range []string{"", "{}", "{\n}", `"\ud800"`, "[1,\r\n2]", "\xff", "{}x", strings.Repeat("[", 20_000), "\u2028"} {
		f.Add([]byte(s), 200)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		line := Reply("batch_req_1", []byte(`"a"`), Response{StatusCode: status, RequestID: string(body), Body: body})
		out := line.Append(nil)
		if !utf8.Valid(out) || strings.Count(string(out), "\n") != 1 || out[len(out)-1] != '\n' {
			t.Fatalf("got %q", out)
		}
		var got struct {
			Response struct{ Body json.RawMessage }
		}
		if !deeperThan(body, 9000) { // encoding/json gives up at 10,000
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if ValidJSON(body) != json.Valid(body) && utf8.Valid(body) {
				t.Fatalf("valid is %v", ValidJSON(body))
			}
		}
		if line.OK() && !ValidJSON(body) {
			t.Fatal("OK without JSON")
		}
	})
}

func deeperThan(b []byte, n int) bool {
	p := parser{notes: notes{in: b, deepest: n, deep: -1}}
	p.scan()
	return p.deep >= 0
}

func TestRequestResultID(t *testing.T) {
	a := RequestResultID("batch_1", 1)
	if a != RequestResultID("batch_1", 1) || !strings.HasPrefix(a, "batch_req_") || len(a) != 42 {
		t.Errorf("got %s", a)
	}
	for _, b := range []string{RequestResultID("batch_1", 2), RequestResultID("batch_2", 1), RequestResultID("batch_", 11), RequestResultID("batch_11", 1)} {
		if a == b {
			t.Errorf("%s twice", b)
		}
	}
	if want := "batch_req_5e3cec33ad50aa3cb1e0da948e0a23d0"; a != want {
		t.Errorf("the id is %s and was %s: a running batch would change its ids", a, want)
	}
}

func TestParseUsage(t *testing.T) {
	tests := []struct {
		name, body string
		want       [5]int64 // input, cached, output, reasoning, total
		ok         bool
	}{
		{"chat", `{"id":"x","usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":2}}}`, [5]int64{10, 4, 5, 2, 15}, true},
		{"responses", `{"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":1},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":30},"x":1}`, [5]int64{10, 1, 20, 7, 30}, true},
		{"embeddings", `{"usage":{"prompt_tokens":8,"total_tokens":8}}`, [5]int64{8, 0, 0, 0, 8}, true},
		{"no total", `{"usage":{"prompt_tokens":8,"completion_tokens":1}}`, [5]int64{8, 0, 1, 0, 9}, true},
		{"details null", `{"usage":{"prompt_tokens":8,"prompt_tokens_details":null,"completion_tokens_details":"x"}}`, [5]int64{8, 0, 0, 0, 8}, true},
		{"negative counts are none", `{"usage":{"prompt_tokens":-8,"completion_tokens":3}}`, [5]int64{0, 0, 3, 0, 3}, true},
		{"absurd counts are none", `{"usage":{"prompt_tokens":9223372036854775807,"completion_tokens":3}}`, [5]int64{0, 0, 3, 0, 3}, true},
		{"garbage behind", `{"usage":{"prompt_tokens":8},`, [5]int64{8, 0, 0, 0, 8}, true},
		{"usage deeper down", `{"a":{"usage":{"prompt_tokens":8}}}`, [5]int64{}, false},
		{"null", `{"usage":null}`, [5]int64{}, false},
		{"empty", `{"usage":{}}`, [5]int64{}, false},
		{"strings", `{"usage":{"prompt_tokens":"8"}}`, [5]int64{}, false},
		{"an array", `["usage",{"prompt_tokens":8}]`, [5]int64{}, false},
		{"no JSON", `"usage" <html>`, [5]int64{}, false},
		{"cut off", `{"usage":{"prompt_tokens":8`, [5]int64{}, false},
		{"nothing", ``, [5]int64{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, ok := ParseUsage([]byte(tt.body))
			got := [5]int64{u.InputTokens, u.InputTokensDetails.CachedTokens, u.OutputTokens, u.OutputTokensDetails.ReasoningTokens, u.TotalTokens}
			if got != tt.want || ok != tt.ok {
				t.Errorf("got %v, %v", got, ok)
			}
			if sum := u.Add(u); sum.TotalTokens != 2*u.TotalTokens || sum.InputTokensDetails.CachedTokens != 2*u.InputTokensDetails.CachedTokens ||
				sum.OutputTokensDetails.ReasoningTokens != 2*u.OutputTokensDetails.ReasoningTokens || sum.InputTokens != 2*u.InputTokens || sum.OutputTokens != 2*u.OutputTokens {
				t.Errorf("the sum is %+v", sum)
			}
		})
	}
}
