package batch

import "time"

// lanes shares a run's slots out between models: each has a limit of its own
// (pace), and all together the ceiling. It belongs to the shift's loop.
type lanes struct {
	pacer  *pacer
	active map[string]*lane // those with lines under way: as many as these at most
	wake   time.Time        // when the first shut model may be asked again; zero: nobody waits for one
}

// lane is what a run has under way at one model.
type lane struct {
	pace    *pace
	flying  int // being sent
	waiting int // for their next try
}

func newLanes(p *pacer) lanes { return lanes{pacer: p, active: map[string]*lane{}} }

// open reports whether a line of the model may be sent.
func (l *lanes) open(model string, now time.Time) bool {
	a := l.active[model]
	if a == nil {
		return l.asks(model, 0, now) // a limit is at least 1
	}
	limit, _ := a.pace.now()
	return a.flying < limit && l.asks(model, a.flying, now)
}

// asks reports whether the model's circuit lets a request through.
func (l *lanes) asks(model string, flying int, now time.Time) bool {
	way, at := l.circuit(model)
	if way != shut {
		return true
	}
	if now.Before(at) {
		if l.wake.IsZero() || at.Before(l.wake) {
			l.wake = at
		}
		return false
	}
	return flying == 0
}

// circuit is that of the model, and when it may be asked where that is shut.
func (l *lanes) circuit(model string) (circuit, time.Time) {
	if q := l.paceOf(model); q != nil {
		return q.breaker.state()
	}
	return closed, time.Time{}
}

// why says what a model answers whose circuit is open.
func (l *lanes) why(model string) string {
	if q := l.paceOf(model); q != nil {
		return q.breaker.why()
	}
	return ""
}

func (l *lanes) paceOf(model string) *pace {
	if a := l.active[model]; a != nil {
		return a.pace
	}
	return l.pacer.known(model)
}

// begins reports whether a new line of the model may be sent. While many wait for
// another try it may not: a model that refuses everything would use up the tries
// of line after line, and these would fill the window before those of models that
// answer.
func (l *lanes) begins(model string, now time.Time) bool {
	a := l.active[model]
	if a == nil {
		return l.asks(model, 0, now)
	}
	limit, _ := a.pace.now()
	if way, _ := a.pace.breaker.state(); way == narrow {
		return a.flying == 0 && a.waiting == 0
	}
	return a.flying < limit && a.waiting <= limit && l.asks(model, a.flying, now)
}

// limits is how many requests could be in flight to the models under way.
func (l *lanes) limits() (n int) {
	for _, a := range l.active {
		limit, _ := a.pace.now()
		n += limit
	}
	return min(n, l.pacer.ceiling)
}

// width is how many requests could be in flight if a line of model were, too: the
// limits of all models under way, the ceiling at most.
func (l *lanes) width(model string) int {
	n := 0
	if l.active[model] == nil {
		n, _ = l.pacer.of(model).now()
	}
	for _, a := range l.active {
		limit, _ := a.pace.now()
		if n += limit; n >= l.pacer.ceiling {
			return l.pacer.ceiling
		}
	}
	return n
}

// sent takes a slot for a line.
func (l *lanes) sent(ln *line, now time.Time) {
	a := l.active[ln.model]
	if a == nil {
		a = &lane{pace: l.pacer.of(ln.model)}
		l.active[ln.model] = a
	}
	a.flying++
	ln.pace = a.pace
	_, ln.round = a.pace.now()
	a.pace.breaker.asked(now)
}

// landed gives it back and learns from what came.
func (l *lanes) landed(ln *line, s signal) {
	a := l.active[ln.model]
	limit, _ := a.pace.now()
	a.pace.heard(ln.round, a.flying >= limit, s)
	a.flying--
	l.tidy(ln.model, a)
}

// waits and resumed count the lines that wait for another try.
func (l *lanes) waits(ln *line) {
	a := l.active[ln.model]
	if a == nil {
		a = &lane{pace: l.pacer.of(ln.model)}
		l.active[ln.model] = a
	}
	a.waiting++
}

func (l *lanes) resumed(ln *line) {
	a := l.active[ln.model]
	a.waiting--
	l.tidy(ln.model, a)
}

func (l *lanes) tidy(model string, a *lane) {
	if a.flying == 0 && a.waiting == 0 {
		delete(l.active, model)
	}
}

// backlog is the lines of a hand that were read and not sent yet, by model, each
// in order: one whose model has no slot stands in nobody's way. It holds what the
// reader is ahead by; a line further behind isn't seen.
type backlog struct {
	models map[string][]*line
	n      int
}

func (b *backlog) empty() bool { return b.n == 0 }

func (b *backlog) add(ln *line) {
	if b.models == nil {
		b.models = map[string][]*line{}
	}
	b.models[ln.model] = append(b.models[ln.model], ln)
	b.n++
}

// first is the first line of those whose model may begin one, or nil.
func (b *backlog) first(may func(model string) bool) *line {
	var first *line
	for model, lines := range b.models {
		if (first == nil || lines[0].index < first.index) && may(model) {
			first = lines[0]
		}
	}
	return first
}

// remove takes out what first returned.
func (b *backlog) remove(ln *line) {
	lines := b.models[ln.model]
	lines[0] = nil
	if lines = lines[1:]; len(lines) > 0 {
		b.models[ln.model] = lines
	} else {
		delete(b.models, ln.model)
	}
	b.n--
}
