package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

func line(id string) string {
	return `{"custom_id":"` + id + `","method":"POST","url":"` + wEndpoint + `","body":{"model":"m-1"}}`
}

// The contract's table of parsing rules, each row through the whole planner.
// want is "planned N", or the expected faults as "line code"; a fault of the
// whole file has line 0.
func TestPlanJudgesEveryRowOfTheContract(t *testing.T) {
	limits := &batch.PlannerOptions{Lines: 6, LineBytes: 400, Nesting: 8}
	for _, c := range []struct{ name, file, want string }{
		{"plain", line("a") + "\n" + line("b") + "\n", "planned 2"},
		{"byte order mark at the start", "\ufeff" + line("a") + "\n", "planned 1"},
		{"byte order mark elsewhere", line("a") + "\n\ufeff" + line("b") + "\n", "2 invalid_json_line"},
		{"CRLF", line("a") + "\r\n" + line("b") + "\r\n", "planned 2"},
		{"no newline at the end", line("a") + "\n" + line("b"), "planned 2"},
		{"blank lines keep their number", "\n \t\n" + line("a") + "\n\r\n{}\n", "5 invalid_custom_id"},
		{"empty file", "", "0 empty_file"},
		{"only blanks", "\n  \r\n\n", "0 empty_file"},
		{"only a byte order mark", "\ufeff", "0 empty_file"},
		{"invalid UTF-8", line("a") + "\n" + strings.Replace(line("b"), "m-1", "m\xff", 1) + "\n", "2 invalid_encoding"},
		{"line too large", strings.Replace(line("a"), "m-1", strings.Repeat("x", 400), 1) + "\n" + line("b") + "\n", "1 line_too_large"},
		{"no body", `{"custom_id":"a","method":"POST","url":"` + wEndpoint + `"}`, "1 invalid_body"},
		{"null body", strings.Replace(line("a"), `{"model":"m-1"}`, "null", 1), "1 invalid_body"},
		{"body not an object", strings.Replace(line("a"), `{"model":"m-1"}`, "[1]", 1), "1 invalid_body"},
		{"stream", strings.Replace(line("a"), `"m-1"`, `"m-1","stream":true`, 1), "1 invalid_body"},
		{"a lone surrogate in an id", line(`\ud800`) + "\n", "planned 1"},
		{"nesting to the limit", strings.Replace(line("a"), `"m-1"`, strings.Repeat("[", 8)+strings.Repeat("]", 8), 1), "planned 1"},
		{"nesting beyond it", strings.Replace(line("a"), `"m-1"`, strings.Repeat("[", 9)+strings.Repeat("]", 9), 1), "1 invalid_json_line"},
		{"not JSON", line("a") + "\n{\"custom_id\":\n", "2 invalid_json_line"},
		{"not an object", "[]\n", "1 invalid_json_line"},
		{"duplicate keys", strings.Replace(line("a"), `"method"`, `"custom_id":"b","method"`, 1), "1 invalid_json_line"},
		{"no custom_id", strings.Replace(line("a"), "custom_id", "custom", 1), "1 invalid_custom_id"},
		{"empty custom_id", line(""), "1 invalid_custom_id"},
		{"long custom_id", line(strings.Repeat("é", 65)), "1 invalid_custom_id"},
		{"longest custom_id", line(strings.Repeat("é", 64)), "planned 1"},
		{"duplicate custom_id, the second is named", line("a") + "\n" + line("b") + "\n" + line(`\u0061`) + "\n", "3 duplicate_custom_id"},
		{"method", strings.Replace(line("a"), "POST", "GET", 1), "1 invalid_method"},
		{"url", strings.Replace(line("a"), wEndpoint, "/v1/embeddings", 1), "1 url_mismatch"},
		{"as many lines as allowed", line("1") + "\n" + line("2") + "\n" + line("3") + "\n" + line("4") + "\n" + line("5") + "\n" + line("6") + "\n", "planned 6"},
		{"too many lines", line("1") + "\n" + line("2") + "\n" + line("3") + "\n" + line("4") + "\n" + line("5") + "\n" + line("6") + "\n" + line("7"), "0 too_many_tasks"},
		{"all faults at once", "{}\n" + line("a") + "\n[]\n" + line("a") + "\n", "1 invalid_custom_id, 3 invalid_json_line, 4 duplicate_custom_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create([]byte(c.file))
			plan, err := w.planner(limits).Plan(t.Context(), wTenant, b.ID, wNow)
			must(t, err)
			b = w.batch(b.ID)
			got := fmt.Sprintf("planned %d", b.Lines)
			if plan.Status == batch.Refused {
				var faults []string
				for _, e := range b.Errors {
					n := 0
					if e.Line != nil {
						n = *e.Line
					}
					faults = append(faults, fmt.Sprintf("%d %s", n, e.Code))
				}
				got = strings.Join(faults, ", ")
				if b.Status != batch.Failed || b.FailedAt.IsZero() || len(w.truth.Table.PartsOf(wTenant, b.ID)) > 0 || len(plan.Parts) > 0 {
					t.Errorf("refused, yet %s, parts %v", b.Status, plan.Parts)
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestPlanStopsAfterAHundredFaults(t *testing.T) {
	w := newWorld(t)
	b := w.create([]byte(line("a") + "\n" + strings.Repeat("{}\n", 300)))
	_, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	got := w.batch(b.ID).Errors
	if len(got) != batch.MaxErrors || *got[0].Line != 2 || *got[99].Line != 101 {
		t.Errorf("%d faults", len(got))
	}
}

// What a line says must not make the batch's item too large to be written.
func TestPlanBoundsWhatItStoresOfALine(t *testing.T) {
	long := strings.Repeat("k", 100_000)
	w := newWorld(t)
	b := w.create([]byte(`{"` + long + `":1,"` + long + `":2}` + "\n"))
	_, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if e := w.batch(b.ID).Errors[0]; e.Param != nil && len(*e.Param) > 256 || len(e.Message) > 1000 {
		t.Errorf("a fault of %d bytes", len(e.Message))
	}
	b = w.create([]byte(strings.Replace(line("a"), "m-1", long, 1)))
	_, err = w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if m := w.batch(b.ID).Model; m != "" {
		t.Errorf("model of %d bytes", len(m))
	}
	// Nor hold what no item can: the line itself goes as it is.
	b = w.create([]byte(strings.Replace(line("a"), "m-1", `m\ud800`, 1)))
	_, err = w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if m := w.batch(b.ID).Model; m != "m\ufffd" {
		t.Errorf("model %q", m)
	}
}

func TestPlanRefusesAFileThatIsTooLarge(t *testing.T) {
	w := newWorld(t)
	b := w.create(requests(10))
	_, err := w.planner(&batch.PlannerOptions{Bytes: b.Input.Object.Bytes - 1}).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if got := w.batch(b.ID); got.Status != batch.Failed || got.Errors[0].Code != "file_too_large" {
		t.Errorf("%s %+v", got.Status, got.Errors)
	}
}

func TestPlanCutsParts(t *testing.T) {
	w := newWorld(t)
	// A BOM, blank lines, one long line, CRLF, and no newline at the end.
	file := "\ufeff" + line("0") + "\n\n" + line("1") + "\r\n" + line("2") + "\n  \n" +
		strings.Replace(line("3"), "m-1", strings.Repeat("x", 1000), 1) + "\n" + line("4") + "\n" + line("5")
	b := w.create([]byte(file))
	plan, err := w.planner(&batch.PlannerOptions{PartLines: 2, PartBytes: 500}).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	parts := w.truth.Table.PartsOf(wTenant, b.ID)
	type cut struct {
		first, physical int64
		lines           int
	}
	want := []cut{{0, 1, 2}, {2, 4, 1}, {3, 6, 1}, {4, 7, 2}}
	if len(parts) != len(want) || fmt.Sprint(plan.Parts) != "[0 1 2 3]" || plan.Status != batch.Planned {
		t.Fatalf("%d parts, plan %+v", len(parts), plan)
	}
	var ids []string
	for n, p := range parts {
		if got := (cut{p.FirstLine, p.FirstPhysical, p.Lines}); got != want[n] {
			t.Errorf("part %d: %+v, want %+v", n, got, want[n])
		}
		if p.State != batch.Pending || p.Attempts != 0 || !p.Due.Equal(wNow.Add(2*time.Hour)) || !p.CreatedAt.Equal(wNow) || len(p.DoneLines) != 1 || p.DoneLines.Count() != 0 {
			t.Errorf("part %d: %+v", n, p)
		}
		for l := range strings.Lines(file[p.From:p.To]) {
			if l = strings.TrimSpace(l); l != "" {
				ids = append(ids, l[len(`{"custom_id":"`):][:1])
			}
		}
	}
	if got := strings.Join(ids, ""); got != "012345" {
		t.Errorf("the parts' bytes hold %s", got)
	}
	if got := w.batch(b.ID); got.Status != batch.InProgress || got.Parts != 4 || got.Lines != 6 || got.Model != "m-1" || got.InProgressAt.Before(wNow) {
		t.Errorf("batch %+v", got)
	}
}

func TestPlanOfABatchPastValidation(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*batch.Batch)
		want   batch.PlanStatus
		parts  int
	}{
		{"in progress", func(b *batch.Batch) { b.Status, b.Parts = batch.InProgress, 3 }, batch.Planned, 3},
		{"finalizing", func(b *batch.Batch) { b.Status, b.Ending, b.Parts = batch.Finalizing, batch.Completed, 3 }, batch.Planned, 3},
		{"failed", func(b *batch.Batch) { b.Status = batch.Failed }, batch.Refused, 0},
		{"completed", func(b *batch.Batch) { b.Status, b.Ending, b.Parts = batch.Completed, batch.Completed, 3 }, batch.NotToRun, 0},
		{"cancelled while running", func(b *batch.Batch) { b.Status, b.Ending, b.Parts = batch.InProgress, batch.Cancelled, 3 }, batch.NotToRun, 0},
		{"expired", func(b *batch.Batch) { b.Status, b.Ending, b.Parts = batch.InProgress, batch.Expired, 3 }, batch.NotToRun, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create(requests(10))
			c.change(&b)
			w.truth.Table.SeedBatch(b)
			f := w.restart()
			plan, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
			must(t, err)
			if plan.Status != c.want || len(plan.Parts) != c.parts {
				t.Errorf("plan %+v", plan)
			}
			if calls := f.Calls(); len(calls) != 1 {
				t.Errorf("calls %v: nothing but a look was due", calls)
			}
		})
	}
	w := newWorld(t)
	if _, err := w.planner(nil).Plan(t.Context(), wTenant, "batch_none", wNow); !errors.Is(err, batch.ErrNotFound) {
		t.Errorf("unknown batch: %v", err)
	}
}

// What somebody else decides while the file is being read wins over the plan.
func TestPlanLosesToADecision(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*batch.Batch)
		want   batch.PlanStatus
		parts  int
	}{
		{"a cancel", func(b *batch.Batch) { b.Ending = batch.Cancelled }, batch.NotToRun, 0},
		{"a refusal", func(b *batch.Batch) { b.Status = batch.Failed }, batch.Refused, 0},
		{"a plan with other numbers", func(b *batch.Batch) { b.Status, b.Parts, b.Lines = batch.InProgress, 2, 10 }, batch.Planned, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create(requests(10))
			w.faults.Before("Batches.Start", 1, func(context.Context, memory.Point) error {
				c.change(&b)
				w.truth.Table.SeedBatch(b)
				return nil
			})
			plan, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
			must(t, err)
			if plan.Status != c.want || len(plan.Parts) != c.parts {
				t.Errorf("plan %+v", plan)
			}
		})
	}
}

