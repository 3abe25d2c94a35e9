package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

// slot is a door whose letters say what they are: "start ID", "nothing", "bad" (no
// request), "trouble", and anything else is a request that the service refuses.
type slot struct {
	mu    sync.Mutex
	told  []string
	tell  func(n int) error // of the n-th word, from 1; before it is left
	words int
	same  func(r bridge.Request, found bridge.Row) bool // nil: nothing is
}

var (
	errTrouble = errors.New("trouble")
	errBad     = &bridge.RefusedError{Code: "bad", Reason: "It is bad."}
)

func (s *slot) Open(_ context.Context, l bridge.Letter, _ time.Time) (bridge.Request, error) {
	what, id, _ := strings.Cut(string(l.Body), " ")
	switch what {
	case "nothing":
		return bridge.Request{}, fmt.Errorf("%s: %w", l.ID, bridge.ErrNothing)
	case "bad":
		return bridge.Request{Tenant: "acme"}, fmt.Errorf("open: %w", errBad)
	case "trouble":
		return bridge.Request{}, errTrouble
	}
	r := request(id)
	if what != "start" {
		r.Endpoint = what
	}
	return r, nil
}

func (s *slot) Same(_ bridge.Letter, r bridge.Request, found bridge.Row) bool {
	return s.same != nil && s.same(r, found)
}

func (s *slot) Refuse(_ context.Context, l bridge.Letter, r bridge.Request, why error, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words++
	if s.tell != nil {
		if err := s.tell(s.words); err != nil {
			return err
		}
	}
	s.told = append(s.told, fmt.Sprintf("%s of %q: %v", l.Body, r.Tenant, errors.Is(why, bridge.ErrConflict)))
	return nil
}

// post is a rig with a queue and a door.
type post struct {
	*rig
	slot  *slot
	queue *memory.Letters
}

func newPost(t *testing.T) *post {
	return &post{newRig(t), &slot{}, memory.NewLetters(nil)}
}

func (p *post) drainer(f *memory.Faults) *bridge.Drainer {
	b, err := bridge.New(p.table.With(f).Bridge, p.jobs, &bridge.Options{Wait: -1})
	if err != nil {
		p.Fatal(err)
	}
	return bridge.NewDrainer(b, p.slot, p.queue.With(f), slog.New(slog.NewJSONHandler(&p.log, nil)))
}

// round receives, drains, and deletes what needn't come again, as Lambda does.
func (p *post) round(d *bridge.Drainer) (failed []bridge.Letter, sum bridge.Drained) {
	letters := p.queue.Receive(10)
	failed, sum = d.Drain(p.Context(), letters, time.Now())
	p.queue.Delete(slices.DeleteFunc(letters, func(l bridge.Letter) bool {
		return slices.ContainsFunc(failed, func(f bridge.Letter) bool { return f.ID == l.ID })
	})...)
	return failed, sum
}

// returns sleeps until a letter is back, and says how long that took.
func (p *post) returns() time.Duration {
	p.Helper()
	since := time.Now()
	for time.Since(since) < time.Hour {
		time.Sleep(time.Second)
		if letters := p.queue.Receive(10); len(letters) > 0 {
			for _, l := range letters {
				if err := p.queue.Postpone(p.Context(), l, 0); err != nil {
					p.Error(err)
				}
			}
			return time.Since(since)
		}
	}
	p.Fatal("it never comes back")
	return 0
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.jobs.submit = func(ctx context.Context, n int) error {
			time.Sleep(time.Second) // all at once, or this takes its time
			return nil
		}
		for _, body := range []string{"start a", "nothing", "bad", "trouble", "start b", "start c"} {
			p.queue.Post(body)
		}
		since := time.Now()
		failed, sum := p.round(p.drainer(nil))
		if sum != (bridge.Drained{Started: 3, Nothing: 1, Refused: 1, Later: 1}) || len(failed) != 1 || string(failed[0].Body) != "trouble" {
			t.Errorf("%+v, failed %v", sum, failed)
		}
		if took := time.Since(since); took != time.Second {
			t.Errorf("took %v", took)
		}
		// The sentence is for the sender: it may quote what was sent.
		if said := p.log.String(); strings.Contains(said, errBad.Reason) || !strings.Contains(said, `"code":"bad"`) {
			t.Errorf("the log: %s", said)
		}
		if got := fmt.Sprint(p.slot.told); got != `[bad of "acme": false]` || p.queue.Waiting() != 1 {
			t.Errorf("told %s, %d waiting", got, p.queue.Waiting())
		}
		if failed, sum := p.drainer(nil).Drain(t.Context(), nil, time.Now()); len(failed) > 0 || sum != (bridge.Drained{}) {
			t.Errorf("nothing: %v, %+v", failed, sum)
		}
	})
}

