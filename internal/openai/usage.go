package openai

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxTokens bounds one count, so that no sum over a batch overflows.
const maxTokens = 1 << 40

// ParseUsage reads the token usage of a model's reply, in the style of chat
// completions, completions and embeddings (prompt_tokens, completion_tokens) or of
// responses (input_tokens, output_tokens). It is lenient: what is missing counts
// as 0, a missing total is the sum, and a reply without a usable usage is false.
func ParseUsage(body []byte) (Usage, bool) {
	raw, ok := findUsage(body)
	if !ok {
		return Usage{}, false
	}
	var u struct {
		Input      jsontext.Value `json:"input_tokens"`
		Output     jsontext.Value `json:"output_tokens"`
		Prompt     jsontext.Value `json:"prompt_tokens"`
		Completion jsontext.Value `json:"completion_tokens"`
		Total      jsontext.Value `json:"total_tokens"`

		InputDetails      jsontext.Value `json:"input_tokens_details"`
		OutputDetails     jsontext.Value `json:"output_tokens_details"`
		PromptDetails     jsontext.Value `json:"prompt_tokens_details"`
		CompletionDetails jsontext.Value `json:"completion_tokens_details"`
	}
	if json.Unmarshal(raw, &u, replyOptions...) != nil {
		return Usage{}, false
	}
	var usage Usage
	in, okIn := tokens(u.Input, u.Prompt)
	out, okOut := tokens(u.Output, u.Completion)
	total, okTotal := tokens(u.Total)
	if !okIn && !okOut && !okTotal {
		return Usage{}, false
	}
	if !okTotal {
		total = in + out
	}
	usage.InputTokens, usage.OutputTokens, usage.TotalTokens = in, out, total
	usage.InputTokensDetails.CachedTokens = detail("cached_tokens", u.InputDetails, u.PromptDetails)
	usage.OutputTokensDetails.ReasoningTokens = detail("reasoning_tokens", u.OutputDetails, u.CompletionDetails)
	return usage, true
}

// findUsage returns the value of the reply's own member "usage". It reads no
// further, and takes no note of what is wrong before or behind.
func findUsage(body []byte) (jsontext.Value, bool) {
	// Most of what has no usage, an embedding's error say, ends here.
	if !bytes.Contains(body, []byte(`"usage"`)) {
		return nil, false
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), replyOptions...)
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		found := string(name) == `"usage"`
		value, err := dec.ReadValue()
		if err != nil {
			return nil, false
		}
		if found {
			return value, value.Kind() == '{'
		}
	}
	return nil, false
}

// tokens reads the first of values that is a count.
func tokens(values ...jsontext.Value) (int64, bool) {
	for _, v := range values {
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && n >= 0 && n <= maxTokens {
			return n, true
		}
	}
	return 0, false
}

// detail reads the count called name from the first of objects that has one.
func detail(name string, objects ...jsontext.Value) int64 {
	for _, o := range objects {
		var counts map[string]jsontext.Value
		if o.Kind() != '{' || json.Unmarshal(o, &counts, replyOptions...) != nil {
			continue
		}
		if n, ok := tokens(counts[name]); ok {
			return n
		}
	}
	return 0
}
