package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

var chat = Expect{Endpoint: "/v1/chat/completions"}

// request is a valid line with the given raw JSON values.
func request(id, body string) string {
	return fmt.Sprintf(`{"custom_id":%s,"method":"POST","url":"/v1/chat/completions","body":%s}`, id, body)
}

func TestParseLineRefuses(t *testing.T) {
	deep := func(n int) string { return request(`"a"`, `{"x":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`}`) }
	tests := []struct {
		name, line  string
		code, param string
		message     string // a part of it
	}{
		{"nothing", ``, CodeInvalidJSONLine, "", "not valid JSON"},
		{"not JSON", `hello`, CodeInvalidJSONLine, "", "not valid JSON"},
		{"cut off", request(`"a"`, `{}`)[:40], CodeInvalidJSONLine, "", "ends in the middle"},
		{"cut off in a string", `{"custom_id":"a`, CodeInvalidJSONLine, "", "ends in the middle"},
		{"no closing brace", `{"custom_id":"a"`, CodeInvalidJSONLine, "", "ends in the middle"},
		{"single quotes", `{'custom_id':'a'}`, CodeInvalidJSONLine, "", "at byte 1"},
		{"trailing comma", `{"custom_id":"a",}`, CodeInvalidJSONLine, "", "at byte"},
		{"NaN", request(`"a"`, `{"x":NaN}`), CodeInvalidJSONLine, "", "at byte"},
		{"leading zero", request(`"a"`, `{"x":01}`), CodeInvalidJSONLine, "", "at byte"},
		{"raw control character", request("\"a\tb\"", `{}`), CodeInvalidJSONLine, "", "at byte"},
		{"array", `[` + request(`"a"`, `{}`) + `]`, CodeInvalidJSONLine, "", "an array, not an object"},
		{"string", ` "a"`, CodeInvalidJSONLine, "", "not an object"},
		{"null", `null`, CodeInvalidJSONLine, "", "null, not an object"},
		{"two objects", request(`"a"`, `{}`) + request(`"b"`, `{}`), CodeInvalidJSONLine, "", "follows the JSON value"},
		{"trailing garbage", request(`"a"`, `{}`) + `x`, CodeInvalidJSONLine, "", "follows the JSON value"},
		{"trailing comma after the object", request(`"a"`, `{}`) + `,`, CodeInvalidJSONLine, "", "follows the JSON value"},
		{"byte order mark", "\ufeff" + request(`"a"`, `{}`), CodeInvalidJSONLine, "", "byte order mark"},
		{"number as a name", `{1:2}`, CodeInvalidJSONLine, "", "not valid JSON"},
		{"invalid UTF-8", request("\"\xff\"", `{}`), CodeInvalidEncoding, "", "Byte 14"},
		{"surrogate in UTF-8", request("\"\xed\xa0\x80\"", `{}`), CodeInvalidEncoding, "", "not valid UTF-8"},
		{"1,001 levels", deep(1001), CodeInvalidJSONLine, "", "deeper than 1000"},
		{"10,000 levels", deep(10_000), CodeInvalidJSONLine, "", "deeper than 1000"},
		{"1,000,000 levels", deep(1_000_000), CodeInvalidJSONLine, "", "deeper than 1000"},
		{"1,000,000 levels never closed", strings.Repeat(`{"a":`, 1_000_000), CodeInvalidJSONLine, "", "deeper than 1000"},
		{"1,000,000 levels as the line", strings.Repeat("[", 1_000_000), CodeInvalidJSONLine, "", "deeper than 1000"},

		{"custom_id twice", `{"custom_id":"a",` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "custom_id", "custom_id\" occurs twice"},
		{"url twice", `{"url":"a",` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "url", "occurs twice"},
		{"method twice", `{"method":"POST",` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "method", "occurs twice"},
		{"body twice", `{"body":{},` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "body", "occurs twice"},
		{"body twice, null first", `{"body":null,` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "body", "occurs twice"},
		{"body twice, one spelled otherwise", `{"\u0062ody":{},` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "body", "occurs twice"},
		{"an unknown member twice", `{"x":1,"x":1,` + request(`"a"`, `{}`)[1:], CodeInvalidJSONLine, "", "\"x\" occurs twice"},
		{"stream twice", request(`"a"`, `{"stream":false,"stream":false}`), CodeInvalidJSONLine, "body.stream", "occurs twice"},
		{"stream twice, one spelled otherwise", request(`"a"`, `{"stream":false,"\u0073tream":true}`), CodeInvalidJSONLine, "body.stream", "occurs twice"},
		{"model twice", request(`"a"`, `{"model":"m","model":"n"}`), CodeInvalidJSONLine, "body.model", "occurs twice"},

		{"no custom_id", `{"method":"POST","url":"/v1/chat/completions","body":{}}`, CodeInvalidCustomID, "custom_id", "has no custom_id"},
		{"empty object", `{}`, CodeInvalidCustomID, "custom_id", "has no custom_id"},
		{"Custom_ID", `{"Custom_ID":"a","method":"POST","url":"/v1/chat/completions","body":{}}`, CodeInvalidCustomID, "custom_id", "has no custom_id"},
		{"custom_id null", request(`null`, `{}`), CodeInvalidCustomID, "custom_id", "is null"},
		{"custom_id a number", request(`17`, `{}`), CodeInvalidCustomID, "custom_id", "is a number"},
		{"custom_id an object", request(`{"a":1}`, `{}`), CodeInvalidCustomID, "custom_id", "must be a string"},
		{"custom_id empty", request(`""`, `{}`), CodeInvalidCustomID, "custom_id", "0 characters"},
		{"custom_id of 65", request(`"`+strings.Repeat("é", 65)+`"`, `{}`), CodeInvalidCustomID, "custom_id", "65 characters"},
		{"custom_id of 65 escapes", request(`"`+strings.Repeat(`\ud83d\ude00`, 65)+`"`, `{}`), CodeInvalidCustomID, "custom_id", "65 characters"},

		{"method missing", `{"custom_id":"a","url":"/v1/chat/completions","body":{}}`, CodeInvalidMethod, "method", "is missing"},
		{"method GET", `{"custom_id":"a","method":"GET","url":"/v1/chat/completions","body":{}}`, CodeInvalidMethod, "method", `"GET"`},
		{"method post", `{"custom_id":"a","method":"post","url":"/v1/chat/completions","body":{}}`, CodeInvalidMethod, "method", `"post"`},
		{"method null", `{"custom_id":"a","method":null,"url":"/v1/chat/completions","body":{}}`, CodeInvalidMethod, "method", "null"},
		{"url missing", `{"custom_id":"a","method":"POST","body":{}}`, CodeURLMismatch, "url", "is missing"},
		{"another url", `{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}}`, CodeURLMismatch, "url", `"/v1/embeddings"`},
		{"url with a query", `{"custom_id":"a","method":"POST","url":"/v1/chat/completions?","body":{}}`, CodeURLMismatch, "url", "one endpoint"},

		{"body missing", `{"custom_id":"a","method":"POST","url":"/v1/chat/completions"}`, CodeInvalidBody, "body", "is missing"},
		{"body null", request(`"a"`, `null`), CodeInvalidBody, "body", "null"},
		{"body a string", request(`"a"`, `"{}"`), CodeInvalidBody, "body", "must be an object"},
		{"body an array", request(`"a"`, `[{}]`), CodeInvalidBody, "body", "must be an object"},
		{"stream true", request(`"a"`, `{"stream":true}`), CodeInvalidBody, "body.stream", "can't have"},
		{"stream true, spaced and spelled otherwise", request(`"a"`, `{"model" : "m" , "\u0073\u0074ream" :  true }`), CodeInvalidBody, "body.stream", "can't have"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseLine([]byte(tt.line), chat)
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Code != tt.code || err.Param != tt.param || !strings.Contains(err.Message, tt.message) {
				t.Errorf("got %s (param %q): %s", err.Code, err.Param, err.Message)
			}
			if err.Offset < 0 || err.Offset > int64(len(tt.line)) || len(err.Message) > 1000 {
				t.Errorf("offset %d, message of %d bytes", err.Offset, len(err.Message))
			}
			if !utf8.ValidString(err.Message) {
				t.Errorf("the message is not UTF-8: %q", err.Message)
			}
			// Whatever a line's fault, the next one is read as if nothing had been.
			if _, err := ParseLine([]byte(request(`"a"`, `{}`)), chat); err != nil {
				t.Errorf("the line behind: %v", err)
			}
		})
	}
}

