package reap_test

import (
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/reap"
)

// A letter's task token may be one that the part doesn't know: that of a workflow
// that replaced another and waits under it. It is never lost.
func TestLetterWithATokenOfItsOwn(t *testing.T) {
	const own = "the letter's own"
	for name, c := range map[string]struct {
		part     func(*batch.Part)
		token    string // "": the part's
		reported bool
		messages int
		dead     bool
	}{
		"done":                       {part: func(p *batch.Part) { p.State, p.Due = batch.Done, time.Time{} }, token: own, reported: true},
		"sealed":                     {part: func(p *batch.Part) { p.State, p.Due = batch.Sealed, time.Time{} }, token: own, reported: true},
		"dead":                       {part: deadPart(time.Hour), token: own, messages: 1, dead: true},
		"dead, of the part's own":    {part: deadPart(time.Hour), dead: true},
		"out of attempts":            {part: func(p *batch.Part) { p.Attempts = 3 }, token: own, messages: 1, dead: true},
		"out of attempts, known one": {part: func(p *batch.Part) { p.Attempts = 3 }, dead: true},
		"pending":                    {token: own, messages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				k := w.part(w.batch(1), 0, c.part)
				m := batch.MessageOf(w.look(k))
				if c.token != "" {
					m.TaskToken = c.token
				}
				if err := w.letters.Send(w.t.Context(), m, 0); err != nil {
					w.t.Fatal(err)
				}
				if rep := w.round(); rep.Letters != 1 || len(w.letters.Messages()) != 0 {
					w.t.Errorf("%+v", rep)
				}
				if got := slices.Contains(w.truth.Workflow.Reports(), own); got != c.reported {
					w.t.Errorf("reported: %t", got)
				}
				if got := w.messages(k); got != c.messages || (w.look(k).State == batch.Dead) != c.dead {
					w.t.Errorf("%d messages, part %s", got, w.look(k).State)
				}
				for _, sent := range w.truth.Queue.Messages() {
					if sent.TaskToken != own {
						w.t.Errorf("the message has token %q", sent.TaskToken)
					}
				}
			})
		})
	}
}

// What is left of a batch that ends is sealed by whoever ends it: its letters
// declare nothing dead, and send nothing.
func TestLettersOfABatchThatEnds(t *testing.T) {
	for name, change := range map[string]func(*batch.Batch){
		"cancelled": func(b *batch.Batch) { b.Ending = batch.Cancelled },
		"expired":   func(b *batch.Batch) { b.Ending = batch.Expired },
		"over":      func(b *batch.Batch) { b.Status, b.Due = batch.Cancelled, time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.change(w.batch(2), change)
				for n, attempts := range []int{0, 3} {
					k := w.part(b, n, func(p *batch.Part) { p.Attempts = attempts })
					if err := w.letters.Send(w.t.Context(), batch.MessageOf(w.look(k)), 0); err != nil {
						w.t.Fatal(err)
					}
				}
				w.did(reap.Report{Letters: 2})
				if len(w.letters.Messages()) != 0 || len(w.truth.Queue.Messages()) != 0 {
					w.t.Errorf("letters %v, messages %v", w.letters.Messages(), w.truth.Queue.Messages())
				}
			})
		})
	}
}
