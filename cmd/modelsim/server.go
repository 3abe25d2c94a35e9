package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request: no line is larger than 10 MiB.
const maxBody = 16 << 20

// server answers like a model would, on request badly, and counts.
type server struct {
	options
	slots chan struct{} // one element for each request being answered; nil: any number
	seen  ledger
	here  flights
}

// options is how a model behaves whatever it is asked.
type options struct {
	latency time.Duration // of a reply, the median where sigma is set
	sigma   float64       // spread of lognormal latencies; 0: constant
	slots   int           // requests answered at once, the others wait in line; 0: any number
}

func newServer(o options) http.Handler {
	s := &server{options: o}
	if o.slots > 0 {
		s.slots = make(chan struct{}, o.slots)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{"id": "sim", "object": "model", "created": 0, "owned_by": "modelsim"}}})
	})
	mux.HandleFunc("GET /sim/requests", s.requests)
	mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, s.seen.statsOf(r.URL.Query().Get("batch")))
	})
	mux.HandleFunc("GET /sim/flying", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, s.here.all())
	})
	mux.HandleFunc("POST /sim/reset", func(w http.ResponseWriter, r *http.Request) {
		s.seen.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /v1/", s.complete)
	return mux
}

func (s *server) requests(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, s.seen.of(r.URL.Query().Get("batch")))
}

// request is what a reply depends on.
type request struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// complete is every POST under /v1/.
func (s *server) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "request body could not be read")
		return
	}
	sum, batch := sha256.Sum256(body), r.Header.Get("X-Batch-ID")
	try := s.seen.begin(batch, r.Header.Get("X-Batch-Line"), r.Header.Get("X-On-Behalf-Of"), sum, time.Now())
	defer func() { s.seen.end(batch, time.Now()) }()
	defer s.here.begin(flight{Batch: batch, Line: r.Header.Get("X-Batch-Line"), From: r.RemoteAddr, Since: time.Now()})()
	leave, ok := s.enter(r, batch)
	if !ok {
		return
	}
	defer leave()
	w.Header().Set("X-Request-Id", "sim-"+hex.EncodeToString(sum[:6])+"-"+strconv.Itoa(try))

	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		refuse(w, http.StatusBadRequest, "request body is not a JSON object")
		return
	}
	wait := s.wait()
	if ms, ok := number(req.Model, "sim-slow-"); ok {
		wait = time.Duration(ms) * time.Millisecond
	}
	if req.Model == "sim-hang" {
		wait = time.Hour
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case req.Model == "sim-400":
		refuse(w, http.StatusBadRequest, "this model refuses every request")
	case req.Model == "sim-429", req.Model == "sim-429-once" && try == 1:
		w.Header().Set("Retry-After-Ms", "50")
		refuse(w, http.StatusTooManyRequests, "slow down")
	case req.Model == "sim-500":
		refuse(w, http.StatusInternalServerError, "this model is broken")
	case req.Model == "sim-nonjson":
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html>\n\t<body>\"not\" JSON\\</body>\n</html>\n")
	case req.Model == "sim-reset":
		panic(http.ErrAbortHandler)
	default:
		answer(w, r.URL.Path, req, hex.EncodeToString(sum[:]), len(body))
	}
}

// enter waits in line for a slot; leave gives it back. ok is false when the
// client gave up before its turn.
func (s *server) enter(r *http.Request, batch string) (leave func(), ok bool) {
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}: // whoever waits longest is the next
		case <-r.Context().Done():
			return nil, false
		}
	}
	since := time.Now()
	s.seen.enter(batch)
	return func() {
		s.seen.leave(batch, since, time.Now())
		if s.slots != nil {
			<-s.slots
		}
	}, true
}

// wait draws a latency.
func (s *server) wait() time.Duration {
	if s.sigma == 0 {
		return s.latency
	}
	return time.Duration(float64(s.latency) * math.Exp(s.sigma*rand.NormFloat64()))
}

// answer writes a reply of the endpoint's shape that names the hash of what
// was asked, so that a reader can match replies to requests.
func answer(w http.ResponseWriter, path string, req request, sum string, in int) {
	const out = 12
	model, text := req.Model, "You sent "+sum
	if size, _ := number(model, "sim-large-"); size > len(text) {
		text += " " + strings.Repeat("x", size-len(text))
	}
	prompt := in/4 + 1
	switch path {
	case "/v1/embeddings":
		reply(w, http.StatusOK, map[string]any{
			"object": "list", "model": model,
			"data":  []any{map[string]any{"object": "embedding", "index": 0, "embedding": []float64{0.25, -0.5, 1}}},
			"usage": map[string]int{"prompt_tokens": prompt, "total_tokens": prompt},
		})
	case "/v1/responses":
		reply(w, http.StatusOK, map[string]any{
			"id": "resp_" + sum[:24], "object": "response", "created_at": 0, "status": "completed", "model": model,
			"output": []any{map[string]any{"type": "message", "role": "assistant", "status": "completed",
				"content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}}}},
			"usage": map[string]any{"input_tokens": prompt, "output_tokens": out, "total_tokens": prompt + out,
				"input_tokens_details": map[string]int{"cached_tokens": 0}, "output_tokens_details": map[string]int{"reasoning_tokens": 0}},
		})
	default:
		id, usage := "chatcmpl-"+sum[:24], map[string]int{"prompt_tokens": prompt, "completion_tokens": out, "total_tokens": prompt + out}
		if req.Stream {
			stream(w, req, id, text, usage)
			return
		}
		reply(w, http.StatusOK, map[string]any{
			"id": id, "object": "chat.completion", "created": 0, "model": model,
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop",
				"message": map[string]any{"role": "assistant", "content": text}}},
			"usage": usage,
		})
	}
}

// stream writes a completion as events, each sent at once: who speaks, the text in
// pieces, why it ended, the usage if it was asked for.
func stream(w http.ResponseWriter, req request, id, text string, usage map[string]int) {
	const pieces = 3
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	out := http.NewResponseController(w)
	event := func(data []byte) {
		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = out.Flush() // a client that is gone is nobody to tell
	}
	chunk := func(choices []any, usage map[string]int) {
		c := map[string]any{"id": id, "object": "chat.completion.chunk", "created": 0, "model": req.Model, "choices": choices}
		if req.StreamOptions.IncludeUsage {
			c["usage"] = usage // null in all but the last
		}
		data, _ := json.Marshal(c) // of strings and numbers only
		event(data)
	}
	delta := func(delta map[string]any, finish any) {
		chunk([]any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
	}
	delta(map[string]any{"role": "assistant", "content": ""}, nil)
	for i := range pieces {
		delta(map[string]any{"content": text[i*len(text)/pieces : (i+1)*len(text)/pieces]}, nil)
	}
	delta(map[string]any{}, "stop")
	if req.StreamOptions.IncludeUsage {
		chunk([]any{}, usage)
	}
	event([]byte("[DONE]"))
}

func reply(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func refuse(w http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	reply(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": nil}})
}

// number reads the count that follows prefix in a model's name.
func number(model, prefix string) (int, bool) {
	rest, ok := strings.CutPrefix(model, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 || n > 64<<20 {
		return 0, false
	}
	return n, true
}
