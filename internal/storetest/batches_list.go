package storetest

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/batch"
)

var listCases = []Case[BatchesPorts]{
	{"list/newest first, in pages of any size", listPages},
	{"list/a tenant without batches", listEmpty},
	{"list/a cursor that is no batch of the tenant's", listUnknown},
	{"list/limits", listLimits},
	{"reading/a live batch over the file, not older than asked for", reading},
}

// listed creates six batches of a new tenant, in no order, two of them in the
// same millisecond, and gives them as a list should.
func listed(t T, p BatchesPorts) []batch.Batch {
	t.Helper()
	who, run := tenant(), unique()
	all := make([]batch.Batch, 6)
	for _, i := range []int{5, 0, 3, 1, 4, 2} {
		b := fullBatch()
		b.Tenant, b.ID = who, "batch_"+run+string("bedcfa"[i])
		b.CreatedAt = at(-time.Duration(i) * time.Second)
		if i == 3 { // the millisecond of 2, whose id is higher
			b.CreatedAt = at(-2*time.Second - 100*time.Microsecond)
		}
		all[i] = begin(t, p.Batches, b)
	}
	other := fullBatch()
	other.Tenant = who + "-"
	begin(t, p.Batches, other)
	return all
}

// pages reads a whole list, page by page.
func pages(t T, s batch.Batches, who string, limit int) (all []batch.Batch, sizes []int) {
	t.Helper()
	after := ""
	for {
		page, more, err := s.List(t.Context(), who, after, limit)
		succeeds(t, fmt.Sprintf("list after %q", after), err)
		if len(page) > limit {
			t.Errorf("a page of %d, limit %d", len(page), limit)
		}
		if more && len(page) == 0 {
			t.Fatalf("an empty page that says there are more")
		}
		all, sizes = append(all, page...), append(sizes, len(page))
		if !more {
			return all, sizes
		}
		after = page[len(page)-1].ID
	}
}

func listPages(t T, p BatchesPorts) {
	want := listed(t, p)
	for limit, sizes := range map[int]string{1: "[1 1 1 1 1 1]", 2: "[2 2 2]", 3: "[3 3]", 4: "[4 2]", 6: "[6]", 7: "[6]", 100: "[6]"} {
		var got []batch.Batch
		var gotSizes []int
		eventually(t, "all batches are listed", func() bool {
			got, gotSizes = pages(t, p.Batches, want[0].Tenant, limit)
			return len(got) >= len(want)
		})
		if len(got) > len(want) || fmt.Sprint(gotSizes) != sizes {
			t.Fatalf("limit %d: pages of %v, want %s", limit, gotSizes, sizes)
		}
		for i := range want {
			same(t, fmt.Sprintf("limit %d: entry %d", limit, i), got[i], want[i])
		}
	}
	page, more, err := p.Batches.List(t.Context(), want[0].Tenant, want[5].ID, 10)
	if err != nil || more || len(page) != 0 {
		t.Errorf("after the last one: %d batches, more=%v, %v", len(page), more, err)
	}
}

func listEmpty(t T, p BatchesPorts) {
	page, more, err := p.Batches.List(t.Context(), tenant(), "", 20)
	if err != nil || more || len(page) != 0 {
		t.Errorf("%d batches, more=%v, %v", len(page), more, err)
	}
}

func listUnknown(t T, p BatchesPorts) {
	mine, other := begin(t, p.Batches, fullBatch()), begin(t, p.Batches, fullBatch())
	for _, after := range []string{"batch_none", other.ID, "0", "META", awkward} {
		page, more, err := p.Batches.List(t.Context(), mine.Tenant, after, 20)
		refuses(t, fmt.Sprintf("after %q", after), err, batch.ErrNotFound)
		if len(page) != 0 || more {
			t.Errorf("after %q: a page of %d all the same", after, len(page))
		}
	}
}

func listLimits(t T, p BatchesPorts) {
	for _, limit := range []int{-1, 0, 101} {
		if _, _, err := p.Batches.List(t.Context(), tenant(), "", limit); err == nil {
			t.Errorf("a limit of %d is accepted", limit)
		}
	}
}

func reading(t T, p BatchesPorts) {
	ctx, b := t.Context(), fullBatch()
	var ids []string
	for i, file := range []string{"file-a", "file-b", "file-a"} {
		b.ID, b.Input.FileID, b.CreatedAt = "batch_"+unique(), file, at(time.Duration(i)*time.Minute)
		begin(t, p.Batches, b)
		ids = append(ids, b.ID)
	}
	other := fullBatch()
	other.Input.FileID = "file-c"
	begin(t, p.Batches, other)
	finds := func(what, file string, since time.Time, want ...string) {
		t.Helper()
		var got string
		eventually(t, what, func() bool {
			got = value(p.Batches.Reading(ctx, b.Tenant, file, since))(t, what)
			return slices.Contains(want, got)
		})
	}
	finds("either of two", "file-a", at(0), ids[0], ids[2])
	finds("of the same millisecond", "file-b", at(time.Minute), ids[1])
	finds("the newer one only", "file-a", at(time.Millisecond), ids[2])
	finds("none so new", "file-a", at(2*time.Minute+time.Millisecond), "")
	finds("no such file", "file-none", at(0), "")
	finds("no file", "", at(0), "")
	finds("another tenant's", "file-c", at(-time.Hour), "")

	// Running, told to end and being assembled are all alive.
	last := b
	succeeds(t, "start", fault(p.Batches.Start(ctx, last.Tenant, last.ID, batch.Started{Parts: 1, Lines: 1}, at(0))))
	finds("in progress", "file-a", last.CreatedAt, last.ID)
	succeeds(t, "end", fault(p.Endings.End(ctx, last.Tenant, last.ID, batch.Cancelled, at(0))))
	finds("cancelling", "file-a", last.CreatedAt, last.ID)
	tok := token()
	succeeds(t, "finalize", fault(p.Endings.Finalize(ctx, last.Tenant, last.ID, tok, at(time.Hour), at(0), at(0))))
	finds("finalizing", "file-a", last.CreatedAt, last.ID)
	succeeds(t, "close", fault(p.Endings.Close(ctx, last.Tenant, last.ID, tok, batch.Closed{}, at(0))))
	finds("over", "file-a", last.CreatedAt, "")
	finds("the other one still", "file-a", at(0), ids[0])
	succeeds(t, "refuse", fault(p.Batches.Refuse(ctx, b.Tenant, ids[0], reasons(1), at(0))))
	finds("failed", "file-a", at(0), "")
}
