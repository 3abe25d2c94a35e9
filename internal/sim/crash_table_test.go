package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/sim"
)

// steps is the crash table's first column: every call of a port that whoever works
// on a batch makes, and the step of protocol.md that it belongs to. A call that is
// made in one of the stories and has no row here fails the test; so does a row that
// no story comes to.
var steps = map[string]string{
	"api Files.Get":      "record the batch: look at its file",
	"api Batches.Create": "record the batch",
	"api Workflow.Start": "start the workflow under the batch's name",

	"plan Batches.Get":    "validate the whole input, cut it",
	"plan Objects.Open":   "validate the whole input, cut it",
	"plan Parts.All":      "insert the parts: look what an earlier planning left",
	"plan Parts.Insert":   "insert the parts",
	"plan Batches.Start":  "go",
	"plan Batches.Refuse": "refuse it",

	"work Queue.Hide":        "1 hide the message for a lease",
	"work Queue.Receive":     "4 take another part when slots would stand idle",
	"work Claims.Claim":      "2 claim",
	"work Claims.Steal":      "steal from a holder that lapsed",
	"work Objects.Open":      "3 stream the part",
	"work Model.Call":        "4 send a line",
	"work Objects.Put":       "5 write the chunk",
	"work Claims.Checkpoint": "5 make it count",
	"work Claims.Heartbeat":  "6 heartbeat",
	"work Batches.Get":       "6 look at the batch",
	"work Claims.HandOver":   "7 hand over",
	"work Queue.Send":        "7 hand over: send the message again",
	"work Claims.Fail":       "give back after a failure of its own",
	"work Claims.Suspect":    "write the suspect before a line is sent alone",
	"work Workflow.Report":   "8 report",
	"work Queue.Delete":      "8 delete the message",
	"work Parts.Get":         "dead: look at the part",
	"work Deaths.Declare":    "dead, waiting for a redrive",
	"work Events.Record":     "tell of it",

	"reap Reaps.Due":        "find what is due",
	"reap Reaps.Parts":      "find what is due",
	"reap Batches.Get":      "look after a batch",
	"reap Reaps.Reap":       "reap, then send the message",
	"reap Queue.SendAll":    "reap, then send the message",
	"reap Reaps.Postpone":   "a pending part's message is overdue",
	"reap Reaps.Defer":      "look at an open batch again later",
	"reap Endings.End":      "its window is over",
	"reap Workflow.Seen":    "its execution fell, or never began",
	"reap Workflow.Start":   "its execution fell, or never began",
	"reap Workflow.Finish":  "nobody finishes it",
	"reap Workflow.Stop":    "nobody finishes it",
	"reap Parts.All":        "nobody finishes it",
	"reap Queue.Send":       "dead, and its grace is over: a message goes ahead",
	"reap Seals.Seal":       "dead, and its grace is over: seal",
	"reap Workflow.Report":  "dead, and its grace is over: report",
	"reap Events.RecordAll": "tell of it",

	"finish Batches.Get":      "every part over: look",
	"finish Parts.All":        "every part over: look",
	"finish Endings.End":      "every part over: the ending is completed",
	"finish Endings.Finalize": "take the right to assemble",
	"finish Objects.Open":     "merge",
	"finish Objects.Put":      "result objects",
	"finish Files.Put":        "result objects, then File items",
	"finish Endings.Close":    "close",
	"finish Objects.Delete":   "delete the chunks, only now",
	"finish Seals.Seal":       "seal every open part",
	"finish Endings.Advance":  "record how far it is",

	"cancel Endings.End":     "decide to cancel",
	"cancel Workflow.Finish": "start an execution that only finishes",
	"cancel Workflow.Stop":   "then stop the batch's own",
	"cancel Workflow.Seen":   "then stop the batch's own",

	"redrive Parts.Get":        "redrive: look",
	"redrive Deaths.Redrive":   "redrive",
	"redrive Events.RecordAll": "redrive: tell of it",
	"redrive Queue.Send":       "redrive, then send the message",
}

// story is a batch's life in which certain steps are taken.
type story struct {
	name   string
	s      sim.Scenario
	set    func(w *sim.World)
	status batch.Status // how it ends if nothing is made to go wrong
}

func scenario(change func(*sim.Scenario)) sim.Scenario {
	s := sim.Scenario{
		Seed: 1, Lines: 22, PartLines: 11, Workers: 2, Reapers: 1, Window: 24 * time.Hour, Slow: 2 * time.Second, Bad: time.Millisecond,
	}
	if change != nil {
		change(&s)
	}
	return s
}