func TestParseLineAccepts(t *testing.T) {
	tests := []struct{ name, rawID, id, body, model string }{
		{"plain", `"request-1"`, "request-1", `{"model":"m"}`, "m"},
		{"64 characters", `"` + strings.Repeat("x", 64) + `"`, strings.Repeat("x", 64), `{}`, ""},
		{"64 of four bytes", `"` + strings.Repeat("😀", 64) + `"`, strings.Repeat("😀", 64), `{}`, ""},
		{"64 escaped pairs", `"` + strings.Repeat(`\uD83D\uDE00`, 64) + `"`, strings.Repeat("😀", 64), `{}`, ""},
		{"every escape", `"\"\\\/\b\f\n\r\t\u0041\u00e9"`, "\"\\/\b\f\n\r\tAé", `{}`, ""},
		{"header injection", `"a\r\nX-Admin: 1"`, "a\r\nX-Admin: 1", `{}`, ""},
		{"NUL", `"\u0000"`, "\x00", `{}`, ""},
		{"one space", `" "`, " ", `{}`, ""},
		{"line separators", "\"\u2028\u0085\"", "\u2028\u0085", `{}`, ""},
		{"lone high surrogate", `"\ud800"`, "\xed\xa0\x80", `{}`, ""},
		{"lone low surrogate", `"\uDFFF"`, "\xed\xbf\xbf", `{}`, ""},
		{"halves in the wrong order", `"\ude00\ud83d"`, "\xed\xb8\x80\xed\xa0\xbd", `{}`, ""},
		{"a high one before a pair", `"\ud83d\ud83d\ude00"`, "\xed\xa0\xbd😀", `{}`, ""},
		{"key order and spaces", `"a"`, "a", `{ "z" : 1,"a":2 ,  "model" :"m" }`, "m"},
		{"numbers", `"a"`, "a", `{"n":[1.0,1e400,-0,0.10000000000000000055511151231257827,12345678901234567890123456789,1E+2]}`, ""},
		{"escapes", `"a"`, "a", `{"s":"\u0061\/\ud800\u2028é😀\ud83d\ude00\u003c"}`, ""},
		{"duplicates deep in a body", `"a"`, "a", `{"x":{"k":1,"k":2},"x":3}`, ""},
		{"stream false", `"a"`, "a", `{"stream":false}`, ""},
		{"stream null", `"a"`, "a", `{"stream":null}`, ""},
		{"stream true deeper down", `"a"`, "a", `{"x":{"stream":true},"y":["stream",true]}`, ""},
		{"model not a string", `"a"`, "a", `{"model":{"name":"m"}}`, ""},
		{"model escaped", `"a"`, "a", `{"\u006dodel":"gp\u0074"}`, "gpt"},
		{"1,000 levels", `"a"`, "a", `{"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, ""},
		{"1,000 levels of objects", `"a"`, "a", `{"x":` + strings.Repeat(`{"":`, 1000) + "0" + strings.Repeat("}", 1000) + `}`, ""},
		{"5,000 brackets side by side", `"a"`, "a", `{"x":[` + strings.Repeat("{},", 5000) + `0]}`, ""},
		{"5,000 brackets in a string", `"a"`, "a", `{"x":"\"` + strings.Repeat("[", 5000) + `"}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := []byte(request(tt.rawID, tt.body))
			before := bytes.Clone(line)
			r, err := ParseLine(line, chat)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(line, before) {
				t.Error("the line was changed")
			}
			if r.CustomID != tt.id || string(r.RawCustomID) != tt.rawID || string(r.Body) != tt.body || r.Model != tt.model {
				t.Errorf("got id %q (%s), model %q, body %s", r.CustomID, r.RawCustomID, r.Model, r.Body)
			}
			// What the line says reaches the result file byte for byte.
			out := NoReply("x", r.RawCustomID, CodeBatchExpired).Append(nil)
			if !bytes.Contains(out, []byte(`"custom_id":`+tt.rawID+`,`)) || bytes.Count(out, []byte{'\n'}) != 1 {
				t.Errorf("the result is %q", out)
			}
			keys, err := ParseLine(line, Expect{Endpoint: chat.Endpoint, KeysOnly: true})
			if err != nil || keys.CustomID != "" || keys.Model != "" || keys.IDKey() != r.IDKey() || string(keys.Body) != tt.body {
				t.Errorf("KeysOnly: %+v, %v", keys, err)
			}
		})
	}
}

func TestParseLineTakesTheEnvelopeAsItComes(t *testing.T) {
	for _, line := range []string{
		` { "body" : {"model":"m"} , "url" : "\/v1\/chat\/completions" , "method" : "\u0050OST" , "custom_id" : "a" } `,
		"{\t\"custom_id\":\"a\",\r\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\"}}\t\r",
		`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","priority":9,"x":{"y":[{}]},"":null,"body":{"model":"m"}}`,
		`{"\u0063ustom_id":"a","method":"POST","url":"/v1/chat/completions","\u0062ody":{"model":"m"}}`,
	} {
		r, err := ParseLine([]byte(line), chat)
		if err != nil || r.CustomID != "a" || string(r.Body) != `{"model":"m"}` || r.Model != "m" {
			t.Errorf("%s: %+v, %v", line, r, err)
		}
	}
}

func TestParseLineNestingIsSet(t *testing.T) {
	line := []byte(request(`"a"`, `{"x":[[[]]]}`))
	if _, err := ParseLine(line, Expect{Endpoint: chat.Endpoint, Nesting: 3}); err != nil {
		t.Error(err)
	}
	if _, err := ParseLine(line, Expect{Endpoint: chat.Endpoint, Nesting: 2}); err == nil || err.Code != CodeInvalidJSONLine {
		t.Error(err)
	}
}

// Unknown members are remembered, so they are bounded.
func TestParseLineManyMembers(t *testing.T) {
	line := func(n int, more string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"k%d":{"k":0,"k":[]},`, i)
		}
		return b.String() + more + request(`"a"`, `{}`)[1:]
	}
	if _, err := ParseLine([]byte(line(100, "")), chat); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct{ line, message string }{
		{line(99, `"k\u0031":0,`), `"k1" occurs twice`},
		{line(101, ""), "more than 100 members"},
		{line(20_000, ""), "more than 100 members"},
	} {
		if _, err := ParseLine([]byte(bad.line), chat); err == nil || err.Code != CodeInvalidJSONLine || !strings.Contains(err.Message, bad.message) {
			t.Errorf("got %v, want %s", err, bad.message)
		}
	}
}

func TestRawLineParsePlacesItsErrors(t *testing.T) {
	r := NewReader(strings.NewReader("\n"+request(`"a"`, `{}`)+"\n"+request(`"b"`, `{"stream":true}`)), Limits{FirstLine: 10, FirstByte: 1000})
	line, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, fault := line.Parse(chat); fault != nil {
		t.Fatal(fault)
	}
	if line, err = r.Next(); err != nil {
		t.Fatal(err)
	}
	_, fault := line.Parse(chat)
	if fault == nil || fault.Line != 12 || fault.Offset != line.From+int64(bytes.Index(line.Bytes, []byte("true"))) {
		t.Fatalf("got %+v", fault)
	}
	b := fault.BatchError()
	if *b.Line != 12 || *b.Param != "body.stream" || b.Code != CodeInvalidBody || b.Message != fault.Message {
		t.Errorf("got %+v", b)
	}
}

func TestIDKey(t *testing.T) {
	key := func(raw string) [16]byte {
		r, err := ParseLine([]byte(request(raw, `{}`)), chat)
		if err != nil {
			t.Fatal(err)
		}
		return r.IDKey()
	}
	for _, same := range [][2]string{
		{`"a"`, `"\u0061"`}, {`"😀"`, `"\ud83d\ude00"`}, {`"\ud83d\ude00"`, `"\uD83D\uDE00"`},
		{`"/"`, `"\/"`}, {`"\n"`, `"\u000a"`}, {`"\ud800"`, `"\uD800"`}, {`"\ufffd"`, `"�"`},
	} {
		if key(same[0]) != key(same[1]) {
			t.Errorf("%s and %s are one id", same[0], same[1])
		}
	}
	for _, different := range [][2]string{
		{`"a"`, `"A"`}, {`"a"`, `"a "`}, {`"\ud800"`, `"\ud801"`}, {`"\ud800"`, `"\ufffd"`}, {`"\ud800"`, `"\udc00"`},
		{`"é"`, `"e\u0301"`}, {`"\u0000"`, `"\u0000\u0000"`}, {`"\ude00\ud83d"`, `"\ud83d\ude00"`},
	} {
		if key(different[0]) == key(different[1]) {
			t.Errorf("%s and %s are two ids", different[0], different[1])
		}
	}
}

// FuzzParseLine holds that no line panics or is changed, and that what is accepted
// is what encoding/json reads, body and id being slices of the line.
func FuzzParseLine(f *testing.F) {
	for _, s := range []string{
		request(`"a"`, `{}`), request(`"\ud800"`, `{"model":"m","stream":false}`), request(`"\ud83d\ude00"`, `{"stream":true}`),
		` {"body":{"a":[1,{"b":null}]},"x":1,"url":"\/v1/chat/completions","method":"POST","custom_id":"\u0061"} `,
		`{"custom_id":"a","custom_id":"b"}`, `{`, `{"body":{"model":`, `[]`, `{"a":1}{}`, "\ufeff{}", `{"\u0062ody":{}}`, `{1:1}`, `{"a"}`, `{,}`, `{"body":{,}}`, `{"body" {}}`, `{"body":{]}`,
		`{"a":[0,-0,10,0.05,1E+05,100,1 2,305]}`, `[01]`, `[1.]`, `[-]`, `{"a":"\q"}`, `{"a":"\u12g4"}`, `{"a":"\`, `"`, "{\"a\":\"b\t\"}", `{"a":"\ud83d\u"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		r, fault := ParseLine(line, chat)
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
		// The library judges an outline of the line; that must be what it thinks of the line.
		if utf8.Valid(line) && !strings.Contains(fmt.Sprint(fault), "nested deeper") {
			p := new(parser)
			p.in, p.deepest = line, DefaultNesting+2
			p.scan()
			if got, want := jsontext.Value(p.outline).IsValid(parserOptions...), jsontext.Value(line).IsValid(parserOptions...); got != want {
				t.Fatalf("the outline %q is valid: %v, the line: %v", p.outline, got, want)
			}
		}
		if fault != nil {
			if fault.Code == "" || fault.Message == "" || fault.Offset < 0 || fault.Offset > int64(len(line)) || !utf8.ValidString(fault.Message) {
				t.Fatalf("fault %+v", fault)
			}
			// A strict reader accepts all that is asked for: what it calls no JSON isn't.
			if fault.Code == CodeInvalidJSONLine && json.Valid(line) && strings.HasPrefix(fault.Message, "The line is not valid JSON") {
				t.Fatalf("encoding/json accepts it: %v", fault)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatalf("accepted, but %v", err)
		}
		if !bytes.Equal(members["body"], r.Body) || !bytes.Equal(members["custom_id"], r.RawCustomID) {
			t.Fatalf("body %s, custom_id %s", r.Body, r.RawCustomID)
		}
		for _, part := range [][]byte{r.Body, r.RawCustomID} {
			lo, at := uintptr(unsafe.Pointer(&line[0])), uintptr(unsafe.Pointer(&part[0]))
			if at < lo || at+uintptr(len(part)) > lo+uintptr(len(line)) {
				t.Fatal("a slice of something else")
			}
		}
		var want struct{ Method, URL string }
		var id string
		if json.Unmarshal(members["method"], &want.Method) != nil || json.Unmarshal(members["url"], &want.URL) != nil || json.Unmarshal(r.RawCustomID, &id) != nil {
			t.Fatal("encoding/json can't read a member")
		}
		if want.Method != "POST" || want.URL != chat.Endpoint {
			t.Fatalf("got %+v", want)
		}
		if utf8.ValidString(r.CustomID) && id != r.CustomID {
			t.Fatalf("custom_id %q, want %q", r.CustomID, id)
		}
		if n := utf8.RuneCountInString(id); n < 1 || n > MaxCustomID {
			t.Fatalf("custom_id of %d characters", n)
		}
		var body map[string]any
		if json.Unmarshal(r.Body, &body) == nil && body["stream"] == true {
			t.Fatal("a stream was accepted")
		}
	})
}

// The id is shown as the file has it, once quoted and once escaped.
func TestDuplicateIDShowsTheIDAsItIs(t *testing.T) {
	for raw, want := range map[string]string{
		`"c1"`:                              `the custom_id "c1" already`,
		`"\u00e9\"é"`:                       `the custom_id "\u00e9\"é" already`,
		`"` + strings.Repeat("é", 99) + `"`: `the custom_id "` + strings.Repeat("é", 79) + `… already`,
	} {
		if e := DuplicateID(RawLine{Number: 3}, []byte(raw)); !strings.Contains(e.Message, want) {
			t.Errorf("%s: %s", raw, e.Message)
		}
	}
}
