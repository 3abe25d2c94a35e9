package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/batch"
)

var fileListCases = []Case[batch.Files]{
	{"list/either way round, in pages of any size", fileListPages},
	{"list/a tenant without files", fileListEmpty},
	{"list/by purpose", fileListPurpose},
	{"list/what expired is left out and is still a cursor", fileListExpired},
	{"list/what was deleted is left out and is still a cursor", fileListDeleted},
	{"list/a cursor that is no file of the tenant's", fileListUnknown},
	{"list/more than one answer of the store", fileListMany},
	{"list/limits", fileListLimits},
}

// putFiles stores n files of a new tenant, in no order, two of them in the same
// millisecond, and gives them newest first.
func putFiles(t T, s batch.Files) []batch.File {
	t.Helper()
	who, run := tenant(), unique()
	all := make([]batch.File, 6)
	for _, i := range []int{5, 0, 3, 1, 4, 2} {
		f := fullFile()
		f.Tenant, f.ID = who, "file-"+run+string("bedcfa"[i])
		f.CreatedAt = at(-time.Duration(i) * time.Second)
		if i == 3 { // the millisecond of 2, whose id is higher
			f.CreatedAt = at(-2*time.Second - 100*time.Microsecond)
		}
		succeeds(t, "put", s.Put(t.Context(), f))
		all[i] = f
	}
	other := fullFile()
	other.Tenant = who + "-"
	succeeds(t, "put another tenant's", s.Put(t.Context(), other))
	return all
}

// filePages reads a whole list, page by page.
func filePages(t T, s batch.Files, who string, q batch.FileQuery, now time.Time) (ids []string, sizes []int, all []batch.File) {
	t.Helper()
	for {
		page, more, err := s.List(t.Context(), who, q, now)
		succeeds(t, fmt.Sprintf("list after %q", q.After), err)
		if len(page) > q.Limit {
			t.Errorf("a page of %d, limit %d", len(page), q.Limit)
		}
		if more && len(page) == 0 {
			t.Fatalf("an empty page that says there are more")
		}
		for _, f := range page {
			ids = append(ids, f.ID)
		}
		all, sizes = append(all, page...), append(sizes, len(page))
		if !more {
			return ids, sizes, all
		}
		q.After = page[len(page)-1].ID
	}
}

func idsOf(files []batch.File) (ids []string) {
	for _, f := range files {
		ids = append(ids, f.ID)
	}
	return ids
}

