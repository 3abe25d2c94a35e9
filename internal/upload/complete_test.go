package upload_test

import (
	"bytes"
	"slices"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// The parts of a direct upload are pinned: bytes that changed under their key
// are not joined.
func TestJoinIsPinned(t *testing.T) {
	w := newWorld(t)
	data := random(two)
	u := w.create(two)
	a, b := w.add(u, data[:1000]), w.add(u, data[1000:])
	key := "uploads/acme/" + u.ID + "/" + b
	if !slices.Contains(w.mem.Objects.Keys(bucket), key) {
		t.Fatalf("no %s", key)
	}
	if _, err := w.mem.Objects.Put(t.Context(), batch.Object{Bucket: bucket, Key: key}, bytes.Repeat([]byte("x"), two-1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.complete(u, "", a, b); err == nil {
		t.Error("other bytes became part of the file")
	}
	if open := w.mem.Objects.OpenUploads(); len(open) > 0 {
		t.Errorf("multipart uploads %v are open", open)
	}
}

// Completing again holds an md5 against the file, whether or not the first
// completion brought one, and wherever it got to.
func TestCompleteAgainWithMD5(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, crash := range []string{"", "Files.Put"} {
			each(t, func(t *testing.T, w *world, send sender) {
				data := random(two)
				u := w.create(two)
				c := openai.CompleteUpload{PartIDs: send(w, u, data)}
				if first {
					c.MD5 = sum(data)
				}
				f := memory.NewFaults()
				if crash != "" {
					f.Before(crash, 1, f.Crash)
				}
				if _, err := w.process(f).Complete(t.Context(), "acme", u.ID, c, w.now); (err == nil) != (crash == "") {
					t.Fatal(err)
				}
				_, err := w.complete(u, sum(nil), c.PartIDs...)
				w.refused("wrong md5", err, "md5_mismatch")
				for _, md5 := range []string{sum(data), ""} {
					if _, err := w.complete(u, md5, c.PartIDs...); err != nil {
						t.Fatal(err)
					}
				}
				w.is(u, data)
			})
		}
	}
}

// Presigned parts whose md5 nobody asked for: once the bytes are gone, none can
// be verified.
func TestCompleteAgainWithMD5OfNothing(t *testing.T) {
	w := newWorld(t)
	data := random(10)
	u := w.create(10)
	id := w.put(u, 1, data)
	got, err := w.complete(u, "", id)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.mem.Objects.Delete(t.Context(), bucket, []string{got.Object.Key}); err != nil {
		t.Fatal(err)
	}
	_, err = w.complete(u, sum(data), id)
	w.refused("md5 of a file that is gone", err, "md5_unsupported")
	if _, err := w.complete(u, "", id); err != nil {
		t.Error(err)
	}
}
