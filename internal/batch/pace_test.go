package batch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is sent and whatever comes back in whatever order: the limit stays
// within its bounds, goes down at most once for all that were sent before it did,
// and up by one after as many answers as it allowed, and by nothing else.
func TestPaceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.IntRange(1, 20).Draw(t, "floor")
		start := rapid.IntRange(floor, 60).Draw(t, "start")
		ceiling := rapid.IntRange(start, 130).Draw(t, "ceiling")
		q := newPacer(floor, start, ceiling).of("m")
		if limit, _ := q.now(); limit != start {
			t.Fatalf("begins at %d, want %d", limit, start)
		}
		var flying []int // the number of the change before which each was sent
		falls, answers := 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				limit, round := q.now()
				for range rapid.IntRange(1, limit).Draw(t, "n") {
					at := rapid.IntRange(0, len(flying)).Draw(t, "place in the order of answers")
					flying = slices.Insert(flying, at, round)
				}
			},
			"land": func(t *rapid.T) {
				s := rapid.SampledFrom([]signal{silent, served, served, served, crowded}).Draw(t, "signal")
				full := rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "full")
				for range min(rapid.IntRange(1, 150).Draw(t, "n"), len(flying)) {
					sent := flying[0]
					flying = flying[1:]
					before, round := q.now()
					q.heard(sent, full, s)
					after, _ := q.now()
					want := before
					switch {
					case sent != round || s == silent:
					case s == crowded:
						want = max(floor, before*7/10)
						falls, answers = falls+1, 0
					case full && before < ceiling:
						if answers++; answers == before {
							want, answers = before+1, 0
						}
					}
					if after != want {
						t.Fatalf("from %d to %d, want %d", before, after, want)
					}
				}
			},
			"": func(t *rapid.T) {
				limit, round := q.now()
				if limit < floor || limit > ceiling {
					t.Fatalf("limit %d outside %d to %d", limit, floor, ceiling)
				}
				if round != falls {
					t.Fatalf("%d rounds after %d falls", round, falls)
				}
			},
		})
	})
}

// Refusals alone end at the floor, and answers alone at the ceiling, from
// anywhere.
func TestPaceEndsAtItsBounds(t *testing.T) {
	q := newPacer(1, 32, 128).of("m")
	for range 20_000 {
		_, round := q.now()
		q.heard(round, true, served)
	}
	if limit, _ := q.now(); limit != 128 {
		t.Errorf("limit %d after answers alone, want the ceiling", limit)
	}
	falls := 0
	for limit, round := q.now(); limit > 1; limit, round = q.now() {
		q.heard(round, true, crowded)
		if falls++; falls > 11 {
			t.Fatalf("limit %d after %d falls", limit, falls)
		}
	}
}

// What a file names is somebody else's: neither how many models nor how long
// their names are may grow the process.
func TestPacesAreBounded(t *testing.T) {
	p := newPacer(1, 32, 128)
	known := p.of("known")
	known.heard(0, true, crowded)
	for i := range 20_000 {
		p.of(paceName(strings.Repeat("x", 190)+fmt.Sprint(i)+strings.Repeat("y", i%1000), ""))
		if i%100 == 0 && p.of("known") != known {
			t.Fatalf("a model in use was forgotten after %d others", i)
		}
	}
	if n := len(p.paces); n > maxPaces {
		t.Errorf("%d paces kept, want %d at most", n, maxPaces)
	}
	for name := range p.paces {
		if len(name) > maxPaceName {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
}

func TestPaceName(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	for _, c := range [][3]string{{"m", "b", "m"}, {"", "b", "b"}, {"", "", ""}, {long, "b", long[:200]}, {"", long, long[:200]}} {
		if got := paceName(c[0], c[1]); got != c[2] {
			t.Errorf("paceName(%.10q, %.10q) is %.10q of %d bytes", c[0], c[1], got, len(got))
		}
	}
}

func TestSignalOf(t *testing.T) {
	for want, statuses := range map[signal][]int{
		served:  {200, 201, 204, 307},
		crowded: {429, 502, 503, 504, 529},
		silent:  {400, 401, 404, 408, 409, 413, 500, 501, 505, 520},
	} {
		for _, status := range statuses {
			if got := signalOf(Reply{Status: status}, nil); got != want {
				t.Errorf("status %d: %d, want %d", status, got, want)
			}
		}
	}
	for err, want := range map[error]signal{
		ErrTimeout: crowded, ErrUnreachable: crowded, ErrReplyTooLarge: silent, ErrNoCredential: silent, errors.New("?"): silent,
	} {
		if got := signalOf(Reply{}, fmt.Errorf("call: %w", err)); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// A backlog gives lines as a list would that is searched from its head.
func TestBacklogProperty(t *testing.T) {
	models := []string{"", "a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var b backlog
		var list []*line
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				index := 0
				if len(list) > 0 {
					index = list[len(list)-1].index + 1
				}
				ln := &line{index: index, model: rapid.SampledFrom(models).Draw(t, "model")}
				list = append(list, ln)
				b.add(ln)
			},
			"take": func(t *rapid.T) {
				blocked := rapid.SliceOfDistinct(rapid.SampledFrom(models), rapid.ID[string]).Draw(t, "blocked")
				may := func(model string) bool { return !slices.Contains(blocked, model) }
				i := slices.IndexFunc(list, func(ln *line) bool { return may(ln.model) })
				got := b.first(may)
				if i < 0 {
					if got != nil {
						t.Fatalf("line %d of a blocked model", got.index)
					}
					return
				}
				if got != list[i] {
					t.Fatalf("%+v is first, want %+v", got, list[i])
				}
				b.remove(got)
				list = slices.Delete(list, i, i+1)
			},
			"": func(t *rapid.T) {
				if b.n != len(list) || b.empty() != (len(list) == 0) || len(b.models) > len(models) {
					t.Fatalf("%d lines, want %d", b.n, len(list))
				}
			},
		})
	})
}

// Answers to a run that uses little of its limit say nothing about more: only a
// full lane climbs. And a lane is gone when nothing of it is under way.
func TestOnlyAFullLaneClimbs(t *testing.T) {
	l := newLanes(newPacer(1, 4, 128))
	limit := func() int { n, _ := l.pacer.of("m").now(); return n }
	for range 1000 {
		for _, ln := range send(&l, 3) {
			l.landed(ln, served)
		}
	}
	if n := limit(); n != 4 {
		t.Errorf("limit %d though no more than 3 were in flight, want 4", n)
	}
	for range 2 {
		lines := send(&l, 4)
		if l.open("m", time.Time{}) || !l.open("other", time.Time{}) {
			t.Error("a full lane is open, or another is not")
		}
		for _, ln := range lines {
			l.landed(ln, served) // the first of them in a full lane
		}
	}
	if n := limit(); n != 4 {
		t.Errorf("limit %d after 2 answers in a full lane, want 4", n)
	}
	lines := send(&l, 4)
	for range 2 {
		l.landed(lines[0], served)
		lines = append(lines[1:], send(&l, 1)...)
	}
	if n := limit(); n != 5 {
		t.Errorf("limit %d after 4 answers in a full lane, want 5", n)
	}
	for _, ln := range lines {
		l.landed(ln, silent)
	}
	if len(l.active) != 0 {
		t.Errorf("%d lanes with nothing under way", len(l.active))
	}
}

func send(l *lanes, n int) (lines []*line) {
	for range n {
		ln := &line{model: "m"}
		l.sent(ln, time.Time{})
		lines = append(lines, ln)
	}
	return lines
}