// Copies of one request in one drain: one submits, the others lose to it and come
// back once it has won.
func TestDrainOfCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.jobs.submit = func(context.Context, int) error { time.Sleep(time.Second); return nil }
		for range 5 {
			p.queue.Post("start a")
		}
		d := p.drainer(nil)
		if _, sum := p.round(d); sum != (bridge.Drained{Started: 1, Held: 4}) {
			t.Errorf("%+v", sum)
		}
		if took := p.returns(); took < bridge.DefaultClaimStale-2*time.Second || took > bridge.DefaultClaimStale+2*time.Second {
			t.Errorf("back after %v", took)
		}
		if _, sum := p.round(d); sum != (bridge.Drained{Started: 4}) || p.jobs.submits != 1 || p.queue.Waiting() != 0 {
			t.Errorf("%+v, %d submits, %d waiting", sum, p.jobs.submits, p.queue.Waiting())
		}
	})
}

// A winner that died is found by those who lost to it: its letter is gone with it
// or not, theirs are back when its claim is stale.
func TestDrainAfterADeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		f := memory.NewFaults()
		f.After("Bridge.Claim", 1, f.Crash)
		p.queue.Post("start a")
		if _, sum := p.round(p.drainer(f)); sum.Later != 1 || p.jobs.submits != 0 {
			t.Fatalf("%+v", sum)
		}
		p.queue.Post("start a")
		if _, sum := p.round(p.drainer(nil)); sum != (bridge.Drained{Held: 1}) {
			t.Errorf("%+v", sum)
		}
		for p.queue.Waiting() > 0 {
			p.returns()
			p.round(p.drainer(nil))
		}
		if p.jobs.submits != 1 || p.state("a") != bridge.Confirmed {
			t.Errorf("%d submits, row is %q", p.jobs.submits, p.state("a"))
		}
	})
}

// Trouble doubles the wait with each delivery, up to a quarter of an hour.
func TestDrainWaitsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.queue.Post("trouble")
		d := p.drainer(nil)
		for n, most := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
			letters := p.queue.Receive(10)
			letters[0].Receives = n + 1 // what looks took away
			if failed, sum := d.Drain(t.Context(), letters, time.Now()); len(failed) != 1 || sum != (bridge.Drained{Later: 1}) {
				t.Fatalf("%v, %+v", failed, sum)
			}
			if took := p.returns(); took < most/2 || took > most+time.Second {
				t.Errorf("delivery %d: back after %v, want %v to %v", n+1, took, most/2, most)
			}
		}
		for _, receives := range []int{-1, 0, 11, 200, 1 << 30} {
			letters := p.queue.Receive(10)
			letters[0].Receives = receives
			d.Drain(t.Context(), letters, time.Now())
			if took := p.returns(); took < 15*time.Second || took > 15*time.Minute+time.Second {
				t.Errorf("delivery %d: back after %v", receives, took)
			}
		}
	})
}

