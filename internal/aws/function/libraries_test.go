package function

import (
	"bytes"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// written is a log that is read while it is written.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// capture has the log of libraries end here.
func capture(t *testing.T) *written {
	w := &written{}
	flags, prefix, out := stdlog.Flags(), stdlog.Prefix(), stdlog.Writer()
	t.Cleanup(func() { stdlog.SetFlags(flags); stdlog.SetPrefix(prefix); stdlog.SetOutput(out) })
	quoteLess(slog.New(slog.NewJSONHandler(w, nil)))
	return w
}

// A server that goes on behind the end of its answer gets nothing of it into our log,
// though net/http wants it there.
func TestWhatALibraryQuotes(t *testing.T) {
	w := capture(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := http.NewResponseController(w).Hijack()
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}PLANTED %s", r.Header.Get("Authorization"))
		_, _ = io.Copy(io.Discard, conn) // until the client hangs up
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer sk-planted")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "{}" {
		t.Errorf("%q, %v", body, err)
	}
	resp.Body.Close()
	deadline := time.After(10 * time.Second)
	for !strings.Contains(w.String(), "\n") {
		select {
		case <-deadline:
			t.Fatal("net/http says nothing of it any more: this test shows nothing")
		case <-time.After(time.Millisecond):
		}
	}
	said := w.String()
	if !strings.Contains(said, `"level":"WARN"`) || !strings.Contains(said, "Unsolicited response") || strings.Contains(said, "PLANTED") || strings.Contains(said, "sk-") {
		t.Errorf("logged: %s", said)
	}
}

// What Lambda's client says of our own errors is kept.
func TestOwnErrorsAreKept(t *testing.T) {
	w := capture(t)
	stdlog.Printf("%s", `{"errorMessage":"plan batch_1: no such table","errorType":"wrapError"}`)
	if said := w.String(); !strings.Contains(said, "no such table") || strings.Count(said, "\n") != 1 {
		t.Errorf("logged: %s", said)
	}
}
