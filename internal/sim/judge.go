package sim

import (
	"context"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// history is what happened so far, as far as the judge and the verdict need it.
type history struct {
	deaths      int
	sent        int64 // messages
	endedAt     time.Time
	flying      map[*process]int
	asked       map[int64]int64                // how often a line was sent
	answered    map[int64]int                  // how often a line got its answer
	sends       map[lease.Token]map[int64]bool // lines that were sent under a claim
	commits     map[lease.Token]map[int64]bool // and checkpointed
	found       map[lease.Token]int            // attempts that a claim found
	suspects    map[lease.Token]batch.Suspect  // that a claim found
	waits       map[lease.Token]time.Time      // since when the line whose strike a claim wrote is in flight no more, and has no answer
	alone       map[int64]map[lease.Token]bool // claims that were lost with a line alone in flight
	diedHolding map[lease.Token]bool           // claims whose process was killed while they held
	declared    int                            // parts declared dead
}

func newHistory() history {
	return history{
		flying: map[*process]int{}, asked: map[int64]int64{}, answered: map[int64]int{}, sends: map[lease.Token]map[int64]bool{}, commits: map[lease.Token]map[int64]bool{},
		found: map[lease.Token]int{}, suspects: map[lease.Token]batch.Suspect{}, waits: map[lease.Token]time.Time{},
		alone: map[int64]map[lease.Token]bool{}, diedHolding: map[lease.Token]bool{},
	}
}

// onPart does a write to a part and judges what it did. Nobody writes meanwhile.
func onPart[V any](p *process, a act, do func(context.Context, *memory.Table) (V, error)) (V, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	before, _ := w.stores.Table.Part(a.key)
	v, err := do(context.Background(), w.stores.Table)
	after, _ := w.stores.Table.Part(a.key)
	w.judge(p, a, before, after, err)
	return v, err
}

// insert adds parts and judges that.
func (w *World) insert(p *process, all []batch.Part) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.stores.Table.PartsOf(tenant, batchID)
	err := w.stores.Table.Parts.Insert(context.Background(), all)
	for _, x := range before {
		after, _ := w.stores.Table.Part(x.PartKey)
		w.judge(p, act{op: "Parts.Insert", key: x.PartKey}, x, after, err)
		if after.Ver != x.Ver {
			w.wrong("%s planned part %d anew", p.name, x.N)
		}
	}
	return err
}

// judge says what is wrong with a write that made after of before.
func (w *World) judge(p *process, a act, before, after batch.Part, err error) {
	name := a.op
	how := describe(before) + " → " + describe(after)
	if after.Ver == before.Ver {
		how = describe(before)
	}
	w.noted(p.name, name, how, err)
	wrong := func(what string) { w.wrong("%s by %s: %s (%s)", name, p.name, what, how) }
	if after.Ver == before.Ver {
		if after.State != before.State || after.Owner != before.Owner || after.Processed != before.Processed {
			wrong("changed a part without a new version")
		}
		if err == nil {
			judgeAnswer(a, before, wrong)
		}
		return
	}
	if err != nil {
		wrong("was refused and took effect")
	}
	if before.Over() {
		wrong("changed a part that is over")
	}
	if after.Ver != before.Ver+1 {
		wrong("skipped a version")
	}
	w.judgeOwner(p, a, before, after, wrong)
	w.judgeProgress(a, before, after, wrong)
	w.judgeAttempts(p, a, before, after, wrong)
	w.judgeState(p, a, before, after, wrong)
}

// judgeAnswer: a write that changed nothing may be answered as success only where it
// has taken effect before.
func judgeAnswer(a act, p batch.Part, wrong func(string)) {
	own := a.token != "" && p.Owner == a.token
	fine := false
	switch a.op {
	case "Claims.Claim", "Claims.Steal":
		fine = own && p.State == batch.Leased
	case "Claims.Checkpoint":
		fine = own
	case "Claims.Finish":
		fine = own && p.State == batch.Done
	case "Reaps.Reap", "Reaps.Postpone", "Deaths.Redrive":
		fine = p.State == batch.Pending
	case "Deaths.Declare":
		fine = p.State == batch.Dead
	case "Seals.Seal":
		fine = p.Over()
	case "Parts.Insert":
		fine = true
	}
	if !fine {
		wrong("was answered as success and never took effect")
	}
}

