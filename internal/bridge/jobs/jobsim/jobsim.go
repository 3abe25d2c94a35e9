// Package jobsim is a small service of docs/jobs.md: it keeps the contract, in
// memory, misbehaves on request and counts what it was asked, so that tests can say
// how many jobs were really started. For demos and tests only.
//
// A job's metadata member "sim" makes its posts special:
//
//	lose-<n>        the first n posts are done and then answered by closing the connection
//	pending-<ms>    202; decided so many milliseconds after the first post
//	maybe-<ms>      as pending, but the decision is a refusal
//	refuse-<status> an error of this status (400-599) at every post, and no job
//	busy-<n>        503 with Retry-After-Ms at the first n posts
//	slow-<ms>       every post is answered that much later
//
// Whatever is not told so behaves as the Options say.
//
// GET /sim/stats gives Stats, GET /sim/jobs the posts of each key, POST /sim/reset
// forgets everything.
package jobsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say how posts are answered that don't say it themselves. The zero value
// is a service that works, at once, for everybody.
type Options struct {
	Token   string        // bearer token that every call under /v1 must bring; "" needs none
	Latency time.Duration // before a post is looked at
	Lose    int           // of each job's posts, how many are done and not answered
	Pending time.Duration // how long a job isn't decided; 0: answered with 201 at once
	Refuse  int           // status that refuses every post; 0: none
}

// Stats counts what a service was asked since it began or was reset.
type Stats struct {
	Jobs    int `json:"jobs"`    // distinct jobs that it has, decided or not
	Posts   int `json:"posts"`   // POST /v1/jobs that arrived
	Lost    int `json:"lost"`    // of those, done and not answered
	Refused int `json:"refused"` // of those, refused
	Denied  int `json:"denied"`  // calls without the token
	Reads   int `json:"reads"`   // GET /v1/jobs/{id} that arrived
}

// Service is an http.Handler.
type Service struct {
	o   Options
	mux *http.ServeMux

	mu    sync.Mutex
	seen  Stats
	posts map[string]int  // by key
	jobs  map[string]*job // by key
	names map[string]*job // by the service's own id
}

// job is one job. The members with a JSON name are what an answer shows.
type job struct {
	ID     string         `json:"id"`
	Key    string         `json:"idempotency_key"`
	Hash   string         `json:"request_hash"`
	Status string         `json:"status"`
	Error  map[string]any `json:"error,omitempty"`

	decided time.Time
	no      bool // the decision is a refusal
}

// New returns an empty service.
func New(o Options) *Service {
	s := &Service{o: o, mux: http.NewServeMux()}
	s.forget()
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	s.mux.HandleFunc("POST /v1/jobs", s.authorized(s.create))
	s.mux.HandleFunc("GET /v1/jobs/{id}", s.authorized(s.show))
	s.mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Stats()) })
	s.mux.HandleFunc("GET /sim/jobs", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Posts()) })
	s.mux.HandleFunc("POST /sim/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget()
		w.WriteHeader(http.StatusNoContent)
	})
	return s
}

// ServeHTTP answers.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Stats counts.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	seen.Jobs = len(s.jobs)
	return seen
}

// Posts is how many posts came for each key.
func (s *Service) Posts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.posts)
}

func (s *Service) forget() {
	s.seen, s.posts, s.jobs, s.names = Stats{}, map[string]int{}, map[string]*job{}, map[string]*job{}
}

func (s *Service) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.o.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.o.Token {
			s.mu.Lock()
			s.seen.Denied++
			s.mu.Unlock()
			refuse(w, http.StatusUnauthorized, "invalid_token", "the bearer token is not the one")
			return
		}
		next(w, r)
	}
}

// maxBody bounds a post, in bytes.
const maxBody = 1 << 20

// asked is what is read of a post.
type asked struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	Tenant    string `json:"tenant"`
	Principal string `json:"principal"`
	Hash      string `json:"request_hash"`
	Input     struct {
		Bucket string `json:"bucket"`
		Key    string `json:"key"`
	} `json:"input"`
	Endpoint string            `json:"endpoint"`
	Metadata map[string]string `json:"metadata"`
}

