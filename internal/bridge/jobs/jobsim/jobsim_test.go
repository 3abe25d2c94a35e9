package jobsim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// client calls a service over a real connection; every post has the key k.
type client struct {
	*testing.T
	url string
}

func serve(t *testing.T, o Options) client {
	s := httptest.NewServer(New(o))
	t.Cleanup(s.Close)
	return client{t, s.URL}
}

func (c client) call(method, path, key, body string) (int, string) {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(b)
}

func body(key, sim, hash string) string {
	return fmt.Sprintf(`{"v":1,"id":%q,"tenant":"t","principal":"p","request_hash":%q,"input":{"bucket":"b","key":"k"},"endpoint":"/v1/x","metadata":{"sim":%q}}`, key, hash, sim)
}

func TestPosts(t *testing.T) {
	for _, c := range []struct {
		sim  string
		want []int // statuses of successive posts; 0: the connection was closed
		jobs int
	}{
		{"", []int{201, 201, 201}, 1},
		{"lose-2", []int{0, 0, 201}, 1},
		{"busy-2", []int{503, 503, 201}, 1},
		{"refuse-422", []int{422, 422}, 0},
		{"refuse-200", []int{201}, 1}, // no error's status
		{"pending-60000", []int{202, 202}, 1},
		{"maybe-60000", []int{202, 202}, 1},
		{"slow-1", []int{201}, 1},
		{"unknown-1", []int{201}, 1},
	} {
		t.Run(c.sim, func(t *testing.T) {
			to := serve(t, Options{})
			for i, want := range c.want {
				if got, text := to.call("POST", "/v1/jobs", "k", body("k", c.sim, "h")); got != want {
					t.Errorf("post %d: %d %s, want %d", i, got, text, want)
				}
			}
			var s Stats
			if _, text := to.call("GET", "/sim/stats", "", ""); json.Unmarshal([]byte(text), &s) != nil || s.Jobs != c.jobs || s.Posts != len(c.want) {
				t.Errorf("%+v", s)
			}
			if _, text := to.call("GET", "/sim/jobs", "", ""); text != fmt.Sprintf("{\"k\":%d}\n", len(c.want)) {
				t.Errorf("%s", text)
			}
			for path, there := range map[string]bool{"/v1/jobs/k": c.jobs == 1, "/v1/jobs/job-1": c.jobs == 1, "/v1/jobs/job-2": false} {
				got, text := to.call("GET", path, "", "")
				if (got == 200) != there || got == 404 == there || there && !strings.Contains(text, `"idempotency_key":"k"`) {
					t.Errorf("%s: %d %s", path, got, text)
				}
			}
			to.call("POST", "/sim/reset", "", "")
			if got, _ := to.call("GET", "/v1/jobs/k", "", ""); got != 404 {
				t.Errorf("after a reset: %d", got)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	to := serve(t, Options{})
	to.call("POST", "/v1/jobs", "k", body("k", "", "h"))
	for name, c := range map[string]struct {
		key, body string
		want      int
	}{
		"another request": {"k", body("k", "", "other"), 409},
		"no key":          {"", body("k", "", "h"), 400},
		"another key":     {"l", body("k", "", "h"), 400},
		"no JSON":         {"k", "{", 400},
		"no input":        {"k", `{"v":1,"id":"k","tenant":"t","principal":"p","endpoint":"e"}`, 400},
		"version":         {"k", strings.Replace(body("k", "", "h"), `"v":1`, `"v":2`, 1), 400},
	} {
		if got, text := to.call("POST", "/v1/jobs", c.key, c.body); got != c.want || !strings.Contains(text, `"error":{"code":"`) {
			t.Errorf("%s: %d %s", name, got, text)
		}
	}
}

// What an installation's options say holds for jobs that say nothing.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []int
	}{
		{Options{Refuse: 403}, []int{403, 403}},
		{Options{Lose: 1}, []int{0, 201}},
		{Options{Pending: 3600e9}, []int{202}},
		{Options{Token: "t"}, []int{401}},
	} {
		to := serve(t, c.o)
		for i, want := range c.want {
			if got, text := to.call("POST", "/v1/jobs", "k", body("k", "", "h")); got != want {
				t.Errorf("%+v, post %d: %d %s", c.o, i, got, text)
			}
		}
	}
}
