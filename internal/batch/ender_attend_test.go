package batch_test

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// A batch that can't be finished: a finisher takes the right, finds a result that
// isn't what was recorded, and gives the right back, each time with writes to the
// batch. The executions that fall over that are counted all the same: five, and
// then one an hour. Once the result is what it was, the next one closes it.
func TestFinishThatFallsForEver(t *testing.T) {
	w := newWorld(t)
	r := w.run(40, 9, mixed)
	w.damage(r.ID, 2)
	began := wNow
	started, hours := 0, 0
	attend := func(now time.Time) batch.Attendance {
		a, err := w.canceller().Finish(t.Context(), w.batch(r.ID), batch.InTurn, now)
		must(t, err)
		return a
	}
	for now := began; now.Before(began.Add(6 * time.Hour)); now = now.Add(time.Minute) {
		if attend(now) != batch.Replaced {
			continue
		}
		if started++; now.Sub(began) > 10*time.Minute {
			hours++
		}
		ver := w.batch(r.ID).Ver
		_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, now)
		if !errors.Is(err, batch.ErrConservation) {
			t.Fatalf("answered %v", err)
		}
		if w.batch(r.ID).Ver == ver {
			t.Fatal("a try to finish writes nothing: this test shows nothing")
		}
		all := w.truth.Workflow.Executions()
		w.truth.Workflow.Kill(all[len(all)-1].Name)
	}
	if started-hours > 6 || hours < 4 || hours > 6 {
		t.Errorf("%d executions at first, %d more in six hours", started-hours, hours)
	}
	w.damage(r.ID, 2) // back
	for now := began.Add(6 * time.Hour); attend(now) != batch.Replaced; now = now.Add(time.Minute) {
		if now.After(began.Add(8 * time.Hour)) {
			t.Fatal("nobody tries again")
		}
	}
	_, err := w.finisher(nil).Finish(t.Context(), wTenant, r.ID, began.Add(7*time.Hour))
	if err != nil { // what was stored meanwhile can't be trusted: once anew
		_, err = w.finisher(nil).Finish(t.Context(), wTenant, r.ID, began.Add(7*time.Hour))
	}
	must(t, err)
	w.expectClosed(r)
}

// One by the hour that lives is found in any later hour: it is alive, nothing is
// started beside it, and a cancel stops it.
func TestExecutionByTheHour(t *testing.T) {
	w := newWorld(t)
	b := w.batch(w.awkward(5, 5).ID)
	b.CreatedAt = wNow
	w.truth.Table.SeedBatch(b)
	last := func() string {
		all := w.truth.Workflow.Executions()
		return all[len(all)-1].Name
	}
	run := func(turn batch.Turn, now time.Time) batch.Attendance {
		a, err := w.canceller().Run(t.Context(), b, turn, now)
		must(t, err)
		return a
	}
	alive := func(now time.Time) bool {
		ok, err := w.canceller().Alive(t.Context(), b, now)
		must(t, err)
		return ok
	}
	for n := 1; n <= 5; n++ {
		w.truth.Workflow.Kill(last())
		if n > 1 { // its successor fell, too: not at once
			if a := run(batch.OutOfTurn, wNow); a != batch.Paused {
				t.Errorf("out of its turn, after %d: %d", n, a)
			}
		}
		turn := batch.InTurn
		if n == 1 {
			turn = batch.OutOfTurn
		}
		if a := run(turn, wNow); a != batch.Replaced {
			t.Fatalf("after %d: %d", n, a)
		}
	}
	for h := range 30 {
		now := wNow.Add(time.Duration(h) * time.Hour)
		if a := run(batch.InTurn, now); a != batch.Attended || !alive(now) {
			t.Fatalf("%d hours later: %d, %v", h, a, w.truth.Workflow.Executions())
		}
	}
	later := wNow.Add(30 * time.Hour)
	_, err := w.canceller().Cancel(t.Context(), wTenant, b.ID, later)
	must(t, err)
	stopped := 0
	for _, e := range w.truth.Workflow.Executions() {
		if seen, err := w.truth.Workflow.Seen(t.Context(), e.Name); err != nil || !e.Finish && seen == batch.Running {
			t.Errorf("%s goes on: %v", e.Name, err)
		}
		if w.truth.Workflow.Stopped(e.Name) {
			stopped++
		}
	}
	if stopped != 6 || alive(later) {
		t.Errorf("%d were stopped", stopped)
	}
}
