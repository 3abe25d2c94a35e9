package upload_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/memory"
	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

const two = upload.LeastPiece + 1000 // bytes that make two parts, the second one small

type sender = func(*world, upload.Upload, []byte) []string

func TestComplete(t *testing.T) {
	each(t, func(t *testing.T, w *world, send sender) {
		data := random(2*upload.LeastPiece + 7)
		u := w.create(len(data))
		if u.Status != upload.Pending || !upload.ValidID(u.ID) || u.ExpiresAt.Sub(u.CreatedAt) != 24*time.Hour {
			t.Errorf("created %+v", u)
		}
		ids := send(w, u, data)
		shown := w.get(u)
		if shown.Status != "pending" || shown.File != nil || shown.Parts == nil || len(*shown.Parts) != 3 {
			t.Errorf("shown as %+v", shown)
		}
		first, err := w.complete(u, sum(data), ids...)
		if err != nil {
			t.Fatal(err)
		}
		w.is(u, data)
		// Again, later, and without the md5: the same answer.
		w.now = w.now.Add(48 * time.Hour)
		again, err := w.complete(u, "", ids...)
		if err != nil || again.Ver != first.Ver || again.Object != first.Object {
			t.Errorf("again %+v, %v; first %+v", again, err, first)
		}
		w.is(u, data)
	})
}

// Parts arrive in parallel and in any order; part_ids say how they belong.
func TestPartsInParallelAndOutOfOrder(t *testing.T) {
	w := newWorld(t)
	data := random(1000)
	u := w.create(len(data))
	ids := make([]string, 10)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[9-i] = w.add(u, data[(9-i)*100:(10-i)*100]) })
	}
	wg.Wait()
	if _, err := w.complete(u, sum(data), ids...); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
}

// A part that was sent twice has two ids: the one that is named counts, and the
// other leaves nothing behind. Presigned, it has one number and the last counts.
func TestPartSentTwice(t *testing.T) {
	w := newWorld(t)
	data := random(100)
	u := w.create(100)
	w.add(u, data)
	if _, err := w.complete(u, sum(data), w.add(u, data)); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)

	w = newWorld(t)
	u = w.create(100)
	w.put(u, 1, random(50))
	if _, err := w.complete(u, sum(data), w.put(u, 1, data)); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
}

// Parts of the way not taken are dropped.
func TestOtherWaysPartsAreDropped(t *testing.T) {
	data := random(100)
	w := newWorld(t)
	u := w.create(100)
	direct := w.add(u, data)
	w.put(u, 1, data)
	if _, err := w.complete(u, "", direct); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
	w = newWorld(t)
	u = w.create(100)
	w.add(u, data)
	if _, err := w.complete(u, "", w.put(u, 1, data)); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
}

func TestCompleteRefusals(t *testing.T) {
	each(t, func(t *testing.T, w *world, send sender) {
		data := random(two)
		u := w.create(two)
		ids := send(w, u, data)
		other := w.create(two)
		foreign := send(w, other, data)
		for _, c := range []struct {
			name, md5, code string
			ids             []string
		}{
			{"unknown part", "", "invalid_part_id", []string{ids[0], "part_nobodys"}},
			{"a number that never came", "", "invalid_part_id", []string{u.PieceID(9)}},
			{"not quite a number", "", "invalid_part_id", []string{u.PieceID(1) + "0"}},
			{"another upload's part", "", "invalid_part_id", foreign},
			{"twice the same", "", "duplicate_part_id", []string{ids[0], ids[0]}},
			{"a part too few", "", "bytes_mismatch", ids[1:]},
		} {
			_, err := w.complete(u, c.md5, c.ids...)
			w.refused(c.name, err, c.code)
			if got := w.get(u); got.Status != "pending" || len(*got.Parts) != 2 {
				t.Errorf("%s: left %+v", c.name, got)
			}
		}
		// The md5 is wrong, then right.
		_, err := w.complete(u, sum(nil), ids...)
		w.refused("wrong md5", err, "md5_mismatch")
		if len(w.mem.Table.FilesOf("acme")) > 0 {
			t.Error("a file was made all the same")
		}
		if _, err := w.complete(u, sum(data), ids...); err != nil {
			t.Fatal(err)
		}
		_, err = w.complete(u, "", ids[1], ids[0])
		w.refused("completed, from others", err, "upload_completed")
		_, err = w.process(nil).Pending(t.Context(), "acme", u.ID, w.now)
		w.refused("add after complete", err, "upload_completed")
		_, err = w.process(nil).URLs(t.Context(), "acme", u.ID, []int{1}, w.now)
		w.refused("URLs after complete", err, "upload_completed")
		_, err = w.process(nil).Cancel(t.Context(), "acme", u.ID, w.now)
		w.refused("cancel after complete", err, "upload_completed")
	})
}

