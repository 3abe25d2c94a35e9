package jobs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/bridge/jobs/jobsim"
	"holdfast/internal/memory"
)

// bridges makes processes over one table and one service.
func bridges(t *testing.T, service http.Handler, o *Options) (table *memory.Table, process func(*memory.Faults) *bridge.Bridge) {
	table = memory.NewTable(nil)
	return table, func(f *memory.Faults) *bridge.Bridge {
		b, err := bridge.New(table.With(f).Bridge, bridge.Services{Service: over(t, service, o)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func held(t *testing.T, service *jobsim.Service, jobs int, posts ...int) {
	t.Helper()
	if s := service.Stats(); s.Jobs != jobs || len(posts) > 0 && s.Posts != posts[0] {
		t.Errorf("the service saw %+v, want %d jobs and %v posts", s, jobs, posts)
	}
}

// An answer that is lost is asked for again, by the same call, by the claim's thief,
// by the reaper: one job.
func TestLostAnswers(t *testing.T) {
	for _, c := range []struct {
		sim    string
		first  bool // the first call gets to know
		second int  // posts after the thief
	}{{"lose-1", true, 2}, {"lose-3", true, 4}, {"lose-4", false, 5}, {"lose-6", false, 7}} {
		for _, reaper := range []bool{false, true} {
			t.Run(c.sim+" reaper "+strconv.FormatBool(reaper), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					service := jobsim.New(jobsim.Options{})
					table, process := bridges(t, service, nil)
					r := asking(c.sim)
					_, err := process(nil).Submit(t.Context(), r, start)
					if (err == nil) != c.first || err != nil && (!errors.Is(err, ErrUnavailable) || errors.Is(err, bridge.ErrRefused)) {
						t.Errorf("%v", err)
					}
					later := start.Add(bridge.DefaultClaimStale + time.Second)
					if reaper {
						if resumed, err := process(nil).Resume(t.Context(), "acme", bridge.Key{Tenant: "acme", CorrelationID: "k"}.Name(), later, nil); err != nil || (resumed == "") != c.first {
							t.Errorf("resumed %q, %v", resumed, err)
						}
					}
					job, err := process(nil).Submit(t.Context(), r, later)
					row, _ := table.Row("acme", "k")
					if err != nil || job != "job-1" || row.State != bridge.Confirmed || row.Job != "job-1" {
						t.Errorf("%q, %v, %+v", job, err, row)
					}
					held(t, service, 1, c.second)
				})
			})
		}
	}
}

// The owner died after its post: whoever comes while its claim is fresh finds the job.
func TestFoundPastAFreshClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{Token: "sk-1"})
		table, process := bridges(t, service, &Options{Token: func(context.Context) (string, error) { return "sk-1", nil }})
		f := memory.NewFaults()
		f.Before("Bridge.Confirm", 0, f.Crash)
		_, _ = process(f).Submit(t.Context(), request(), start)
		if row, _ := table.Row("acme", "k"); row.State != bridge.Reserved {
			t.Fatalf("%+v", row)
		}
		job, err := process(nil).Submit(t.Context(), request(), start.Add(time.Second))
		if row, _ := table.Row("acme", "k"); err != nil || job != "job-1" || row.State != bridge.Confirmed {
			t.Errorf("%q, %v, %+v", job, err, row)
		}
		held(t, service, 1, 1)
	})
}

func TestSixtyFourAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{Latency: 100 * time.Millisecond})
		_, process := bridges(t, service, nil)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if job, err := process(nil).Submit(t.Context(), request(), start); err != nil || job != "job-1" {
					t.Errorf("%q, %v", job, err)
				}
			})
		}
		wg.Wait()
		held(t, service, 1, 1)
	})
}

// Without a claim between them they are as many posts, and still one job.
func TestTheKeyAloneIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{Latency: 100 * time.Millisecond})
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if job, err := submit(t, over(t, service, nil), request()); err != nil || job != "job-1" {
					t.Errorf("%q, %v", job, err)
				}
			})
		}
		wg.Wait()
		held(t, service, 1, 64)
	})
}

