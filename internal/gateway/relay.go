package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"mime"
	"net/http"
	"strconv"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// What the log says of a reply that the client has not all of.
var (
	errTorn       = errors.New("the reply broke off")
	errClientGone = errors.New("the client left")
)

// relay passes the answer on as it comes: nothing of it waits here for what comes
// after. An error says that the client has not all of it.
func (g *Gateway) relay(ctx context.Context, x *exchange, q *request, resp *http.Response) (access.Completion, error) {
	pass(x.Header(), resp.Header)
	if resp.ContentLength >= 0 {
		x.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	x.WriteHeader(resp.StatusCode)
	l := newLedger(resp.Header, g.settings.ReplyBytes)
	flush := http.NewResponseController(x)
	_ = flush.Flush() // a stream's client shall know that it has begun; a writer without it has no buffer
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if l.bytes+int64(n) > g.settings.ReplyBytes {
			return l.completion(access.TooLarge, resp.StatusCode), openai.UpstreamTooLarge(g.settings.ReplyBytes)
		}
		if n > 0 {
			_, _ = l.Write(buf[:n])
			if _, err := x.Write(buf[:n]); err != nil {
				return l.completion(access.ClientGone, resp.StatusCode), openai.UpstreamUnreachable(errClientGone)
			}
			_ = flush.Flush()
		}
		switch {
		case err == nil:
		case err == io.EOF:
			return l.completion(access.Replied, resp.StatusCode), nil
		case errors.Is(q.Context().Err(), context.Canceled):
			return l.completion(access.ClientGone, resp.StatusCode), openai.UpstreamUnreachable(errClientGone)
		case ctx.Err() != nil, errors.Is(err, batch.ErrTimeout):
			return l.completion(access.TimedOut, resp.StatusCode), openai.UpstreamTimeout(errTorn)
		default:
			if w, ok := errors.AsType[*batch.Withheld](err); ok {
				return l.completion(access.Denied, resp.StatusCode), openai.UpstreamWithheld(w.Code, w)
			}
			// Its own text may hold an address.
			return l.completion(access.Torn, resp.StatusCode), openai.UpstreamUnreachable(errTorn)
		}
	}
}

// maxEvent is how much of an event of a stream is searched for a usage.
const maxEvent = 1 << 20

// ledger takes note of a reply for its receipt.
type ledger struct {
	sum    hash.Hash
	bytes  int64
	events bool // a stream of events: each is looked at by itself, and the last usage counts
	most   int64
	text   []byte // all of it; of events, the line that has begun
	long   bool   // that line is longer than maxEvent
	usage  *openai.Usage
}

// newLedger is for a reply with this header, of which at most so many bytes are
// written.
func newLedger(h http.Header, most int64) *ledger {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return &ledger{sum: sha256.New(), events: kind == "text/event-stream", most: most}
}

// Write never fails.
func (l *ledger) Write(b []byte) (int, error) {
	n := len(b)
	l.sum.Write(b)
	l.bytes += int64(n)
	if !l.events {
		if l.bytes <= l.most {
			l.text = append(l.text, b...)
		}
		return n, nil
	}
	for {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if l.long = l.long || len(l.text)+len(line) > maxEvent; !l.long {
			l.text = append(l.text, line...)
		}
		if !ended {
			return n, nil
		}
		l.event()
		b = rest
	}
}

// event looks at a line of a stream that is whole. Usage is a member of a chunk (chat
// completions, the last one, where the client asked for it), or of the response that
// an event carries (responses).
func (l *ledger) event() {
	data, ok := bytes.CutPrefix(l.text, []byte("data:"))
	if ok && bytes.Contains(data, []byte(`"usage"`)) {
		var in struct {
			Response json.RawMessage `json:"response"`
		}
		if u, ok := openai.ParseUsage(data); ok {
			l.usage = &u
		} else if json.Unmarshal(data, &in) == nil && in.Response != nil {
			if u, ok := openai.ParseUsage(in.Response); ok {
				l.usage = &u
			}
		}
	}
	l.text, l.long = l.text[:0], false
}

// completion is what the receipt says of the reply.
func (l *ledger) completion(o access.Outcome, status int) access.Completion {
	if l.events {
		l.event() // the last line may have no end
	} else if u, ok := openai.ParseUsage(l.text); ok {
		l.usage = &u
	}
	return access.Completion{Outcome: o, Status: status, Usage: l.usage, ReplyHash: hex.EncodeToString(l.sum.Sum(nil)), ReplyBytes: l.bytes}
}
