package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

func TestUpload(t *testing.T) {
	h := newHouse(t)
	var f map[string]any
	// Purpose behind the file, as official clients send it.
	h.do(upload(field{"file", "in.jsonl", lines}, field{"purpose", "", "batch"})).ok(&f)
	id := f["id"].(string)
	for k, want := range map[string]any{
		"object": "file", "bytes": float64(len(lines)), "filename": "in.jsonl", "purpose": "batch", "status": "processed",
		"created_at": float64(start.Unix()), "expires_at": float64(start.Add(30 * 24 * time.Hour).Unix()),
	} {
		if f[k] != want {
			t.Errorf("%s is %v, want %v", k, f[k], want)
		}
	}
	if got := h.mem.Objects.Bytes(inputs, "files/acme/"+id); string(got) != lines {
		t.Errorf("stored %q", got)
	}
	stored, err := h.mem.Table.Files.Get(t.Context(), "acme", id)
	if err != nil || stored.Object.ETag == "" || stored.Object.Bytes != int64(len(lines)) {
		t.Errorf("record %+v, %v: the bytes are not pinned", stored, err)
	}
	var again map[string]any
	h.do(call{method: "GET", path: "/v1/files/" + id, as: "acme read"}).ok(&again)
	if fmt.Sprint(again) != fmt.Sprint(f) {
		t.Errorf("read back %v, uploaded %v", again, f)
	}
}

func TestUploadExpires(t *testing.T) {
	h := newHouse(t)
	var f struct {
		ID        string
		ExpiresAt int64 `json:"expires_at"`
	}
	h.do(upload(field{"file", "in.jsonl", lines}, field{"purpose", "", "batch"},
		field{"expires_after[anchor]", "", "created_at"}, field{"expires_after[seconds]", "", "3600"})).ok(&f)
	if f.ExpiresAt != start.Add(time.Hour).Unix() {
		t.Errorf("expires_at %d", f.ExpiresAt)
	}
	h.now = start.Add(time.Hour - time.Second)
	h.do(call{method: "GET", path: "/v1/files/" + f.ID, as: "acme read"}).ok(&f)
	h.now = start.Add(time.Hour)
	h.do(call{method: "GET", path: "/v1/files/" + f.ID, as: "acme read"}).refused(404, "file_not_found", "file_id")
	h.do(call{method: "GET", path: "/v1/files/" + f.ID + "/content", as: "acme read"}).refused(404, "file_not_found", "file_id")
	h.do(createCall(f.ID)).refused(400, "file_not_found", "input_file_id")
}

func TestUploadLimit(t *testing.T) {
	h := newHouse(t)
	fits := strings.Repeat("x", int(h.settings.DirectBytes))
	h.do(upload(field{"file", "in.jsonl", fits}, field{"purpose", "", "batch"})).ok(new(any))
	h.do(upload(field{"file", "in.jsonl", fits + "x"}, field{"purpose", "", "batch"})).refused(413, "file_too_large_for_direct_upload", "file")
	if n := len(h.mem.Objects.Keys(inputs)); n != 1 {
		t.Errorf("%d objects: a refused upload left its bytes", n)
	}
}

func TestRefusedUploadLeavesNothing(t *testing.T) {
	h := newHouse(t)
	file := field{"file", "in.jsonl", lines}
	for _, c := range []struct {
		name   string
		call   call
		status int
		code   string
		param  string
	}{
		{"no purpose", upload(file), 400, "missing_required_parameter", "purpose"},
		{"no file", upload(field{"purpose", "", "batch"}), 400, "missing_required_parameter", "file"},
		{"another purpose", upload(file, field{"purpose", "", "assistants"}), 400, "invalid_purpose", "purpose"},
		{"file twice", upload(file, file, field{"purpose", "", "batch"}), 400, "duplicate_parameter", "file"},
		{"bad expiry", upload(file, field{"purpose", "", "batch"}, field{"expires_after[anchor]", "", "created_at"}, field{"expires_after[seconds]", "", "60"}), 400, "invalid_expires_after", "expires_after"},
		{"JSON", call{method: "POST", path: "/v1/files", as: "acme submit", body: "{}", header: map[string]string{"Content-Type": "application/json"}}, 400, "invalid_multipart", ""},
		{"cut off", func() call { c := upload(file); c.body = c.body[:len(c.body)-30]; return c }(), 400, "invalid_multipart", ""},
		{"nothing", call{method: "POST", path: "/v1/files", as: "acme submit"}, 400, "invalid_multipart", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			h.do(c.call).refused(c.status, c.code, c.param)
			if n := len(h.mem.Objects.Keys(inputs)); n != 0 {
				t.Errorf("%d objects left", n)
			}
			if n := len(h.mem.Table.FilesOf("acme")); n != 0 {
				t.Errorf("%d records left", n)
			}
		})
	}
}