// The owner is alive, and slow: its post arrives after the thief's has been
// answered and confirmed.
func TestSlowOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, gate, slow := jobsim.New(jobsim.Options{}), make(chan struct{}), true
		_, process := bridges(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if slow && r.Method == http.MethodPost {
				slow = false
				<-gate
			}
			service.ServeHTTP(w, r)
		}), nil)
		done := make(chan string)
		go func() {
			job, err := process(nil).Submit(t.Context(), request(), start)
			if err != nil {
				t.Error(err)
			}
			done <- job
		}()
		synctest.Wait()
		thief, err := process(nil).Submit(t.Context(), request(), start.Add(bridge.DefaultClaimStale+time.Second))
		if err != nil || thief != "job-1" {
			t.Errorf("%q, %v", thief, err)
		}
		close(gate)
		if owner := <-done; owner != thief {
			t.Errorf("%q and %q", owner, thief)
		}
		held(t, service, 1, 2)
	})
}

// A call that nobody waits for any more is carried out all the same.
func TestServiceSlowerThanPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{})
		_, process := bridges(t, service, nil)
		if _, err := process(nil).Submit(t.Context(), asking("slow-60000"), start); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute) // of the bubble
		held(t, service, 1)
		if job, err := process(nil).Submit(t.Context(), asking("slow-60000"), start.Add(time.Second)); err != nil || job != "job-1" {
			t.Errorf("%q, %v", job, err)
		}
	})
}

func TestPolling(t *testing.T) {
	for name, c := range map[string]struct {
		sim   string
		want  error
		reads [2]int // at least and at most
	}{
		// Pauses of 0.25, 0.5, 1, 2, 4, 5, 5 s, each give or take a half.
		"accepted":     {"pending-3000", nil, [2]int{3, 6}},
		"refused":      {"maybe-3000", bridge.ErrRefused, [2]int{3, 6}},
		"never so far": {"pending-600000", ErrPending, [2]int{5, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := jobsim.New(jobsim.Options{})
				table, process := bridges(t, service, nil)
				began := time.Now()
				job, err := process(nil).Submit(t.Context(), asking(c.sim), start)
				if !errors.Is(err, c.want) || (err == nil) != (job == "job-1") {
					t.Errorf("%q, %v", job, err)
				}
				if took := time.Since(began); took > 20*time.Second || took < 3*time.Second {
					t.Errorf("after %s", took)
				}
				if n := service.Stats().Reads; n < c.reads[0] || n > c.reads[1] {
					t.Errorf("%d reads", n)
				}
				row, there := table.Row("acme", "k")
				switch {
				case c.want == nil && row.State != bridge.Confirmed, c.want == bridge.ErrRefused && there, c.want == ErrPending && row.State != bridge.Reserved:
					t.Errorf("the row: %v %+v", there, row)
				}
				e, ok := errors.AsType[*JobError](err)
				if refused := c.want == bridge.ErrRefused; refused != ok || ok && (e.Code != "not_wanted" || e.Message == "") {
					t.Errorf("%v", err)
				}
				held(t, service, 1, 1)
			})
		})
	}
}

// A refusal frees the id, at the bridge and at the service.
func TestRefusedThenWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{})
		_, process := bridges(t, service, nil)
		for _, sim := range []string{"refuse-422", "maybe-0", "maybe-1000"} {
			if _, err := process(nil).Submit(t.Context(), asking(sim), start); !errors.Is(err, bridge.ErrRefused) {
				t.Fatalf("%s: %v", sim, err)
			}
		}
		if job, err := process(nil).Submit(t.Context(), request(), start); err != nil || job == "" {
			t.Errorf("%q, %v", job, err)
		}
		held(t, service, 1)
	})
}

