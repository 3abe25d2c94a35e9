package bridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// opening is a door that does something before it opens a letter.
type opening struct {
	*slot
	before func(l bridge.Letter)
}

func (o opening) Open(ctx context.Context, l bridge.Letter, now time.Time) (bridge.Request, error) {
	o.before(l)
	return o.slot.Open(ctx, l, now)
}

// postponed notes the waits, and in which context they were asked for.
type postponed struct {
	bridge.Postponer
	waits []time.Duration
	over  error
}

func (p *postponed) Postpone(ctx context.Context, l bridge.Letter, wait time.Duration) error {
	p.waits = append(p.waits, wait)
	if p.over = ctx.Err(); p.over != nil {
		return p.over
	}
	return p.Postponer.Postpone(ctx, l, wait)
}

// A letter that makes the program panic is trouble, of its own: those beside it are
// dealt with, it comes back later each time, and the log has the place and nothing that
// the letter says.
func TestLetterThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.queue.Post("poison")
		p.queue.Post("start a")
		door := opening{p.slot, func(l bridge.Letter) {
			if string(l.Body) == "poison" {
				panic("it says: " + string(l.Body))
			}
		}}
		b, err := bridge.New(p.table.Bridge, p.jobs, &bridge.Options{Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		d := bridge.NewDrainer(b, door, p.queue, slog.New(slog.NewJSONHandler(&p.log, nil)))
		failed, sum := p.round(d)
		if len(failed) != 1 || sum != (bridge.Drained{Started: 1, Later: 1}) {
			t.Errorf("%v, %+v", failed, sum)
		}
		if log := p.log.String(); !strings.Contains(log, "panic over a letter") || !strings.Contains(log, "letter_test.go") || strings.Contains(log, "it says") {
			t.Errorf("log %s", log)
		}
		if took := p.returns(); took < 15*time.Second {
			t.Errorf("back after %v", took)
		}
	})
}

// The time of a drain is up while a submit hangs: the claim is given back, the letter
// postponed as ever, and the drain returns within the margin that its caller leaves.
func TestDrainWhoseTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.jobs.submit = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		b, err := bridge.New(p.table.Bridge, p.jobs, &bridge.Options{Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		q := &postponed{Postponer: p.queue}
		d := bridge.NewDrainer(b, p.slot, q, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p.queue.Post("start a")
		began := time.Now()
		failed, sum := d.Drain(ctx, p.queue.Receive(10), began)
		if took := time.Since(began); took > 10*time.Second+bridge.DrainMargin || len(failed) != 1 || sum != (bridge.Drained{Later: 1}) {
			t.Errorf("%v, %+v after %v", failed, sum, took)
		}
		if row, _ := p.table.Row("acme", "a"); !row.GivenBack || len(q.waits) != 1 || q.over != nil {
			t.Errorf("%+v, postponed by %v, %v", row, q.waits, q.over)
		}
		// And what it had no time to begin it doesn't begin.
		p.queue.Post("bad")
		if failed, sum := d.Drain(ctx, p.queue.Receive(10), time.Now()); len(failed) != 1 || sum != (bridge.Drained{Later: 1}) || len(p.slot.told) != 0 || q.over != nil {
			t.Errorf("%v, %+v, told %v", failed, sum, p.slot.told)
		}
	})
}

