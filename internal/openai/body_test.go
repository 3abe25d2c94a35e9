package openai

import (
	"errors"
	"strings"
	"testing"
)

func TestParseBody(t *testing.T) {
	deep := func(n int) string { return `{"model":"m","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	for name, c := range map[string]struct {
		body  string
		want  Body
		code  string // of the refusal
		param string
	}{
		"a usual one":              {`{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}`, Body{Model: "gpt-x"}, "", ""},
		"a stream":                 {`{"stream":true,"model":"m"}`, Body{"m", true}, "", ""},
		"no stream":                {`{"stream":false,"model":"m"}`, Body{Model: "m"}, "", ""},
		"space around":             {" \r\n{ \"model\" : \"m\" }\t", Body{Model: "m"}, "", ""},
		"escapes":                  {`{"mod\u0065l":"a\/b","\u0073tream":true}`, Body{"a/b", true}, "", ""},
		"no model":                 {`{}`, Body{}, "", ""},
		"a model that is no text":  {`{"model":7}`, Body{}, "", ""},
		"members of members":       {`{"x":{"model":"other","stream":true},"model":"m"}`, Body{Model: "m"}, "", ""},
		"twice a model":            {`{"model":"a","model":"b"}`, Body{}, "duplicate_parameter", "model"},
		"twice, in two spellings":  {`{"model":"a","mod\u0065l":"b"}`, Body{}, "duplicate_parameter", "model"},
		"twice stream":             {`{"stream":false,"stream":true}`, Body{}, "duplicate_parameter", "stream"},
		"twice something else":     {`{"n":1,"n":2,"model":"m"}`, Body{Model: "m"}, "", ""},
		"as deep as may be":        {deep(10), Body{Model: "m"}, "", ""},
		"too deep":                 {deep(11), Body{}, "invalid_json", ""},
		"10,000 deep":              {deep(10_000), Body{}, "invalid_json", ""},
		"never closed":             {strings.Repeat(`{"a":`, 100_000), Body{}, "invalid_json", ""},
		"empty":                    {"", Body{}, "invalid_json", ""},
		"only space":               {" \n", Body{}, "invalid_json", ""},
		"an array":                 {`[{"model":"m"}]`, Body{}, "invalid_json", ""},
		"a string":                 {`"model"`, Body{}, "invalid_json", ""},
		"null":                     {`null`, Body{}, "invalid_json", ""},
		"two":                      {`{"model":"m"}{}`, Body{}, "invalid_json", ""},
		"two, with a comma":        {`{"model":"m"},{}`, Body{}, "invalid_json", ""},
		"what ends our own object": {`{"model":"m"},"x":{}`, Body{}, "invalid_json", ""},
		"… and has another body":   {`{"model":"m"},"body":{"model":"n"}`, Body{}, "invalid_json", ""},
		"… and closes it":          {`{"model":"m"}}`, Body{}, "invalid_json", ""},
		"… and opens one":          {`{"model":"m"}},{"x":{}`, Body{}, "invalid_json", ""},
		"cut":                      {`{"model":"m"`, Body{}, "invalid_json", ""},
		"not UTF-8":                {"{\"model\":\"\xff\"}", Body{}, "invalid_json", ""},
		"a byte order mark":        {"\ufeff{}", Body{}, "invalid_json", ""},
		"a control character":      {"{\"model\":\"a\nb\"}", Body{}, "invalid_json", ""},
	} {
		got, err := ParseBody([]byte(c.body), 10)
		e, _ := errors.AsType[*Error](err)
		switch {
		case c.code == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		case c.code != "" && (e == nil || e.Status != 400 || e.Code != c.code || e.Param != c.param || got != Body{}):
			t.Errorf("%s: %+v, %v; want %s", name, got, err, c.code)
		}
	}
}

// FuzzParseBody: a body is one to the gateway if and only if it is one in a line of a
// batch, with the same model, but for the stream.
func FuzzParseBody(f *testing.F) {
	for _, s := range []string{`{"model":"m"}`, `{"model":"m","stream":true}`, `{},"x":{}`, `{}}`, ` {"a":[1,{"model":"x"}]} `, `{"model":"a","model":"b"}`, "\xff", "", `{"model":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseBody(b, 20)
		line := append(append([]byte(`{"custom_id":"a","method":"POST","url":"/v1/x","body":`), b...), '}')
		want, fault := ParseLine(line, Expect{Endpoint: "/v1/x", Nesting: 20})
		inLine := fault == nil && string(want.Body) == strings.Trim(string(b), " \t\r\n")
		switch {
		case err == nil && got.Stream:
			if fault == nil || fault.Param != "body.stream" {
				t.Errorf("%q asks for a stream; as a line: %v", b, fault)
			}
		case (err == nil) != inLine:
			t.Errorf("%q: %v; as a line: %v", b, err, fault)
		case err == nil && got.Model != want.Model:
			t.Errorf("%q: model %q, as a line %q", b, got.Model, want.Model)
		}
	})
}
