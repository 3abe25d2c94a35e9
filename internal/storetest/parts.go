package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// PartsPorts are what the suite of batch.Parts needs: Claims changes a part, to
// see that inserting it again does not.
type PartsPorts struct {
	Parts  batch.Parts
	Claims batch.Claims
}

// RunParts runs the suite of batch.Parts.
func RunParts(t *testing.T, open func(T) PartsPorts) {
	t.Helper()
	run(t, PartsCases(), open)
}

// PartsCases is the suite of batch.Parts.
func PartsCases() []Case[PartsPorts] {
	return []Case[PartsPorts]{
		{"insert/a full part and a bare one come back", insertRoundTrip},
		{"insert/one that exists is left as it is", insertAgain},
		{"insert/nothing", insertNothing},
		{"insert/one of many wins", insertRace},
		{"get/unknown and foreign", partUnknown},
		{"all/by number, whatever the order of insertion", allOrdered},
		{"all/stops when asked to", allStops},
		{"all/only this batch's", allOwn},
		{"a context that is over", partsInterrupted},
	}
}

func insert(t T, s batch.Parts, parts ...batch.Part) {
	t.Helper()
	succeeds(t, "insert", s.Insert(t.Context(), parts))
}

func lookPart(t T, s batch.Parts, k batch.PartKey) batch.Part {
	t.Helper()
	return value(s.Get(t.Context(), k))(t, "get part")
}

func insertRoundTrip(t T, p PartsPorts) {
	full, bare := fullPart(key(0)), barePart(key(7))
	insert(t, p.Parts, full, bare)
	same(t, "full", lookPart(t, p.Parts, full.PartKey), full, "Ver")
	same(t, "bare", lookPart(t, p.Parts, bare.PartKey), bare, "Ver")
}

func insertAgain(t T, p PartsPorts) {
	first := fullPart(key(0))
	insert(t, p.Parts, first)
	claimed := value(p.Claims.Claim(t.Context(), batch.Claim{PartKey: first.PartKey, Token: token()}, "task", 3, at(time.Minute), at(0)))(t, "claim")
	other := first
	other.Lines, other.To = 1, 1
	next := fullPart(batch.PartKey{Tenant: first.Tenant, Batch: first.Batch, N: 1})
	insert(t, p.Parts, first, next)
	insert(t, p.Parts, other)
	insert(t, p.Parts, next, other)
	same(t, "the claimed one", lookPart(t, p.Parts, first.PartKey), claimed)
	same(t, "the next one", lookPart(t, p.Parts, next.PartKey), next, "Ver")
}

func insertNothing(t T, p PartsPorts) {
	insert(t, p.Parts)
	insert(t, p.Parts, []batch.Part{}...)
}

// insertRace: planners of one batch, one of them with other settings. Each part
// is one planner's, whole.
func insertRace(t T, p PartsPorts) {
	k := key(0)
	errs := race(racers, func(i int) error {
		mine := fullPart(k)
		mine.From, mine.To = int64(i), int64(i)+1000
		return p.Parts.Insert(t.Context(), []batch.Part{mine})
	})
	for _, err := range errs {
		succeeds(t, "insert", err)
	}
	got, want := lookPart(t, p.Parts, k), fullPart(k)
	want.From, want.To = got.From, got.From+1000
	same(t, "stored", got, want, "Ver")
	same(t, "later", lookPart(t, p.Parts, k), got)
}

func partUnknown(t T, p PartsPorts) {
	part := fullPart(key(1))
	insert(t, p.Parts, part)
	for _, k := range []batch.PartKey{
		{Tenant: part.Tenant, Batch: part.Batch, N: 0}, {Tenant: part.Tenant, Batch: part.Batch, N: 10},
		{Tenant: part.Tenant, Batch: "batch_none", N: 1}, {Tenant: tenant(), Batch: part.Batch, N: 1},
	} {
		refuses(t, fmt.Sprintf("get %+v", k), fault(p.Parts.Get(t.Context(), k)), batch.ErrNotFound)
	}
}

// all reads a batch's parts and gives their numbers too.
func all(t T, s batch.Parts, k batch.PartKey) (parts []batch.Part, numbers []int) {
	t.Helper()
	for p, err := range s.All(t.Context(), k.Tenant, k.Batch) {
		succeeds(t, "all", err)
		parts, numbers = append(parts, p), append(numbers, p.N)
	}
	return parts, numbers
}

func allOrdered(t T, p PartsPorts) {
	k := key(0)
	// Enough for several pages and batches of writes, and numbers of one to five
	// digits, which sort otherwise as text.
	var want []int
	for n := range 230 {
		want = append(want, n)
	}
	want = append(want, 999, 1000, 9_999, 10_000, 19_999)
	var parts []batch.Part
	for i := range want {
		part := fullPart(batch.PartKey{Tenant: k.Tenant, Batch: k.Batch, N: want[(i*101)%len(want)]})
		part.FirstLine = int64(part.N) * 500
		parts = append(parts, part)
	}
	insert(t, p.Parts, parts...)
	got, numbers := all(t, p.Parts, k)
	if !slices.Equal(numbers, want) {
		t.Fatalf("numbers are %v", numbers)
	}
	slices.SortFunc(parts, func(a, b batch.Part) int { return a.N - b.N })
	for i := range parts {
		same(t, fmt.Sprintf("part %d", got[i].N), got[i], parts[i], "Ver")
	}
}

func allStops(t T, p PartsPorts) {
	k := key(0)
	for n := range 3 {
		insert(t, p.Parts, fullPart(batch.PartKey{Tenant: k.Tenant, Batch: k.Batch, N: n}))
	}
	seen := 0
	for part, err := range p.Parts.All(t.Context(), k.Tenant, k.Batch) {
		succeeds(t, "all", err)
		if seen++; part.N == 1 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("%d parts until number 1", seen)
	}
}

func allOwn(t T, p PartsPorts) {
	mine := key(3)
	for _, k := range []batch.PartKey{
		mine, {Tenant: mine.Tenant, Batch: mine.Batch + "x", N: 4}, {Tenant: mine.Tenant, Batch: mine.Batch[:len(mine.Batch)-1], N: 5},
		{Tenant: tenant(), Batch: mine.Batch, N: 6},
	} {
		insert(t, p.Parts, fullPart(k))
	}
	if _, numbers := all(t, p.Parts, mine); !slices.Equal(numbers, []int{3}) {
		t.Errorf("numbers are %v, want 3 alone", numbers)
	}
	if parts, _ := all(t, p.Parts, key(0)); len(parts) != 0 {
		t.Errorf("an unknown batch has %d parts", len(parts))
	}
}

func partsInterrupted(t T, p PartsPorts) {
	part := fullPart(key(0))
	insert(t, p.Parts, part)
	interrupts(t, map[string]func(context.Context) error{
		"Insert": func(ctx context.Context) error { return p.Parts.Insert(ctx, []batch.Part{fullPart(key(0))}) },
		"Get":    func(ctx context.Context) error { return fault(p.Parts.Get(ctx, part.PartKey)) },
		"All": func(ctx context.Context) (last error) {
			n := 0
			for _, err := range p.Parts.All(ctx, part.Tenant, part.Batch) {
				n, last = n+1, err
			}
			if n != 1 {
				t.Errorf("All yields %d times, want its error and nothing else", n)
			}
			return last
		},
	})
}
