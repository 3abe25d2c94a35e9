package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Report is what became of a scenario.
type Report struct {
	Scenario   Scenario
	Violations []string // empty: all is as promised
	Trace      []string // the last steps
	Status     batch.Status
	Took       time.Duration // until the batch had ended
	Deaths     int           // processes killed
	Lapses     int           // leases that ended without a word
	Steals     int
	Repeats    int // answers beyond one a line
	Held       int // parts that processes held when they were killed
	Blamed     int // lines that got line_crashed_worker
	Dead       int // parts declared dead
}

// String is the violations, the scenario and the last steps.
func (r Report) String() string {
	var b strings.Builder
	for _, v := range r.Violations {
		fmt.Fprintln(&b, v)
	}
	fmt.Fprintf(&b, "%s\n%s in %v after %d deaths; the last steps:\n%s\n", r.Scenario, r.Status, r.Took, r.Deaths, strings.Join(r.Trace, "\n"))
	return b.String()
}

func (w *World) report(took time.Duration) Report {
	r := Report{Scenario: w.Scenario, Violations: w.faults, Took: took, Deaths: w.seen.deaths, Blamed: len(w.blamed()), Dead: w.seen.declared}
	b, _ := w.stores.Table.Batch(tenant, batchID)
	r.Status = b.Status
	for _, p := range w.stores.Table.PartsOf(tenant, batchID) {
		r.Lapses += p.Lapses
		r.Steals += p.Steals
	}
	for _, n := range w.seen.answered {
		r.Repeats += max(n-1, 0)
	}
	r.Held = len(w.seen.diedHolding)
	if len(r.Violations) > 0 {
		from := max(len(w.trace)-kept, 0)
		// What came before the first violation is what tells.
		for i, s := range w.trace {
			if s.what == "!!" {
				from = max(i-kept/2, 0)
				break
			}
		}
		for _, s := range w.trace[from:min(from+kept, len(w.trace))] {
			r.Trace = append(r.Trace, s.String())
		}
	}
	return r
}

// outcome is a line of a result file.
type outcome struct {
	CustomID string `json:"custom_id"`
	Response *struct {
		Status int             `json:"status_code"`
		Body   json.RawMessage `json:"body"`
	} `json:"response"`
	Error *struct {
		Code string `json:"code"`
	} `json:"error"`
	kind string
}

func (o outcome) code() string {
	if o.Error == nil {
		return ""
	}
	return o.Error.Code
}

// outcomes reads the result files; each of them is in the order of the input.
func (w *World) outcomes() map[int64]outcome {
	all := map[int64]outcome{}
	for _, kind := range []string{batch.OutputFile, batch.ErrorFile} {
		last := int64(-1)
		for raw := range bytes.Lines(w.stores.Objects.Bytes(results, batch.ResultKey(tenant, batchID, kind))) {
			o := outcome{kind: kind}
			var line int64
			if err := json.Unmarshal(raw, &o); err != nil {
				w.violated("%s file: %q: %v", kind, raw, err)
				continue
			}
			if _, err := fmt.Sscanf(o.CustomID, "id-%d", &line); err != nil {
				w.violated("%s file has a result of nobody: %q", kind, raw)
				continue
			}
			if line <= last {
				w.violated("%s file: line %d comes after line %d", kind, line, last)
			}
			if _, twice := all[line]; twice {
				w.violated("line %d has two results", line)
			}
			all[line], last = o, line
		}
	}
	return all
}

// blamed are the lines that got line_crashed_worker.
func (w *World) blamed() map[int64]bool {
	lines := map[int64]bool{}
	for line, o := range w.outcomes() {
		if o.code() == openai.CodeLineCrashedWorker {
			lines[line] = true
		}
	}
	return lines
}

// verdict looks at what is left at the end.
func (w *World) verdict() {
	b, _ := w.stores.Table.Batch(tenant, batchID)
	if !b.Status.Terminal() {
		return // which was said already
	}
	all := w.outcomes()
	if b.Status == batch.Failed {
		if !w.BadLine || len(all)+len(w.seen.asked) > 0 {
			w.violated("refused, with %d results and %d lines sent", len(all), len(w.seen.asked))
		}
		return
	}
	w.conserved(b, all)
	w.counted(b, all)
	w.blame(b)
	w.repeats()
	w.told(b)
	if !w.Gentle() || w.Disturbed {
		return
	}
	if b.Troubles != (batch.Troubles{}) {
		w.violated("nobody died or stood still, and yet %+v", b.Troubles)
	}
	for line, n := range w.seen.answered {
		if n > 1 {
			w.violated("nobody died or stood still, and yet line %d was answered %d times", line, n)
		}
	}
}

