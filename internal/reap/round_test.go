package reap_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// scene is one of everything that a round deals with, and what must have become of
// it in the end.
type scene struct {
	w                                        *world
	fell, never, expired, finish             batch.Batch
	lapsed, exhausted, overdue, dead, orphan batch.PartKey
	letter, overLetter                       batch.PartKey
	claim                                    bridge.Request
}

func (w *world) scene() *scene {
	s := &scene{w: w}
	running := w.batch(3)
	s.lapsed = w.part(running, 0, lapsed(1))
	s.exhausted = w.part(running, 1, lapsed(3))
	s.overdue = w.part(running, 2, func(p *batch.Part) { p.Due = time.Now().Add(-time.Second) })
	s.letter = w.part(running, 3, nil)
	s.overLetter = w.part(running, 4, func(p *batch.Part) { p.State, p.Due = batch.Done, time.Time{} })
	s.dead = w.part(running, 5, func(p *batch.Part) { p.State, p.DeadAt, p.Due = batch.Dead, time.Now(), time.Now().Add(-time.Second) })
	refused := w.change(w.batch(1), func(b *batch.Batch) { b.Status, b.Due = batch.Failed, time.Time{} })
	s.orphan = w.part(refused, 0, func(p *batch.Part) { p.Due = time.Now().Add(-time.Second) })
	s.fell = w.change(w.batch(1), dueNow)
	w.part(s.fell, 0, nil)
	w.truth.Workflow.Kill(s.fell.ID)
	s.never = w.change(w.batch(0), func(b *batch.Batch) { b.Status = batch.Validating; dueNow(b) })
	w.truth.Workflow.Kill(s.never.ID)
	s.expired = w.change(w.batch(0), func(b *batch.Batch) { b.Deadline = time.Now().Add(-time.Second); dueNow(b) })
	s.finish = w.change(w.batch(0), func(b *batch.Batch) { b.Ending = batch.Completed; dueNow(b) })
	s.claim = w.claim(acme, "abandoned", w.file(acme))
	for _, k := range []batch.PartKey{s.letter, s.overLetter} {
		m := batch.Message{V: 1, Tenant: k.Tenant, Batch: k.Batch, Part: k.N, TaskToken: "letter"}
		if err := w.letters.Send(w.t.Context(), m, 0); err != nil {
			w.t.Fatal(err)
		}
	}
	return s
}

// right demands that everything ended right, with copies of messages at most.
func (s *scene) right() {
	w, t := s.w, s.w.t
	t.Helper()
	for k, c := range map[batch.PartKey]struct {
		state    batch.State
		messages int // at least
		lapses   int
	}{
		s.lapsed: {batch.Pending, 1, 1}, s.exhausted: {batch.Dead, 0, 1}, s.overdue: {batch.Pending, 1, 0}, s.dead: {batch.Sealed, 0, 0},
		s.orphan: {batch.Sealed, 0, 0}, s.letter: {batch.Pending, 1, 0}, s.overLetter: {batch.Done, 0, 0},
	} {
		p := w.look(k)
		if p.State != c.state || w.messages(k) < c.messages || p.Lapses != c.lapses {
			t.Errorf("part %d of %s is %s with %d messages and %d lapses, want %+v", k.N, k.Batch, p.State, w.messages(k), p.Lapses, c)
		}
		if open := p.State == batch.Pending || p.State == batch.Dead; open && !p.Due.After(time.Now()) {
			t.Errorf("part %d is due at %v", k.N, p.Due)
		}
	}
	heard := len(w.truth.Workflow.Reports()) > 0
	if !heard && w.messages(s.dead) == 0 {
		t.Error("nobody tells the workflow of the part that was sealed")
	}
	if left := w.letters.Messages(); len(left) > 0 {
		t.Errorf("dead letters %+v", left)
	}
	for what, b := range map[string]batch.Batch{"that fell": s.fell, "that never was": s.never} {
		if got := w.executions(b); len(got) != 2 || got[1] != b.ID+"-2" {
			t.Errorf("executions of the one %s: %v", what, got)
		}
	}
	for _, b := range []batch.Batch{s.expired, s.finish} {
		now := w.see(b)
		if got := w.executions(b); len(got) != 2 || got[1] != batch.FinishName(now) {
			t.Errorf("executions of the one that ends as %s: %v", now.Ending, got)
		}
	}
	w.started(s.claim)
	if now := w.see(s.expired); now.Ending != batch.Expired || !w.truth.Workflow.Stopped(s.expired.ID) {
		t.Errorf("expired: %+v", now)
	}
}

