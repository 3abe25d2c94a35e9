package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

func reply(in input, i int) string {
	sum := sha256.Sum256([]byte(in.body(i)))
	return fmt.Sprintf(`{"custom_id":%q,"response":{"status_code":200,"body":{"text":"You sent %s"}},"error":null}`+"\n", customID(i), hex.EncodeToString(sum[:]))
}

func failure(i int, code string) string {
	return fmt.Sprintf(`{"custom_id":%q,"response":null,"error":{"code":%q}}`+"\n", customID(i), code)
}

// What is wrong with results is seen and counted.
func TestResults(t *testing.T) {
	in := input{lines: 4, model: "sim"}
	for _, tt := range []struct {
		name, output, errors        string
		lost, doubled, wrong, blame int
	}{
		{"whole", reply(in, 0) + reply(in, 1) + reply(in, 2) + reply(in, 3), "", 0, 0, 0, 0},
		{"one blamed", reply(in, 0) + reply(in, 1) + reply(in, 3), failure(2, "line_crashed_worker"), 0, 0, 0, 1},
		{"one lost", reply(in, 0) + reply(in, 1) + reply(in, 3), "", 1, 0, 0, 0},
		{"in both", reply(in, 0) + reply(in, 1) + reply(in, 2) + reply(in, 3), failure(2, "part_dead"), 0, 1, 0, 0},
		{"twice", reply(in, 0) + reply(in, 1) + reply(in, 1) + reply(in, 2) + reply(in, 3), "", 0, 1, 1, 0},
		{"out of order", reply(in, 0) + reply(in, 2) + reply(in, 1) + reply(in, 3), "", 0, 0, 1, 0},
		{"another's reply", reply(in, 0) + reply(in, 1) + strings.Replace(reply(in, 1), customID(1), customID(2), 1) + reply(in, 3), "", 0, 0, 1, 0},
		{"unknown", reply(in, 0) + reply(in, 1) + reply(in, 2) + reply(in, 3) + reply(input{lines: 9, model: "sim"}, 7), "", 0, 0, 1, 0},
		{"another failure", reply(in, 0) + reply(in, 1) + reply(in, 3), failure(2, "upstream_unreachable"), 0, 0, 1, 0},
	} {
		var v verdict
		seen := make([]int, in.lines)
		v.results(in, []byte(tt.output), true, seen)
		v.results(in, []byte(tt.errors), false, seen)
		v.count(seen)
		if v.Lost != tt.lost || v.Doubled != tt.doubled || v.Wrong != tt.wrong || len(v.Blamed) != tt.blame {
			t.Errorf("%s: %d lost, %d doubled, %d wrong, %d blamed: %v", tt.name, v.Lost, v.Doubled, v.Wrong, len(v.Blamed), v.Faults)
		}
	}
}

func blows(alone int, lost ...int) (all []*blow) {
	for range alone {
		all = append(all, &blow{fate: killed, alone: lineKey{"b", 2}})
	}
	for _, n := range lost {
		all = append(all, &blow{fate: killed, held: []*holding{{part: batch.Part{PartKey: batch.PartKey{Batch: "b"}}, claimed: true, lost: n}}})
	}
	return all
}

// Repeats beyond what the blows account for are a fault, and so is blame for a line
// that was not alone in two deaths.
func TestJudge(t *testing.T) {
	lines := make(map[string]struct {
		Tries int `json:"tries"`
	})
	for i := range 10 {
		lines[fmt.Sprint(i)] = struct {
			Tries int `json:"tries"`
		}{1}
	}
	for _, tt := range []struct {
		name     string
		requests int
		lapses   int
		blamed   []int
		blows    []*blow
		faults   int
	}{
		{"nothing happened", 10, 0, nil, nil, 0},
		{"as many as were lost", 17, 2, nil, blows(0, 3, 4), 0},
		{"one more", 18, 2, nil, blows(0, 3, 4), 1},
		{"one more, for a lapse of its own", 18, 3, nil, blows(0, 3, 4), 0},
		{"repeats out of nothing", 11, 0, nil, nil, 1},
		{"blamed after two", 10, 0, []int{2}, blows(2), 0},
		{"blamed after one", 10, 0, []int{2}, blows(1), 1},
		{"another blamed", 10, 0, []int{3}, blows(2), 1},
	} {
		v := verdict{Batch: "b", Lapses: tt.lapses, Blamed: tt.blamed}
		v.judge(account{Requests: tt.requests, Lines: lines}, tt.blows, 5)
		if len(v.Faults) != tt.faults {
			t.Errorf("%s: %q", tt.name, v.Faults)
		}
	}
}

