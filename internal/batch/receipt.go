package batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	strictjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// Receipt says who had a line replayed, by whom and how it went: the record of
// promise 7. It never holds a body, only hashes.
//
// A worker writes it with the line's result, in one record of one chunk, so that
// there is one for each line that it made a result of, and no other. Lines that were
// given up without a result (see [openai.Unsent]) have none, though a worker that
// died may have sent them: their error in the error file stands for them. A line
// whose workers died of it, and one whose model no upstream serves, was not sent by
// the worker that made its result, and has a receipt that says so: Attempt 0.
type Receipt struct {
	Time        time.Time       `json:"time"` // when the reply was complete
	Tenant      string          `json:"tenant"`
	Batch       string          `json:"batch_id"`
	Line        int64           `json:"line"`         // batch-wide index, from 0; blank lines aren't counted
	ID          string          `json:"id,omitempty"` // of the line's result; absent in receipts of older workers
	CustomID    json.RawMessage `json:"custom_id"`    // as in the input, byte for byte
	OnBehalfOf  string          `json:"on_behalf_of"`
	Worker      lease.Token     `json:"worker"`
	Attempt     int             `json:"attempt"` // tries of this line by this worker; 0: it didn't send it
	Model       string          `json:"model,omitempty"`
	Status      int             `json:"status"` // the upstream's HTTP status; 0: no reply
	Usage       *openai.Usage   `json:"usage,omitempty"`
	RequestHash string          `json:"request_sha256"`         // of the body as it was sent: the input's bytes
	ReplyHash   string          `json:"reply_sha256,omitempty"` // of the body as the upstream sent it, of a Withheld one as far as it was read; absent without a reply
	// KeptHash is of response.body as it stands in the result file, absent where that
	// is what the upstream sent, byte for byte: a result is one line, so white space
	// between tokens is left out, what is no JSON is written as a string, and what is
	// [Withheld] is worded anew.
	KeptHash string `json:"kept_sha256,omitempty"`
}

// keeps notes the hash of what is kept of the reply, whose own hash it has.
func (r *Receipt) keeps(body []byte) {
	if sum := sumOf(body); sum != r.ReplyHash {
		r.KeptHash = sum
	}
}

// Kept is the hash that response.body has in the result file, "" without a reply.
func (r Receipt) Kept() string {
	if r.KeptHash != "" {
		return r.KeptHash
	}
	return r.ReplyHash
}

// encode writes the receipt on one line, its custom_id byte for byte: an encoder
// left to itself would escape what HTML minds.
func (r Receipt) encode() []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		// Only a custom_id that is no JSON could do this, and it was parsed.
		panic(fmt.Sprintf("batch: encode receipt: %v", err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// parseReceipt reads a line of a receipts file; false says that it is none. Nor is one
// that two readers understand differently: one that takes a member whatever the case of
// its name, and the last of two, and one that takes it to the letter, and once. Members
// that it doesn't know are passed over.
func parseReceipt(line []byte) (Receipt, bool) {
	var lax, strict Receipt
	if json.Unmarshal(line, &lax) != nil || strictjson.Unmarshal(line, &strict, jsontext.AllowInvalidUTF8(true)) != nil {
		return Receipt{}, false
	}
	return strict, reflect.DeepEqual(lax, strict) && strict.CustomID != nil && strict.Batch != "" && strict.Line >= 0
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
