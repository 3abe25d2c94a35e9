package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

const token = "sk-upstream-SECRET"

func keyed(o Options) *Options {
	o.Key = func(context.Context) (string, error) { return " " + token + "\n", nil }
	return &o
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func open(t *testing.T, c *Client) (*http.Response, error) {
	t.Helper()
	resp, err := c.Open(t.Context(), "/v1/x", nil, []byte("{}"), nil)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// An answer of any status that quotes the token reaches nobody, in a header neither.
func TestAnswerThatQuotesTheToken(t *testing.T) {
	for _, status := range []int{200, 201, 400, 404, 421, 429, 500, 502, 529} {
		quoted := `{"error":{"message":"bad request with headers Bearer ` + token + `"}}`
		c := serve(t, keyed(Options{}), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "req-"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			io.WriteString(w, quoted)
		})
		want := batch.Withheld{Status: status, Code: openai.CodeUpstreamDenied, Sum: sum(quoted), Bytes: int64(len(quoted))}
		reply, err := c.Call(t.Context(), call("{}"))
		if err != nil || reply.Withheld == nil || *reply.Withheld != want || reply.Body != nil || reply.Status != status || reply.RequestID != "" || reply.RetryAfter != 7*time.Second {
			t.Errorf("%d: %+v, %v", status, reply, err)
		}
		_, err = open(t, c)
		if w, ok := errors.AsType[*batch.Withheld](err); !ok || *w != want || strings.Contains(err.Error(), token) {
			t.Errorf("%d: %v", status, err)
		}
	}
	// A short token is in texts by chance.
	c := serve(t, &Options{Key: func(context.Context) (string, error) { return "message", nil }}, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"message":1}`)
	})
	if reply, err := c.Call(t.Context(), call("{}")); err != nil || reply.Withheld != nil {
		t.Errorf("%+v, %v", reply, err)
	}
}

// A stream is cut before the first byte of the token, however it is sent, and keeps back
// nothing else.
func TestStreamThatQuotesTheToken(t *testing.T) {
	for name, c := range map[string]struct {
		said []string
		want string // what passes
		cut  bool
	}{
		"in one piece":         {[]string{"data: 1\n\n", "data: " + token + "\n\n"}, "data: 1\n\ndata: ", true},
		"behind half of it":    {[]string{"data: sk-up", "sk-upstream-", "SECRET more"}, "data: sk-up", true},
		"in many":              {strings.Split("data: "+token+".", ""), "data: ", true},
		"like it":              {[]string{"sk-upstream-", "public", " sk-upstream-SECRE?", " sk"}, "sk-upstream-public sk-upstream-SECRE? sk", false},
		"all but the end":      {[]string{"data: ", token[:len(token)-1]}, "data: ", true},
		"less than counts":     {[]string{"data: ", token[:leastToken-1]}, "data: " + token[:leastToken-1], false},
		"nothing of it":        {[]string{"data: {}\n\n"}, "data: {}\n\n", false},
		"behind a long answer": {[]string{strings.Repeat("x", 100_000), "sk-upstream-", "SECRET"}, strings.Repeat("x", 100_000), true},
	} {
		for _, status := range []int{200, 500} {
			// Over a connection.
			cl := serve(t, keyed(Options{}), func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				for _, s := range c.said {
					io.WriteString(w, s)
					http.NewResponseController(w).Flush()
				}
			})
			resp, err := open(t, cl)
			if err == nil {
				var got []byte
				got, err = io.ReadAll(resp.Body)
				if len(got) > len(c.want) || !strings.HasPrefix(c.want, string(got)) || !c.cut && string(got) != c.want {
					t.Errorf("%s, %d: %.40q passed", name, status, got)
				}
			}
			if w, cut := errors.AsType[*batch.Withheld](err); cut != c.cut || cut && w.Status != status || !cut && err != nil {
				t.Errorf("%s, %d: %v", name, status, err)
			}
		}
		// Byte by byte: all of what may pass does.
		s := &shield{r: iotest.OneByteReader(strings.NewReader(strings.Join(c.said, ""))), token: []byte(token)}
		got, err := io.ReadAll(s)
		if string(got) != c.want || (err != nil) != c.cut {
			t.Errorf("%s: %.40q passed, %v", name, got, err)
		}
	}
}

// What can't be how the token begins is passed on when it comes.
func TestStreamIsNotHeldUp(t *testing.T) {
	in, out := io.Pipe()
	s := &shield{r: in, token: []byte(token)}
	for _, part := range []string{"a", "data: sk\n\n", "sk-upstream-S!", strings.Repeat("s", 9)} {
		go io.WriteString(out, part)
		got := make([]byte, len(part))
		n, err := io.ReadAtLeast(s, got, len(strings.TrimSuffix(part, "s")))
		if err != nil || string(got[:n]) != part[:n] {
			t.Errorf("%q: %q, %v", part, got[:n], err)
		}
		if part[n:] != "" && part[n:] != "s" {
			t.Errorf("%q: %q is held back", part, part[n:])
		}
	}
}

// A redirect is one wherever it leads, be that no URL.
func TestRedirectToNowhere(t *testing.T) {
	for _, to := range []string{"", "http://[::1", "%zz", "http://a b/"} {
		c := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{to}
			w.WriteHeader(http.StatusFound)
		})
		_, err := open(t, c)
		if w, ok := errors.AsType[*batch.Withheld](err); !ok || w.Status != http.StatusFound || w.Code != openai.CodeUpstreamRedirected {
			t.Errorf("%q: %v", to, err)
		}
	}
}

// A redirect's body and a refusal's are read and let go; a status that is none is no answer.
func TestAnswersThatNobodyGets(t *testing.T) {
	for status, code := range map[int]string{302: openai.CodeUpstreamRedirected, 304: openai.CodeUpstreamRedirected, 401: openai.CodeUpstreamDenied, 403: openai.CodeUpstreamDenied, 407: openai.CodeUpstreamDenied} {
		c := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://10.0.0.7/")
			w.WriteHeader(status)
			if status != 304 {
				io.WriteString(w, strings.Repeat("x", 100_000))
			}
		})
		_, err := open(t, c)
		if w, ok := errors.AsType[*batch.Withheld](err); !ok || w.Status != status || w.Code != code || status != 304 && w.Bytes != lookedAt {
			t.Errorf("%d: %v", status, err)
		}
	}
	for _, status := range []string{"101 Switching Protocols", "000 x", "099 x", "600 x", "999 x"} {
		c := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n{}", status)
		})
		if _, err := open(t, c); !errors.Is(err, batch.ErrUnreachable) {
			t.Errorf("%s: %v", status, err)
		}
		if _, err := c.Call(t.Context(), call("{}")); !errors.Is(err, batch.ErrUnreachable) {
			t.Errorf("%s: %v", status, err)
		}
	}
}

// An answer that nobody gets keeps nobody waiting.
func TestWithheldAnswerThatStandsStill(t *testing.T) {
	for _, status := range []int{302, 401} {
		for _, zipped := range []bool{false, true} {
			c := serve(t, keyed(Options{Idle: 30 * time.Millisecond}), func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if zipped {
					w.Header().Set("Content-Encoding", "gzip")
				}
				w.WriteHeader(status)
				io.WriteString(w, "{")
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			_, err := open(t, c)
			if w, ok := errors.AsType[*batch.Withheld](err); !ok || w.Status != status || !zipped && w.Sum != sum("{") {
				t.Errorf("%d: %v", status, err)
			}
			if reply, err := c.Call(t.Context(), call("{}")); err != nil || reply.Withheld == nil || reply.Withheld.Status != status {
				t.Errorf("%d: %+v, %v", status, reply, err)
			}
		}
	}
}

// An answer that stands still is given up, one whose reader takes its time is not.
func TestIdle(t *testing.T) {
	for name, length := range map[string]string{"a stream": "", "a known length": "100"} {
		c := serve(t, keyed(Options{Idle: 30 * time.Millisecond}), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does it see that the client is gone
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			io.WriteString(w, "{")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		resp, err := open(t, c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != "{" || !errors.Is(err, batch.ErrTimeout) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	// With a reader that is slower than that for each of many bytes.
	over := false
	i := newIdled(iotest.OneByteReader(strings.NewReader("slow")), 5*time.Millisecond, func() { over = true })
	for p := make([]byte, 1); ; {
		if _, err := i.Read(p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
	if over {
		t.Error("its reader's own time counted")
	}
}
