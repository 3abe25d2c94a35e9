package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

type fileList struct {
	Object  string
	Data    []openai.File
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func (l fileList) ids() (ids []string) {
	for _, f := range l.Data {
		ids = append(ids, f.ID)
	}
	return ids
}

func (h *house) list(query string) fileList {
	h.t.Helper()
	var l fileList
	h.do(call{method: "GET", path: "/v1/files" + query, as: "acme read"}).ok(&l)
	return l
}

func deleteCall(id string) call {
	return call{method: "DELETE", path: "/v1/files/" + id, as: "acme submit"}
}

func (h *house) delete(id string) {
	h.t.Helper()
	var d map[string]any
	h.do(deleteCall(id)).ok(&d)
	if len(d) != 3 || d["id"] != id || d["object"] != "file" || d["deleted"] != true {
		h.t.Errorf("answer to DELETE: %v", d)
	}
}

// six uploads, one a second, newest first.
func (h *house) six() (ids []string) {
	h.t.Helper()
	for i := range 6 {
		h.now = start.Add(time.Duration(i) * time.Second)
		ids = append(ids, h.file())
	}
	slices.Reverse(ids)
	return ids
}

func TestListFiles(t *testing.T) {
	h := newHouse(t)
	ids := h.six()
	all := h.list("")
	if all.Object != "list" || all.HasMore || !slices.Equal(all.ids(), ids) || *all.FirstID != ids[0] || *all.LastID != ids[5] {
		t.Errorf("listed %+v, want %v", all, ids)
	}
	var one openai.File
	h.do(call{method: "GET", path: "/v1/files/" + ids[0], as: "acme read"}).ok(&one)
	if fmt.Sprint(all.Data[0], *all.Data[0].ExpiresAt) != strings.ReplaceAll(fmt.Sprint(one, *one.ExpiresAt), fmt.Sprint(one.ExpiresAt), fmt.Sprint(all.Data[0].ExpiresAt)) {
		t.Errorf("listed %+v, alone it is %+v", all.Data[0], one)
	}
	oldest := slices.Clone(ids)
	slices.Reverse(oldest)
	for order, want := range map[string][]string{"desc": ids, "asc": oldest} {
		var seen []string
		pages := 0
		for after, more := "", true; more; pages++ { // three pages, an exact multiple
			l := h.list("?limit=2&order=" + order + "&after=" + after)
			if len(l.Data) != 2 {
				t.Fatalf("%s: page %d has %d", order, pages, len(l.Data))
			}
			seen = append(seen, l.ids()...)
			after, more = *l.LastID, l.HasMore
		}
		if pages != 3 || !slices.Equal(seen, want) {
			t.Errorf("%s: %d pages of %v, want 3 of %v", order, pages, seen, want)
		}
	}
	output := batch.File{Tenant: "acme", ID: "file-output", Purpose: "batch_output", Filename: "o", CreatedAt: start, ExpiresAt: start.Add(time.Hour)}
	if err := h.mem.Table.Files.Put(t.Context(), output); err != nil {
		t.Fatal(err)
	}
	if got := h.list("?purpose=batch_output").ids(); !slices.Equal(got, []string{"file-output"}) {
		t.Errorf("outputs %v", got)
	}
	if got := h.list("?purpose=batch").ids(); !slices.Equal(got, ids) {
		t.Errorf("inputs %v", got)
	}
	if l := h.list("?purpose=assistants"); l.Data == nil || len(l.Data) != 0 || l.FirstID != nil || l.LastID != nil || l.HasMore {
		t.Errorf("no such purpose: %+v", l)
	}
	// What expired isn't listed, and isn't there.
	h.now = start.Add(time.Hour)
	if l := h.list("?purpose=batch_output"); len(l.Data) != 0 {
		t.Errorf("an expired file is listed: %v", l.ids())
	}
	h.do(deleteCall("file-output")).refused(404, "file_not_found", "file_id")
	var other fileList
	h.do(call{method: "GET", path: "/v1/files", as: "other both"}).ok(&other)
	if other.Data == nil || len(other.Data) != 0 {
		t.Errorf("another tenant lists %v", other.ids())
	}
	for query, want := range map[string][2]string{
		"limit=0": {"invalid_limit", "limit"}, "limit=10001": {"invalid_limit", "limit"}, "limit=1.5": {"invalid_limit", "limit"}, "limit=": {"invalid_limit", "limit"},
		"order=up": {"invalid_order", "order"}, "order=ASC": {"invalid_order", "order"},
		"after=file-none": {"invalid_cursor", "after"}, "after=batch_1": {"invalid_cursor", "after"}, "after=%00": {"invalid_cursor", "after"},
		"after=" + strings.Repeat("x", 300): {"invalid_cursor", "after"},
	} {
		h.do(call{method: "GET", path: "/v1/files?" + query, as: "acme read"}).refused(400, want[0], want[1])
	}
	h.do(call{method: "GET", path: "/v1/files?after=" + ids[0], as: "other both"}).refused(400, "invalid_cursor", "after")
}

// The most files that a list may show, with the longest names there are, fit
// into what a function may answer.
func TestListOfTheLongestNames(t *testing.T) {
	h := newHouse(t)
	const files = 10_000
	f := batch.File{Tenant: "acme", Purpose: "batch", Filename: strings.Repeat(`"`, 255), CreatedAt: start, ExpiresAt: start.Add(time.Hour)}
	for i := range files {
		f.ID = fmt.Sprintf("file-%s%05d", strings.Repeat("a", 21), i)
		if i%2 == 1 {
			f.Filename = strings.Repeat("\x01", 255)
		}
		if err := h.mem.Table.Files.Put(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	pages := 0
	for after, more := "", true; more; pages++ {
		a := h.do(call{method: "GET", path: "/v1/files?after=" + after, as: "acme read"})
		if n := a.Body.Len(); n > 3<<20 {
			t.Fatalf("page of %d bytes", n)
		}
		var l fileList
		a.ok(&l)
		for _, f := range l.Data {
			seen[f.ID] = true
		}
		after, more = *l.LastID, l.HasMore
	}
	if len(seen) != files || pages < 2 {
		t.Errorf("%d files on %d pages", len(seen), pages)
	}
}

func TestDeleteFile(t *testing.T) {
	h := newHouse(t)
	id, other := h.file(), h.file()
	h.do(call{method: "DELETE", path: "/v1/files/" + id, as: "other both"}).refused(404, "file_not_found", "file_id")
	h.do(call{method: "DELETE", path: "/v1/files/" + id, as: "acme read"}).refused(403, "insufficient_permissions", "")
	h.delete(id)
	if keys := h.mem.Objects.Keys(inputs); !slices.Equal(keys, []string{"files/acme/" + other}) {
		t.Errorf("objects %v", keys)
	}
	h.do(call{method: "GET", path: "/v1/files/" + id, as: "acme read"}).refused(404, "file_not_found", "file_id")
	h.do(call{method: "GET", path: "/v1/files/" + id + "/content", as: "acme read"}).refused(404, "file_not_found", "file_id")
	h.do(createCall(id)).refused(400, "file_not_found", "input_file_id")
	h.do(deleteCall(id)).refused(404, "file_not_found", "file_id")
	if got := h.list("").ids(); !slices.Equal(got, []string{other}) {
		t.Errorf("listed %v", got)
	}
	// The file is gone, but a client that got no answer is given the one it missed.
	again := deleteCall(id)
	again.header = map[string]string{"X-Stainless-Retry-Count": "1"}
	h.do(again).ok(new(any))
	again.header["X-Stainless-Retry-Count"] = "0"
	h.do(again).refused(404, "file_not_found", "file_id")
	again = deleteCall("file-none")
	again.header = map[string]string{"X-Stainless-Retry-Count": "2"}
	h.do(again).refused(404, "file_not_found", "file_id")
}

// A client that deletes what it lists finds its next page.
func TestDeleteWhileListing(t *testing.T) {
	h := newHouse(t)
	ids := h.six()
	var seen []string
	for after, more := "", true; more; {
		l := h.list("?limit=2&after=" + after)
		for _, f := range l.Data {
			h.delete(f.ID)
		}
		seen = append(seen, l.ids()...)
		after, more = *l.LastID, l.HasMore
	}
	if !slices.Equal(seen, ids) || len(h.list("").Data) != 0 {
		t.Errorf("deleted %v of %v", seen, ids)
	}
}

func TestDeleteInputOfALiveBatch(t *testing.T) {
	h := newHouse(t)
	b := h.batch()
	stored, _ := h.mem.Table.Batch("acme", b.ID)
	for _, s := range []batch.Batch{
		{Status: batch.Validating}, {Status: batch.InProgress}, {Status: batch.InProgress, Ending: batch.Cancelled},
		{Status: batch.InProgress, Ending: batch.Expired}, {Status: batch.Finalizing, Ending: batch.Completed},
	} {
		stored.Status, stored.Ending = s.Status, s.Ending
		h.mem.Table.SeedBatch(stored)
		a := h.do(deleteCall(b.InputFileID))
		a.refused(400, "file_in_use", "file_id")
		if !strings.Contains(a.Body.String(), b.ID) {
			t.Errorf("doesn't name the batch: %s", a.Body)
		}
	}
	if len(h.mem.Objects.Keys(inputs)) != 1 || len(h.list("").Data) != 1 {
		t.Error("the file in use lost its bytes or its record")
	}
	for _, over := range []batch.Status{batch.Completed, batch.Failed, batch.Expired, batch.Cancelled} {
		h := newHouse(t)
		b := h.batch()
		stored, _ := h.mem.Table.Batch("acme", b.ID)
		stored.Status = over
		h.mem.Table.SeedBatch(stored)
		h.delete(b.InputFileID)
	}
}

func TestDeleteResult(t *testing.T) {
	h := newHouse(t)
	b := h.batch()
	stored, _ := h.mem.Table.Batch("acme", b.ID)
	for _, kind := range []string{batch.OutputFile, batch.ErrorFile} {
		id := batch.ResultFileID(b.ID, kind)
		o, err := h.mem.Objects.Put(t.Context(), batch.Object{Bucket: "results", Key: "acme/out/" + b.ID + "_" + kind + ".jsonl"}, []byte("{}\n"))
		if err == nil {
			err = h.mem.Table.Files.Put(t.Context(), batch.File{Tenant: "acme", ID: id, Purpose: "batch_output", Filename: b.ID + "_" + kind + ".jsonl", Object: o, CreatedAt: start})
		}
		if err != nil {
			t.Fatal(err)
		}
		stored.Status, stored.Ending = batch.Finalizing, batch.Completed
		h.mem.Table.SeedBatch(stored)
		h.do(deleteCall(id)).refused(400, "file_in_use", "file_id")
		stored.Status = batch.Completed
		h.mem.Table.SeedBatch(stored)
		h.delete(id)
	}
	if keys := h.mem.Objects.Keys("results"); len(keys) != 0 {
		t.Errorf("left %v", keys)
	}
	// Its batch may have aged out.
	id := batch.ResultFileID("batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", batch.OutputFile)
	f := batch.File{Tenant: "acme", ID: id, Purpose: "batch_output", Filename: "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa_output.jsonl"}
	if err := h.mem.Table.Files.Put(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	h.delete(id)
}

// Wherever a delete stops, what is left can be deleted by asking again.
func TestDeleteCanBeRepeated(t *testing.T) {
	for _, op := range []string{"Files.Get", "Batches.Reading", "Objects.Delete", "Files.Delete"} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s lost=%v", op, lost), func(t *testing.T) {
				h := newHouse(t)
				id := h.file()
				h.faults = memory.NewFaults()
				if lost {
					h.faults.After(op, 1, memory.Fail(errors.New("torn")))
				} else {
					h.faults.Before(op, 1, memory.Fail(errors.New("torn")))
				}
				h.build()
				h.do(deleteCall(id)).refused(503, "service_unavailable", "")
				again := deleteCall(id)
				again.header = map[string]string{"X-Stainless-Retry-Count": "1"} // as official clients do after a 503
				h.do(again).ok(new(any))
				if n := len(h.mem.Objects.Keys(inputs)) + len(h.mem.Table.FilesOf("acme")); n != 0 {
					t.Errorf("%d things left", n)
				}
			})
		}
	}
}

