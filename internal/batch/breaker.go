package batch

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// breaker is the circuit of one model: it opens when the model answers nothing but
// errors of the moment, so that its lines don't use up their tries on a model that
// is down. It is open in one of two ways, by what the errors say:
//
//	refusals (401, 407, 429, 502,   shut: no line is sent but one now and then, to
//	503, 529, not reachable)        ask; such a try isn't counted against its line
//	any (500 and other 5xx, 408,    narrow: of new lines one at a time is begun; their
//	409, 504, timeouts, too)        tries count
//
// The second are as likely the lines' own doing: a file of lines that crash a
// model's code, or that it can't answer in time, must come to an end as well. Any
// other answer closes it: a model that says 400 is there.
//
// It belongs to a process and its model, as the pace does, and is safe for
// concurrent use.
type breaker struct {
	storm int // errors in a row from which on they are the model's: more than one line can make

	mu      sync.Mutex
	errs    streak // any
	refused streak // refusals; other errors among them don't count
	way     circuit
	pause   time.Duration // between two that ask, while it is shut
	askAt   time.Time     // not before
	asking  bool          // one was sent, and not heard of
	reason  string        // what came last

	told   viewKey   // the batch that was last told that it opened,
	toldAt time.Time // and the time in that event's id
}

// circuit is how far a breaker is open.
type circuit int

const (
	closed circuit = iota
	narrow
	shut
)

// streak is errors in a row.
type streak struct {
	n     int
	since time.Time // of the first
}

func (s *streak) add(now time.Time) {
	if s.n++; s.n == 1 {
		s.since = now
	}
}

// stormAge is how long nothing but errors must have come for the circuit to open.
// Below it a model that was asked for more than it takes may just be catching up.
const stormAge = 5 * time.Second

// The first and the longest pause between two lines that ask a shut model.
const (
	firstAsk   = time.Second
	longestAsk = 5 * time.Minute
)

// weather is what an answer meant to the breaker.
type weather struct {
	stormy bool // nothing but refusals has come for longer than one line can make
	opened string
}

// heard takes in an answer.
func (b *breaker) heard(f fault, what string, now time.Time) (w weather) {
	now = now.Round(0) // by the wall clock: Lambda freezes the other one between two runs
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == sound {
		b.errs, b.refused, b.way, b.asking = streak{}, streak{}, closed, false
		return weather{}
	}
	b.reason = what
	b.errs.add(now)
	if f == refusal {
		b.refused.add(now)
	}
	before := b.way
	switch {
	case b.way == shut && b.asking:
		b.asking = false
		b.pause = min(2*b.pause, longestAsk)
		b.askAt = now.Add(b.pause)
	case b.way == shut:
		// It was under way when the circuit opened, and says nothing new.
	case b.over(b.refused, now):
		b.way, b.pause, b.askAt, b.asking = shut, firstAsk, now.Add(firstAsk), false
	case b.over(b.errs, now):
		b.way = narrow
	}
	if before == closed && b.way != closed {
		w.opened = fmt.Sprintf("%d errors in a row since %s, the last one: %s", b.errs.n, b.errs.since.UTC().Format(time.RFC3339), what)
	}
	w.stormy = b.refused.n >= b.storm
	return w
}

func (b *breaker) over(s streak, now time.Time) bool {
	return s.n >= b.storm && now.Sub(s.since) >= stormAge
}

// state says how far the circuit is open and, where it is shut, when the next line
// may ask.
func (b *breaker) state() (way circuit, askAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.way, b.askAt
}

// asked says that a line was sent. While the circuit is shut the next one waits as
// long again, also when this one is never heard of: its claim may be lost.
func (b *breaker) asked(now time.Time) {
	now = now.Round(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.way == shut {
		b.asking, b.askAt = true, now.Add(b.pause)
	}
}

// tellEvery is the time in which a batch is told once, by whoever is first, that the
// circuit of one of its models opened: where a model answers now and then it opens
// some hundred times an hour in each process, and events are kept as long as their batch.
const tellEvery = 10 * time.Minute

// tells is the time in the id of the event that it opened, so that all processes tell
// the same one, and whether this one has yet to tell it.
func (b *breaker) tells(of viewKey, now time.Time) (at time.Time, anew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at = now.Truncate(tellEvery)
	anew = b.told != of || !b.toldAt.Equal(at)
	b.told, b.toldAt = of, at
	return at, anew
}

// why says what the model answers.
func (b *breaker) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reason
}

// fault is what an answer says about whether its model works.
type fault int

const (
	sound    fault = iota // it does
	doubtful              // an error of the moment, the model's or the line's
	refusal               // an error of the moment, and not the line's
)

// faultOf reads an answer, and says in a word what it was.
func faultOf(reply Reply, err error) (fault, string) {
	switch {
	case errors.Is(err, ErrReplyTooLarge), errors.Is(err, ErrModelNotFound):
		return sound, ""
	case errors.Is(err, ErrRefusedAddress):
		return refusal, "its address is refused by the configuration"
	case errors.Is(err, ErrUnreachable):
		return refusal, "not reachable"
	case errors.Is(err, ErrTimeout):
		return doubtful, "no reply in time"
	case err != nil:
		return doubtful, "no reply"
	case !passing(reply.Status):
		return sound, ""
	}
	what := fmt.Sprint("status ", reply.Status)
	switch reply.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, statusOverloaded,
		http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return refusal, what
	}
	return doubtful, what
}
