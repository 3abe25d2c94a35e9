package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/outbound"
)

var local = &Options{Guard: outbound.Guard{Allow: outbound.Loopback}}

func serve(t *testing.T, o *Options, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	if o == nil {
		o = &Options{}
	}
	o.Guard.Allow = outbound.Loopback // where tests have their servers
	c, err := New(s.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(body string) batch.Call {
	return batch.Call{Tenant: "acme", Batch: "batch_1", Submitter: "ada@example.com", Line: 7, Endpoint: "/v1/chat/completions", Body: []byte(body)}
}

func TestCallSendsTheBodyUntouchedAndTheHeaders(t *testing.T) {
	const body = "{ \"n\": 1.0e+10, \"a\":\"\\u00e9\", \"n2\":1234567890123456789012 }"
	var got string
	var h http.Header
	var path string
	c := serve(t, &Options{Key: func(context.Context) (string, error) { return "sk-1", nil }}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, h, path = string(b), r.Header, r.URL.Path
		w.Header().Set("X-Request-Id", "req-9")
		w.WriteHeader(418)
		io.WriteString(w, "tea")
	})
	reply, err := c.Call(t.Context(), call(body))
	if err != nil {
		t.Fatal(err)
	}
	if got != body {
		t.Errorf("body arrived as %q", got)
	}
	if path != "/v1/chat/completions" {
		t.Errorf("path %q", path)
	}
	for k, want := range map[string]string{"Authorization": "Bearer sk-1", "X-Tenant-Id": "acme", "X-Batch-Id": "batch_1", "X-On-Behalf-Of": "ada@example.com", "X-Batch-Line": "7", "Content-Type": "application/json"} {
		if h.Get(k) != want {
			t.Errorf("%s: %q, want %q", k, h.Get(k), want)
		}
	}
	if reply.Status != 418 || string(reply.Body) != "tea" || reply.RequestID != "req-9" {
		t.Errorf("reply %+v", reply)
	}
}

// The upstream's id of a request goes into a result line: it is cut, and text.
func TestRequestIDIsBounded(t *testing.T) {
	id := strings.Repeat("x", 255) + "\xc3\xa9" + strings.Repeat("y", 1000)
	c := serve(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", id)
	})
	if reply, err := c.Call(t.Context(), call("{}")); err != nil || reply.RequestID != id[:255] {
		t.Errorf("%q, %v", reply.RequestID, err)
	}
}

func TestCallErrors(t *testing.T) {
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	hang := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}
	broken := func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		conn.Close()
	}
	for _, tt := range []struct {
		name string
		o    *Options
		h    http.HandlerFunc
		want error
	}{
		{"own timeout", &Options{Timeout: 20 * time.Millisecond}, hang, batch.ErrTimeout},
		{"stalled body", &Options{Timeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "{")
			http.NewResponseController(w).Flush()
			hang(w, r)
		}, batch.ErrTimeout},
		{"broken reply", nil, broken, batch.ErrUnreachable},
		{"one byte too large", &Options{ReplyBytes: 10}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "12345678901") }, batch.ErrReplyTooLarge},
		{"secret", &Options{Key: func(context.Context) (string, error) { return "", errors.New("denied") }}, hang, batch.ErrNoCredential},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := serve(t, tt.o, tt.h).Call(t.Context(), call("{}"))
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("error names the host: %v", err)
			}
		})
	}
	t.Run("exactly the bound passes", func(t *testing.T) {
		c := serve(t, &Options{ReplyBytes: 10}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "1234567890") })
		if r, err := c.Call(t.Context(), call("{}")); err != nil || len(r.Body) != 10 {
			t.Fatal(r, err)
		}
	})
	t.Run("caller's end is the caller's error", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := serve(t, nil, func(w http.ResponseWriter, r *http.Request) { cancel(); hang(w, r) })
		if _, err := c.Call(ctx, call("{}")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		c, err := New("http://"+l.Addr().String(), local)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Call(t.Context(), call("{}")); !errors.Is(err, batch.ErrUnreachable) {
			t.Fatal(err)
		}
	})
}

