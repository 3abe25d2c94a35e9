package limits_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/limits"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

// told is limits.Tenants that gives everybody the same.
type told struct {
	limits access.Limits
	err    error
}

func (t *told) Limits(context.Context, string, time.Time) (access.Limits, error) {
	return t.limits, t.err
}

// house is a gate over memory whose calls are counted.
type house struct {
	*testing.T
	mem    *memory.Memory
	faults *memory.Faults
	told   *told
	gate   *limits.Gate
	n      int
}

func newHouse(t *testing.T, l access.Limits) *house {
	h := &house{T: t, mem: memory.New(memory.Options{}), faults: memory.NewFaults(), told: &told{limits: l}}
	h.gate = h.process()
	return h
}

// process is a gate that remembers nothing yet.
func (h *house) process() *limits.Gate {
	view := h.mem.With(h.faults)
	return limits.New(h.told, view.Table.Batches, view.Table.Parts, 24*time.Hour)
}

// has gives the tenant a batch, with a part for each count of lines of which so many
// are done.
func (h *house) has(status, ending batch.Status, age time.Duration, parts ...[2]int) batch.Batch {
	h.Helper()
	h.n++
	b := batch.Batch{
		Tenant: "acme", ID: fmt.Sprintf("batch_%032d", h.n), Status: status, Ending: ending,
		CreatedAt: start.Add(-age), Parts: len(parts),
	}
	for n, p := range parts {
		b.Lines += int64(p[0])
		h.mem.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: "acme", Batch: b.ID, N: n}, State: batch.Leased, Lines: p[0], Processed: p[1]})
	}
	h.mem.Table.SeedBatch(b)
	return b
}

func (h *house) calls() string {
	var ops []string
	for _, p := range h.faults.Calls() {
		ops = append(ops, p.Op)
	}
	return strings.Join(ops, " ")
}

func admit(g *limits.Gate, ctx context.Context, after time.Duration) error {
	return g.Admit(ctx, batch.Request{Tenant: "acme", ID: "batch_new"}, batch.File{Object: batch.Object{Bytes: 100}}, start.Add(after))
}

func code(err error) string {
	e, ok := errors.AsType[*openai.Error](err)
	switch {
	case err == nil:
		return "ok"
	case !ok:
		return err.Error()
	}
	return fmt.Sprint(e.Status, " ", e.Code, " ", e.RetryAfter)
}

const (
	tooMany  = "429 enqueued_limit_exceeded 30s"
	tooLarge = "413 file_too_large 0s"
)