func TestContent(t *testing.T) {
	h := newHouse(t)
	id := h.file()
	for _, method := range []string{"GET", "HEAD"} {
		a := h.do(call{method: method, path: "/v1/files/" + id + "/content", as: "acme read", header: map[string]string{"Accept": "application/binary"}})
		want := "https://objects.example/inputs/files/acme/" + id + "?for=10m0s"
		if a.Code != http.StatusFound || a.Header().Get("Location") != want || a.Header().Get("Cache-Control") != "no-store" || a.Body.Len() != 0 {
			t.Errorf("%s: %d to %q, %v, %d bytes", method, a.Code, a.Header().Get("Location"), a.Header(), a.Body.Len())
		}
	}
}

// The official Go client follows no redirect to another origin: what a reply can
// carry comes in the reply.
func TestContentForGo(t *testing.T) {
	h := newHouse(t)
	id := h.file()
	f, _ := h.mem.Table.Files.Get(t.Context(), "acme", id)
	stored := h.mem.Objects.Bytes(f.Object.Bucket, f.Object.Key)
	get := call{method: "GET", path: "/v1/files/" + id + "/content", as: "acme read", header: map[string]string{"X-Stainless-Lang": "go"}}
	if a := h.do(get); a.Code != http.StatusOK || a.Body.String() != string(stored) || a.Header().Get("Location") != "" {
		t.Errorf("%d, %v, %d bytes, want the %d stored", a.Code, a.Header(), a.Body.Len(), len(stored))
	}
	large := f
	large.ID, large.Object.Bytes = "file-"+strings.Repeat("a", 24), 4<<20+1
	if err := h.mem.Table.Files.Put(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	get.path = "/v1/files/" + large.ID + "/content"
	if a := h.do(get); a.Code != http.StatusFound {
		t.Errorf("a larger one: %d, want a redirect", a.Code)
	}
	get.path, get.header = "/v1/files/"+id+"/content", map[string]string{"X-Stainless-Lang": "python"}
	if a := h.do(get); a.Code != http.StatusFound {
		t.Errorf("another client: %d, want a redirect", a.Code)
	}
	f.ID, f.Object.Key = "file-"+strings.Repeat("b", 24), "files/acme/none"
	if err := h.mem.Table.Files.Put(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	get.path, get.header = "/v1/files/"+f.ID+"/content", map[string]string{"X-Stainless-Lang": "go"}
	h.do(get).refused(404, "file_not_found", "file_id")
}

func TestCreateGetList(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file())
	c.body = c.body[:len(c.body)-1] + `,"metadata":{"k":"v"},"unknown_field":7,"output_expires_after":{"anchor":"created_at","seconds":3600}}`
	var b wireBatch
	h.do(c).ok(&b)
	if b.Status != "validating" || b.Metadata["k"] != "v" || b.OutputFileID != nil || b.CreatedAt != start.Unix() || b.ExpiresAt != start.Add(24*time.Hour).Unix() {
		t.Errorf("created %+v", b)
	}
	stored, _ := h.mem.Table.Batch("acme", b.ID)
	if stored.Submitter != "submit@acme" || stored.RequestID == "" || stored.OutputExpiry != time.Hour {
		t.Errorf("stored %+v: the submitter is the key's principal", stored)
	}

	// A running batch shows the sum over its parts.
	stored.Status, stored.Parts, stored.Lines = batch.InProgress, 2, 7
	h.mem.Table.SeedBatch(stored)
	for n, chunk := range []batch.Chunk{{OK: 2, Err: 1, N: 3}, {OK: 3, N: 3}} {
		h.mem.Table.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: "acme", Batch: b.ID, N: n}, State: batch.Leased, Chunks: []batch.Chunk{chunk}})
	}
	var got wireBatch
	h.do(call{method: "GET", path: "/v1/batches/" + b.ID, as: "acme read"}).ok(&got)
	if n := got.RequestCounts; n.Total != 7 || n.Completed != 5 || n.Failed != 1 {
		t.Errorf("counts %+v", n)
	}
	var page struct{ Data []wireBatch }
	h.do(call{method: "GET", path: "/v1/batches", as: "acme read"}).ok(&page)
	if len(page.Data) != 1 || page.Data[0].RequestCounts != got.RequestCounts {
		t.Errorf("listed %+v", page.Data)
	}
}

