package jobs

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/bridge"
)

// Over real connections: what only a transport can do wrong.
var quick = Options{PollFirst: time.Millisecond, PollLongest: 2 * time.Millisecond}

func TestConnections(t *testing.T) {
	ok := func(w http.ResponseWriter) { io.WriteString(w, ours("queued")) }
	for name, c := range map[string]struct {
		timeout time.Duration
		answer  func(w http.ResponseWriter, r *http.Request)
		want    error
		calls   int64
	}{
		"whole":     {0, func(w http.ResponseWriter, r *http.Request) { ok(w) }, nil, 1},
		"no answer": {50 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ErrUnavailable, 4},
		"stalls": {50 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "{")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, ErrUnavailable, 4},
		"torn":       {0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnavailable, 4},
		"breaks off": {0, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "1000"); ok(w) }, ErrUnavailable, 4},
		"huge": {0, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"id":"job-1","x":"`+strings.Repeat("x", maxAnswer)+`"}`)
		}, ErrAnswer, 1},
		"huge refusal": {0, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			io.WriteString(w, strings.Repeat(" ", maxAnswer+1))
		}, ErrAnswer, 1},
		"never ends": {0, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write(make([]byte, 1<<16))
			}
		}, ErrAnswer, 1},
		"just not huge": {0, func(w http.ResponseWriter, r *http.Request) {
			s := ours("queued")
			io.WriteString(w, s+strings.Repeat(" ", maxAnswer-len(s)))
		}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := quick
			o.Timeout = c.timeout
			var calls atomic.Int64
			s := served(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
				calls.Add(1)
				c.answer(w, r)
			}, &o)
			job, err := submit(t, s, request())
			if c.want == nil && (err != nil || job != "job-1") || c.want != nil && (!errors.Is(err, c.want) || errors.Is(err, bridge.ErrRefused)) {
				t.Errorf("%q, %v", job, err)
			}
			if err != nil && strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the error names the host: %v", err)
			}
			// A transport may repeat a keyed request on a connection that was gone already.
			if n := calls.Load(); n < c.calls {
				t.Errorf("%d calls, want %d", n, c.calls)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s, err := New("http://"+l.Addr().String(), files(t, nil), &quick)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := submit(t, s, request()); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v", err)
	}
}

// A redirect is followed with neither transport: it would carry the token to a host
// that nobody configured.
func TestRedirects(t *testing.T) {
	leaked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked = true }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, own := range []http.RoundTripper{nil, http.DefaultTransport} {
			o := quick
			o.Transport, o.Token = own, func(context.Context) (string, error) { return "sk-1", nil }
			s := served(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) }, &o)
			_, err := submit(t, s, request())
			_, findErr := s.Find(t.Context(), id, request())
			for _, err := range []error{err, findErr} {
				if !errors.Is(err, ErrInstallation) || errors.Is(err, bridge.ErrRefused) || errors.Is(err, bridge.ErrNotFound) {
					t.Errorf("%d: %v", status, err)
				}
			}
		}
	}
	if leaked {
		t.Error("followed")
	}
}

// An answer that would make a tunnel of the connection is none, and nobody listens at the
// tunnel's end until the service hangs up.
func TestTunnel(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	s := served(t, func(w http.ResponseWriter, r *http.Request) {
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = out.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = out.Flush()
		<-over
	}, &Options{Timeout: 100 * time.Millisecond})
	done := make(chan error, 1)
	go func() {
		_, err := submit(t, s, request())
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, ErrAnswer) || errors.Is(err, bridge.ErrRefused) {
			t.Errorf("%v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it listens still")
	}
}