// judgeOwner: who may write.
func (w *World) judgeOwner(p *process, a act, before, after batch.Part, wrong func(string)) {
	takes := a.op == "Claims.Claim" || a.op == "Claims.Steal"
	if takes {
		p.took(a.token, a.key)
		// A claim that lands once more, when it was given back, is nobody's: all that is
		// ever written for it is what was meant when it landed first.
		if _, again := w.seen.found[a.token]; !again {
			w.seen.found[a.token], w.seen.suspects[a.token] = before.Attempts, before.Suspect
		}
		if after.Owner != a.token || after.State != batch.Leased {
			wrong("took a part and doesn't hold it")
		}
	} else if a.token != "" && (before.State != batch.Leased || before.Owner != a.token) {
		wrong("a replaced worker wrote")
	}
	// Whoever isn't the owner takes a part only once the lease has lapsed by its own
	// clock, and the margin. What ends a batch early takes it any time.
	if before.State == batch.Leased && a.token != before.Owner && a.op != "Seals.Seal" {
		if !before.LeaseUntil.Before(lease.Cut(p.in(time.Now()), margin)) {
			wrong("took the part of a holder that had not lapsed")
		}
		if s := before.Suspect; s.By == before.Owner && !s.None() && (!w.Strict() || w.Disturbed) {
			w.wasAlone(before) // it stood still, or was called lapsed by a clock that is wrong: what it had in flight then nobody knows
		}
		if after.Lapses != before.Lapses+1 {
			wrong("a lapse that isn't counted")
		}
	} else if after.Lapses != before.Lapses {
		wrong("counted a lapse that wasn't one")
	}
	stolen := 0
	if a.op == "Claims.Steal" {
		stolen = 1
	}
	if after.Steals != before.Steals+stolen {
		wrong("steals don't add up")
	}
}

// judgeProgress: what was checkpointed stays, and counts once.
func (w *World) judgeProgress(a act, before, after batch.Part, wrong func(string)) {
	for i := range before.Lines {
		if before.DoneLines.Has(i) && !after.DoneLines.Has(i) {
			wrong("a line that was done isn't any more")
			break
		}
	}
	switch {
	case after.Processed < before.Processed:
		wrong("progress went back")
	case after.Processed != after.DoneLines.Count():
		wrong("processed_lines isn't the number of lines done")
	case !slices.Equal(after.Chunks[:min(len(before.Chunks), len(after.Chunks))], before.Chunks):
		wrong("a chunk is gone or changed")
	case a.op != "Claims.Checkpoint":
		if after.Processed != before.Processed || len(after.Chunks) != len(before.Chunks) {
			wrong("progress without a checkpoint")
		}
		return
	}
	if len(after.Chunks) != len(before.Chunks)+1 || after.Chunks[len(before.Chunks)].N != after.Processed-before.Processed {
		wrong("a chunk's records aren't the lines that it adds")
	}
	if w.seen.commits[a.token] == nil {
		w.seen.commits[a.token] = map[int64]bool{}
	}
	for i := range after.Lines {
		if after.DoneLines.Has(i) && !before.DoneLines.Has(i) {
			w.seen.commits[a.token][after.FirstLine+int64(i)] = true
		}
	}
}