// Wrong order, found by the md5, can be put right: nothing was used up.
func TestDirectPartsInWrongOrder(t *testing.T) {
	w := newWorld(t)
	data := random(200)
	u := w.create(200)
	a, b := w.add(u, data[:100]), w.add(u, data[100:])
	_, err := w.complete(u, sum(data), b, a)
	w.refused("wrong order", err, "md5_mismatch")
	if _, err := w.complete(u, sum(data), a, b); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
}

func TestPresignedRefusals(t *testing.T) {
	w := newWorld(t)
	data := random(two)
	u := w.create(two)
	small, large := w.put(u, 1, data[upload.LeastPiece:]), w.put(u, 2, data[:upload.LeastPiece])
	_, err := w.complete(u, "", large, small)
	w.refused("out of order", err, "invalid_part_order")
	_, err = w.complete(u, "", small, large)
	w.refused("small, not the last", err, "part_too_small")
	_, err = w.complete(u, "", small, w.add(u, data))
	w.refused("mixed", err, "mixed_parts")
	_, err = w.process(nil).URLs(t.Context(), "acme", u.ID, []int{3}, w.now)
	w.refused("more parts than there can be", err, "invalid_part_number")
	big := w.create(upload.MaxMD5 + 1)
	_, err = w.complete(big, sum(data), w.put(big, 1, data))
	w.refused("md5 over too much", err, "md5_unsupported")
	_, _, err = w.process(nil).Add(t.Context(), big, data, w.now)
	w.refused("direct part of something large", err, "upload_too_large_for_direct_parts")
	// What was wrong in the meantime can be put right by sending a part again.
	w.put(u, 1, data[:upload.LeastPiece])
	w.put(u, 2, data[upload.LeastPiece:])
	if _, err := w.complete(u, sum(data), small, large); err != nil {
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, w *world, send sender) {
		u := w.create(two)
		ids := send(w, u, random(two))
		for range 2 {
			got, err := w.process(nil).Cancel(t.Context(), "acme", u.ID, w.now)
			if err != nil || upload.ToWire(got, w.now).Status != "cancelled" {
				t.Fatalf("cancelled %+v, %v", got, err)
			}
			w.left()
		}
		_, err := w.complete(u, "", ids...)
		w.refused("complete", err, "upload_cancelled")
		_, err = w.process(nil).Pending(t.Context(), "acme", u.ID, w.now)
		w.refused("add", err, "upload_cancelled")
		_, _, err = w.process(nil).Add(t.Context(), u, []byte("late"), w.now) // its check came before the cancel
		w.refused("add, late", err, "upload_cancelled")
		_, err = w.process(nil).URLs(t.Context(), "acme", u.ID, []int{1}, w.now)
		w.refused("URLs", err, "upload_cancelled")
		if got := w.get(u); got.Status != "cancelled" || got.File != nil {
			t.Errorf("shown as %+v", got)
		}
		w.left()
	})
}

// A presigned upload whose md5 was wrong has used its parts up; it can still be
// cancelled, and leaves nothing.
func TestCancelAfterWrongMD5(t *testing.T) {
	w := newWorld(t)
	u := w.create(10)
	id := w.put(u, 1, random(10))
	_, err := w.complete(u, sum(nil), id)
	w.refused("md5", err, "md5_mismatch")
	_, err = w.complete(u, "", u.PieceID(2))
	w.refused("other parts meanwhile", err, "upload_completing")
	_, err = w.process(nil).URLs(t.Context(), "acme", u.ID, []int{1}, w.now)
	w.refused("URLs meanwhile", err, "upload_completing")
	if got := w.get(u); got.Status != "pending" {
		t.Errorf("shown as %+v", got)
	}
	if _, err := w.process(nil).Cancel(t.Context(), "acme", u.ID, w.now); err != nil {
		t.Fatal(err)
	}
	w.left()
}

