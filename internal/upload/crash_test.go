package upload_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/memory"
	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

// sweep removes what a crash may leave because a lifecycle rule takes it: an
// object of a completion that didn't count, or a multipart upload nobody knows.
func (w *world) sweep() {
	ctx := w.t.Context()
	kept := map[string]bool{}
	for _, f := range w.mem.Table.FilesOf("acme") {
		kept[f.Object.Key] = true
	}
	for _, key := range w.mem.Objects.Keys(bucket) {
		if !kept[key] {
			if !strings.HasPrefix(key, "files/acme/") && !strings.HasPrefix(key, "uploads/acme/") {
				w.t.Errorf("no lifecycle rule expires %s", key)
			}
			_ = w.mem.Objects.Delete(ctx, bucket, []string{key})
		}
	}
	// Multipart uploads are aborted after some days, whatever they are of.
	for _, id := range w.mem.Objects.OpenUploads() {
		w.mem.Objects.Drop(id)
	}
}

// TestCompleteCrashes ends the process at every call of a port, before and after
// it took effect, and completes again.
func TestCompleteCrashes(t *testing.T) {
	each(t, func(t *testing.T, _ *world, send sender) {
		data := random(two)
		run := func(t *testing.T, f *memory.Faults) (*world, upload.Upload, []string, error) {
			w := newWorld(t)
			u := w.create(two)
			ids := send(w, u, data)
			_, err := w.process(f).Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: ids, MD5: sum(data)}, w.now)
			return w, u, ids, err
		}
		clean := memory.NewFaults()
		w, u, _, err := run(t, clean)
		if err != nil {
			t.Fatal(err)
		}
		w.is(u, data)
		if n := len(clean.Calls()); n < 7 {
			t.Fatalf("only %d calls", n)
		}
		for _, p := range clean.Calls() {
			for _, when := range []string{"before", "after"} {
				t.Run(fmt.Sprintf("%s %s", when, p), func(t *testing.T) {
					f := memory.NewFaults()
					if when == "before" {
						f.Before(p.Op, p.N, f.Crash)
					} else {
						f.After(p.Op, p.N, f.Crash)
					}
					w, u, ids, err := run(t, f)
					if !errors.Is(err, memory.ErrCrashed) {
						t.Fatalf("the crashed process says %v", err)
					}
					if got := w.get(u); got.Status == openai.UploadCompleted && len(w.mem.Table.FilesOf("acme")) == 0 {
						t.Error("completed without a file")
					}
					got, err := w.complete(u, sum(data), ids...)
					if err != nil || got.Status != upload.Completed {
						t.Fatalf("completed again: %+v, %v", got, err)
					}
					w.sweep()
					w.is(u, data)
				})
			}
		}
	})
}

// A lost answer, without a crash: the same process goes on, or its client asks
// again; either way there is one file.
func TestCompleteLostAnswers(t *testing.T) {
	each(t, func(t *testing.T, _ *world, send sender) {
		data := random(two)
		clean := memory.NewFaults()
		for step := 0; ; step++ {
			w := newWorld(t)
			u := w.create(two)
			ids := send(w, u, data)
			f := memory.NewFaults()
			if step > 0 {
				if step > len(clean.Calls()) {
					return
				}
				p := clean.Calls()[step-1]
				f.After(p.Op, p.N, memory.Fail(nil))
			} else {
				f = clean
			}
			s := w.process(f)
			_, err := s.Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: ids}, w.now)
			if err != nil {
				if _, err = s.Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: ids}, w.now); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
			w.sweep()
			w.is(u, data)
		}
	})
}

// Two completions at once, the first held up at each of its calls while the
// second runs whole: one file, and both are told of it.
func TestTwoCompletionsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, _ *world, send sender) {
		data := random(two)
		for n := 1; n < 20; n++ {
			w := newWorld(t)
			u := w.create(two)
			ids := send(w, u, data)
			f, gate := memory.NewFaults(), memory.NewGate()
			f.Before("", n, gate.Wait)
			var first upload.Upload
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				first, err = w.process(f).Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: ids}, w.now)
			}()
			select {
			case <-gate.Reached():
			case <-done: // it makes fewer calls than n
				if n < 7 {
					t.Fatalf("only %d calls", n)
				}
				return
			}
			second, err2 := w.complete(u, sum(data), ids...)
			gate.Open()
			<-done
			if err != nil || err2 != nil || first.Object != second.Object {
				t.Fatalf("held at call %d: %v, %v; %+v and %+v", n, err, err2, first.Object, second.Object)
			}
			w.is(u, data)
		}
	})
}

