package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/openai"
)

// MaxErrors is how many faults of an input are collected before planning stops.
const MaxErrors = 100

// Codes of an input that can't be planned, beside those of its lines.
const (
	codeFileTooLarge    = "file_too_large"
	codeFileUnavailable = "input_file_unavailable"
)

// ErrCut says that parts of the batch exist which this planner would not cut:
// an earlier planning died between its inserts, and the size of parts was changed
// before this one. Nothing was started. With the old size it goes on.
var ErrCut = errors.New("stored parts are not those of this plan")

// InlineParts is the most parts that a workflow is given in a list. More make a
// batch wide: its parts are read from an object, and each gets an execution of its
// own.
const InlineParts = 40

// PlannerOptions are the bounds of an input and of its parts.
type PlannerOptions struct {
	Lines     int   // requests a file; 0: 50,000
	Bytes     int64 // bytes a file; 0: 200 MB
	LineBytes int   // bytes a line; 0: 4 MiB
	Nesting   int   // levels of JSON below a request; 0: 1,000

	// A part is cut after PartLines requests (0: 500; at most 1,000, or its item
	// grows too large), or before the line that would take it past PartBytes (0:
	// 64 MiB): whoever takes a part over reads it from its beginning, so that long
	// lines must not make that dear. A single line may be longer.
	PartLines int
	PartBytes int64

	// Overdue is how long a part's first message may stay unseen before the
	// reaper sends another; 0: 2 h.
	Overdue time.Duration

	Log *slog.Logger // nil: nothing is logged
}

// Planner validates inputs and cuts them into parts. It is safe for concurrent
// use, also on one batch.
type Planner struct {
	batches Batches
	parts   Parts
	objects Objects
	bucket  string
	o       PlannerOptions
}

// NewPlanner returns a Planner that writes the plans of wide batches into the
// results bucket, or an error when an option is out of bounds.
func NewPlanner(batches Batches, parts Parts, objects Objects, bucket string, o *PlannerOptions) (*Planner, error) {
	p := &Planner{batches: batches, parts: parts, objects: objects, bucket: bucket}
	if o != nil {
		p.o = *o
	}
	orDefault(&p.o.Lines, 50_000)
	orDefault(&p.o.Bytes, 200_000_000)
	orDefault(&p.o.LineBytes, openai.DefaultLineBytes)
	orDefault(&p.o.Nesting, openai.DefaultNesting)
	orDefault(&p.o.PartLines, 500)
	orDefault(&p.o.PartBytes, 64<<20)
	orDefault(&p.o.Overdue, overdue)
	if p.o.Log == nil {
		p.o.Log = slog.New(slog.DiscardHandler)
	}
	if p.o.PartLines < 1 || p.o.PartLines > 1000 {
		return nil, fmt.Errorf("planner: %d lines a part; 1 to 1,000 are possible", p.o.PartLines)
	}
	if p.o.Lines < 1 || p.o.Bytes < 1 || p.o.LineBytes < 1 || p.o.Nesting < 1 || p.o.PartBytes < 1 || p.o.Overdue < 0 {
		return nil, fmt.Errorf("planner: an option is negative: %+v", p.o)
	}
	return p, nil
}

// PlanStatus says what a workflow does next.
type PlanStatus string

// What planning may come to.
const (
	Planned  PlanStatus = "planned" // run Plan.Parts, then finish
	Refused  PlanStatus = "failed"  // the input was refused: the batch is over
	NotToRun PlanStatus = "ended"   // cancelled, expired or closed meanwhile: run nothing, only finish
)

// Plan is what a workflow runs. Parts are numbers, ascending; it has none unless
// the status is Planned, where there is at least one.
type Plan struct {
	Status PlanStatus
	Parts  []int
	// Object lists the parts of a wide plan, one {"part":n} a line; else it is the
	// zero value.
	Object Object
}

// Wide reports whether the plan's parts are too many for a list in a workflow.
func (p Plan) Wide() bool { return len(p.Parts) > InlineParts }

// Plan validates the whole input, cuts it into parts, inserts them (C17) and
// starts the batch (C15), in this order: a part does not exist for anybody
// until the batch is in_progress. So parts left behind by a planning that died,
// or by a file that was refused, do no harm, and planning again from the
// start is how it resumes. A batch that is past validation is answered from what
// is stored.
//
// The object of a wide plan is written whenever one is answered, with the same
// bytes each time: whoever gets the answer finds it there, also where the planning
// that wrote it first died, or a lifecycle rule has taken it since.
//
// Memory holds one line, 16 bytes a line for the custom_ids, 40 bytes a part and a
// thousand parts' items; nothing is inserted before the whole file has been found valid.
//
// A batch that was told to end while it validates is planned like any other, so
// that its counts exist and each of its lines can be answered; only then is
// there nothing to run. An input that is refused is refused all the same.
//
// An error is trouble of ours (retry), or [ErrCut]. Whatever is wrong with
// the input makes the batch failed, with at most [MaxErrors] reasons, and is no
// error here. A call that ctx's deadline leaves too little time for ends before it,
// with [ErrOutOfTime]; the second such call makes the batch failed.
func (p *Planner) Plan(ctx context.Context, tenant, id string, now time.Time) (Plan, error) {
	return p.inTime(ctx, tenant, id, now, func(ctx context.Context) (Plan, error) { return p.plan(ctx, tenant, id, now) })
}