func TestExpired(t *testing.T) {
	each(t, func(t *testing.T, w *world, send sender) {
		u := w.create(two)
		ids := send(w, u, random(two))
		w.now = u.ExpiresAt
		_, err := w.complete(u, "", ids...)
		w.refused("complete", err, "upload_expired")
		_, err = w.process(nil).Pending(t.Context(), "acme", u.ID, w.now)
		w.refused("add", err, "upload_expired")
		_, err = w.process(nil).URLs(t.Context(), "acme", u.ID, []int{1}, w.now)
		w.refused("URLs", err, "upload_expired")
		_, err = w.process(nil).Cancel(t.Context(), "acme", u.ID, w.now)
		w.refused("cancel", err, "upload_expired")
		if got := w.get(u); got.Status != "expired" || got.File != nil || got.Parts != nil {
			t.Errorf("shown as %+v", got)
		}
	})
}

// What was completing in time may be completed a little later.
func TestCompletingOutlivesExpiry(t *testing.T) {
	w := newWorld(t)
	data := random(10)
	u := w.create(10)
	id := w.put(u, 1, data)
	f := memory.NewFaults()
	f.After("Uploads.Complete", 1, f.Crash)
	if _, err := w.process(f).Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: []string{id}}, w.now); err == nil {
		t.Fatal("a crashed process answers")
	}
	w.now = u.ExpiresAt.Add(upload.Grace)
	_, err := w.complete(u, "", id)
	w.refused("too late", err, "upload_expired")
	w.now = w.now.Add(-time.Second)
	if _, err := w.complete(u, "", id); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
}

// Unknown, malformed and foreign ids are one.
func TestUnknown(t *testing.T) {
	w := newWorld(t)
	u := w.create(10)
	id := w.add(u, random(10))
	s := w.process(nil)
	for _, c := range []struct{ tenant, id string }{
		{"other", u.ID}, {"acme", upload.NewID()}, {"acme", ""}, {"acme", "upload_../../etc"}, {"acme", u.ID + "x"}, {"acme", strings.ToUpper(u.ID)},
	} {
		_, err := s.Get(t.Context(), c.tenant, c.id, w.now)
		w.refused("get", err, "upload_not_found")
		_, err = s.Pending(t.Context(), c.tenant, c.id, w.now)
		w.refused("add", err, "upload_not_found")
		_, err = s.URLs(t.Context(), c.tenant, c.id, []int{1}, w.now)
		w.refused("URLs", err, "upload_not_found")
		_, err = s.Complete(t.Context(), c.tenant, c.id, openai.CompleteUpload{PartIDs: []string{id}}, w.now)
		w.refused("complete", err, "upload_not_found")
		_, err = s.Cancel(t.Context(), c.tenant, c.id, w.now)
		w.refused("cancel", err, "upload_not_found")
	}
}

func TestFileExpiry(t *testing.T) {
	w := newWorld(t)
	u, err := w.process(nil).Create(t.Context(), "acme", openai.CreateUpload{Filename: "f", Purpose: "batch", Bytes: 1, ExpiresAfter: &openai.ExpiresAfter{Seconds: 3600}}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour)
	got, err := w.complete(u, "", w.add(u, []byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	if f := got.File(); !f.CreatedAt.Equal(w.now.Truncate(time.Millisecond)) || f.ExpiresAt.Sub(f.CreatedAt) != time.Hour {
		t.Errorf("file %+v", f)
	}
}

func TestURLs(t *testing.T) {
	w := newWorld(t)
	u := w.create(4 * upload.LeastPiece)
	w.now = u.ExpiresAt.Add(-time.Minute)
	urls, err := w.process(nil).URLs(t.Context(), "acme", u.ID, []int{4, 1}, w.now)
	if err != nil || len(urls) != 2 || urls[0].Number != 4 || urls[1].ID != u.PieceID(1) || urls[0].ExpiresAt != u.ExpiresAt.Unix() {
		t.Errorf("%+v, %v", urls, err)
	}
	if !strings.Contains(urls[0].URL, "ttl=1m0s") {
		t.Errorf("a URL outlives its upload: %s", urls[0].URL)
	}
}

func TestOptions(t *testing.T) {
	if _, err := upload.New(upload.Ports{}, bucket, &upload.Options{PieceBytes: 1 << 20}); err == nil {
		t.Error("pieces that the store refuses")
	}
	if _, err := upload.New(upload.Ports{}, "", nil); err == nil {
		t.Error("no bucket")
	}
}