// early kills the first n workers once they have claimed.
func early(w *sim.World, n int) {
	w.Disturbed = true
	w.OnStart = func(kind string, number int, p *sim.Process) {
		if kind == "work" && number <= n {
			// Its first look at the batch comes right after a claim.
			p.Faults().Before("Batches.Get", 1, func(context.Context, memory.Point) error { p.Kill("early"); return memory.ErrCrashed })
		}
	}
}

var stories = []story{
	{"to the end", scenario(nil), nil, batch.Completed},
	{"handed over", scenario(nil), func(w *sim.World) { w.Life = 15 * time.Second }, batch.Completed},
	{"slow lines", scenario(func(s *sim.Scenario) { s.Slow = 5900 * time.Millisecond; s.Lines, s.PartLines = 40, 40 }), nil, batch.Completed},
	{"model refuses", scenario(func(s *sim.Scenario) { s.Storm, s.Bad = true, 20*time.Second }), func(w *sim.World) { w.Disturbed = true }, batch.Completed},
	{"input out of reach", scenario(nil), func(w *sim.World) {
		w.Disturbed = true
		// The first that opens it, whichever of the two that is: either may get both parts.
		var first atomic.Pointer[sim.Process]
		w.OnStart = func(kind string, _ int, p *sim.Process) {
			if kind != "work" {
				return
			}
			// As long as it takes to give up: how many tries that are is the reader's.
			p.Faults().Before("Objects.Open", 0, func(context.Context, memory.Point) error {
				if first.CompareAndSwap(nil, p); first.Load() == p && p.Faults().Count("Claims.Fail") == 0 {
					return memory.ErrInjected
				}
				return nil
			})
		}
	}, batch.Completed},
	{"poison", scenario(func(s *sim.Scenario) { s.Poison = []int64{3, 4} }), nil, batch.Completed},
	{"died and unheard of", scenario(nil), func(w *sim.World) {
		w.Disturbed = true
		var once sync.Once
		w.OnStart = func(kind string, _ int, p *sim.Process) {
			if kind != "work" {
				return
			}
			// With its message gone nobody can steal its part: the reaper must find it.
			p.Faults().Before("Batches.Get", 1, func(context.Context, memory.Point) (err error) {
				once.Do(func() {
					p.Kill("early")
					w.EmptyQueue()
					err = memory.ErrCrashed
				})
				return err
			})
		}
	}, batch.Completed},
	{"dead and redriven", scenario(func(s *sim.Scenario) { s.Lines = 11; s.Workers = 1 }), func(w *sim.World) {
		early(w, 3)
		w.Operator = func() {
			for w.Wait(20 * time.Second) {
				w.RedriveAll(0)
			}
		}
	}, batch.Completed},
	{"dead and sealed", scenario(func(s *sim.Scenario) { s.Lines = 11; s.Workers = 1 }), func(w *sim.World) { early(w, 3) }, batch.Completed},
	{"messages lost", scenario(nil), func(w *sim.World) {
		w.Disturbed = true
		w.Operator = func() { w.Wait(1500 * time.Millisecond); w.EmptyQueue() }
		w.Life = 13 * time.Second
	}, batch.Completed},
	{"cancelled", scenario(func(s *sim.Scenario) { s.Lines, s.Slow = 44, 4*time.Second }), func(w *sim.World) { w.Operator = func() { w.Wait(5 * time.Second); w.CancelBatch() } }, batch.Cancelled},
	{"expired", scenario(func(s *sim.Scenario) {
		s.Window, s.Slow, s.Workers, s.Reapers = 6*time.Second, 5*time.Second, 1, 3
		s.Lines, s.PartLines = 260, 65
	}), nil, batch.Expired},
	{"executions fell", scenario(nil), func(w *sim.World) {
		w.Disturbed = true
		w.Operator = func() { w.Wait(4 * time.Second); w.Fell() }
	}, batch.Completed},
	{"execution fell at once", scenario(nil), func(w *sim.World) {
		w.Disturbed = true
		w.Operator = func() { w.Wait(500 * time.Millisecond); w.Fell() }
	}, batch.Completed},
	{"refused", scenario(nil), func(w *sim.World) { w.BadLine = true }, batch.Failed},
}

// place is where something goes wrong.
type place struct {
	kind   string // of the process
	number int    // the how-manieth of its kind
	at     memory.Point
}

func (p place) row() string { return p.kind + " " + p.at.Op }

// fates are what happens at a place: the call fails and its caller goes on, or its
// process ends and somebody else comes first.
var fates = []string{"same owner retries", "another takes over", "reaper first", "cancel first"}