func (p *Planner) plan(ctx context.Context, tenant, id string, now time.Time) (Plan, error) {
	began := time.Now() // planning takes minutes: what is written late says when
	b, err := p.batches.Get(ctx, tenant, id)
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", id, err)
	}
	if b.Status != Validating {
		return p.answer(ctx, b)
	}
	cut, why, err := p.read(ctx, b)
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", id, err)
	}
	if len(why) > 0 {
		b, err = p.batches.Refuse(ctx, tenant, id, why, now.Add(time.Since(began)))
		return p.settle(ctx, b, tenant, id, err)
	}
	// Groups, so that an error costs one of them and not the rest of 20,000.
	for from := 0; from < len(cut.parts); from += insertGroup {
		to := min(from+insertGroup, len(cut.parts))
		group := p.items(tenant, id, cut.parts[:to], from, now)
		if err := tryAgain(ctx, func() error { return p.parts.Insert(ctx, group) }); err != nil {
			return Plan{}, fmt.Errorf("plan %s: insert parts %d to %d: %w", id, from, to-1, err)
		}
	}
	if err := p.compare(ctx, tenant, id, cut.parts); err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", id, err)
	}
	b, err = p.batches.Start(ctx, tenant, id, Started{Parts: len(cut.parts), Lines: cut.lines, Model: cut.model}, now.Add(time.Since(began)))
	return p.settle(ctx, b, tenant, id, err)
}

// insertGroup is how many parts are inserted in one call.
const insertGroup = 1000

// items are the parts from number from on, as they are inserted.
func (p *Planner) items(tenant, id string, cut []partCut, from int, now time.Time) []Part {
	now = now.UTC().Truncate(time.Millisecond)
	due := now.Add(p.o.Overdue).Truncate(time.Millisecond)
	group := make([]Part, len(cut)-from)
	for i, c := range cut[from:] {
		group[i] = Part{
			PartKey: PartKey{tenant, id, from + i}, State: Pending, Due: due,
			FirstLine: c.firstLine, FirstPhysical: c.physical, Lines: c.lines, From: c.from, To: c.to,
			DoneLines: NewBitmap(c.lines), CreatedAt: now,
		}
	}
	return group
}

// settle answers with the batch as Start or Refuse left it. When the batch had
// left validating already, somebody else's decision stands.
func (p *Planner) settle(ctx context.Context, b Batch, tenant, id string, err error) (Plan, error) {
	if errors.Is(err, ErrStatus) {
		b, err = p.batches.Get(ctx, tenant, id)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", id, err)
	}
	if b.Status == Validating {
		return Plan{}, fmt.Errorf("plan %s: %w: still validating", id, ErrStatus)
	}
	plan, err := p.answer(ctx, b)
	if err != nil {
		return Plan{}, err
	}
	p.o.Log.InfoContext(ctx, "planned", "tenant", tenant, "batch", id, "status", string(b.Status), "parts", b.Parts, "lines", b.Lines, "errors", len(b.Errors))
	return plan, nil
}

// answer is what is left to run of a batch past validation. All parts of a
// running one: a message that finds its part over only reports again, and a
// finalizing one must come to its finish, whoever died in the middle of it.
func (p *Planner) answer(ctx context.Context, b Batch) (Plan, error) {
	switch {
	case b.Status == Failed:
		return Plan{Status: Refused}, nil
	case b.Status.Terminal(), b.Ending == Cancelled, b.Ending == Expired:
		return Plan{Status: NotToRun}, nil
	}
	plan := Plan{Status: Planned, Parts: make([]int, b.Parts)}
	for i := range plan.Parts {
		plan.Parts[i] = i
	}
	if !plan.Wide() {
		return plan, nil
	}
	object := Object{Bucket: p.bucket, Key: PlanKey(b.Tenant, b.ID)}
	err := tryAgain(ctx, func() (err error) {
		plan.Object, err = p.objects.Put(ctx, object, listParts(plan.Parts))
		return err
	})
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: list %d parts: %w", b.ID, b.Parts, err)
	}
	return plan, nil
}

// PlanKey is the key, in the results bucket, of the object that lists a wide
// batch's parts.
func PlanKey(tenant, batch string) string { return tenant + "/plan/" + batch + ".jsonl" }