// conserved: one result for each line, under its own id, of the kind that the
// table says.
func (w *World) conserved(b batch.Batch, all map[int64]outcome) {
	unsent := map[string]batch.Status{openai.CodeBatchCancelled: batch.Cancelled, openai.CodeBatchExpired: batch.Expired, openai.CodePartDead: batch.Completed}
	for _, p := range w.stores.Table.PartsOf(tenant, batchID) {
		if !p.Over() {
			w.violated("the batch is %s and part %d is %s", b.Status, p.N, p.State)
		}
		for i := range p.Lines {
			line := p.FirstLine + int64(i)
			o, ok := all[line]
			ending, never := unsent[o.code()]
			switch {
			case !ok:
				w.violated("line %d has no result", line)
			case p.DoneLines.Has(i) && never:
				w.violated("line %d was checkpointed, and its result is %s", line, o.code())
			case !p.DoneLines.Has(i) && !never:
				w.violated("line %d was not checkpointed, and has a result of its own", line)
			case never && ending != b.Status:
				w.violated("line %d ends as %s in a batch that is %s", line, o.code(), b.Status)
			case o.Response != nil && (o.Response.Status == 200) != (o.kind == batch.OutputFile):
				w.violated("line %d with status %d is in the %s file", line, o.Response.Status, o.kind)
			case o.Response != nil && (o.Response.Status == 200 || o.Response.Status == 400):
				var body struct {
					N int64 `json:"n"`
				}
				if err := json.Unmarshal(o.Response.Body, &body); err != nil || body.N != line {
					w.violated("line %d has the result of line %d", line, body.N)
				}
			}
		}
	}
}

// counted: the numbers are those of the files, and of the parts.
func (w *World) counted(b batch.Batch, all map[int64]outcome) {
	c := batch.Counts{Total: int64(w.Lines)}
	for _, o := range all {
		if o.kind == batch.OutputFile {
			c.Completed++
		} else {
			c.Failed++
		}
	}
	if b.Counts != c {
		w.violated("the batch counts %+v, its files %+v", b.Counts, c)
	}
	if (b.OutputFileID != "") != (c.Completed > 0) || (b.ErrorFileID != "") != (c.Failed > 0) {
		w.violated("files %q and %q for counts %+v", b.OutputFileID, b.ErrorFileID, c)
	}
	var t batch.Troubles
	for _, p := range w.stores.Table.PartsOf(tenant, batchID) {
		t = t.Add(p)
	}
	if b.Troubles != t {
		w.violated("the batch's troubles are %+v, its parts' %+v", b.Troubles, t)
	}
	receipts := map[string]int{}
	for raw := range bytes.Lines(w.stores.Objects.Bytes(results, batch.ResultKey(tenant, batchID, batch.ReceiptsFile))) {
		var r struct {
			Line int64  `json:"line"`
			For  string `json:"on_behalf_of"`
		}
		if err := json.Unmarshal(raw, &r); err != nil || r.For != "ann" {
			w.violated("receipt %q", raw)
		}
		if receipts[fmt.Sprint(r.Line)]++; receipts[fmt.Sprint(r.Line)] > 1 {
			w.violated("line %d has two receipts", r.Line)
		}
	}
	for line, o := range all {
		if o.Response != nil && receipts[fmt.Sprint(line)] == 0 {
			w.violated("line %d was answered and has no receipt", line)
		}
	}
}

// blame: a line is to blame only after two deaths while it was alone, and where
// nothing but poison kills, those lines are poison, all of them, and nothing else.
func (w *World) blame(b batch.Batch) {
	blamed := w.blamed()
	for line := range blamed {
		if alone := len(w.seen.alone[line]); alone < 2 {
			w.violated("line %d is blamed, and was alone in %d deaths", line, alone)
		}
	}
	if !w.OnlyPoison() || w.Disturbed || b.Status != batch.Completed {
		return
	}
	if w.seen.declared > 0 {
		w.violated("%d parts died, and nothing but poison kills", w.seen.declared)
	}
	poison := map[int64]bool{}
	for _, line := range w.Poison {
		poison[line] = true
		if !blamed[line] {
			w.violated("line %d kills every worker and isn't blamed", line)
		}
	}
	for line := range blamed {
		if !poison[line] {
			w.violated("line %d is blamed for what another did", line)
		}
	}
}

// repeats: what a claim sent and didn't commit is no more than its window.
func (w *World) repeats() {
	for tok, sent := range w.seen.sends {
		open := 0
		for line := range sent {
			if !w.seen.commits[tok][line] {
				open++
			}
		}
		if open > checkpoint+ceiling {
			w.violated("claim %.4s left %d lines begun, want at most %d", tok, open, checkpoint+ceiling)
		}
	}
}

// told: what happened is in the log, each thing once at most; where nobody dies
// between a write and its event, just once.
func (w *World) told(b batch.Batch) {
	tells := map[batch.EventKind]int{}
	for _, e := range w.stores.Table.EventsOf(tenant, batchID) {
		tells[e.Kind]++
	}
	for kind, happened := range map[batch.EventKind]int{
		batch.EventLeaseExpired: int(b.Troubles.Lapses), batch.EventStolen: int(b.Troubles.Steals), batch.EventDead: w.seen.declared,
		batch.EventBlamed: len(w.blamed()),
	} {
		exact := w.Strict() && w.Kill == 0 && !w.Disturbed
		if told := tells[kind]; told > happened || exact && told < happened {
			w.violated("%d events %s of %d", told, kind, happened)
		}
	}
}