// Names are data: whatever they hold comes back, and no header is made of it.
func TestFilenames(t *testing.T) {
	h := newHouse(t)
	for _, name := range []string{
		"plain.jsonl", "with blank.jsonl", "é 日本 𝔘 👩‍🚀.jsonl", `"quoted".jsonl`, "semi;colon=1.jsonl", "100%41.jsonl", strings.Repeat("n", 255), strings.Repeat("𝔘", 255),
		"tab\t.jsonl", "rtl\u202egnp.jsonl", "..", "a'b", "*", "{}",
	} {
		var f openai.File
		a := h.do(upload(field{"file", name, lines}, field{"purpose", "", "batch"}))
		a.ok(&f)
		if f.Filename != name {
			t.Errorf("%q came back as %q", name, f.Filename)
		}
		for k, values := range a.Header() {
			if strings.Contains(strings.Join(values, ""), name) && name != "*" {
				t.Errorf("header %s holds the name: %q", k, values)
			}
		}
		h.do(call{method: "GET", path: "/v1/files/" + f.ID, as: "acme read"}).ok(&f)
		if f.Filename != name {
			t.Errorf("%q is read back as %q", name, f.Filename)
		}
		a = h.do(call{method: "GET", path: "/v1/files/" + f.ID + "/content", as: "acme read"})
		if a.Code != http.StatusFound {
			t.Errorf("content of %q: %d", name, a.Code)
		}
	}
	for _, name := range []string{strings.Repeat("n", 256), strings.Repeat("n", 1000), "bad\xff.jsonl"} {
		h.do(upload(field{"file", name, lines}, field{"purpose", "", "batch"})).refused(400, "invalid_filename", "filename")
	}
	for _, name := range []string{"del\x7f.jsonl", "nul\x00.jsonl", "esc\x1b.jsonl"} { // no header may hold these
		h.do(upload(field{"file", name, lines}, field{"purpose", "", "batch"})).refused(400, "invalid_multipart", "")
	}
}
