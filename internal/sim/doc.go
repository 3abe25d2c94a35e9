// Package sim runs whole batches in process and in virtual time while everything
// goes wrong that may: processes are killed anywhere, calls fail before they take
// effect or lose their answers after it, writes land long after their caller gave
// up, clocks differ by half a minute, messages are lost and come twice, lines kill
// their workers, the model refuses everything for a while, people cancel.
//
// A [World] has the stores (package memory), a state machine that behaves like the
// deployed one, workers with their poller, reapers, and an operator who redrives.
// What runs in them is the real code: Creator, Planner, Runner, Reaper, Finisher,
// Ender. Each of their processes sees the stores through ports of its own, which
// shift every time by how far the process's clock is wrong, and inject faults.
//
// A [Scenario] says what goes wrong; [Draw] makes one of a seed. What happens to
// which call is a function of the seed, the process and the number of the call
// only, not of who was scheduled first; the pauses and tokens that the code draws
// itself are random, though, so that a seed that failed may need a few runs to
// fail again. A violation comes with the seed and the last steps.
//
// The judge looks at every write that takes effect (see judge.go): a part's
// progress never goes back, what is over stays as it is, nobody but the owner
// writes, nobody is robbed before the lease has lapsed by the thief's clock. The
// verdict looks at what is left at the end (verdict.go): one result for each line,
// in order, in one file; every number adds up; no more repeats than promised; no
// line blamed that wasn't alone in two deaths; and once faults have stopped, an end
// within [Scenario.Patience].
//
// Who dies while a line that went alone waits for another try, with nothing in
// flight, must leave no strike. That is judged at each death where nothing but
// deaths befalls workers ([Scenario.Strict]): where calls fail, hang or land late, the
// write that takes a strike back may do so, too, and a strike may land late; there a
// death counts if the claim's strike stands. So does a lease that lapsed without a
// death (a worker that stood still, a clock that is wrong): what was in flight then
// nobody can know, the code neither.
//
// That it can fail is shown by simulation_test.go: a store with one condition
// dropped (memory.Options.Drop) is found out. Only tests and benchmarks import
// this package.
package sim