func TestListPages(t *testing.T) {
	h := newHouse(t)
	var ids []string
	id := h.file()
	for i := range 6 {
		h.now = start.Add(time.Duration(i) * time.Second)
		var b wireBatch
		h.do(createCall(id)).ok(&b)
		ids = append(ids, b.ID)
	}
	slices.Reverse(ids)
	type list struct {
		Object  string
		Data    []wireBatch
		FirstID *string `json:"first_id"`
		LastID  *string `json:"last_id"`
		HasMore bool    `json:"has_more"`
	}
	var seen []string
	after, pages := "", 0
	for more := true; more; pages++ {
		var l list
		h.do(call{method: "GET", path: "/v1/batches?limit=2&after=" + after, as: "acme read"}).ok(&l)
		if l.Object != "list" || len(l.Data) != 2 || *l.FirstID != l.Data[0].ID || *l.LastID != l.Data[1].ID {
			t.Fatalf("page %d: %+v", pages, l)
		}
		for _, b := range l.Data {
			seen = append(seen, b.ID)
		}
		after, more = *l.LastID, l.HasMore
	}
	if pages != 3 || !slices.Equal(seen, ids) {
		t.Errorf("%d pages of %v, want 3 of %v: newest first, none after an exact multiple", pages, seen, ids)
	}
	var empty list
	h.do(call{method: "GET", path: "/v1/batches", as: "other both"}).ok(&empty)
	if empty.Data == nil || len(empty.Data) != 0 || empty.HasMore || empty.FirstID != nil {
		t.Errorf("another tenant's list: %+v", empty)
	}
}

func TestOtherTenantsIDsAreUnknown(t *testing.T) {
	h := newHouse(t)
	b := h.batch()
	own := call{method: "GET", path: "/v1/batches/" + b.ID, as: "acme both"}
	h.do(own).ok(new(any))
	for _, c := range []struct {
		call  call
		code  string
		param string
	}{
		{call{method: "GET", path: "/v1/batches/" + b.ID}, "batch_not_found", "batch_id"},
		{call{method: "GET", path: "/v1/files/" + b.InputFileID}, "file_not_found", "file_id"},
		{call{method: "GET", path: "/v1/files/" + b.InputFileID + "/content"}, "file_not_found", "file_id"},
	} {
		c.call.as = "other both"
		foreign := h.do(c.call)
		foreign.refused(404, c.code, c.param)
		// And not told apart from what never was.
		c.call.path = strings.NewReplacer(b.ID, "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", b.InputFileID, "file-aaaaaaaaaaaaaaaaaaaaaaaaaa").Replace(c.call.path)
		unknown := h.do(c.call)
		unknown.refused(404, c.code, c.param)
		strip := strings.NewReplacer(b.ID, "ID", b.InputFileID, "ID", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", "ID", "file-aaaaaaaaaaaaaaaaaaaaaaaaaa", "ID")
		if strip.Replace(foreign.Body.String()) != strip.Replace(unknown.Body.String()) {
			t.Errorf("told apart: %s / %s", foreign.Body, unknown.Body)
		}
	}
	create := createCall(b.InputFileID)
	create.as = "other both"
	h.do(create).refused(400, "file_not_found", "input_file_id")
	h.do(call{method: "GET", path: "/v1/batches?after=" + b.ID, as: "other both"}).refused(400, "invalid_cursor", "after")
}
