package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// onBatch does a write to the batch and judges what it did. Nobody writes
// meanwhile.
func onBatch(p *process, a act, tenant, id string, do func(context.Context, *memory.Table) (batch.Batch, error)) (batch.Batch, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	before, there := w.stores.Table.Batch(tenant, id)
	got, err := do(context.Background(), w.stores.Table)
	after, _ := w.stores.Table.Batch(tenant, id)
	how := fmt.Sprintf("%s/%s → %s/%s", before.Status, before.Ending, after.Status, after.Ending)
	w.noted(p.name, a.op, how, err)
	if a.op == "Reaps.Defer" {
		if before.Status.Terminal() && !after.Due.Equal(before.Due) {
			w.wrong("%s by %s: a batch that is over is due", a.op, p.name)
		}
		return got, err
	}
	if !there && after.ID == "" {
		return got, err
	}
	if after.Ver == before.Ver && there {
		if err == nil {
			judgeBatchAnswer(a, after, func(what string) { w.wrong("%s by %s: %s (%s)", a.op, p.name, what, how) })
		}
		return got, err
	}
	w.judgeBatch(p, a, before, after, there, func(what string) { w.wrong("%s by %s: %s (%s)", a.op, p.name, what, how) })
	if before.Ending == "" && after.Ending != "" {
		w.seen.endedAt = time.Now()
	}
	return got, err
}

// judgeBatchAnswer is judgeAnswer for batches.
func judgeBatchAnswer(a act, b batch.Batch, wrong func(string)) {
	fine := false
	switch a.op {
	case "Batches.Create":
		fine = b.Status == batch.Validating && b.Ver == 1
	case "Batches.Start":
		fine = b.Status == batch.InProgress
	case "Batches.Refuse":
		fine = b.Status == batch.Failed
	case "Endings.End":
		fine = b.Ending == a.ending
	case "Endings.Finalize", "Endings.Advance":
		fine = b.Status == batch.Finalizing && b.Finalizer == a.token
	case "Endings.Close":
		fine = b.Status.Terminal() && b.Finalizer == a.token
	}
	if !fine {
		wrong("was answered as success and never took effect")
	}
}

// next is where a batch may go from a status.
var next = map[batch.Status][]batch.Status{
	"":               {batch.Validating},
	batch.Validating: {batch.Validating, batch.InProgress, batch.Failed},
	batch.InProgress: {batch.InProgress, batch.Finalizing},
	batch.Finalizing: {batch.Finalizing, batch.Completed, batch.Cancelled, batch.Expired},
}

func (w *World) judgeBatch(p *process, a act, before, after batch.Batch, there bool, wrong func(string)) {
	switch {
	case before.Status.Terminal():
		wrong("changed a batch that is over")
	case there && a.op == "Batches.Create":
		wrong("created a batch that exists")
	case !slices.Contains(next[before.Status], after.Status):
		wrong("a way that no batch goes")
	case before.Ending != "" && after.Ending != before.Ending:
		wrong("the ending changed")
	}
	open := 0
	for _, x := range w.stores.Table.PartsOf(tenant, batchID) {
		if !x.Over() {
			open++
		}
	}
	if after.Ending != before.Ending {
		if after.Ending == batch.Completed && (open > 0 || before.Status != batch.InProgress) {
			wrong(fmt.Sprintf("ends as completed with %d parts open", open))
		}
		if before.Status == batch.Finalizing {
			wrong("an ending decided after the assembling began")
		}
	}
	if after.Status == batch.Finalizing && (open > 0 || after.Ending == "") {
		wrong(fmt.Sprintf("assembled with %d parts open, or without an ending", open))
	}
	if after.Status.Terminal() && after.Status != batch.Failed && after.Status != after.Ending {
		wrong("its status isn't its ending")
	}
	if before.Finalizer != after.Finalizer && before.Finalizer != "" && !before.FinalizerUntil.Before(lease.Cut(p.in(time.Now()), margin)) {
		wrong("took the right to assemble from a finisher that had not lapsed")
	}
	switch a.op {
	case "Endings.Hold", "Endings.Advance", "Endings.Close":
		if before.Finalizer != a.token || before.Status != batch.Finalizing {
			wrong("a finisher without the right wrote")
		}
	}
	if x, y := before.Progress, after.Progress; x.Step != y.Step && (y.Step != x.Step+1 || y.Line < x.Line) {
		wrong("the assembling went back")
	}
}

// describe is a part in a few words.
func describe(p batch.Part) string {
	if p.Ver == 0 && p.State == "" {
		return "nothing"
	}
	text := fmt.Sprintf("part %d v%d %s %d/%d", p.N, p.Ver, p.State, p.Processed, p.Lines)
	if p.Owner != "" {
		text += " of " + string(p.Owner[:min(len(p.Owner), 4)])
	}
	if p.Attempts > 0 {
		text += fmt.Sprintf(" attempt %d", p.Attempts)
	}
	if !p.Suspect.None() {
		text += fmt.Sprintf(" suspect %d×%d", p.FirstLine+int64(p.Suspect.Line), p.Suspect.Strikes)
	}
	return text
}
