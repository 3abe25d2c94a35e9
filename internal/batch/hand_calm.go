package batch

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// becalm gives the part up for now when every line of it that is left waits for a
// model whose circuit is shut for longer than LongWait: whoever comes later asks
// again, and nobody pays for waiting. A part some of whose lines can go is kept for
// those.
func (h *hand) becalm(now time.Time) {
	if h.phase != working || h.stopped != goingOn || h.flying > 0 || !h.allRead && !h.ahead.full() {
		return
	}
	models := map[string]bool{}
	for _, ln := range h.waiting {
		models[ln.model] = true
	}
	for model := range h.queue.models {
		models[model] = true
	}
	for _, ln := range []*line{h.lone.next, h.lone.accused} {
		if ln != nil {
			models[ln.model] = true
		}
	}
	var first time.Time
	reason := ""
	for model := range models {
		way, askAt := h.s.lanes.circuit(model)
		if way != shut || !askAt.After(now.Add(h.s.r.o.LongWait)) {
			return
		}
		if first.IsZero() || askAt.Before(first) {
			first, reason = askAt, h.s.lanes.why(model)
		}
	}
	if first.IsZero() {
		return
	}
	// Many parts wait for the same instant.
	first = first.Add(rand.N(h.s.r.o.LongWait))
	if first.After(h.backAt) {
		h.backAt = first
	}
	h.because = fmt.Sprintf("the model answers nothing but errors (%s)", reason)
	h.stop(awaiting)
}

// whyBack says why the part is given back in good order.
func (h *hand) whyBack() string {
	switch {
	case h.view.over():
		return "the batch is ending"
	case h.because != "":
		return h.because
	case h.stopped == awaiting:
		return "the model asks for patience"
	case h.stopped == yielding:
		return "too little time is left for another line"
	}
	return "a newer program's"
}