// tell runs a story; befall, if any, happens at a place, before the call takes
// effect or after it did.
func tell(t *testing.T, st story, drop, befall, when string, at place) (r sim.Report, calls map[string][]place, hit bool) {
	calls = map[string][]place{}
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld(context.Background(), st.s, drop)
		if st.set != nil {
			st.set(w)
		}
		w.Disturbed = w.Disturbed || befall != "" && (befall != "same owner retries" || at.at.Op == "Model.Call" || strings.HasPrefix(at.at.Op, "Events."))
		var mu sync.Mutex
		type named struct {
			kind   string
			number int
			p      *sim.Process
		}
		var all []named
		counts := map[string]int{}
		set := w.OnStart
		w.OnStart = func(kind string, number int, p *sim.Process) {
			if set != nil {
				set(kind, number, p)
			}
			if kind == "api" {
				kind = p.Purpose()
			}
			mu.Lock()
			counts[kind]++
			number = counts[kind]
			all = append(all, named{kind, number, p})
			mu.Unlock()
			if kind != at.kind || number != at.number || befall == "" {
				return
			}
			hook := func(context.Context, memory.Point) error {
				mu.Lock()
				first := !hit
				hit = true
				mu.Unlock()
				if befall == "same owner retries" {
					return memory.ErrInjected
				}
				p.Kill(when + " " + at.at.String())
				switch {
				case befall == "reaper first" && first:
					w.EmptyQueue()
				case befall == "cancel first" && first:
					w.CancelBatch()
				}
				return memory.ErrCrashed
			}
			if when == "before" {
				p.Faults().Before(at.at.Op, at.at.N, hook)
			} else {
				p.Faults().After(at.at.Op, at.at.N, hook)
			}
		}
		r = w.Run()
		for _, n := range all {
			for _, c := range n.p.Faults().Calls() {
				pl := place{n.kind, n.number, c}
				calls[pl.row()] = append(calls[pl.row()], pl)
			}
		}
	})
	return r, calls, hit
}

// TestCrashTable makes every step go wrong, before it takes effect and after it
// did, and lets somebody else come first. Whatever happens, the batch ends as it
// must: see the judge and the verdict. A single lost call or answer costs nothing:
// no lapse, no line sent twice. A death repeats at most C + K lines of each part
// that it held.
func TestCrashTable(t *testing.T) {
	var mu sync.Mutex
	came := map[string]bool{}
	t.Run("stories", func(t *testing.T) {
		for _, st := range stories {
			t.Run(st.name, func(t *testing.T) {
				t.Parallel()
				clean, calls, _ := tell(t, st, "", "", "", place{})
				if len(clean.Violations) > 0 || clean.Status != st.status {
					t.Fatalf("%s, want %s: %s", clean.Status, st.status, clean)
				}
				for _, row := range slices.Sorted(maps.Keys(calls)) {
					mu.Lock()
					before := came[row]
					came[row] = true
					mu.Unlock()
					if steps[row] == "" {
						t.Errorf("%s is no row of the table", row)
					}
					if before && !strings.Contains(row, " Claims.") && (st.status == batch.Completed || !strings.Contains(row, " Endings.")) {
						continue // another story has it, and this one isn't about it
					}
					for _, p := range chosen(calls[row]) {
						for _, when := range []string{"before", "after"} {
							for _, fate := range fates {
								name := fmt.Sprintf("%s of %s %d/%s/%s", p.at, p.kind, p.number, when, fate)
								t.Run(name, func(t *testing.T) { crash(t, st, clean, fate, when, p) })
							}
						}
					}
				}
			})
		}
	})
	for row := range steps {
		if !came[row] {
			t.Errorf("no story comes to %s (%s)", row, steps[row])
		}
	}
}

// chosen are the places of a row at which a story is made to go wrong: the first,
// and of workers, whose steps come many times, the last as well.
func chosen(places []place) []place {
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.at.N, b.at.N))
	})
	if len(places) == 1 || places[0].kind != "work" {
		return places[:1]
	}
	return []place{places[0], places[len(places)-1]}
}

func crash(t *testing.T, st story, clean sim.Report, fate, when string, at place) {
	r, _, hit := tell(t, st, "", fate, when, at)
	if len(r.Violations) > 0 {
		t.Fatalf("%s", r)
	}
	if !hit {
		t.Logf("it didn't come to that this time")
	}
	if r.Status != st.status && (r.Status != batch.Cancelled || fate != "cancel first") {
		t.Errorf("ends as %s, want %s", r.Status, st.status)
	}
	if most := (r.Held + clean.Lapses) * sim.Window; r.Repeats > most+1 {
		t.Errorf("%d lines repeated, want at most %d: %s", r.Repeats, most, strings.Join(r.Trace, "\n"))
	}
}