// listParts writes one {"part":n} a line.
func listParts(parts []int) []byte {
	list := make([]byte, 0, len(parts)*len(`{"part":12345}`+"\n"))
	for _, n := range parts {
		list = append(strconv.AppendInt(append(list, `{"part":`...), int64(n), 10), "}\n"...)
	}
	return list
}

// compare proves that the parts stored are those just cut. Insert leaves a part
// alone that is there already, and a plan that mixes two cuts would lose lines
// or run them twice:
//
//	planner A (500 lines a part) inserts part 1 = lines 500-999, dies
//	the size of parts is set to 1,000
//	planner B inserts part 0 = lines 0-999 and leaves part 1 as it is
func (p *Planner) compare(ctx context.Context, tenant, id string, parts []partCut) error {
	n := 0
	for s, err := range p.parts.All(ctx, tenant, id) {
		if err != nil {
			return fmt.Errorf("read the parts back: %w", err)
		}
		if n >= len(parts) || s.N != n || s.cut() != parts[n] {
			return fmt.Errorf("%w: part %d", ErrCut, s.N)
		}
		n++
	}
	if n != len(parts) {
		return fmt.Errorf("%w: %d of %d are there", ErrCut, n, len(parts))
	}
	return nil
}

func (p Part) cut() partCut {
	return partCut{firstLine: p.FirstLine, physical: p.FirstPhysical, from: p.From, to: p.To, lines: p.Lines}
}

// partCut is where a part lies.
type partCut struct {
	firstLine, physical, from, to int64
	lines                         int
}

// cuts is what reading a whole input gives.
type cuts struct {
	parts []partCut
	lines int64
	model string // of the first line
}

// add puts an accepted line into the last part, or into a new one.
func (c *cuts) add(l openai.RawLine, partLines int, partBytes int64) {
	last := len(c.parts) - 1
	if last < 0 || c.parts[last].lines >= partLines || l.To-c.parts[last].from > partBytes {
		c.parts = append(c.parts, partCut{firstLine: c.lines, physical: int64(l.Number), from: l.From})
		last++
	}
	c.parts[last].to = l.To
	c.parts[last].lines++
	c.lines++
}

// read validates the input. Either why is not empty, or the cuts are whole.
func (p *Planner) read(ctx context.Context, b Batch) (c cuts, why []openai.BatchError, err error) {
	if b.Input.Object.Bytes > p.o.Bytes {
		return cuts{}, []openai.BatchError{{Code: codeFileTooLarge,
			Message: fmt.Sprintf("The file has %d bytes; the most is %d. Split it into several batches.", b.Input.Object.Bytes, p.o.Bytes)}}, nil
	}
	in := newPrefetch(ctx, p.objects, b.Input.Object, planReach)
	defer in.Close()
	r := openai.NewReader(in, openai.Limits{LineBytes: p.o.LineBytes})
	want := openai.Expect{Endpoint: b.Endpoint, Nesting: p.o.Nesting}
	var ids openai.IDSet
	for seen := 0; ; {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			if seen == 0 {
				why = append(why, openai.EmptyFile())
			}
			return c, why, nil
		}
		bad, isLine := errors.AsType[*openai.LineError](err)
		switch {
		case err != nil && !isLine && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrChanged)):
			// Pinned bytes don't come back: waiting would only hide it from the user.
			return cuts{}, []openai.BatchError{unavailable(err)}, nil
		case err != nil && !isLine:
			return cuts{}, nil, err
		}
		if seen++; seen > p.o.Lines {
			return cuts{}, append(why, openai.TooManyTasks(p.o.Lines)), nil
		}
		if bad == nil {
			bad = p.judge(&c, &ids, l, want)
			want.KeysOnly = true // the model of the first line is known, and no other is asked for
		}
		if bad != nil {
			if why = append(why, bad.BatchError()); len(why) == MaxErrors {
				return cuts{}, why, nil
			}
		}
	}
}

// judge accepts the line into the cuts, or says what is wrong with it.
func (p *Planner) judge(c *cuts, ids *openai.IDSet, l openai.RawLine, want openai.Expect) *openai.LineError {
	req, bad := l.Parse(want)
	if bad != nil {
		return bad
	}
	if !ids.Add(req.IDKey()) {
		return openai.DuplicateID(l, req.RawCustomID)
	}
	if c.lines == 0 && len(req.Model) <= maxName {
		c.model = strings.ToValidUTF8(req.Model, "\ufffd") // a lone surrogate in it, which no item can hold
	}
	c.add(l, p.o.PartLines, p.o.PartBytes)
	return nil
}

// maxName bounds the model that is stored with the batch, whose item has room for
// 400 KB: a name can be as long as a line.
const maxName = 256

func unavailable(err error) openai.BatchError {
	e := openai.BatchError{Code: codeFileUnavailable, Message: "The input file was deleted before the batch had read it; upload it again and create a new batch."}
	if errors.Is(err, ErrChanged) {
		e.Message = "The input file was overwritten after the batch was created; upload it again and create a new batch."
	}
	return e
}
