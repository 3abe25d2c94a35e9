package batch_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// blamed are the lines that got the error of one that kills its worker, in order;
// all others must have succeeded.
func (r *rig) blamed() (lines []int64) {
	r.t.Helper()
	for i, x := range r.conserved() {
		switch {
		case codeOf(x) == openai.CodeLineCrashedWorker:
			lines = append(lines, i)
			if x.OK || x.receipt.Attempt != 0 || x.receipt.Status != 0 || string(x.result.Response) != "null" || x.receipt.Line != i {
				r.t.Errorf("line %d: %s, receipt %s", i, x.Result, x.Receipt)
			}
		case !x.OK:
			r.t.Errorf("line %d failed: %s", i, x.Result)
		}
	}
	slices.Sort(lines)
	return lines
}

func set(lines ...int64) map[int64]bool {
	m := map[int64]bool{}
	for _, i := range lines {
		m[i] = true
	}
	return m
}

// Promise 5: a line that kills its worker costs that line and nothing else,
// wherever it lies, whoever is its neighbour, and whatever else dies meanwhile.
func TestPoison(t *testing.T) {
	for name, c := range map[string]struct {
		poison []int64
		after  []time.Duration
		deaths int // at most
	}{
		"first of all":                       {poison: []int64{0}, deaths: 4},
		"first of a part":                    {poison: []int64{30}, deaths: 5},
		"last of a part":                     {poison: []int64{29}, deaths: 5},
		"last of all":                        {poison: []int64{89}, deaths: 5},
		"in the middle":                      {poison: []int64{47}, deaths: 5},
		"two adjacent":                       {poison: []int64{47, 48}, deaths: 7},
		"three adjacent":                     {poison: []int64{10, 11, 12}, deaths: 9},
		"on both sides of a border":          {poison: []int64{29, 30}, deaths: 9},
		"one in each part":                   {poison: []int64{5, 35, 85}, deaths: 14},
		"and an unrelated death at once":     {poison: []int64{47}, after: []time.Duration{100 * time.Millisecond}, deaths: 6},
		"and an unrelated death later":       {poison: []int64{3}, after: []time.Duration{time.Hour, time.Hour, 3500 * time.Millisecond}, deaths: 6},
		"none, and two unrelated deaths":     {after: []time.Duration{500 * time.Millisecond, 2500 * time.Millisecond}, deaths: 2},
		"none, and two of lines alone":       {after: []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, deaths: 2},
		"none, and one death between others": {after: []time.Duration{100 * time.Millisecond, time.Hour, 500 * time.Millisecond}, deaths: 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 90, 30, after(time.Second))
				r.opts = batch.RunnerOptions{Concurrency: 4, Floor: 4, Ceiling: 4, CheckpointLines: 6}
				m := r.observe()
				k := &killer{poison: set(c.poison...), after: c.after}
				r.survive(k)
				if got := r.blamed(); !slices.Equal(got, c.poison) {
					t.Errorf("blamed %v, want %v", got, c.poison)
				}
				if k.deaths > c.deaths || k.deaths == 0 {
					t.Errorf("%d deaths, want %d at most", k.deaths, c.deaths)
				}
				if n := r.repeats(); n > k.deaths*2*(6+4) {
					t.Errorf("%d lines repeated in %d deaths", n, k.deaths)
				}
				if got := m.of(batch.MetricBlamed); got != float64(len(c.poison)) || len(r.events(batch.EventBlamed)) != len(c.poison) {
					t.Errorf("%v blamed by the metric, %d by events", got, len(r.events(batch.EventBlamed)))
				}
				if dead := m.of(batch.MetricDeadParts); dead != 0 {
					t.Errorf("%v dead parts", dead)
				}
				if m.of(batch.MetricSteals) < float64(k.deaths) || len(r.events(batch.EventStolen)) < k.deaths || len(r.events(batch.EventLeaseExpired)) < k.deaths {
					t.Errorf("%v steals and events %v of %d deaths", m.of(batch.MetricSteals), r.events(), k.deaths)
				}
				r.reported("task-0", "task-1", "task-2")
			})
		})
	}
}

// Whatever lines are poison and whenever one process dies of something else: those
// lines are blamed and no other. With no poison two processes may die.
func TestPoisonProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		poison := rapid.SliceOfNDistinct(rapid.Int64Range(0, 39), 0, 3, rapid.ID[int64]).Draw(rt, "poison")
		unrelated := 1
		if len(poison) == 0 {
			unrelated = 2
		}
		var k killer
		k.poison = set(poison...)
		for range unrelated {
			for range rapid.IntRange(0, 4).Draw(rt, "processes before") {
				k.after = append(k.after, time.Hour)
			}
			k.after = append(k.after, time.Duration(rapid.IntRange(1, 30_000).Draw(rt, "ms"))*time.Millisecond)
		}
		slow := rapid.SliceOfN(rapid.IntRange(10, 4000), 40, 40).Draw(rt, "latencies")
		lines := rapid.IntRange(2, 8).Draw(rt, "C")
		var got []int64
		bubble(t, func(t *testing.T) {
			r := newRig(t, 40, 20, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
				return after(time.Duration(slow[c.Line])*time.Millisecond)(ctx, c)
			})
			r.opts = batch.RunnerOptions{Concurrency: 4, Floor: 4, Ceiling: 4, CheckpointLines: lines}
			r.survive(&k)
			got = r.blamed()
		})
		if want := slices.Sorted(maps.Keys(k.poison)); !slices.Equal(got, want) {
			rt.Errorf("blamed %v, want %v", got, want)
		}
	})
}

