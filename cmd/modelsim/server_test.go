package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func post(t *testing.T, url, path, line, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Batch-ID", "b")
	req.Header.Set("X-Batch-Line", line)
	req.Header.Set("X-On-Behalf-Of", "ann of "+line)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestBehaviours(t *testing.T) {
	s := httptest.NewServer(newServer(options{}))
	t.Cleanup(s.Close)
	for _, tt := range []struct {
		path, model string
		want        []int // statuses of successive tries
		json        bool
		text        string
	}{
		{"/v1/chat/completions", "sim", []int{200, 200}, true, "chat.completion"},
		{"/v1/embeddings", "sim", []int{200}, true, "embedding"},
		{"/v1/responses", "sim", []int{200}, true, "output_text"},
		{"/v1/chat/completions", "sim-slow-1", []int{200}, true, "usage"},
		{"/v1/chat/completions", "sim-400", []int{400, 400}, true, "invalid_request_error"},
		{"/v1/chat/completions", "sim-429-once", []int{429, 200, 200}, true, ""},
		{"/v1/chat/completions", "sim-429", []int{429, 429}, true, "slow down"},
		{"/v1/chat/completions", "sim-500", []int{500}, true, "server_error"},
		{"/v1/chat/completions", "sim-nonjson", []int{200}, false, "<html>"},
	} {
		t.Run(tt.path+" "+tt.model, func(t *testing.T) {
			for i, want := range tt.want {
				resp, body := post(t, s.URL, tt.path, tt.path+tt.model, `{"model":"`+tt.model+`"}`)
				if resp.StatusCode != want || json.Valid([]byte(body)) != tt.json || !strings.Contains(body, tt.text) {
					t.Errorf("try %d: %d %s", i+1, resp.StatusCode, body)
				}
				if want == 429 && resp.Header.Get("Retry-After-Ms") == "" {
					t.Error("429 without Retry-After-Ms")
				}
			}
		})
	}
	if _, body := post(t, s.URL, "/v1/completions", "large", `{"model":"sim-large-100000"}`); len(body) < 100000 {
		t.Errorf("large reply has %d bytes", len(body))
	}
	if resp, _ := post(t, s.URL, "/v1/completions", "bad", `not json`); resp.StatusCode != 400 {
		t.Errorf("bad body: %d", resp.StatusCode)
	}
	if _, err := http.Post(s.URL+"/v1/x", "", strings.NewReader(`{"model":"sim-reset"}`)); err == nil {
		t.Error("sim-reset answered")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/x", strings.NewReader(`{"model":"sim-hang"}`))
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Error("sim-hang answered")
	}
}

// flushes counts how often what was written is sent.
type flushes struct {
	*httptest.ResponseRecorder
	n int
}

func (f *flushes) FlushError() error { f.n++; return nil }

func TestStream(t *testing.T) {
	h := newServer(options{})
	for _, tt := range []struct {
		body   string
		usage  bool
		events int
	}{
		{`{"model":"sim","stream":true}`, false, 6},
		{`{"model":"sim-large-1000","stream":true,"stream_options":{"include_usage":true}}`, true, 7},
	} {
		w := &flushes{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(tt.body)))
		events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") || len(events) != tt.events || w.n != tt.events || events[len(events)-1] != "data: [DONE]" {
			t.Fatalf("%d, %v, %d flushes: %s", w.Code, w.Header(), w.n, w.Body)
		}
		var text, finish string
		for i, e := range events[:len(events)-1] {
			var c struct {
				ID, Object, Model string
				Choices           []struct {
					Delta  struct{ Role, Content string }
					Finish *string `json:"finish_reason"`
				}
				Usage *struct {
					Prompt int `json:"prompt_tokens"`
					Out    int `json:"completion_tokens"`
					Total  int `json:"total_tokens"`
				}
			}
			data, ok := strings.CutPrefix(e, "data: ")
			if err := json.Unmarshal([]byte(data), &c); err != nil || !ok || c.Object != "chat.completion.chunk" || !strings.HasPrefix(c.ID, "chatcmpl-") || !strings.HasPrefix(c.Model, "sim") {
				t.Fatalf("%v: %s", err, e)
			}
			if strings.Contains(data, `"usage"`) != tt.usage {
				t.Errorf("usage where it wasn't asked for, or none: %s", data)
			}
			if last := i == len(events)-2; tt.usage && last {
				if u := c.Usage; u == nil || u.Prompt != len(tt.body)/4+1 || u.Out != 12 || u.Total != u.Prompt+12 || len(c.Choices) != 0 {
					t.Errorf("the last: %s", data)
				}
				continue
			}
			if len(c.Choices) != 1 || c.Usage != nil || (c.Choices[0].Delta.Role == "assistant") != (i == 0) {
				t.Fatalf("event %d: %s", i, data)
			}
			if text += c.Choices[0].Delta.Content; c.Choices[0].Finish != nil {
				finish += *c.Choices[0].Finish
			}
		}
		want := fmt.Sprintf("You sent %x", sha256.Sum256([]byte(tt.body)))
		if tt.usage {
			want += " " + strings.Repeat("x", 1000-len(want))
		}
		if text != want || finish != "stop" {
			t.Errorf("%q, ended by %q, want %q", text, finish, want)
		}
	}
	// Other shapes don't stream, and a refusal is none of events.
	for path, body := range map[string]string{"/v1/embeddings": `{"model":"sim","stream":true}`, "/v1/chat/completions": `{"model":"sim-400","stream":true}`} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body)))
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