var all = reap.Report{Reaped: 1, Resent: 1, Dead: 1, Sealed: 2, Expired: 1, Started: 2, Finished: 1, Letters: 2, Resubmitted: 1}

func TestRound(t *testing.T) {
	in(t, func(w *world) {
		s := w.scene()
		w.did(all)
		s.right()
		w.idle()
	})
}

// Two at once do everything once, but for copies of messages.
func TestTwoRoundsAtOnce(t *testing.T) {
	for seed := range 20 {
		in(t, func(w *world) {
			w.o.Parallel = 1 + seed
			w.restart()
			s := w.scene()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now()); err != nil || rep.Failed > 0 {
						t.Errorf("%+v, %v", rep, err)
					}
				})
			}
			wg.Wait()
			s.right()
			for _, k := range []batch.PartKey{s.lapsed, s.overdue, s.letter} {
				if n := w.messages(k); n > 2 {
					t.Errorf("%d messages of part %d", n, k.N)
				}
			}
		})
	}
}

// Each call of a round fails, loses its answer, or is the process's last. The
// rounds after it put everything right.
func TestRoundSurvivesEveryCall(t *testing.T) {
	var points []memory.Point
	in(t, func(w *world) {
		w.scene()
		w.restart()
		w.round()
		points = w.faults.Calls()
	})
	if len(points) < 65 {
		t.Fatalf("only %d calls: %v", len(points), points)
	}
	timings := map[string]func(*memory.Faults, memory.Point){
		"fails":                 func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, memory.Fail(nil)) },
		"answer lost":           func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, memory.Fail(nil)) },
		"crash before":          func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, f.Crash) },
		"crash after":           func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, f.Crash) },
		"fails again and again": func(f *memory.Faults, p memory.Point) { f.Before(p.Op, 0, memory.Fail(nil)) },
	}
	for _, p := range points {
		for when, arm := range timings {
			t.Run(fmt.Sprintf("%s %s", p, when), func(t *testing.T) {
				in(t, func(w *world) {
					s := w.scene()
					arm(w.restart(), p)
					rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
					if p.Op == "Reaps.Due" && when == "fails" && err == nil {
						t.Errorf("no error: %+v", rep)
					}
					w.restart()
					for range 8 { // until what was written and not sent is due again
						after(time.Minute)
						w.round()
					}
					s.right()
				})
			})
		}
	}
}

// One that comes an hour late does what there is to do, and no more.
func TestLateRound(t *testing.T) {
	in(t, func(w *world) {
		s := w.scene()
		after(time.Hour)
		w.round()
		s.right()
	})
}

// A tenant's own round leaves the others' alone, and the dead letters.
func TestRoundOfATenant(t *testing.T) {
	in(t, func(w *world) {
		s := w.scene()
		if rep, err := w.reaper.Round(w.t.Context(), reap.Scope{Tenant: "other"}, time.Now()); err != nil || rep != (reap.Report{}) {
			t.Errorf("%+v, %v", rep, err)
		}
		want := all
		want.Letters = 0
		if rep, err := w.reaper.Round(w.t.Context(), reap.Scope{Tenant: acme}, time.Now()); err != nil || rep != want {
			t.Errorf("%+v, %v", rep, err)
		}
		w.did(reap.Report{Letters: 2})
		s.right()
	})
}