func TestSummary(t *testing.T) {
	part := func(n int) batch.Part { return batch.Part{PartKey: batch.PartKey{Batch: "b", N: n}} }
	for _, tt := range []struct {
		name string
		held holding
		v    verdict
		ok   bool
	}{
		{"well", holding{lost: 24, freed: 8 * time.Second}, verdict{Lines: 10}, true},
		{"too many begun", holding{lost: 25, freed: 8 * time.Second}, verdict{}, false},
		{"too late", holding{freed: 67 * time.Second}, verdict{}, false},
		{"lost", holding{}, verdict{Lost: 1}, false},
		{"doubled", holding{}, verdict{Doubled: 1}, false},
		{"out of order", holding{}, verdict{Wrong: 1}, false},
		{"another fault", holding{}, verdict{Faults: []string{"x"}}, false},
	} {
		s := summary{Bound: 24, Lease: 6, timed: true, Batches: []verdict{tt.v}}
		tt.held.part = part(1)
		s.blows([]*blow{{fate: killed, held: []*holding{&tt.held}}})
		s.judge()
		if s.OK != tt.ok {
			t.Errorf("%s: ok %t, %v", tt.name, s.OK, s.Faults)
		}
	}
	s := summary{Bound: 24, Lease: 6}
	s.blows([]*blow{
		{fate: killed, held: []*holding{{part: part(1), lost: 10, freed: 3 * time.Second}, {part: part(2), lost: 4}}},
		{fate: stopped, held: []*holding{{part: part(3), lost: 20, freed: 30 * time.Second}}},
		{fate: killed},
	})
	s.judge()
	if s.Kills != 2 || s.Stops != 1 || s.Repeats != 7 || s.Worst != 20 || s.Recovery != 3 {
		t.Errorf("%+v", s)
	}
	if line := s.String(); !strings.Contains(line, "chaos: 2 kills, 0 batches, 0 lines, 0 lost, 0 doubled, 0 blamed, 0 dead parts, 7.0 repeats per kill") {
		t.Error(line)
	}
}

// Progress is what ends a recovery, or the end of the part; a part that is struck
// again is watched anew.
func TestProgressed(t *testing.T) {
	key := batch.PartKey{Batch: "b", N: 1}
	at := time.Now()
	h := &holding{part: batch.Part{PartKey: key, State: batch.Leased, Processed: 10}}
	again := &holding{part: batch.Part{PartKey: key, State: batch.Leased, Processed: 10}, ended: true}
	f := newField(nil, nil, processes{}, nil)
	f.blows = []*blow{{at: at, held: []*holding{h, again}}}
	f.progressed([]batch.Part{{PartKey: key, State: batch.Pending, Processed: 10}}, at.Add(time.Second))
	if h.ended || h.freed != 0 {
		t.Error("recovered without a word")
	}
	f.progressed([]batch.Part{{PartKey: key, State: batch.Pending, Processed: 10, Lapses: 1}}, at.Add(1500*time.Millisecond))
	f.progressed([]batch.Part{{PartKey: key, State: batch.Leased, Processed: 11}}, at.Add(2*time.Second))
	f.progressed([]batch.Part{{PartKey: key, State: batch.Done, Processed: 50}}, at.Add(9*time.Second))
	if !h.ended || h.freed != 1500*time.Millisecond || h.recovered != 2*time.Second || again.recovered != 0 {
		t.Errorf("%+v, %+v", h, again)
	}
}

// A line is lost once for each time it was sent and not kept.
func TestLost(t *testing.T) {
	type line = struct {
		Tries int `json:"tries"`
	}
	p := batch.Part{PartKey: batch.PartKey{Batch: "b", N: 1}, FirstLine: 50, Lines: 4, DoneLines: batch.Bitmap{0}}
	before := map[lineKey]int{}
	for _, tt := range []struct {
		tries [4]int
		done  []int
		want  int
	}{
		{[4]int{1, 1, 1, 0}, nil, 3},
		{[4]int{2, 1, 1, 0}, nil, 1},         // the next claim died with its first line
		{[4]int{3, 2, 1, 0}, []int{0}, 1},    // the third kept that one, and died with the second
		{[4]int{3, 3, 2, 1}, []int{1, 2}, 1}, // the fourth got to the last
	} {
		a := account{Lines: map[string]line{}}
		for i, n := range tt.tries {
			if n > 0 {
				a.Lines[fmt.Sprint(50+i)] = line{n}
			}
		}
		for _, i := range tt.done {
			p.DoneLines.Set(i)
		}
		h := &holding{part: p, sent: begun(p, a)}
		h.lose(before)
		if h.lost != tt.want {
			t.Errorf("tries %v: %d lost, want %d", tt.tries, h.lost, tt.want)
		}
	}
}

func TestLonely(t *testing.T) {
	line, another := lineKey{"b", 7}, lineKey{"b", 8}
	for _, tt := range []struct {
		name              string
		flights, suspects []lineKey
		lost              []int
		want              lineKey
	}{
		{"alone", []lineKey{line}, []lineKey{line}, []int{1}, line},
		{"two", []lineKey{line, another}, nil, []int{2}, lineKey{}},
		{"the other was answered just now", []lineKey{line}, nil, []int{2}, lineKey{}},
		{"the other is of another part", []lineKey{line}, nil, []int{1, 1}, lineKey{}},
		{"answered just now", nil, []lineKey{line}, []int{1}, line},
		{"about to be sent", nil, []lineKey{line}, []int{0}, line},
		{"nothing", nil, nil, []int{0}, lineKey{}},
	} {
		b := blow{flights: tt.flights, suspects: tt.suspects}
		for _, n := range tt.lost {
			b.held = append(b.held, &holding{lost: n})
		}
		if got := b.lonely(); got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
