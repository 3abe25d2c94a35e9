package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

const someBatch = "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa"

// An answer of another server is told apart, whatever it looks like.
func TestAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		status    int
		requestID string
		body      string
		say       []string
	}{
		"no such path":    {405, "", "Method Not Allowed", []string{"405: unexpected answer"}},
		"other JSON":      {404, "", `{"message":"Not Found"}`, []string{"404: unexpected answer"}},
		"only an id":      {404, "r", `{"message":"Not Found"}`, []string{"404: unexpected answer"}},
		"OpenAI's shape":  {404, "", `{"error":{"message":"No model here."}}`, []string{"404: No model here."}},
		"another's key":   {401, "", `{"error":{"message":"Bad token."}}`, []string{"401: Bad token."}},
		"a page":          {200, "", "<html>", []string{"200: unexpected answer"}},
		"another object":  {200, "", `{"status":"ok"}`, []string{"200: unexpected answer"}},
		"a redirect":      {301, "", "", []string{"301: unexpected answer", "https://"}},
		"HTTP to its TLS": {400, "", "The plain HTTP request was sent to HTTPS port", []string{"400: unexpected answer", "https://"}},
		"a gateway":       {503, "", "", []string{"503: unexpected answer", "Try again in a moment. If it stays so"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.before = func(w http.ResponseWriter, _ *http.Request) bool {
				if c.requestID != "" {
					w.Header().Set("X-Request-Id", c.requestID)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
				return true
			}
			h.env[envURL] = strings.Replace(h.url, "http://", "http://user:secret@", 1) + "/prod"
			r := h.run("status", someBatch).is(1, append(c.say, "doesn't look like Holdfast's API: "+h.url+"/prod/v1/batches/"+someBatch, "heck "+envURL, "without /v1")...)
			if strings.Contains(r.stderr, "secret") || strings.Contains(r.stderr, "holdfast key create") {
				t.Errorf("stderr %s", r.stderr)
			}
		})
	}
	// The API's own refusals are not doubted.
	h := newHouse(t)
	if r := h.run("status", someBatch).is(1, "batch_not_found"); strings.Contains(r.stderr, "look like") {
		t.Errorf("stderr %s", r.stderr)
	}
}

// HTTP on a port that speaks something else, and the other way round.
func TestWrongScheme(t *testing.T) {
	for name, said := range map[string]string{"nothing": "", "noise": "\x15\x03\x01\x00\x02\x02\x16"} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.before = func(w http.ResponseWriter, _ *http.Request) bool {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return true
				}
				io.WriteString(conn, said)
				conn.Close()
				return true
			}
			h.run("status", someBatch).is(1, "look at "+someBatch+": no HTTP answer from "+envURL+"="+h.url, "begins with https://")
		})
	}
	t.Run("TLS", func(t *testing.T) {
		h := newHouse(t)
		ts := httptest.NewTLSServer(http.NotFoundHandler())
		defer ts.Close()
		h.env[envURL] = strings.Replace(ts.URL, "https://", "http://", 1)
		h.run("status", someBatch).is(1, "begins with https://") // Go's server answers 400
	})
	t.Run("no TLS", func(t *testing.T) {
		h := newHouse(t)
		h.env[envURL] = strings.Replace(h.url, "http://", "https://", 1)
		h.run("status", h.ended(batch.Completed).ID).is(1, "begin with http://")
	})
}

// A refusal that passes says when, and one for a size whose limit it was.
func TestAdvice(t *testing.T) {
	for name, c := range map[string]struct {
		err   *openai.Error
		after string // instead of the error's own
		say   []string
	}{
		"429":           {openai.RateLimited(1500 * time.Millisecond), "", []string{"429: Too many requests;", "Try again in 2 s."}},
		"429, long":     {openai.EnqueuedLimit(10, 90*time.Second), "", []string{"429: The limit of 10 enqueued requests", "Try again in 90 s."}},
		"429, unknown":  {openai.RateLimited(0), "", []string{"Try again in a moment."}},
		"429, nonsense": {openai.RateLimited(0), "86401", []string{"Try again in a moment."}},
		"413":           {openai.FileTooLarge(17), "", []string{"413: The file is larger than the limit of 17 bytes; split it into several batches. (", "the limit of the tenant (holdfast tenant show TENANT) or that of the installation (HOLDFAST_FILE_BYTES)"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.before = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("X-Request-Id", "req_1")
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				openai.WriteError(w, c.err)
				return true
			}
			h.run("submit", h.file(line)).is(1, c.say...)
		})
	}
}

func TestLasting(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Second: "10s", 10 * time.Minute: "10m", 70 * time.Second: "1m10s", time.Hour: "1h",
		time.Hour + 10*time.Minute: "1h10m", time.Hour + time.Second: "1h0m1s", 20 * time.Hour: "20h", 1500 * time.Millisecond: "1.5s",
	} {
		if got := lasting(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The gateway knows no batches and says so; what may be wrong is the URL.
func TestTheGatewaysURL(t *testing.T) {
	h := newHouse(t)
	h.env[envURL] = h.url + "/gateway"
	h.run("status", someBatch).is(1, "unknown_url", "Is "+envURL+" the API's (ApiUrl), not the gateway's?")
}