func TestAdmit(t *testing.T) {
	const look, parts = "Batches.Open", "Batches.Open Parts.All"
	type made func(*house)
	some := func(make ...made) made {
		return func(h *house) {
			for _, m := range make {
				m(h)
			}
		}
	}
	one := func(status, ending batch.Status, parts ...[2]int) made {
		return func(h *house) { h.has(status, ending, time.Hour, parts...) }
	}
	running := func(parts ...[2]int) made { return one(batch.InProgress, "", parts...) }
	validating := one(batch.Validating, "")
	for name, c := range map[string]struct {
		limits access.Limits
		has    made
		want   string
		calls  string
	}{
		"no limits":                             {access.Limits{}, some(running([2]int{1e6, 0})), "ok", ""},
		"requests a minute aren't counted here": {access.Limits{RequestsPerMinute: 1}, some(running([2]int{1e6, 0})), "ok", ""},

		"a file of the limit":        {access.Limits{FileBytes: 100}, some(), "ok", ""},
		"a file above it":            {access.Limits{FileBytes: 99}, some(), tooLarge, ""},
		"before anything is counted": {access.Limits{FileBytes: 99, RunningBatches: 1}, some(validating), tooLarge, ""},

		"none runs":                 {access.Limits{RunningBatches: 1}, some(), "ok", look},
		"one less than the limit":   {access.Limits{RunningBatches: 3}, some(validating, running()), "ok", look},
		"as many as the limit":      {access.Limits{RunningBatches: 2}, some(validating, running()), tooMany, look},
		"more":                      {access.Limits{RunningBatches: 1}, some(validating, validating), tooMany, look},
		"those that end run, too":   {access.Limits{RunningBatches: 2}, some(one(batch.InProgress, batch.Cancelled), one(batch.Finalizing, batch.Expired)), tooMany, look},
		"those that are over don't": {access.Limits{RunningBatches: 1}, some(one(batch.Completed, batch.Completed), one(batch.Failed, ""), one(batch.Cancelled, batch.Cancelled), one(batch.Expired, batch.Expired)), "ok", look},

		// Parts are looked at where it depends on them, no sooner and no longer.
		"fewer lines than the limit":             {access.Limits{QueuedLines: 11}, some(running([2]int{10, 0})), "ok", look},
		"as many lines, none done":               {access.Limits{QueuedLines: 10}, some(running([2]int{10, 0})), tooMany, parts},
		"as many lines, one done":                {access.Limits{QueuedLines: 10}, some(running([2]int{5, 0}, [2]int{5, 1})), "ok", parts},
		"of two batches":                         {access.Limits{QueuedLines: 10}, some(running([2]int{8, 4}), running([2]int{8, 2})), tooMany, parts + " Parts.All"},
		"of two, and the older one tells":        {access.Limits{QueuedLines: 10}, some(running([2]int{8, 7}), running([2]int{8, 0})), "ok", parts},
		"one that validates has none yet":        {access.Limits{QueuedLines: 1}, some(validating), "ok", look},
		"nothing more is begun":                  {access.Limits{QueuedLines: 1}, some(one(batch.InProgress, batch.Cancelled, [2]int{9, 0}), one(batch.Finalizing, batch.Completed, [2]int{9, 9})), "ok", look},
		"what such a one did does no other good": {access.Limits{QueuedLines: 10}, some(running([2]int{10, 0}), one(batch.InProgress, batch.Cancelled, [2]int{9, 9})), tooMany, parts},
		"both limits, the batches":               {access.Limits{QueuedLines: 10, RunningBatches: 1}, some(running([2]int{10, 0})), tooMany, look},
		"both limits, the lines":                 {access.Limits{QueuedLines: 10, RunningBatches: 2}, some(running([2]int{10, 0})), tooMany, parts},
		"a file, batches and lines that fit":     {access.Limits{QueuedLines: 11, RunningBatches: 2, FileBytes: 100}, some(running([2]int{10, 0})), "ok", look},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, c.limits)
			c.has(h)
			if got := code(admit(h.gate, t.Context(), 0)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if got := h.calls(); got != c.calls {
				t.Errorf("calls %q, want %q", got, c.calls)
			}
		})
	}
}

// Another tenant's are another's.
func TestAdmitEachForItself(t *testing.T) {
	h := newHouse(t, access.Limits{RunningBatches: 1})
	h.has(batch.InProgress, "", time.Hour)
	err := h.gate.Admit(t.Context(), batch.Request{Tenant: "other"}, batch.File{}, start)
	if err != nil {
		t.Error(err)
	}
	if got := code(admit(h.gate, t.Context(), 0)); got != tooMany {
		t.Error(got)
	}
	if err := h.gate.Admit(t.Context(), batch.Request{Tenant: "other"}, batch.File{}, start); err != nil {
		t.Error(err)
	}
}

// Created again under its own id a batch takes no more room than it has.
func TestAdmitWhatIsThere(t *testing.T) {
	h := newHouse(t, access.Limits{RunningBatches: 1, QueuedLines: 5})
	b := h.has(batch.InProgress, "", time.Minute, [2]int{5, 0})
	if err := h.gate.Admit(t.Context(), batch.Request{Tenant: "acme", ID: b.ID}, batch.File{}, start); err != nil {
		t.Error(err)
	}
}

// A refusal says which limit, and holds for a moment without a look; admissions
// never do.
func TestRefusalHolds(t *testing.T) {
	h := newHouse(t, access.Limits{RunningBatches: 1})
	b := h.has(batch.InProgress, "", time.Hour)
	err := admit(h.gate, t.Context(), 0)
	if e, _ := errors.AsType[*openai.Error](err); e == nil || !strings.Contains(e.Message, "1 running batches") || e.Type != openai.TypeRateLimit {
		t.Errorf("%v", err)
	}
	b.Status = batch.Completed
	h.mem.Table.SeedBatch(b)
	for _, step := range []struct {
		after time.Duration
		want  string
		looks int
	}{
		{time.Second, tooMany, 1},
		{2999 * time.Millisecond, tooMany, 1},
		{3 * time.Second, "ok", 2},
		{3 * time.Second, "ok", 3},
	} {
		if got := code(admit(h.gate, t.Context(), step.after)); got != step.want || h.faults.Count("Batches.Open") != step.looks {
			t.Errorf("after %v: %s, want %s; %d looks, want %d", step.after, got, step.want, h.faults.Count("Batches.Open"), step.looks)
		}
	}
	h.has(batch.Validating, "", 0)
	if got := code(admit(h.gate, t.Context(), 10*time.Second)); got != tooMany {
		t.Error(got)
	}
	if got := code(admit(h.gate, t.Context(), 9*time.Second)); got != tooMany || h.faults.Count("Batches.Open") != 5 {
		t.Errorf("a clock set back: %s after %d looks", got, h.faults.Count("Batches.Open"))
	}
	h.told.limits.RunningBatches = 2 // an operator lets more in
	if got := code(admit(h.gate, t.Context(), 10*time.Second)); got != "ok" {
		t.Error(got)
	}
}