// A cancel at each call of a completion: one of them has its way, wholly.
func TestCancelMeetsComplete(t *testing.T) {
	each(t, func(t *testing.T, _ *world, send sender) {
		data := random(two)
		for n := 1; n < 20; n++ {
			w := newWorld(t)
			u := w.create(two)
			ids := send(w, u, data)
			f, gate := memory.NewFaults(), memory.NewGate()
			f.Before("", n, gate.Wait)
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = w.process(f).Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: ids}, w.now)
			}()
			select {
			case <-gate.Reached():
			case <-done:
				return
			}
			_, cancelled := w.process(nil).Cancel(t.Context(), "acme", u.ID, w.now)
			gate.Open()
			<-done
			if cancelled == nil {
				// The parts may be gone in the middle of a join: that is trouble that
				// passes, and asking again tells why.
				if _, isRefusal := errors.AsType[*openai.Error](err); !isRefusal {
					_, err = w.complete(u, "", ids...)
				}
				w.refused("complete", err, "upload_cancelled")
				w.left()
				if n := len(w.mem.Table.FilesOf("acme")); n > 0 {
					t.Errorf("%d files", n)
				}
				continue
			}
			w.refused("cancel", cancelled, "upload_completed")
			if err != nil {
				t.Fatalf("neither cancelled nor completed: %v", err)
			}
			w.is(u, data)
		}
	})
}

// Cancel crashes at every call; cancelling again leaves nothing.
func TestCancelCrashes(t *testing.T) {
	each(t, func(t *testing.T, _ *world, send sender) {
		run := func(f *memory.Faults) (*world, upload.Upload, error) {
			w := newWorld(t)
			u := w.create(two)
			send(w, u, random(two))
			_, err := w.process(f).Cancel(t.Context(), "acme", u.ID, w.now)
			return w, u, err
		}
		clean := memory.NewFaults()
		if _, _, err := run(clean); err != nil {
			t.Fatal(err)
		}
		for _, p := range clean.Calls() {
			for _, place := range []func(*memory.Faults, string, int, memory.Hook){(*memory.Faults).Before, (*memory.Faults).After} {
				f := memory.NewFaults()
				place(f, p.Op, p.N, f.Crash)
				w, u, err := run(f)
				if !errors.Is(err, memory.ErrCrashed) {
					t.Fatalf("%s: %v", p, err)
				}
				if _, err := w.process(nil).Cancel(t.Context(), "acme", u.ID, w.now); err != nil {
					t.Fatal(err)
				}
				w.left()
			}
		}
	})
}

// URLs asked for by many at once are all of one multipart upload.
func TestURLsAtOnce(t *testing.T) {
	w := newWorld(t)
	data := random(two)
	u := w.create(two)
	var wg sync.WaitGroup
	urls := make([]openai.PartURL, 2)
	for i := range urls {
		wg.Go(func() {
			got, err := w.process(nil).URLs(context.Background(), "acme", u.ID, []int{i + 1}, w.now)
			if err != nil {
				t.Error(err)
				return
			}
			urls[i] = got[0]
		})
	}
	wg.Wait()
	for i, part := range [][]byte{data[:upload.LeastPiece], data[upload.LeastPiece:]} {
		if err := w.mem.Objects.PutURL(t.Context(), urls[i].URL, part); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.complete(u, sum(data), urls[0].ID, urls[1].ID); err != nil {
		t.Fatal(err)
	}
	w.is(u, data)
}

// A crash before the multipart upload is recorded leaves one that nobody knows;
// the next request begins another.
func TestURLsCrash(t *testing.T) {
	for _, op := range []string{"Pieces.BeginPieces", "UploadItems.Begin"} {
		w := newWorld(t)
		u := w.create(10)
		f := memory.NewFaults()
		f.After(op, 1, f.Crash)
		if _, err := w.process(f).URLs(t.Context(), "acme", u.ID, []int{1}, w.now); !errors.Is(err, memory.ErrCrashed) {
			t.Fatal(err)
		}
		data := random(10)
		if _, err := w.complete(u, sum(data), w.put(u, 1, data)); err != nil {
			t.Fatal(err)
		}
		w.sweep()
		w.is(u, data)
	}
}

// A completion crashes once the file is recorded, and the file is deleted: what
// was completed stays completed, and the file deleted.
func TestFileDeletedBeforeFinish(t *testing.T) {
	each(t, func(t *testing.T, w *world, send sender) {
		data := random(two)
		u := w.create(two)
		ids := send(w, u, data)
		f := memory.NewFaults()
		f.After("Files.Put", 1, f.Crash)
		if _, err := w.process(f).Complete(t.Context(), "acme", u.ID, openai.CompleteUpload{PartIDs: ids}, w.now); !errors.Is(err, memory.ErrCrashed) {
			t.Fatal(err)
		}
		o := w.mem.Table.FilesOf("acme")[0].Object
		if err := w.mem.Table.Files.Delete(t.Context(), "acme", u.FileID(), w.now); err != nil {
			t.Fatal(err)
		}
		if err := w.mem.Objects.Delete(t.Context(), bucket, []string{o.Key}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := w.complete(u, "", ids...)
			if err != nil || got.Status != upload.Completed {
				t.Fatalf("%+v, %v", got, err)
			}
			w.left()
		}
		if files := w.mem.Table.FilesOf("acme"); len(files) > 0 {
			t.Errorf("it is back: %+v", files)
		}
	})
}
