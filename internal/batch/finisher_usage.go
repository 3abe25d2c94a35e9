package batch

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json"

	"holdfast/internal/openai"
)

var errUsage = errors.New("its usage is no object")

// addUsage adds the tokens a receipt names, if any. It looks at nothing else of
// the receipt, which a worker of ours has written: the member's name can't be
// within a string, where its quotes would be escaped.
func addUsage(sum *openai.Usage, receipt []byte) error {
	_, value, there := bytes.Cut(receipt, []byte(`"usage":`))
	if !there {
		return nil
	}
	end, depth := 0, 0
	for i, c := range value { // numbers and names only: no brace is within a string
		if c == '{' {
			depth++
		} else if c == '}' {
			depth--
		}
		if depth <= 0 {
			end = i + 1
			break
		}
	}
	if end < 2 {
		return errUsage
	}
	var u openai.Usage
	if err := json.Unmarshal(value[:end], &u); err != nil {
		return err
	}
	*sum = sum.Add(u)
	return nil
}