// spans is limits.Batches that takes note of since when it is asked.
type spans struct {
	open  []limits.Open
	since []time.Duration // before the look
	now   time.Time
}

func (s *spans) Open(_ context.Context, _ string, since time.Time) ([]limits.Open, error) {
	s.since = append(s.since, s.now.Sub(since))
	return s.open, nil
}

// What was over once needs no other look: the first look of a process goes back as
// far as a batch may be open, later ones to the oldest that is.
func TestLooksNoFurtherThanItHasTo(t *testing.T) {
	s := &spans{}
	g := limits.New(&told{limits: access.Limits{RunningBatches: 9}}, s, nil, 24*time.Hour)
	for _, step := range []struct {
		after time.Duration
		open  []limits.Open
		since time.Duration
	}{
		{0, nil, 48 * time.Hour},
		{time.Hour, nil, 61 * time.Minute}, // a minute is for an index that lags
		{time.Hour, []limits.Open{{CreatedAt: start.Add(59 * time.Minute)}, {CreatedAt: start.Add(10 * time.Minute)}}, time.Minute},
		{2 * time.Hour, []limits.Open{{CreatedAt: start.Add(10 * time.Minute)}}, 110 * time.Minute},
		{3 * time.Hour, nil, 170 * time.Minute},
		{time.Hour, nil, time.Minute}, // a clock set back
		{90 * 24 * time.Hour, nil, 48 * time.Hour},
	} {
		s.now, s.open = start.Add(step.after), step.open
		if err := admit(g, t.Context(), step.after); err != nil {
			t.Fatal(err)
		}
		if got := s.since[len(s.since)-1]; got != step.since {
			t.Errorf("after %v: looked back %v, want %v", step.after, got, step.since)
		}
	}
}

// lots is parts that don't end.
type lots struct {
	batch.Parts
	looked int
}

func (l *lots) All(context.Context, string, string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		for yield(batch.Part{Lines: 2, Processed: 1}, nil) {
			l.looked++
		}
	}
}

// A decision ends, however many parts there are; what it didn't see waits.
func TestLooksAtSoManyParts(t *testing.T) {
	s := &spans{open: []limits.Open{{ID: "batch_b", Lines: 1e6}, {ID: "batch_a", Lines: 1e6}}}
	l := &lots{}
	g := limits.New(&told{limits: access.Limits{QueuedLines: 1}}, s, l, time.Hour)
	if got := code(admit(g, t.Context(), 0)); got != tooMany || l.looked != 9_999 {
		t.Errorf("%s after %d parts", got, l.looked)
	}
}

func TestTroubleIsNoRefusal(t *testing.T) {
	for _, op := range []string{"Batches.Open", "Parts.All"} {
		h := newHouse(t, access.Limits{QueuedLines: 1})
		h.has(batch.InProgress, "", time.Hour, [2]int{5, 0})
		h.faults.Before(op, 1, memory.Fail(nil))
		if err := admit(h.gate, t.Context(), 0); !errors.Is(err, memory.ErrInjected) || code(err) == tooMany {
			t.Errorf("%s: %v", op, err)
		}
		if got := code(admit(h.gate, t.Context(), 0)); got != tooMany {
			t.Errorf("after trouble with %s: %s", op, got)
		}
	}
	h := newHouse(t, access.Limits{})
	h.told.err = errors.New("throttled")
	if err := admit(h.gate, t.Context(), 0); !errors.Is(err, h.told.err) {
		t.Error(err)
	}
}

// However many tenants come by, what is kept of them is bounded, and each is held to
// its limits all the same.
func TestManyTenants(t *testing.T) {
	s := &spans{open: []limits.Open{{ID: "batch_a"}}}
	g := limits.New(&told{limits: access.Limits{RunningBatches: 1}}, s, nil, time.Hour)
	for i := range 3000 {
		err := g.Admit(t.Context(), batch.Request{Tenant: fmt.Sprint("t", i)}, batch.File{}, start)
		if got := code(err); got != tooMany {
			t.Fatalf("tenant %d: %s", i, got)
		}
	}
	if n := limits.Kept(g); n > 1024 {
		t.Errorf("%d tenants are kept", n)
	}
}
