package batch

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever answers come in whatever order and at whatever pace:
//   - the circuit is open only after so many errors in a row, for so long;
//   - any other answer closes it;
//   - shut it lets one line through at a time, after pauses that double;
//   - a try is pardoned only while nothing but refusals comes, and more of them than
//     one line can make.
func TestBreakerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		storm := rapid.IntRange(2, 10).Draw(t, "storm")
		b := &breaker{storm: storm}
		now := time.Unix(1_800_000_000, 0)
		errs, refusals := 0, 0
		var errSince, refusedSince, letThrough time.Time
		pause := time.Duration(0)
		asking := false
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 9000).Draw(t, "ms")) * time.Millisecond)
			},
			"answer": func(t *rapid.T) {
				f := rapid.SampledFrom([]fault{sound, doubtful, refusal, refusal, refusal, refusal}).Draw(t, "fault")
				before, _ := b.state()
				w := b.heard(f, "what", now)
				way, askAt := b.state()
				if f == sound {
					errs, refusals, pause, asking = 0, 0, 0, false
					if way != closed || w != (weather{}) {
						t.Fatalf("%v after an answer, %+v", way, w)
					}
					return
				}
				if errs++; errs == 1 {
					errSince = now
				}
				if f == refusal {
					if refusals++; refusals == 1 {
						refusedSince = now
					}
				}
				want := before
				switch {
				case before == shut:
				case refusals >= storm && now.Sub(refusedSince) >= stormAge:
					want = shut
				case errs >= storm && now.Sub(errSince) >= stormAge:
					want = narrow
				}
				if way != want {
					t.Fatalf("%v after %d errors and %d refusals, want %v", way, errs, refusals, want)
				}
				if opened := before == closed && way != closed; opened != (w.opened != "") {
					t.Fatalf("opened %v, told %q", opened, w.opened)
				}
				if w.stormy != (refusals >= storm) {
					t.Fatalf("stormy %v after %d refusals", w.stormy, refusals)
				}
				switch {
				case way == shut && before != shut:
					pause = firstAsk
				case way == shut && asking:
					pause = min(2*pause, longestAsk)
				default:
					return
				}
				asking = false
				if askAt.Sub(now) != pause {
					t.Fatalf("asked again in %v, want %v", askAt.Sub(now), pause)
				}
			},
			"send": func(t *rapid.T) {
				way, askAt := b.state()
				if way == shut && now.Before(askAt) {
					return
				}
				if way == shut && now.Sub(letThrough) < pause {
					t.Fatalf("the second line within %v, which is less than %v", now.Sub(letThrough), pause)
				}
				if b.asked(now); way == shut {
					letThrough, asking = now, true
				}
			},
		})
	})
}

func TestFaultOf(t *testing.T) {
	for _, c := range []struct {
		status int
		err    error
		want   fault
	}{
		{200, nil, sound}, {201, nil, sound}, {307, nil, sound}, {400, nil, sound}, {404, nil, sound}, {0, ErrReplyTooLarge, sound},
		{408, nil, doubtful}, {409, nil, doubtful}, {500, nil, doubtful}, {501, nil, doubtful}, {504, nil, doubtful},
		{0, ErrTimeout, doubtful}, {0, fmt.Errorf("call: %w", ErrTimeout), doubtful},
		{429, nil, refusal}, {502, nil, refusal}, {503, nil, refusal}, {529, nil, refusal}, {0, ErrUnreachable, refusal},
		{401, nil, refusal}, {407, nil, refusal}, {403, nil, sound},
	} {
		got, what := faultOf(Reply{Status: c.status}, c.err)
		if got != c.want || (what == "") != (got == sound) {
			t.Errorf("%d %v: %v, %q", c.status, c.err, got, what)
		}
	}
}

// A shut model is asked by one line at a time, also where its answer takes longer
// than the pause.
func TestShutModelIsAskedByOne(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := newLanes(newPacer(1, 32, 128))
	b := &l.pacer.of("m").breaker
	for range b.storm {
		b.heard(refusal, "status 503", now)
		now = now.Add(stormAge)
	}
	if l.open("m", now.Add(-stormAge)) || l.begins("m", now.Add(-stormAge)) || l.wake.IsZero() {
		t.Errorf("a model that was just shut is asked; wake %v", l.wake)
	}
	if !l.open("m", now) || !l.begins("m", now) {
		t.Error("nobody asks when the pause is over")
	}
	ln := &line{model: "m"}
	l.sent(ln, now)
	if later := now.Add(time.Hour); l.open("m", later) || l.begins("m", later) {
		t.Error("a second line asks while the first is under way")
	}
	b.heard(sound, "", now)
	l.landed(ln, served)
	if !l.open("m", now) || !l.begins("m", now) {
		t.Error("an answer does not close the circuit")
	}
}