func TestPlanOfAnInputThatIsGone(t *testing.T) {
	for name, change := range map[string]func(*world, batch.Object) error{
		"deleted": func(w *world, o batch.Object) error {
			return w.truth.Objects.Delete(w.t.Context(), o.Bucket, []string{o.Key})
		},
		"overwritten": func(w *world, o batch.Object) error {
			_, err := w.truth.Objects.Put(w.t.Context(), o, requests(11))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create(requests(10))
			must(t, change(w, b.Input.Object))
			plan, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
			must(t, err)
			if got := w.batch(b.ID); plan.Status != batch.Refused || got.Errors[0].Code != "input_file_unavailable" || !strings.Contains(got.Errors[0].Message, name) {
				t.Errorf("plan %+v, errors %+v", plan, got.Errors)
			}
		})
	}
}

// Connections tear; the plan must be that of the whole file, and a tear must
// never look like its end.
func TestPlanReadsOnAfterTears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		input := requests(9000) // several blocks
		w := newWorld(t)
		b := w.create(input)
		f := w.restart()
		tears := 0
		f.Before("Objects.Read", 0, func(_ context.Context, p memory.Point) error {
			if p.N%2 == 0 {
				tears++
				return []error{io.ErrUnexpectedEOF, errors.New("connection reset")}[tears%2]
			}
			return nil
		})
		_, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow)
		must(t, err)
		if got := w.batch(b.ID); got.Lines != 9000 || tears < 2 {
			t.Errorf("%d lines after %d tears", got.Lines, tears)
		}
		parts := w.truth.Table.PartsOf(wTenant, b.ID)
		if last := parts[len(parts)-1]; last.To != int64(len(input)) {
			t.Errorf("the last part ends at %d of %d", last.To, len(input))
		}

		// One that never heals is trouble of ours: the batch waits for the next try.
		b = w.create(input)
		w.restart().Before("Objects.Read", 0, memory.Fail(io.ErrUnexpectedEOF))
		if _, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
		if got := w.batch(b.ID).Status; got != batch.Validating {
			t.Errorf("batch is %s", got)
		}
		// An object that is shorter than its record says, too.
		b = w.create(bytes.TrimSuffix(input, []byte("\n")))
		b.Input.Object.Bytes++
		w.truth.Table.SeedBatch(b)
		w.restart()
		if _, err := w.planner(nil).Plan(t.Context(), wTenant, b.ID, wNow); err == nil {
			t.Error("a short object counts as whole")
		}
	})
}

// endsEarly is a store that ends a stream in the middle and calls that its end.
type endsEarly struct{ batch.Objects }

func (e endsEarly) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	body, err := e.Objects.Open(ctx, o, from, to)
	if err != nil || to-from < 10 {
		return body, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, (to-from)/2), body}, nil
}

func TestPlanDoesNotTakeAnEarlyEndForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.create(requests(100))
		p, err := batch.NewPlanner(w.m.Table.Batches, w.m.Table.Parts, endsEarly{w.m.Objects}, wResults, nil)
		must(t, err)
		_, err = p.Plan(t.Context(), wTenant, b.ID, wNow)
		must(t, err)
		if n := w.batch(b.ID).Lines; n != 100 {
			t.Errorf("%d lines of 100", n)
		}
	})
}

func TestPlannerOptions(t *testing.T) {
	m := memory.New(memory.Options{})
	for name, o := range map[string]*batch.PlannerOptions{
		"parts too long": {PartLines: 1001}, "negative part": {PartLines: -1}, "negative lines": {Lines: -1}, "negative overdue": {Overdue: -1},
	} {
		if _, err := batch.NewPlanner(m.Table.Batches, m.Table.Parts, m.Objects, wResults, o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
