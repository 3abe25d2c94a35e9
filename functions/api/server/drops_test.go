package server_test

import (
	"slices"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// drop is the file of an object that somebody put into the inputs bucket.
func (h *house) drop(key string) batch.File {
	h.t.Helper()
	o, err := h.mem.Objects.Put(h.t.Context(), batch.Object{Bucket: inputs, Key: key}, []byte("{}\n"))
	if err != nil {
		h.t.Fatal(err)
	}
	f := batch.File{Tenant: "acme", Purpose: "batch", Filename: "k.jsonl", Object: o, CreatedAt: start,
		ID: bridge.Object{Bucket: inputs, Key: key, ETag: o.ETag}.FileID("acme")}
	if err := h.mem.Table.Files.Put(h.t.Context(), f); err != nil {
		h.t.Fatal(err)
	}
	return f
}

// The file of a drop is one like others, but its bytes are their owner's: deleting
// the file leaves them.
func TestFileOfADrop(t *testing.T) {
	h := newHouse(t)
	f := h.drop("in/acme/k.jsonl")
	if got := h.list("").ids(); !slices.Equal(got, []string{f.ID}) {
		t.Errorf("listed %v", got)
	}
	c := call{method: "GET", path: "/v1/files/" + f.ID + "/content", as: "acme read"}
	if a := h.do(c); a.Code != 302 {
		t.Errorf("content: %d", a.Code)
	}
	c.header = map[string]string{"X-Stainless-Lang": "go"}
	if a := h.do(c); a.Code != 200 || a.Body.String() != "{}\n" {
		t.Errorf("content: %d %q", a.Code, a.Body)
	}
	h.delete(f.ID)
	if keys := h.mem.Objects.Keys(inputs); !slices.Equal(keys, []string{f.Object.Key}) {
		t.Errorf("objects %v", keys)
	}
	h.do(call{method: "GET", path: "/v1/files/" + f.ID, as: "acme read"}).refused(404, "file_not_found", "file_id")
	h.do(createCall(f.ID)).refused(400, "file_not_found", "input_file_id")
}

// A batch that reads a drop holds its file like any other.
func TestDropOfALiveBatch(t *testing.T) {
	h := newHouse(t)
	f := h.drop("in/acme/k.jsonl")
	h.do(createCall(f.ID)).id()
	h.do(deleteCall(f.ID)).refused(400, "file_in_use", "file_id")
}
