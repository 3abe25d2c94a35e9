package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// request is one line of a made-up input and what must come of it.
type request struct {
	rawID string // the custom_id's JSON text
	body  string
	model string
}

// wantTries is how often the model must see the line.
func (r request) wantTries() int {
	switch r.model {
	case "sim-429-once":
		return 2
	case "sim-500":
		return 5
	default:
		return 1
	}
}

// ok reports whether the line belongs into the output file.
func (r request) ok() bool { return r.model == "sim" || r.model == "sim-429-once" }

func (r request) sum() string {
	s := sha256.Sum256([]byte(r.body))
	return hex.EncodeToString(s[:])
}

// mixed makes n requests with every outcome among them and bodies that any
// re-encoding would change: odd spacing, long numbers, key order, escapes.
func mixed(n int) []request {
	out := make([]request, n)
	for i := range out {
		model := "sim"
		switch {
		case i%50 == 7:
			model = "sim-400"
		case i%50 == 13:
			model = "sim-429-once"
		case i%100 == 21:
			model = "sim-500"
		case i%100 == 33:
			model = "sim-nonjson"
		}
		id := fmt.Sprintf(`"line-%05d"`, i)
		switch i % 40 {
		case 1:
			id = fmt.Sprintf(`"\u00e9\n\r\t\"%d\\ \/"`, i)
		case 2:
			id = fmt.Sprintf(`"😀 \ud83d\ude00 %d"`, i)
		case 3:
			id = fmt.Sprintf(`"../../%d?x=1&y=%%2F#"`, i)
		}
		out[i] = request{
			rawID: id,
			model: model,
			body: fmt.Sprintf(`{ "temperature":0.10000000000000000555, "seed":1234567890123456789%04d,"model":%q ,`+
				`"messages":[{"role":"user","content":"line %d: \u00e9 é \ud83d\ude00 </script> \u0000"}],"a":1,"A":2, "z":1e+02 }`, i, model, i),
		}
	}
	return out
}

// file lays the requests out as awkwardly as the contract allows: a byte order
// mark, CRLF and LF, blank lines, no newline at the end.
func file(reqs []request) []byte {
	b := bytes.NewBufferString("\ufeff")
	for i, r := range reqs {
		if i%97 == 5 {
			b.WriteString("  \t\r\n\n")
		}
		fmt.Fprintf(b, `{"custom_id": %s, "method": "POST", "url": "/v1/chat/completions", "body": %s}`, r.rawID, r.body)
		switch {
		case i == len(reqs)-1:
		case i%3 == 0:
			b.WriteString("\r\n")
		default:
			b.WriteString("\n")
		}
	}
	return b.Bytes()
}

// result is a line of a result file, its id kept as it is written.
type result struct {
	ID       string          `json:"id"`
	CustomID json.RawMessage `json:"custom_id"`
	Response *struct {
		StatusCode int             `json:"status_code"`
		RequestID  string          `json:"request_id"`
		Body       json.RawMessage `json:"body"`
	} `json:"response"`
	Error *struct{ Code, Message string } `json:"error"`
}