// lists waits until the list is want: it is eventually consistent.
func lists(t T, s batch.Files, who string, q batch.FileQuery, now time.Time, want []string) {
	t.Helper()
	var got []string
	eventually(t, fmt.Sprintf("%+v lists %d files", q, len(want)), func() bool {
		got, _, _ = filePages(t, s, who, q, now)
		return len(got) == len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("%+v lists\n     %v\nwant %v", q, got, want)
	}
}

func fileListPages(t T, s batch.Files) {
	newest := putFiles(t, s)
	oldest := slices.Clone(newest)
	slices.Reverse(oldest)
	for limit, sizes := range map[int]string{1: "[1 1 1 1 1 1]", 2: "[2 2 2]", 3: "[3 3]", 4: "[4 2]", 6: "[6]", 7: "[6]", 10_000: "[6]"} {
		for ascending, want := range map[bool][]batch.File{false: newest, true: oldest} {
			q := batch.FileQuery{Limit: limit, Ascending: ascending}
			lists(t, s, want[0].Tenant, q, at(0), idsOf(want))
			_, gotSizes, got := filePages(t, s, want[0].Tenant, q, at(0))
			if fmt.Sprint(gotSizes) != sizes {
				t.Fatalf("%+v: pages of %v, want %s", q, gotSizes, sizes)
			}
			for i := range want {
				same(t, fmt.Sprintf("%+v: entry %d", q, i), got[i], want[i])
			}
			q.After = want[5].ID
			if page, more, err := s.List(t.Context(), want[0].Tenant, q, at(0)); err != nil || more || len(page) != 0 {
				t.Errorf("%+v, after the last one: %d files, more=%v, %v", q, len(page), more, err)
			}
		}
	}
}

func fileListEmpty(t T, s batch.Files) {
	page, more, err := s.List(t.Context(), tenant(), batch.FileQuery{Limit: 20}, at(0))
	if err != nil || more || len(page) != 0 {
		t.Errorf("%d files, more=%v, %v", len(page), more, err)
	}
}

func fileListPurpose(t T, s batch.Files) {
	f := fullFile()
	var inputs, outputs []string
	for i := range 7 {
		f.ID, f.Purpose, f.CreatedAt = fmt.Sprintf("file-%d", i), "batch", at(time.Duration(i)*time.Second)
		if i%3 == 1 {
			f.Purpose = "batch_output"
			outputs = append(outputs, f.ID)
		} else {
			inputs = append(inputs, f.ID)
		}
		succeeds(t, "put", s.Put(t.Context(), f))
	}
	lists(t, s, f.Tenant, batch.FileQuery{Purpose: "batch", Limit: 2, Ascending: true}, at(0), inputs)
	lists(t, s, f.Tenant, batch.FileQuery{Purpose: "batch_output", Limit: 1, Ascending: true}, at(0), outputs)
	lists(t, s, f.Tenant, batch.FileQuery{Purpose: "batch_", Limit: 1, Ascending: true}, at(0), nil)
	lists(t, s, f.Tenant, batch.FileQuery{Purpose: awkward, Limit: 100}, at(0), nil)
	// A cursor of another purpose only says from where.
	lists(t, s, f.Tenant, batch.FileQuery{Purpose: "batch", Limit: 1, Ascending: true, After: outputs[0]}, at(0), inputs[1:])
}

func fileListExpired(t T, s batch.Files) {
	all := putFiles(t, s) // newest first; all live 30 days from at(0)
	short := all[2]
	short.ID, short.ExpiresAt = short.ID+"short", at(time.Hour)
	never := all[2]
	never.ID, never.ExpiresAt = never.ID+"tever", time.Time{} // sorts behind "short", in the same millisecond
	succeeds(t, "put", s.Put(t.Context(), short))
	succeeds(t, "put", s.Put(t.Context(), never))
	with := slices.Insert(idsOf(all), 2, never.ID, short.ID)
	lists(t, s, short.Tenant, batch.FileQuery{Limit: 3}, stored(at(time.Hour)).Add(-time.Millisecond), with)
	without := slices.Delete(slices.Clone(with), 3, 4)
	lists(t, s, short.Tenant, batch.FileQuery{Limit: 3}, at(time.Hour), without)
	lists(t, s, short.Tenant, batch.FileQuery{Limit: 3, After: short.ID}, at(time.Hour), without[3:])
	lists(t, s, short.Tenant, batch.FileQuery{Limit: 3}, at(365*24*time.Hour), []string{never.ID})
}

func fileListDeleted(t T, s batch.Files) {
	all := putFiles(t, s)
	ids := idsOf(all)
	succeeds(t, "delete", s.Delete(t.Context(), all[0].Tenant, ids[2], at(0)))
	lists(t, s, all[0].Tenant, batch.FileQuery{Limit: 2}, at(0), slices.Concat(ids[:2], ids[3:]))
	lists(t, s, all[0].Tenant, batch.FileQuery{Limit: 2, After: ids[2]}, at(0), ids[3:])
	lists(t, s, all[0].Tenant, batch.FileQuery{Limit: 2, After: ids[2], Ascending: true}, at(0), []string{ids[1], ids[0]})
	// As a client does it that deletes page by page.
	q := batch.FileQuery{Limit: 2}
	for more := true; more; {
		var page []batch.File
		var err error
		page, more, err = s.List(t.Context(), all[0].Tenant, q, at(0))
		succeeds(t, "list", err)
		for _, f := range page {
			succeeds(t, "delete", s.Delete(t.Context(), f.Tenant, f.ID, at(0)))
			q.After = f.ID
		}
	}
	lists(t, s, all[0].Tenant, batch.FileQuery{Limit: 2}, at(0), nil)
}

func fileListUnknown(t T, s batch.Files) {
	mine, other := fullFile(), fullFile()
	succeeds(t, "put", s.Put(t.Context(), mine))
	succeeds(t, "put", s.Put(t.Context(), other))
	for _, after := range []string{"file-none", other.ID, "0", awkward} {
		page, more, err := s.List(t.Context(), mine.Tenant, batch.FileQuery{Limit: 20, After: after}, at(0))
		refuses(t, fmt.Sprintf("after %q", after), err, batch.ErrNotFound)
		if len(page) != 0 || more {
			t.Errorf("after %q: a page of %d all the same", after, len(page))
		}
	}
}

// fileListMany has more files of one purpose before one of another than a store
// may look at in one go.
func fileListMany(t T, s batch.Files) {
	f := fullFile()
	f.Filename, f.Object = "in.jsonl", batch.Object{}
	const many = 620
	errs := race(8, func(worker int) error {
		for i := worker; i < many; i += 8 {
			mine := f
			mine.ID, mine.CreatedAt = fmt.Sprintf("file-%05d", i), at(time.Duration(i)*time.Millisecond)
			if i == 3 || i == many-1 {
				mine.Purpose = "batch"
			}
			if err := s.Put(t.Context(), mine); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		succeeds(t, "put", err)
	}
	lists(t, s, f.Tenant, batch.FileQuery{Purpose: "batch", Limit: 1}, at(0), []string{fmt.Sprintf("file-%05d", many-1), "file-00003"})
	_, sizes, _ := filePages(t, s, f.Tenant, batch.FileQuery{Limit: 600}, at(0))
	if fmt.Sprint(sizes) != "[600 20]" {
		t.Errorf("pages of %v", sizes)
	}
}

func fileListLimits(t T, s batch.Files) {
	for _, limit := range []int{-1, 0, 10_001} {
		if _, _, err := s.List(t.Context(), tenant(), batch.FileQuery{Limit: limit}, at(0)); err == nil {
			t.Errorf("a limit of %d is accepted", limit)
		}
	}
}

var fileDeleteCases = []Case[batch.Files]{
	{"delete/once, and its id stays taken", fileDelete},
	{"delete/unknown and foreign", fileDeleteUnknown},
	{"delete/one of many deletes it", fileDeleteRace},
}

func fileDelete(t T, s batch.Files) {
	f := fullFile()
	succeeds(t, "put", s.Put(t.Context(), f))
	succeeds(t, "delete", s.Delete(t.Context(), f.Tenant, f.ID, at(0)))
	refuses(t, "get", fault(s.Get(t.Context(), f.Tenant, f.ID)), batch.ErrDeleted)
	refuses(t, "get", fault(s.Get(t.Context(), f.Tenant, f.ID)), batch.ErrNotFound)
	refuses(t, "delete again", s.Delete(t.Context(), f.Tenant, f.ID, at(time.Second)), batch.ErrDeleted)
	refuses(t, "put it back", s.Put(t.Context(), f), batch.ErrExists)
	refuses(t, "get", fault(s.Get(t.Context(), f.Tenant, f.ID)), batch.ErrDeleted)
}

func fileDeleteUnknown(t T, s batch.Files) {
	f, foreign := fullFile(), tenant()
	succeeds(t, "put", s.Put(t.Context(), f))
	for what, err := range map[string]error{
		"unknown":          s.Delete(t.Context(), f.Tenant, "file-none", at(0)),
		"no id":            s.Delete(t.Context(), f.Tenant, "", at(0)),
		"another tenant's": s.Delete(t.Context(), foreign, f.ID, at(0)),
	} {
		refuses(t, what, err, batch.ErrNotFound)
		if err == nil || errors.Is(err, batch.ErrDeleted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	same(t, "stored", lookFile(t, s, f), f)
	// Nothing was written where there was nothing.
	f.ID = "file-none"
	succeeds(t, "put", s.Put(t.Context(), f))
	same(t, "stored", lookFile(t, s, f), f)
}

func fileDeleteRace(t T, s batch.Files) {
	f := fullFile()
	succeeds(t, "put", s.Put(t.Context(), f))
	winner(t, race(racers, func(int) error { return s.Delete(t.Context(), f.Tenant, f.ID, at(0)) }), batch.ErrDeleted)
	refuses(t, "get", fault(s.Get(t.Context(), f.Tenant, f.ID)), batch.ErrDeleted)
}
