package upload_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

// slow is Objects whose answers take their time, as S3's do, and that count the
// streams which nobody has closed.
type slow struct {
	batch.Objects
	failAt int // this open fails, from 1; 0: none

	mu               sync.Mutex
	opens, now, most int
}

var errBroken = errors.New("broken")

func (s *slow) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	s.mu.Lock()
	s.opens++
	s.now++
	fails := s.opens == s.failAt
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	var r io.ReadCloser
	var err error
	select {
	case <-time.After(28 * time.Millisecond):
		if fails {
			err = errBroken
		} else {
			r, err = s.Objects.Open(ctx, o, from, to)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.done()
		return nil, err
	}
	return &counted{ReadCloser: r, done: sync.OnceFunc(s.done)}, nil
}

func (s *slow) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
}

type counted struct {
	io.ReadCloser
	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.ReadCloser.Close()
}

// joins completes an upload of as many direct parts as there may be, of a size
// each, from a slow store, within a time, and says how long it took.
func joins(t *testing.T, size int, s *slow, limit time.Duration) (w *world, u upload.Upload, data []byte, took time.Duration, err error) {
	w = newWorld(t)
	data = random(upload.MaxDirectParts * size)
	u = w.create(len(data))
	var ids []string
	for part := range slices.Chunk(data, size) {
		ids = append(ids, w.add(u, part))
	}
	s.Objects = w.mem.Objects
	up, err := upload.New(upload.Ports{
		Store: w.mem.Table.Uploads, Completions: w.mem.Table.Uploads, Files: w.mem.Table.Files,
		Objects: s, Multiparts: w.mem.Objects, Pieces: w.mem.Objects,
	}, bucket, &upload.Options{PieceBytes: upload.LeastPiece})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	_, err = up.Complete(ctx, "acme", u.ID, openai.CompleteUpload{PartIDs: ids, MD5: sum(data)}, w.now)
	took = time.Since(began)
	if s.now != 0 {
		t.Errorf("%d of %d streams are open", s.now, s.opens)
	}
	if s.most > 8 {
		t.Errorf("%d parts at once", s.most)
	}
	return w, u, data, took, err
}

// The sizes make one object of one call, and one of two pieces.
var joinSizes = []int{10, 6 << 10}

func TestPartsAreOpenedAhead(t *testing.T) {
	for _, size := range joinSizes {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{}
			w, u, data, took, err := joins(t, size, s, 28*time.Second)
			if err != nil || took > 5*time.Second || s.opens != upload.MaxDirectParts {
				t.Fatalf("%d opens took %s: %v", s.opens, took, err)
			}
			w.is(u, data)
		})
	}
}

// An error in the middle ends the join: few more parts are opened, and the
// upload can be completed again.
func TestPartThatCannotBeOpened(t *testing.T) {
	for _, size := range joinSizes {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{failAt: 500}
			w, u, _, _, err := joins(t, size, s, time.Minute)
			if !errors.Is(err, errBroken) || s.opens > 520 {
				t.Errorf("after %d opens: %v", s.opens, err)
			}
			if got := w.get(u); got.Status != openai.UploadPending || len(w.mem.Table.FilesOf("acme")) > 0 {
				t.Errorf("left %+v", got)
			}
			if open := w.mem.Objects.OpenUploads(); len(open) > 0 {
				t.Errorf("multipart uploads %v are open", open)
			}
		})
	}
}

// A request that ends takes every open along.
func TestJoinEndsWithItsContext(t *testing.T) {
	for _, size := range joinSizes {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{}
			_, _, _, took, err := joins(t, size, s, time.Second+time.Millisecond)
			if !errors.Is(err, context.DeadlineExceeded) || took > time.Second+time.Millisecond {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}