// A letter that couldn't be postponed fails all the same: the queue hides it for a
// time of its own.
func TestDrainWithoutPostponing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		f := memory.NewFaults()
		f.Before("Letters.Postpone", 0, memory.Fail(nil))
		p.queue.Post("trouble")
		if failed, sum := p.round(p.drainer(f)); len(failed) != 1 || sum.Later != 1 || !strings.Contains(p.log.String(), "not postponed") {
			t.Errorf("%v, %+v, %s", failed, sum, p.log.String())
		}
		if took := p.returns(); took != time.Minute {
			t.Errorf("back after %v", took)
		}
	})
}

// The id stands for another request: that is told, and the first one's job is left
// alone.
func TestDrainOfAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		d := p.drainer(nil)
		p.queue.Post("start a")
		p.round(d)
		p.queue.Post("/v1/other a")
		if failed, sum := p.round(d); len(failed) > 0 || sum != (bridge.Drained{Refused: 1}) || fmt.Sprint(p.slot.told) != `[/v1/other a of "acme": true]` {
			t.Errorf("%v, %+v, told %v", failed, sum, p.slot.told)
		}
	})
}

// Refused by the service: the claim is released, then word is left, and only then
// the letter is gone. A death in between has it refused again.
func TestDrainOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.jobs.submit = func(context.Context, int) error { return fmt.Errorf("%w: it may not", bridge.ErrRefused) }
		p.slot.tell = func(n int) error {
			if p.state("a") != "" {
				t.Errorf("the row is %q when word is left", p.state("a"))
			}
			if n < 3 {
				return errTrouble
			}
			return nil
		}
		d := p.drainer(nil)
		p.queue.Post("start a")
		for n := 1; n <= 3; n++ {
			failed, sum := p.round(d)
			want := bridge.Drained{Later: 1}
			if n == 3 {
				want = bridge.Drained{Refused: 1}
			}
			if sum != want || len(failed) != want.Later || p.queue.Waiting() != want.Later {
				t.Fatalf("delivery %d: %+v, failed %v", n, sum, failed)
			}
			if n < 3 {
				p.returns()
			}
		}
		if fmt.Sprint(p.slot.told) != `[start a of "acme": false]` || p.jobs.submits != 3 {
			t.Errorf("told %v, %d submits", p.slot.told, p.jobs.submits)
		}
	})
}

// Wherever a drain dies, its letter comes back and there is one job of it.
func TestDrainSurvivesEveryCall(t *testing.T) {
	var calls []memory.Point
	clean := memory.NewFaults()
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.queue.Post("start a")
		p.round(p.drainer(clean))
		calls = clean.Calls()
	})
	if len(calls) != 2 {
		t.Fatalf("a drain makes %v: a claim and a confirm are all that it may add", calls)
	}
	for _, c := range calls {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(c, " after ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, f := newPost(t), memory.NewFaults()
					if after {
						f.After(c.Op, c.N, f.Crash)
					} else {
						f.Before(c.Op, c.N, f.Crash)
					}
					p.queue.Post("start a")
					letters := p.queue.Receive(10)
					p.drainer(f).Drain(t.Context(), letters, time.Now()) // and nobody answers
					for p.queue.Waiting() > 0 {
						p.returns()
						p.round(p.drainer(nil))
					}
					if len(p.jobs.started) != 1 || p.state("a") != bridge.Confirmed {
						t.Errorf("%d jobs, row is %q", len(p.jobs.started), p.state("a"))
					}
				})
			})
		}
	}
}

// A confirmed id costs one call: that is what a flood of duplicates costs.
func TestDuplicateCostsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.queue.Post("start a")
		p.round(p.drainer(nil))
		f := memory.NewFaults()
		for range 10 {
			p.queue.Post("start a")
		}
		if _, sum := p.round(p.drainer(f)); sum != (bridge.Drained{Started: 10}) || len(f.Calls()) != 10 || p.jobs.submits != 1 {
			t.Errorf("%+v, %d calls, %d submits", sum, len(f.Calls()), p.jobs.submits)
		}
	})
}