// check refuses what no service could do anything with.
func (a asked) check(key string) error {
	switch {
	case a.V != 1:
		return fmt.Errorf("v is %d, and 1 is all that is read here", a.V)
	case key == "" || a.ID != key:
		return errors.New("the id and the Idempotency-Key are not the same")
	case a.Tenant == "" || a.Principal == "" || a.Input.Bucket == "" || a.Input.Key == "" || a.Endpoint == "":
		return errors.New("tenant, principal, input or endpoint is missing")
	}
	return nil
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	var a asked
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	key := r.Header.Get("Idempotency-Key")
	if err == nil {
		err = a.check(key)
	}
	b := s.behaviour(a.Metadata["sim"])
	if b.latency > 0 {
		select {
		case <-time.After(b.latency):
		case <-r.Context().Done(): // done all the same, as a service would that was given it
		}
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Posts++
	s.posts[key]++
	switch {
	case err != nil:
		s.seen.Refused++
		refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	case s.posts[key] <= b.busy:
		w.Header().Set("Retry-After-Ms", "50")
		refuse(w, http.StatusServiceUnavailable, "busy", "come again")
		return
	case b.refuse > 0: // a careless service: it doesn't look for the key first
		s.seen.Refused++
		refuse(w, b.refuse, "not_wanted", "this job is not wanted here")
		return
	}
	j := s.jobs[key]
	if j != nil && j.no && !now.Before(j.decided) { // a refusal frees the key
		s.drop(j)
		j = nil
	}
	if j == nil {
		j = &job{ID: fmt.Sprintf("job-%d", len(s.names)+1), Key: key, Hash: a.Hash, decided: now.Add(b.pending), no: b.no}
		s.jobs[key], s.names[j.ID] = j, j
	} else if j.Hash != a.Hash {
		refuse(w, http.StatusConflict, "idempotency_conflict", "the key stands for another request")
		return
	}
	if s.posts[key] <= b.lose {
		s.seen.Lost++
		panic(http.ErrAbortHandler)
	}
	s.answer(w, j, http.StatusCreated, now)
}

// drop forgets a job's key. Its name stays, so that nothing else gets it.
func (s *Service) drop(j *job) { delete(s.jobs, j.Key) }

func (s *Service) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Reads++
	id := r.PathValue("id")
	j := s.jobs[id]
	if j == nil {
		j = s.names[id]
	}
	if j == nil {
		refuse(w, http.StatusNotFound, "job_not_found", "no such job")
		return
	}
	s.answer(w, j, http.StatusOK, time.Now())
}

// answer shows a job as it is at now.
func (s *Service) answer(w http.ResponseWriter, j *job, status int, now time.Time) {
	shown := *j
	switch {
	case now.Before(j.decided):
		shown.Status = "pending"
		if status == http.StatusCreated {
			status = http.StatusAccepted
		}
	case j.no:
		shown.Status, shown.Error = "refused", map[string]any{"code": "not_wanted", "message": "this job is not wanted here"}
	default:
		shown.Status = "queued"
	}
	reply(w, status, shown)
}

// behaviour is how the posts of one job are answered.
type behaviour struct {
	latency, pending   time.Duration
	lose, busy, refuse int
	no                 bool
}

func (s *Service) behaviour(sim string) behaviour {
	b := behaviour{latency: s.o.Latency, pending: s.o.Pending, lose: s.o.Lose, refuse: s.o.Refuse}
	name, number, _ := strings.Cut(sim, "-")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return b
	}
	switch ms := time.Duration(n) * time.Millisecond; name {
	case "lose":
		b.lose = n
	case "pending":
		b.pending = ms
	case "maybe":
		b.pending, b.no = ms, true
	case "refuse":
		if n >= 400 && n < 600 {
			b.refuse = n
		}
	case "busy":
		b.busy = n
	case "slow":
		b.latency = ms
	}
	return b
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]any{"error": map[string]any{"code": code, "message": message}})
}
