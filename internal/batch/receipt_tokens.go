package batch

import (
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/openai"
)

// compareTokens compares the tokens, which a worker reads of a reply as far as that goes:
// also of one that is no JSON in the end, and is kept as a string.
func (m *receiptMerge) compareTokens(r Receipt, of *resultLines) {
	reply := of.at.RawBody
	if len(reply) > 0 && reply[0] == '"' {
		text, err := jsontext.AppendUnquote(nil, reply)
		if err == nil {
			reply = text
		}
		// A reply that is a JSON string has no tokens, whatever is in it; and of one that
		// isn't UTF-8 not all is kept.
		if r.Usage == nil && (err != nil || sumOf(text) != r.ReplyHash) {
			return
		}
	}
	var said openai.Usage
	if r.Usage != nil {
		said = *r.Usage
	}
	switch usage, ok := openai.ParseUsage(reply); {
	case !ok && r.Usage != nil:
		m.fault(of.file.name, of.file.n, "it has no tokens, the receipt says %d", said.TotalTokens)
	case usage != said || ok != (r.Usage != nil):
		m.fault(of.file.name, of.file.n, "the reply has %d tokens, the receipt says %d", usage.TotalTokens, said.TotalTokens)
	}
}