// A service that refuses what it has already started, since it doesn't look for the
// key first, has started it.
func TestRefusedThoughStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{})
		if _, err := submit(t, over(t, service, nil), request()); err != nil {
			t.Fatal(err)
		}
		if job, err := submit(t, over(t, service, nil), asking("refuse-400")); job != "" || !errors.Is(err, bridge.ErrConflict) {
			t.Errorf("another request: %q, %v", job, err)
		}
		careless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"error":{"code":"input_gone","message":"no such object"}}`)
				return
			}
			service.ServeHTTP(w, r)
		})
		if job, err := submit(t, over(t, careless, nil), request()); err != nil || job != "job-1" {
			t.Errorf("%q, %v", job, err)
		}
	})
}

func TestConflictAtTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, other := jobsim.New(jobsim.Options{}), request()
		other.Endpoint = "/v1/responses"
		if _, err := submit(t, over(t, service, nil), request()); err != nil {
			t.Fatal(err)
		}
		_, err := submit(t, over(t, service, nil), other)
		_, findErr := over(t, service, nil).Find(t.Context(), id, other)
		for _, err := range []error{err, findErr} {
			if !errors.Is(err, bridge.ErrRefused) || !errors.Is(err, bridge.ErrConflict) {
				t.Errorf("%v", err)
			}
		}
		held(t, service, 1)
	})
}

func TestFindAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{})
		s := over(t, service, nil)
		if job, err := s.Find(t.Context(), id, request()); !errors.Is(err, bridge.ErrNotFound) || job != "" {
			t.Errorf("%q, %v", job, err)
		}
		if _, err := s.Status(t.Context(), id); !errors.Is(err, bridge.ErrNotFound) {
			t.Errorf("%v", err)
		}
		r, ctx := asking("pending-5000"), t.Context()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := s.Submit(short, id, r, start); !errors.Is(err, ErrPending) {
			t.Fatalf("%v", err)
		}
		if job, err := s.Find(ctx, id, r); !errors.Is(err, bridge.ErrNotFound) || job != "" {
			t.Errorf("not decided: %q, %v", job, err)
		}
		if j, err := s.Status(ctx, "job-1"); err != nil || j.Status != "pending" || j.IdempotencyKey != id {
			t.Errorf("%+v, %v", j, err)
		}
		time.Sleep(5 * time.Second) // of the bubble
		if job, err := s.Find(ctx, id, r); err != nil || job != "job-1" {
			t.Errorf("%q, %v", job, err)
		}
		for _, name := range []string{id, "job-1"} {
			if j, err := s.Status(ctx, name); err != nil || j.ID != "job-1" || j.Status != "queued" {
				t.Errorf("%s: %+v, %v", name, j, err)
			}
		}
		if _, err := submit(t, s, asking("maybe-0")); !errors.Is(err, bridge.ErrConflict) {
			t.Errorf("%v", err)
		}
		s = over(t, jobsim.New(jobsim.Options{}), nil)
		if _, err := submit(t, s, asking("maybe-0")); !errors.Is(err, bridge.ErrRefused) {
			t.Fatalf("%v", err)
		}
		if job, err := s.Find(ctx, id, asking("maybe-0")); !errors.Is(err, bridge.ErrNotFound) || errors.Is(err, bridge.ErrRefused) || job != "" {
			t.Errorf("refused: %q, %v", job, err)
		}
		if j, err := s.Status(ctx, "job-1"); err != nil || j.Status != "refused" || j.Refusal == nil || j.Refusal.Code != "not_wanted" {
			t.Errorf("%+v, %v", j, err)
		}
	})
}

// The caller's end is an end of unknown fate, and comes at once.
func TestCallerGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sim := range []string{"slow-3600000", "pending-3600000", "busy-100"} {
			service := jobsim.New(jobsim.Options{})
			s := over(t, service, &Options{Timeout: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			began := time.Now()
			_, err := s.Submit(ctx, id, asking(sim), start)
			if err == nil || errors.Is(err, bridge.ErrRefused) || time.Since(began) != 100*time.Millisecond {
				t.Errorf("%s: after %s: %v", sim, time.Since(began), err)
			}
			if sim != "busy-100" && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", sim, err)
			}
		}
		time.Sleep(2 * time.Hour) // until the slow one is done, within the bubble
	})
}

func TestNewRefuses(t *testing.T) {
	for base, o := range map[string]*Options{
		"":                     nil,
		"ftp://host":           nil,
		"https://user:pw@host": nil,
		"https://host/v1":      nil,
		"https://host/?a=b":    nil,
		"https://host/pauses":  {PollFirst: 2 * time.Second, PollLongest: time.Second},
	} {
		if _, err := New(base, nil, o); err == nil {
			t.Errorf("%q was accepted", base)
		}
	}
	for base, o := range map[string]*Options{"https://host": nil, "http://127.0.0.1:1/prefix/": {PollFirst: time.Minute}} {
		if _, err := New(base, nil, o); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
}