// judgeAttempts: a claim burns one, a checkpoint forgives them, who yields cleanly
// burns none; a line is suspected once by each claim.
func (w *World) judgeAttempts(p *process, a act, before, after batch.Part, wrong func(string)) {
	want := before.Attempts
	switch a.op {
	case "Claims.Claim", "Claims.Steal":
		want++
		if before.Attempts >= maxAttempts && before.Suspect.None() {
			wrong("claimed beyond its attempts")
		}
	case "Claims.Checkpoint", "Deaths.Redrive":
		want = 0
	case "Claims.HandOver":
		want = w.seen.found[a.token]
		if len(w.seen.commits[a.token]) > 0 {
			want = 0
		}
	}
	if after.Attempts != want {
		wrong("attempts don't follow their rule")
	}
	sus := before.Suspect
	switch a.op {
	case "Claims.Suspect":
		found := w.seen.suspects[a.token]
		if !found.None() && before.DoneLines.Has(found.Line) {
			found = batch.Suspect{}
		}
		outlasted := after.Suspect.None() && before.Attempts >= maxAttempts+2
		if after.Suspect == found || outlasted {
			delete(w.seen.waits, a.token)
			return
		}
		strikes := 1
		switch {
		case sus.None():
		case sus.Line != after.Suspect.Line:
			wrong("another line is suspected although the one before it has no result")
		case sus.By == a.token:
			strikes = sus.Strikes // a write of unknown fate, repeated
		default:
			strikes = sus.Strikes + 1
		}
		if after.Suspect.Strikes != strikes || after.Suspect.By != a.token {
			wrong("strikes don't follow their rule")
		}
		delete(w.seen.waits, a.token)
		if !p.alive() {
			w.wasAlone(after) // it was on its way when its process died
		}
		return
	case "Claims.Checkpoint":
		if !sus.None() && !after.DoneLines.Has(sus.Line) {
			wrong("a suspect is forgotten without a result")
		}
		sus = batch.Suspect{}
	case "Claims.HandOver", "Claims.Fail":
		if sus.By == a.token && !sus.None() {
			sus = sus.TakenBack()
		}
	}
	if after.Suspect != sus {
		wrong("a suspect came or went")
	}
}

// judgeState: what each write may make of a part.
func (w *World) judgeState(p *process, a act, before, after batch.Part, wrong func(string)) {
	b, there := w.stores.Table.Batch(tenant, batchID)
	early := b.Ending == batch.Cancelled || b.Ending == batch.Expired
	want := map[string][]batch.State{
		"Claims.Claim": {batch.Leased}, "Claims.Steal": {batch.Leased}, "Claims.Heartbeat": {batch.Leased}, "Claims.Suspect": {batch.Leased},
		"Claims.Checkpoint": {batch.Leased, batch.Done}, "Claims.Finish": {batch.Done}, "Claims.HandOver": {batch.Pending}, "Claims.Fail": {batch.Pending},
		"Reaps.Reap": {batch.Pending}, "Reaps.Postpone": {batch.Pending}, "Deaths.Declare": {batch.Dead}, "Deaths.Redrive": {batch.Pending},
		"Seals.Seal": {batch.Sealed}, "Parts.Insert": {batch.Pending},
	}[a.op]
	if !slices.Contains(want, after.State) {
		wrong("made something else of the part")
	}
	switch a.op {
	case "Claims.Claim", "Reaps.Postpone":
		if before.State != batch.Pending {
			wrong("wanted a pending part")
		}
	case "Claims.Steal", "Reaps.Reap":
		if before.State != batch.Leased {
			wrong("wanted a leased part")
		}
	case "Deaths.Declare":
		w.seen.declared++
		if before.Attempts < maxAttempts || !before.Suspect.None() || before.State == batch.Dead {
			wrong("declared a part dead that isn't due to be")
		}
	case "Deaths.Redrive":
		if before.State != batch.Dead || b.Status != batch.InProgress || b.Ending != "" {
			wrong("redrove a part that isn't dead, or whose batch is ending")
		}
	case "Seals.Seal":
		graceOver := before.State == batch.Dead && !before.Due.After(p.in(time.Now()))
		if !early && !graceOver && there && !b.Status.Terminal() {
			wrong("sealed a part that may still be run")
		}
	}
	if after.State == batch.Done && after.Processed != after.Lines {
		wrong("done without all of its lines")
	}
	if b.Status == batch.Finalizing || b.Status.Terminal() {
		wrong("changed a part whose batch is being assembled")
	}
	if after.State != batch.Leased && after.State != batch.Done && (after.Owner != "" || !after.LeaseUntil.IsZero() && after.State != batch.Sealed) {
		wrong("has an owner or a lease that nobody holds")
	}
}