// A claim is as old as it is, and not as old as the drain: a door that takes its time
// costs its letter's submit nothing.
func TestClaimIsDatedWhenItIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stolen := newPost(t), 0
		p.jobs.submit = func(ctx context.Context, n int) error {
			if n == 1 {
				time.Sleep(19 * time.Second)
			}
			return nil
		}
		b, err := bridge.New(p.table.Bridge, p.jobs, &bridge.Options{Wait: -1, ClaimStale: bridge.MinClaimStale, Stolen: func() { stolen++ }})
		if err != nil {
			t.Fatal(err)
		}
		p.queue.Post("start a")
		began := time.Now()
		go func() { // the reaper
			time.Sleep(31 * time.Second)
			if _, err := b.Resume(context.WithoutCancel(t.Context()), "acme", bridge.Key{Tenant: "acme", CorrelationID: "a"}.Name(), time.Now(), nil); err != nil {
				t.Error(err)
			}
		}()
		d := bridge.NewDrainer(b, opening{p.slot, func(bridge.Letter) { time.Sleep(15 * time.Second) }}, p.queue, nil)
		if _, sum := d.Drain(t.Context(), p.queue.Receive(10), began); sum != (bridge.Drained{Started: 1}) {
			t.Errorf("%+v", sum)
		}
		row, _ := p.table.Row("acme", "a")
		if want := began.Add(15 * time.Second); stolen != 0 || p.jobs.submits != 1 || !row.ClaimedAt.Equal(want.Truncate(time.Millisecond)) {
			t.Errorf("%d thefts from a live owner, %d submits, %+v", stolen, p.jobs.submits, row)
		}
	})
}

// An owner whose clock is a day ahead holds up a letter for ClaimStale at a time: no
// queue hides one for a day.
func TestOwnerOfAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		r, ahead := request("a"), time.Now().Add(24*time.Hour)
		if err := p.table.Bridge.Claim(t.Context(), bridge.Row{
			Key: bridge.Key{Tenant: "acme", CorrelationID: "a"}, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1,
			ClaimedAt: ahead, Due: ahead.Add(bridge.DefaultClaimStale), Request: r, Hash: r.Hash(),
		}); err != nil {
			t.Fatal(err)
		}
		b, err := bridge.New(p.table.Bridge, p.jobs, &bridge.Options{Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		q := &postponed{Postponer: p.queue}
		p.queue.Post("start a")
		bridge.NewDrainer(b, p.slot, q, nil).Drain(t.Context(), p.queue.Receive(10), time.Now())
		if want := bridge.DefaultClaimStale + time.Second; fmt.Sprint(q.waits) != fmt.Sprint([]time.Duration{want}) {
			t.Errorf("postponed by %v, want %v", q.waits, want)
		}
	})
}

// A stale claim that can't be taken up here is somebody else's: its letter is patient,
// as with trouble, and doesn't come back at once.
func TestLetterOfAnUnservedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, since := newPost(t), request("a"), time.Now().Add(-time.Hour)
		r.Service = "jobs"
		if err := p.table.Bridge.Claim(t.Context(), bridge.Row{
			Key: bridge.Key{Tenant: "acme", CorrelationID: "a"}, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1,
			ClaimedAt: since, Due: since.Add(bridge.DefaultClaimStale), Request: r, Hash: r.Hash(),
		}); err != nil {
			t.Fatal(err)
		}
		q := &postponed{Postponer: p.queue}
		p.queue.Post("start a")
		_, sum := bridge.NewDrainer(p.services(bridge.Services{"": p.jobs}), p.slot, q, nil).Drain(t.Context(), p.queue.Receive(10), time.Now())
		if sum != (bridge.Drained{Held: 1}) || len(q.waits) != 1 || q.waits[0] < 15*time.Second || q.waits[0] > 30*time.Second {
			t.Errorf("%+v, postponed by %v", sum, q.waits)
		}
	})
}

// A conflict is the door's to judge: a copy of what was started, of what somebody is
// about to start, or neither.
func TestConflictThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.slot.same = func(r bridge.Request, found bridge.Row) bool { return r.FileID == found.Request.FileID }
		d := p.drainer(nil)
		p.queue.Post("start a")
		p.round(d)
		p.dies()
		for body, want := range map[string]bridge.Drained{"/v1/other a": {Started: 1}, "/v1/other k": {Held: 1}} {
			p.queue.Post(body)
			letters := p.queue.Receive(10)
			if _, sum := d.Drain(t.Context(), letters, start); sum != want || len(p.slot.told) != 0 {
				t.Errorf("%s: %+v, told %v", body, sum, p.slot.told)
			}
		}
		p.slot.same = nil
		p.queue.Post("/v1/other a")
		if _, sum := p.round(d); sum != (bridge.Drained{Refused: 1}) || len(p.slot.told) != 1 {
			t.Errorf("%+v, told %v", sum, p.slot.told)
		}
	})
}