// Time is up in the middle: what was begun comes to its end, the rest is the next
// round's.
func TestTimeIsUp(t *testing.T) {
	in(t, func(w *world) {
		const parts = 2000
		b := w.batch(parts)
		for n := range parts {
			w.part(b, n, lapsed(1))
		}
		slow := func(context.Context, memory.Point) error { after(time.Second); return nil }
		w.faults.Before("Reaps.Reap", 0, slow)
		reaped := 0
		for rounds := 1; ; rounds++ {
			ctx, cancel := context.WithTimeout(w.t.Context(), 25*time.Second)
			began := time.Now()
			rep, err := w.reaper.Round(ctx, reap.Scope{}, time.Now())
			cancel()
			if err != nil || rep.Failed > 0 || time.Since(began) > 24*time.Second {
				t.Fatalf("%+v, %v, after %v", rep, err, time.Since(began))
			}
			reaped += rep.Reaped
			if got := len(w.take()); got != rep.Reaped {
				t.Errorf("%d messages for %d parts", got, rep.Reaped)
			}
			if !rep.More {
				break
			}
			if rounds > 10 {
				t.Fatalf("%d of %d after %d rounds", reaped, parts, rounds)
			}
		}
		if reaped != parts {
			t.Errorf("%d of %d", reaped, parts)
		}
	})
}

// Trouble with one item is its own.
func TestTroubleWithOne(t *testing.T) {
	in(t, func(w *world) {
		s := w.scene()
		w.faults.Before("Reaps.Reap", 1, memory.Fail(nil))
		rep, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now())
		want := all
		want.Reaped, want.Failed = 0, 1
		if err != nil || rep != want {
			t.Errorf("%+v, %v, want %+v", rep, err, want)
		}
		w.did(reap.Report{Reaped: 1})
		s.right()
	})
}

// Events and metrics are beside the work.
func TestRoundWithoutEvents(t *testing.T) {
	in(t, func(w *world) {
		s := w.scene()
		w.faults.Before("Events.RecordAll", 0, memory.Fail(nil))
		w.did(all)
		s.right()
	})
}

// A dead letter of a part that is out of attempts is its end; one that isn't
// understood is left for a person.
func TestLetters(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(5)
		keys := map[string]batch.PartKey{
			"pending":   w.part(b, 0, nil),
			"exhausted": w.part(b, 1, func(p *batch.Part) { p.Attempts = 3 }),
			"held":      w.part(b, 2, func(p *batch.Part) { lapsed(3)(p); p.LeaseUntil = time.Now().Add(time.Minute) }),
			"dead":      w.part(b, 3, func(p *batch.Part) { p.State, p.Due = batch.Dead, time.Now().Add(time.Hour) }),
			"gone":      {Tenant: acme, Batch: "batch_gone00000000000000", N: 0},
		}
		for _, k := range keys {
			if err := w.letters.Send(w.t.Context(), batch.Message{V: 1, Tenant: k.Tenant, Batch: k.Batch, Part: k.N}, 0); err != nil {
				t.Fatal(err)
			}
		}
		w.faults.After("Queue.Receive", 2, memory.Fail(fmt.Errorf("%w: no part", batch.ErrMessage)))
		rep := w.round()
		if rep.Letters != 4 || rep.Dead > 1 || len(w.letters.Messages()) != 1 {
			t.Errorf("%+v, %d left", rep, len(w.letters.Messages()))
		}
		after(time.Minute)
		if rep := w.round(); rep.Letters != 1 || len(w.letters.Messages()) != 0 {
			t.Errorf("%+v", rep)
		}
		for name, want := range map[string]struct {
			state    batch.State
			messages int
		}{"pending": {batch.Pending, 1}, "exhausted": {batch.Dead, 0}, "dead": {batch.Dead, 0}} {
			if p := w.look(keys[name]); p.State != want.state || w.messages(p.PartKey) != want.messages {
				t.Errorf("%s: %s, %d messages", name, p.State, w.messages(p.PartKey))
			}
		}
		if w.messages(keys["held"]) == 0 && w.look(keys["held"]).State != batch.Dead {
			t.Error("the letter of a part that is held was lost")
		}
		w.faults.Before("Queue.Receive", 0, memory.Fail(nil))
		if _, err := w.reaper.Round(w.t.Context(), reap.Scope{}, time.Now()); !errors.Is(err, memory.ErrInjected) {
			t.Errorf("a queue that can't be read: %v", err)
		}
	})
}