// loneRig has a part whose last claim made no progress, and one that is as good as
// new before and behind it.
func loneRig(t *testing.T, answer answerer) *rig {
	r := newRig(t, 60, 20, answer)
	r.opts = batch.RunnerOptions{Concurrency: 4, Floor: 4, Ceiling: 4, CheckpointLines: 4}
	p := r.part(1)
	p.Attempts = 1
	r.m.Table.SeedPart(p)
	return r
}

// A lone part is run by a worker that holds nothing else, and takes nothing else
// until C + K lines have gone alone: then it is as any other. One that takes it
// beside others gives it back, and that burns no attempt.
func TestLonePartIsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var r *rig
		var mu sync.Mutex
		flying, alone := 0, 0
		r = loneRig(t, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			mu.Lock()
			flying++
			if p := r.part(1); c.Line >= 20 && c.Line < 40 && p.Processed < 8 {
				alone++
				if flying != 1 {
					t.Errorf("line %d is sent beside %d others", c.Line, flying-1)
				}
				if s := p.Suspect; s.Strikes != 1 || int64(s.Line) != c.Line-20 || p.Begun != 1 {
					t.Errorf("line %d is sent alone with suspect %+v", c.Line, s)
				}
			}
			mu.Unlock()
			defer func() { mu.Lock(); flying--; mu.Unlock() }()
			if c.Line == 19 {
				return after(40*time.Second)(ctx, c) // a tail, beside which the next part is taken
			}
			return after(time.Second)(ctx, c)
		})
		f := memory.NewFaults()
		out := r.run(f, life)
		expect(t, out, true, "done")
		if p := r.part(1); out.Tally.Parts != 2 || p.State != batch.Pending || p.Attempts != 1 || p.Processed != 0 {
			t.Errorf("%+v, part 1 %+v", out.Tally, p)
		}
		if back := r.events(batch.EventHandedOver); len(back) != 1 || back[0].Part != 1 || back[0].Reason == "" {
			t.Errorf("events %+v", back)
		}
		f = memory.NewFaults()
		start := time.Now()
		expect(t, r.runDelivery(t.Context(), f, r.deliveryOf(1), life), true, "done")
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("8 lines alone, 12 by four, and the next part took %s", took)
		}
		if alone != 8 || f.Count("Claims.Suspect") != 8 {
			t.Errorf("%d lines went alone, with %d suspects, want C + K", alone, f.Count("Claims.Suspect"))
		}
		if _, most := r.model.InFlight(); most != 4 {
			t.Errorf("%d in flight at most", most)
		}
		r.settle()
		r.conserved()
		if n := r.repeats(); n != 0 {
			t.Errorf("%d repeats", n)
		}
	})
}

// One that has fewer lines than go alone is done before the next message is asked
// for.
func TestLonePartTakesNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 14, 7, after(time.Second))
		p := r.part(0)
		p.Attempts = 1
		r.m.Table.SeedPart(p)
		f := memory.NewFaults()
		f.Before("Queue.Receive", 0, func(context.Context, memory.Point) error {
			if p := r.part(0); p.State != batch.Done {
				t.Errorf("received beside a part that is %s", p.State)
			}
			return nil
		})
		expect(t, r.run(f, life), true, "done")
		if n := f.Count("Claims.Suspect"); n != 7 {
			t.Errorf("%d lines went alone", n)
		}
	})
}

// A suspect that a claim finds is dealt with first, also far behind what the reader
// may be ahead by, and whatever the attempts.
func TestSuspectFirst(t *testing.T) {
	for strikes := 1; strikes <= 3; strikes++ {
		bubble(t, func(t *testing.T) {
			r := newRig(t, 60, 60, after(time.Second))
			r.opts = batch.RunnerOptions{Concurrency: 1, CheckpointLines: 2} // 4 lines ahead
			p := r.part(0)
			p.Attempts, p.Suspect = 9, batch.Suspect{Line: 50, Strikes: strikes, By: "dead"}
			r.m.Table.SeedPart(p)
			f := memory.NewFaults()
			f.After("Claims.Checkpoint", 1, func(context.Context, memory.Point) error {
				if p := r.part(0); !p.DoneLines.Has(50) || p.Processed != 1 {
					t.Errorf("first %+v is committed, want line 50", p.DoneLines)
				}
				return nil
			})
			expect(t, r.run(f, life), true, "done")
			want := []int64{50}
			if strikes == 1 {
				want = nil
				if first := r.model.Calls()[0].Line; first != 50 {
					t.Errorf("line %d is sent first", first)
				}
			}
			if got := r.blamed(); !slices.Equal(got, want) {
				t.Errorf("blamed %v at %d strikes", got, strikes)
			}
			lone := 3 + 1 // C + K lines, and the suspect
			if strikes > 1 {
				lone-- // which isn't sent
			}
			if n := f.Count("Claims.Suspect"); n != lone {
				t.Errorf("%d suspects written, want %d", n, lone)
			}
		})
	}
}

// A suspect whose line is done, or that is no line of the part, is none.
func TestSuspectThatIsNone(t *testing.T) {
	for _, line := range []int{3, 10, -1} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, 10, 10, after(time.Second))
			r.opts.Concurrency = 1
			r.run(nil, 184500*time.Millisecond) // time for five lines
			p := r.part(0)
			p.Suspect = batch.Suspect{Line: line, Strikes: 2}
			r.m.Table.SeedPart(p)
			if !p.DoneLines.Has(3) || p.State != batch.Pending {
				t.Fatalf("part %+v", p)
			}
			f := memory.NewFaults()
			expect(t, r.run(f, life), true, "done")
			if n := f.Count("Claims.Suspect"); n != 0 {
				t.Errorf("%d suspects written", n)
			}
		})
	}
}
