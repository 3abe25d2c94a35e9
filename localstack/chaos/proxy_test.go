package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// behind is a proxy in front of a server that counts, as a worker sees it.
type behind struct {
	*proxy
	calls atomic.Int32
}

func newBehind(t *testing.T) *behind {
	b := &behind{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.calls.Add(1)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(s.Close)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	b.proxy = forwarding(to)
	return b
}

// send makes a call as worker 7. err is http.ErrAbortHandler when it got no
// answer.
func (b *behind) send(ctx context.Context, target, body string) (*httptest.ResponseRecorder, error) {
	return b.sendAs(ctx, process{7, working}, target, body)
}

func (b *behind) sendAs(ctx context.Context, who process, target, body string) (answer *httptest.ResponseRecorder, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	r := httptest.NewRequestWithContext(context.WithValue(ctx, clientKey{}, func() process { return who }), "POST", "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", target)
	answer = httptest.NewRecorder()
	b.ServeHTTP(answer, r)
	return answer, nil
}

const reporting = "AWSStepFunctions.SendTaskSuccess"

func TestHeldCalls(t *testing.T) {
	for _, tt := range []struct {
		name          string
		side          side
		land          bool
		while, after  int32 // calls that have arrived
		answered      bool
		workerGivesUp bool
	}{
		{"late", before, true, 0, 1, true, false},
		{"never", before, false, 0, 0, false, false},
		{"late, its worker dead", before, true, 0, 1, true, true},
		{"answered late", after, true, 1, 1, true, false},
		{"its answer lost", after, false, 1, 1, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBehind(t)
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			type got struct {
				answer *httptest.ResponseRecorder
				err    error
			}
			done := make(chan got, 1)
			trap := b.arm(tt.side, func(c call) bool { return c.step == report })
			go func() {
				answer, err := b.send(ctx, reporting, "")
				done <- got{answer, err}
			}()
			h, err := b.caught(t.Context(), trap)
			if err != nil {
				t.Fatal(err)
			}
			if h.pid != 7 || !b.quiet(7) || b.calls.Load() != tt.while {
				t.Errorf("held from worker %d, quiet %t, %d calls have arrived", h.pid, b.quiet(7), b.calls.Load())
			}
			if tt.workerGivesUp {
				giveUp()
			}
			h.release(tt.land)
			h.release(!tt.land) // only the first counts
			g := <-done
			if b.calls.Load() != tt.after {
				t.Errorf("%d calls have arrived", b.calls.Load())
			}
			if tt.answered != (g.err == nil) || tt.answered && (g.answer.Code != http.StatusAccepted || g.answer.Header().Get("X-Answer") != "yes") {
				t.Errorf("answer %v, %v", g.answer, g.err)
			}
			if !tt.answered && !errors.Is(g.err, http.ErrAbortHandler) {
				t.Error(g.err)
			}
			if answer, err := b.send(t.Context(), reporting, ""); err != nil || answer.Code != http.StatusAccepted {
				t.Errorf("the next call is held too: %v", err)
			}
		})
	}
}

// A trap that nobody waits at any more holds nobody.
func TestCatchInVain(t *testing.T) {
	b := newBehind(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.caught(ctx, b.arm(before, func(call) bool { return true })); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if answer, err := b.send(t.Context(), reporting, ""); err != nil || answer.Code != http.StatusAccepted {
		t.Error(err)
	}
}

// A trap for every call holds each until it is disarmed; what is held by then and
// was not taken goes on.
func TestEveryCallHeld(t *testing.T) {
	b := newBehind(t)
	trap := b.armAll(after, func(c call) bool { return c.step == report })
	done := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := b.send(t.Context(), reporting, "")
			done <- err
		}()
	}
	first, second := <-trap.hit, <-trap.hit
	if first.status != http.StatusAccepted {
		t.Errorf("its answer is held and has status %d", first.status)
	}
	first.release(false)
	if err := <-done; !errors.Is(err, http.ErrAbortHandler) {
		t.Error(err)
	}
	b.disarm(trap)
	if err := <-done; err != nil {
		t.Errorf("nobody took it, and it is lost: %v", err)
	}
	second.release(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := b.send(t.Context(), reporting, ""); err != nil || b.calls.Load() != 4 {
		t.Errorf("%v, %d calls have arrived", err, b.calls.Load())
	}
}

// What a worker does to its part is no step where others do it.
func TestStepsByRole(t *testing.T) {
	b := newBehind(t)
	trap := b.armAll(before, func(c call) bool { return c.step != other })
	defer b.disarm(trap)
	if _, err := b.sendAs(t.Context(), process{8, reaping}, reporting, ""); err != nil {
		t.Error(err)
	}
	go b.sendAs(t.Context(), process{8, reaping}, "AWSStepFunctions.StartExecution", `{"input":"{\"tenant\":\"acme\"}"}`)
	if h := <-trap.hit; h.step != launch || h.role != reaping || h.tenant != "acme" {
		t.Errorf("%+v", h.call)
	} else {
		h.release(true)
	}
}

// A message's first visibility is its arrival, the others are heartbeats.
func TestArrivalOnce(t *testing.T) {
	b := newBehind(t)
	var arrivals int
	for _, receipt := range []string{"a", "a", "b"} {
		c := call{process: process{7, working}, step: arrival, receipt: receipt}
		b.begin(&c)
		if c.step == arrival {
			arrivals++
		}
	}
	if arrivals != 2 {
		t.Errorf("%d arrivals", arrivals)
	}
}