func TestLedgerCountsTriesAndHashes(t *testing.T) {
	s := httptest.NewServer(newServer(options{}))
	t.Cleanup(s.Close)
	post(t, s.URL, "/v1/chat/completions", "3", `{"model":"sim"}`)
	post(t, s.URL, "/v1/chat/completions", "3", `{"model":"sim"}`)
	post(t, s.URL, "/v1/chat/completions", "4", `{"model":"sim"}`)
	read := func() (a account) {
		resp, err := http.Get(s.URL + "/sim/requests?batch=b")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := read()
	// printf '{"model":"sim"}' | sha256sum
	const sum = "802ed017a5a6d4209e0aea4c6069d0f1e56ddae37100c663cc61258c073dcf3a"
	if a.Requests != 3 || a.Lines["3"].Tries != 2 || a.Lines["4"].Tries != 1 || a.InFlight != 0 || a.MaxInFlight != 1 {
		t.Errorf("%+v", a)
	}
	if len(a.For) != 2 || a.For["ann of 3"] != 2 || a.For["ann of 4"] != 1 {
		t.Errorf("on behalf of %v", a.For)
	}
	if a.Lines["3"].Sum.String() != sum {
		t.Errorf("hash %s, want %s", a.Lines["3"].Sum, sum)
	}
	if resp, err := http.Post(s.URL+"/sim/reset", "", nil); err != nil || resp.StatusCode != 204 {
		t.Fatal(resp, err)
	}
	if a := read(); a.Requests != 0 || len(a.Lines) != 0 {
		t.Errorf("after reset: %+v", a)
	}
}

// What is here is listed with who sent it, and leaves the list when it is given up.
func TestFlying(t *testing.T) {
	s := httptest.NewServer(newServer(options{}))
	t.Cleanup(s.Close)
	list := func() (all []flight) {
		resp, err := http.Get(s.URL + "/sim/flying")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/completions", strings.NewReader(`{"model":"sim-hang"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Batch-ID", "b")
	req.Header.Set("X-Batch-Line", "7")
	gone := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req)
		gone <- err
	}()
	all := list()
	for ; len(all) == 0 && t.Context().Err() == nil; all = list() {
	}
	if len(all) != 1 || all[0].Batch != "b" || all[0].Line != "7" || !strings.HasPrefix(all[0].From, "127.0.0.1:") {
		t.Errorf("%+v", all)
	}
	giveUp()
	<-gone
	for ; len(all) > 0 && t.Context().Err() == nil; all = list() {
	}
}

func TestRunRefusesOtherAddresses(t *testing.T) {
	for _, l := range []string{"0.0.0.0:0", "nowhere", "example.com:80", ":0"} {
		if err := run(l, options{}); err == nil {
			t.Errorf("%q was accepted", l)
		}
	}
}
