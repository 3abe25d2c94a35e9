package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

const (
	// leastToken is the shortest token that is looked for in answers, in bytes: shorter
	// ones are in texts by chance.
	leastToken = 8
	// lookedAt is how much of an answer is read before anything of it is passed on, where
	// that keeps nobody waiting, and how much of a withheld one is read, in bytes.
	lookedAt = 64 << 10
	// lookedFor is how long the body of a withheld answer is read: whoever asked waits, and
	// gets nothing of it.
	lookedFor = 5 * time.Second
)

// withhold reads what is kept of an answer that nobody gets, as far as it comes within
// most, and frees its connection for the next request, if little is left of it. end ends
// its request.
func withhold(resp *http.Response, code string, most time.Duration, end context.CancelFunc) *batch.Withheld {
	defer resp.Body.Close()
	defer time.AfterFunc(most, end).Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, lookedAt)) // what there is of it
	return batch.Withhold(resp.StatusCode, code, body)
}

// quotes reports whether text holds the token as it was sent. In another spelling
// (escaped, in base64) or in part it isn't found.
func quotes(text []byte, token string) bool {
	token = strings.TrimSpace(token)
	return len(token) >= leastToken && bytes.Contains(text, []byte(token))
}

// clean takes headers out that hold the token.
func clean(h http.Header, token string) {
	for name, values := range h {
		for _, v := range values {
			if quotes([]byte(v), token) {
				delete(h, name)
			}
		}
	}
}

// guarded is an answer whose body holds nothing of the token, and stands still no longer
// than idle: a refusal, or a short answer whose length is known, that quotes it is
// withheld as a whole; any other is cut where it begins. A stream's events aren't held up.
func guarded(resp *http.Response, token string, idle time.Duration, cancel context.CancelFunc) (*http.Response, error) {
	body := &body{idled: newIdled(resp.Body, idle, cancel), conn: resp.Body, cancel: cancel}
	if len(strings.TrimSpace(token)) >= leastToken {
		body.token = []byte(strings.TrimSpace(token))
	}
	body.r, body.status = body.idled, resp.StatusCode
	resp.Body = body
	known := resp.ContentLength >= 0 && resp.ContentLength <= lookedAt
	if body.token == nil || resp.StatusCode < 300 && !known {
		return resp, nil
	}
	head, err := io.ReadAll(io.LimitReader(body.idled, lookedAt))
	if quotes(head, token) {
		body.Close()
		return nil, batch.Withhold(resp.StatusCode, openai.CodeUpstreamDenied, head)
	}
	rest := io.Reader(body.idled)
	if err != nil {
		rest = failing{err}
	}
	body.r = io.MultiReader(bytes.NewReader(head), rest)
	return resp, nil
}

// failing is a reader that has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// body is the body of an answer that is passed on.
type body struct {
	shield
	idled  *idled
	conn   io.Closer
	cancel context.CancelFunc
}

// Read is the shield's, where there is a token to look for.
func (b *body) Read(p []byte) (int, error) {
	if b.token == nil {
		return b.r.Read(p)
	}
	return b.shield.Read(p)
}

// Close ends the request with the answer.
func (b *body) Close() error {
	defer b.cancel()
	b.idled.timer.Stop()
	return b.conn.Close()
}

// idled is a reader that waits for bytes so long and no longer; the time that its own
// reader takes with them doesn't count.
type idled struct {
	r     io.Reader
	most  time.Duration
	timer *time.Timer
	over  *atomic.Bool // it waited too long
}

func newIdled(r io.Reader, most time.Duration, cancel context.CancelFunc) *idled {
	over := new(atomic.Bool)
	timer := time.AfterFunc(most, func() {
		over.Store(true)
		cancel()
	})
	timer.Stop()
	return &idled{r, most, timer, over}
}

// Read is a batch.ErrTimeout when the time is over.
func (i *idled) Read(p []byte) (int, error) {
	i.timer.Reset(i.most)
	n, err := i.r.Read(p)
	i.timer.Stop()
	if err != nil && err != io.EOF && i.over.Load() {
		err = fmt.Errorf("%w: the reply stood still for %s", batch.ErrTimeout, i.most)
	}
	return n, err
}

// shield is a reader that gives out nothing of a stream that is the token. It keeps back
// what may be how the token begins, and nothing else, until more is there.
type shield struct {
	r      io.Reader
	token  []byte
	status int

	space []byte
	left  []byte // read, and not given out
	clear int    // of it, may go
	err   error
}

// Read fails with a *batch.Withheld where the token comes, also where it breaks off
// behind leastToken bytes of it.
func (s *shield) Read(p []byte) (int, error) {
	if s.space == nil {
		s.space = make([]byte, 0, 32<<10+len(s.token))
	}
	for s.clear == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.left = append(s.space[:0], s.left...)
		n, err := s.r.Read(s.left[len(s.left):cap(s.left)])
		s.left = s.left[:len(s.left)+n]
		begun := beginning(s.left, s.token)
		switch {
		case bytes.Contains(s.left, s.token), err != nil && begun >= leastToken:
			s.left, s.err = nil, &batch.Withheld{Status: s.status, Code: openai.CodeUpstreamDenied}
			return 0, s.err
		case err != nil:
			begun = 0
		}
		s.clear, s.err = len(s.left)-begun, err
	}
	n := copy(p, s.left[:s.clear])
	s.left, s.clear = s.left[n:], s.clear-n
	return n, nil
}

// beginning is how many bytes at the end of text are the first of token, not all of it.
func beginning(text, token []byte) int {
	for n := min(len(text), len(token)-1); n > 0; n-- {
		if bytes.HasSuffix(text, token[:n]) {
			return n
		}
	}
	return 0
}
