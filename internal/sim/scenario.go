package sim

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Scenario is one batch and what happens to it. Rates are in thousandths of the
// calls that a process makes of its ports.
type Scenario struct {
	Seed uint64

	Lines, PartLines int
	Workers          int
	Reapers          int // loops that do a round each minute, whatever the others do
	Poison           []int64

	Skew  time.Duration // a process's clock is wrong by so much at most, either way
	Bad   time.Duration // how long things go wrong, from the start
	Kill  int           // the process ends at the call
	Fail  int           // the call fails, before or (its answer lost) after it took effect
	Stall int           // the call hangs for up to 40 s, before or after it took effect
	Late  int           // a write lands, up to 100 s after its caller was told that it failed
	Echo  int           // a write lands once more, up to 100 s later

	Lost, Twice int           // messages, in thousandths of those sent
	Purge       time.Duration // when the queue is emptied; 0: never
	Fall        time.Duration // when all executions fall; 0: never
	Storm       bool          // the model refuses most calls in every other half minute
	Silence     time.Duration // no reaper runs for so long from the start

	Cancel  time.Duration // when somebody cancels; 0: nobody
	Window  time.Duration // the batch's
	Redrive bool          // an operator redrives dead parts
	Slow    time.Duration // a call of the model takes up to that
}

// Draw makes the scenario of a seed. One in four is quiet but for one or two
// things, so that what each of them does alone is seen, too.
func Draw(seed uint64) Scenario {
	d := dice(seed)
	s := Scenario{
		Seed: seed, PartLines: 8 + d.in(14, "part lines"), Workers: 2 + d.in(3, "workers"), Reapers: 1 + d.in(2, "reapers"),
		Bad: time.Duration(60+d.in(240, "bad")) * time.Second, Window: 24 * time.Hour, Slow: time.Duration(500+d.in(3500, "slow")) * time.Millisecond,
	}
	s.Lines = s.PartLines*(1+d.in(3, "parts")) + 1 + d.in(s.PartLines, "rest")
	some := func(what string, oneIn, most int) int {
		if d.in(oneIn, what) > 0 {
			return 0
		}
		return 1 + d.in(most, what, "rate")
	}
	quiet := d.in(4, "quiet") == 0
	often := 2
	if quiet {
		often = 6
	}
	if d.in(often, "skew") == 0 {
		s.Skew = time.Duration(1+d.in(30, "skew", "most")) * time.Second
	}
	s.Kill = some("kill", often, 12)
	if d.in(8, "deadly") == 0 {
		s.Kill = 40 + d.in(60, "deadly", "rate") // workers hardly live to a checkpoint: parts die
	}
	s.Fail = some("fail", often, 60)
	s.Stall = some("stall", often, 15)
	s.Late = some("late", often, 60)
	s.Echo = some("echo", often, 1000)
	s.Lost = some("lost", often, 150)
	s.Twice = some("twice", often, 300)
	s.Storm = d.in(4, "storm") == 0
	for range d.in(4, "poison") {
		at := int64(d.in(s.Lines, "poison", fmt.Sprint(len(s.Poison))))
		if n := len(s.Poison); n > 0 && d.in(2, "adjacent", fmt.Sprint(n)) == 0 {
			at = (s.Poison[n-1] + 1) % int64(s.Lines)
		}
		s.Poison = append(s.Poison, at)
	}
	when := func(what string, oneIn int) time.Duration {
		if d.in(oneIn, what) > 0 {
			return 0
		}
		return time.Duration(1+d.in(int(s.Bad/time.Second), what, "when")) * time.Second
	}
	s.Purge, s.Fall, s.Silence = when("purge", 8), when("fall", 6), when("silence", 6)
	switch d.in(8, "end") {
	case 0, 1:
		s.Cancel = time.Duration(1+d.in(90, "cancel")) * time.Second
	case 2:
		s.Window = time.Duration(20+d.in(100, "window")) * time.Second
	}
	s.Redrive = d.in(2, "redrive") == 0
	return s
}

// Strict reports whether only a death can cost a worker its claim: nothing but
// poison and kills happens to workers, and clocks are as close as the margin says.
func (s Scenario) Strict() bool {
	return s.Fail+s.Stall+s.Late+s.Echo == 0 && 2*s.Skew <= margin
}

// Gentle reports whether nothing happens but that calls fail now and then, or lose
// their answers: then nobody loses a claim, and nothing is sent twice for that.
func (s Scenario) Gentle() bool {
	return s.Fail <= 20 && s.Kill+s.Stall+s.Late+s.Echo+len(s.Poison) == 0 && 2*s.Skew <= margin
}

// OnlyPoison reports whether nothing but poison kills, and the batch may end by
// itself: then the lines blamed are exactly those that are poison.
func (s Scenario) OnlyPoison() bool {
	return s.Strict() && s.Kill == 0 && s.Cancel == 0 && s.Window == 24*time.Hour
}

// Patience is how long a batch may take to its end once nothing goes wrong any
// more. It is the sum of all that it may have to wait for, one after the other:
//
//   - the last message was lost: it is overdue, and then sent again twice;
//   - what holds it was left behind: a lease with its margin, by two clocks, for each
//     death that poison may yet cost a part, and for the finisher;
//   - a part is dead: its grace;
//   - each of these is found by a round, or a look at the batch;
//   - every line goes alone, for as long as it may take.
//
// It comes to half an hour, or less: whoever forgets something for longer is found.
func (s Scenario) Patience() time.Duration {
	lapse := leaseTime + margin + 2*s.Skew
	deaths := time.Duration(4*len(s.Poison) + maxAttempts + 1)
	waits := overdue + 2*resend + deadGrace + deaths*lapse + 4*lookOpen
	return waits + time.Duration(s.Lines)*(s.Slow+time.Second)
}

// String says what is out of the ordinary.
func (s Scenario) String() string {
	return fmt.Sprintf("seed %d: %d lines in parts of %d, %d workers, %d reapers, poison %v, skew %v, bad for %v; per mille kill %d fail %d stall %d late %d echo %d lost %d twice %d; "+
		"purge %v, fall %v, silence %v, storm %t, cancel %v, window %v, redrive %t",
		s.Seed, s.Lines, s.PartLines, s.Workers, s.Reapers, s.Poison, s.Skew, s.Bad, s.Kill, s.Fail, s.Stall, s.Late, s.Echo, s.Lost, s.Twice,
		s.Purge, s.Fall, s.Silence, s.Storm, s.Cancel, s.Window, s.Redrive)
}

// dice are thrown by name: who asks for the same thing gets the same answer,
// whoever else asked before.
type dice uint64

// in is from 0 to n-1.
func (d dice) in(n int, what ...string) int { return int(d.sum(what, 0) % uint64(n)) }

// at is in for the k-th of many.
func (d dice) at(n int, k int64, what ...string) int {
	return int(d.sum(what, uint64(k)+1) % uint64(n))
}

func (d dice) sum(what []string, k uint64) uint64 {
	h := fnv.New64a()
	for _, w := range what {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	x := h.Sum64() ^ uint64(d)*0x9e3779b97f4a7c15 ^ k*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