// A reply's body is in memory only where the worker has room for it.
func TestCallAsksForRoom(t *testing.T) {
	const size = 100_000
	for _, tt := range []struct {
		name   string
		length bool // known before the body
		most   int
	}{{"length known", true, 1}, {"length unknown", false, 6}} {
		t.Run(tt.name, func(t *testing.T) {
			cl := serve(t, &Options{ReplyBytes: size}, func(w http.ResponseWriter, r *http.Request) {
				if tt.length {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				for range 10 {
					w.Write(make([]byte, size/10))
					http.NewResponseController(w).Flush()
				}
			})
			var asked []int64
			c := call("{}")
			c.Room = func(_ context.Context, n int64) error {
				asked = append(asked, n)
				return nil
			}
			r, err := cl.Call(t.Context(), c)
			if err != nil || len(r.Body) != size {
				t.Fatalf("%d bytes, %v", len(r.Body), err)
			}
			if len(asked) == 0 || len(asked) > tt.most || !slices.IsSorted(asked) || asked[len(asked)-1] < int64(cap(r.Body)) {
				t.Errorf("asked for %v for %d bytes in %d", asked, size, cap(r.Body))
			}
			if last := asked[len(asked)-1]; last > size+1 {
				t.Errorf("asked for %d, more than any reply has", last)
			}
		})
	}
	t.Run("no room in time", func(t *testing.T) {
		cl := serve(t, &Options{Timeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
		c := call("{}")
		c.Room = func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		}
		if _, err := cl.Call(t.Context(), c); !errors.Is(err, batch.ErrTimeout) {
			t.Error(err)
		}
	})
}

// A secret that can't be read is never the line's fault, however long it took.
func TestUnreadableSecret(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  func(context.Context, context.CancelFunc) (string, error)
		want error
	}{
		{"denied", func(context.Context, context.CancelFunc) (string, error) { return "", errors.New("denied") }, batch.ErrNoCredential},
		{"too slow", func(ctx context.Context, _ context.CancelFunc) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, batch.ErrNoCredential},
		{"caller's end", func(ctx context.Context, cancel context.CancelFunc) (string, error) {
			cancel()
			return "", ctx.Err()
		}, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cl := serve(t, &Options{Timeout: 50 * time.Millisecond, Key: func(ctx context.Context) (string, error) { return tt.key(ctx, cancel) }},
				func(http.ResponseWriter, *http.Request) { t.Error("asked without a secret") })
			_, err := cl.Call(ctx, call("{}"))
			if !errors.Is(err, tt.want) || errors.Is(err, batch.ErrUnreachable) || errors.Is(err, batch.ErrTimeout) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if errors.Is(err, batch.ErrNoCredential) && errors.Is(tt.want, context.Canceled) {
				t.Errorf("got %v, want the caller's own end", err)
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	leaked := false
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { leaked = true }))
	t.Cleanup(other.Close)
	c := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	r, err := c.Call(t.Context(), call("{}"))
	if err != nil || r.Status != http.StatusTemporaryRedirect || leaked {
		t.Fatalf("%+v %v leaked=%v", r, err, leaked)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, base := range []string{"", "model", "ftp://x", "http://", "https://user:pw@host", "https://host?x=1", "https://host#f", "https://host/v1", "https://host/v1/", "http://[::1"} {
		if _, err := New(base, nil); err == nil {
			t.Errorf("%q was accepted", base)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: error shows the password", base)
		}
	}
	for _, base := range []string{"https://host", "http://10.0.0.7:4567/", "https://host/prefix"} {
		if _, err := New(base, nil); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
	// What is refused when it is dialled is told at once where the URL says it.
	for _, base := range []string{"http://127.0.0.1:4567/", "http://localhost", "http://[::ffff:169.254.169.254]/x", "http://169.254.170.2", "http://2130706433", "https://[fd00:ec2::254]"} {
		if _, err := New(base, nil); !errors.Is(err, outbound.ErrAddress) || strings.Contains(err.Error(), "169") {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := New("http://127.0.0.1:4567", local); err != nil {
		t.Error(err)
	}
}
