package batch

import (
	"container/list"
	"errors"
	"net/http"
	"strings"
	"sync"
)

// pacer keeps, for each model name, how many requests one run may have in
// flight to it. A Runner has one, so that a warm process keeps what it learnt.
// It is safe for concurrent use.
//
// Nobody says beforehand how much a model takes, and it changes: so each pace
// goes up by one while its model answers, and down by a share when it refuses
// (additive increase, multiplicative decrease: what brings TCP senders that know
// nothing of each other to equal shares of a link, and here many workers to equal
// shares of a model).
type pacer struct {
	floor, start, ceiling int // 1 <= floor <= start <= ceiling
	storm                 int // see breaker

	mu    sync.Mutex
	paces map[string]*list.Element // of latest, each a *pace
	// latest has them by when they were asked for, the last one first.
	latest *list.List
}

// maxPaces bounds what is remembered: beyond it the model asked for least lately
// is forgotten, and begins anew when it is asked for again. Files are people's,
// and one may name a model a line.
const maxPaces = 256

// maxPaceName is how many bytes of a model's name tell it from others. Names that
// agree so far share a pace; a request is sent with its whole name in any case.
const maxPaceName = 200

func newPacer(floor, start, ceiling int) *pacer {
	return &pacer{floor: floor, start: start, ceiling: ceiling, storm: 6, paces: map[string]*list.Element{}, latest: list.New()}
}

// paceName is the name under which a line's model is paced: its own, or the
// batch's where the line names none.
func paceName(model, batchModel string) string {
	if model == "" {
		model = batchModel
	}
	if len(model) > maxPaceName {
		return strings.Clone(model[:maxPaceName]) // not the whole of it in memory
	}
	return model
}

// of returns the pace of a model. Whoever holds one that was forgotten meanwhile
// may go on with it: it is only what was learnt that parts.
func (p *pacer) of(model string) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.paces[model]; e != nil {
		p.latest.MoveToFront(e)
		return e.Value.(*pace)
	}
	if len(p.paces) >= maxPaces {
		delete(p.paces, p.latest.Remove(p.latest.Back()).(*pace).model)
	}
	q := &pace{model: model, floor: p.floor, ceiling: p.ceiling, limit: p.start, breaker: breaker{storm: p.storm}}
	p.paces[model] = p.latest.PushFront(q)
	return q
}

// known returns the pace of a model that was asked for before, or nil.
func (p *pacer) known(model string) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.paces[model]; e != nil {
		return e.Value.(*pace)
	}
	return nil
}

// pace is the limit of one model. What a run has in flight is the run's to count
// (lane): the limit is each run's own.
type pace struct {
	model          string
	floor, ceiling int
	breaker        breaker

	mu     sync.Mutex
	limit  int
	gained int // answers since the limit last changed
	round  int // how often the limit went down
}

// now is the limit, and the round in which a request that is sent now belongs.
func (q *pace) now() (limit, round int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit, q.round
}

// shrunk is what a refusal leaves of a limit: seven tenths, the share that CUBIC
// (RFC 9438) keeps. A half would leave the model a quarter idle between two
// refusals: the limit goes from a half of what it takes up to all of it, by one
// a round trip. Seven tenths leave 15 %, and 128 is still down at 1 after 11
// refused round trips.
func shrunk(limit int) int { return limit * 7 / 10 }

// heard takes in what came of a request sent in a round. full says that its run
// had as many in flight as the limit allowed.
//
//   - served, with the limit used to the full: one step up after as many of them
//     as the limit, which is one a round trip. Where fewer are in flight than are
//     allowed, answers say nothing about more.
//   - crowded: down, but not below the floor, and once a round trip: of all that
//     were sent before the limit went down, the refusals say the same thing again.
//     Interleaving this stops: 32 are in flight at a model that takes 31; it is
//     busy for a moment and refuses 8; eight steps down leave 1.
func (q *pace) heard(round int, full bool, s signal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case round != q.round || s == silent:
	case s == crowded:
		q.limit = max(shrunk(q.limit), q.floor)
		q.round++
		q.gained = 0
	case full && q.limit < q.ceiling:
		if q.gained++; q.gained >= q.limit {
			q.limit++
			q.gained = 0
		}
	}
}

// signal is what one answer says about how much its model takes.
type signal int

const (
	silent  signal = iota // nothing
	served                // as much as it has now
	crowded               // less
)

// signalOf reads an answer.
//
//	below 400                                 served
//	429, 503                                  crowded: it says so itself
//	529                                       crowded: overloaded, as some say it
//	502, 504; no reply in time; unreachable   crowded: what stands before an overloaded
//	                                          model says it so, or its full queue of
//	                                          connections does; and a model that is
//	                                          gone loses nothing by being asked less
//	500 and other 5xx                         silent: as likely this one request's fault;
//	                                          a file of lines that crash a model's code
//	                                          must not throttle everybody else's
//	other 4xx; a reply too large              silent: the request was refused, not the
//	                                          work, often before any was done
func signalOf(reply Reply, err error) signal {
	switch {
	case errors.Is(err, ErrTimeout), errors.Is(err, ErrUnreachable):
		return crowded
	case err != nil:
		return silent
	case reply.Status < http.StatusBadRequest:
		return served
	}
	switch reply.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusOverloaded:
		return crowded
	}
	return silent
}

// statusOverloaded is no standard's, but several inference services'.
const statusOverloaded = 529
