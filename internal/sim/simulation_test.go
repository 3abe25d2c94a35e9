package sim_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/memory"
	"holdfast/internal/sim"
)

var (
	seed  = flag.Uint64("seed", 0, "the one seed to run")
	seeds = flag.Int("seeds", 300, "how many seeds to run, from 1")
)

// live runs a scenario in a bubble.
func live(t *testing.T, s sim.Scenario, drop string) (r sim.Report) {
	synctest.Test(t, func(t *testing.T) {
		r = sim.NewWorld(context.Background(), s, drop).Run()
	})
	return r
}

// TestSimulation lives some hundred seeds through; make bench does 10,000.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed > 0 {
		first, last = *seed, *seed
	}
	for n := first; n <= last; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			if r := live(t, sim.Draw(n), ""); len(r.Violations) > 0 {
				t.Errorf("%s\nagain: go test ./internal/sim -run TestSimulation -seed %d -count 20", r, n)
			}
		})
	}
}

// TestDeathsWhileLinesWait kills workers in storms, and does nothing else to them: many
// die while a line that goes alone waits for another try, and that is no fault of the
// line.
func TestDeathsWhileLinesWait(t *testing.T) {
	deaths := 0
	for n := range uint64(100) {
		s := sim.Draw(n + 1)
		r := live(t, sim.Scenario{
			Seed: n + 1, Lines: s.Lines, PartLines: s.PartLines, Workers: s.Workers, Reapers: 1, Slow: s.Slow,
			Bad: 5 * time.Minute, Window: 24 * time.Hour, Kill: 15, Storm: true,
		}, "")
		if deaths += r.Deaths; len(r.Violations) > 0 {
			t.Fatal(r)
		}
	}
	if deaths < 1000 {
		t.Errorf("%d deaths", deaths)
	}
}

// TestSimulationIsRough shows that the seeds are not all fair weather: of each
// thing that may befall a batch there is some.
func TestSimulationIsRough(t *testing.T) {
	var sum sim.Report
	statuses := map[string]int{}
	for n := range uint64(120) {
		r := live(t, sim.Draw(n+1), "")
		sum.Deaths += r.Deaths
		sum.Lapses += r.Lapses
		sum.Steals += r.Steals
		sum.Repeats += r.Repeats
		sum.Blamed += r.Blamed
		sum.Dead += r.Dead
		statuses[string(r.Status)]++
	}
	for what, n := range map[string]int{
		"deaths": sum.Deaths, "lapses": sum.Lapses, "steals": sum.Steals, "reaped": sum.Lapses - sum.Steals, "repeats": sum.Repeats,
		"blamed": sum.Blamed, "dead parts": sum.Dead, "completed": statuses["completed"], "cancelled": statuses["cancelled"], "expired": statuses["expired"],
	} {
		if n == 0 {
			t.Errorf("no %s in 120 seeds", what)
		}
		t.Logf("%s: %d", what, n)
	}
}

// finds is what the simulation finds out by itself when the store ignores one
// clause, and the first seed that does. The others of C5 to C16 are conjuncts that
// another one implies as long as nobody forges an item (state=leased beside owner=token, or
// beside the version that was read), recognitions whose loss costs another look and
// nothing else, and races that take two in a row: C9, C11, C12 and C14 are written
// by who has just read the item, under a version. The suites hold each of them
// (TestClauses in package memory, TestEveryConditionIsHeld in package dynamo).
var finds = map[string]uint64{
	"C5.pending":             1,
	"C5.suspect":             14,
	"C5.own.owner":           1,
	"C5.own.leased":          6,
	"C6.attempts":            5,
	"C6.own.owner":           5,
	"C6.own.leased":          16,
	"C7.leased":              8,
	"C7s.owner":              8,
	"C7s.processed":          7,
	"C8.from":                3,
	"C8.own.owner":           1,
	"C10.owner":              16,
	"C10.strike":             5,
	"C10.strike.by":          8,
	"C15.advance.step":       8,
	"C15.end.own.equal":      21,
	"C15.finalize.from":      6,
	"C15.finalize.own.owner": 15,
	"C15.finalize.own.state": 17,
	"C15.rob.lapsed":         15,
	"C15.start.validating":   32,
	"C15.start.own.status":   32,
	"C16.finalizing":         32,
}

// TestSimulationFindsOut drops one clause at a time.
func TestSimulationFindsOut(t *testing.T) {
	const most = 150 // seeds after the one that is known
	for clause, first := range finds {
		t.Run(clause, func(t *testing.T) {
			t.Parallel()
			for n := first; n < first+most; n++ {
				if r := live(t, sim.Draw(n), clause); len(r.Violations) > 0 {
					t.Logf("seed %d, without %s: %s", n, memory.Describe(clause), r.Violations[0])
					return
				}
			}
			t.Errorf("nothing is wrong in %d seeds without %s (%s)", most, clause, memory.Describe(clause))
		})
	}
}

// TestCrashTableFindsOut drops the recognition of one's own lost answers: there the
// seeds have too much trouble for what it costs to be seen, and one lost answer
// shows it.
func TestCrashTableFindsOut(t *testing.T) {
	for clause, op := range map[string]string{"C5.own": "Claims.Claim", "C8.own": "Claims.Checkpoint"} {
		t.Run(clause, func(t *testing.T) {
			at := place{"work", 1, memory.Point{Op: op, N: 1}}
			if r, _, _ := tell(t, stories[0], "", "same owner retries", "after", at); len(r.Violations) > 0 {
				t.Fatalf("with the clause: %s", r)
			}
			// The first process may find nothing to do, and die of no lost answer then.
			for range 50 {
				r, _, hit := tell(t, stories[0], clause, "same owner retries", "after", at)
				if hit && len(r.Violations) == 0 {
					t.Errorf("nothing is wrong without %s (%s)", clause, memory.Describe(clause))
				}
				if hit {
					return
				}
			}
			t.Error("it never came to the call")
		})
	}
}
