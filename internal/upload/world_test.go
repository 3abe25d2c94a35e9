package upload_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

const bucket = "inputs"

var start = time.Date(2026, 10, 12, 9, 0, 0, 123456789, time.UTC)

// world is the stores, and processes over them.
type world struct {
	t   *testing.T
	mem *memory.Memory
	now time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, mem: memory.New(memory.Options{}), now: start}
	w.mem.Objects.LeastPiece(upload.LeastPiece)
	return w
}

// process is Uploads whose ports have these faults; nil: none.
func (w *world) process(f *memory.Faults) *upload.Uploads {
	w.t.Helper()
	v := w.mem.With(f)
	s, err := upload.New(upload.Ports{
		Store: v.Table.Uploads, Completions: v.Table.Uploads, Files: v.Table.Files,
		Objects: v.Objects, Multiparts: v.Objects, Pieces: v.Objects,
	}, bucket, &upload.Options{PieceBytes: upload.LeastPiece})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) create(size int) upload.Upload {
	w.t.Helper()
	u, err := w.process(nil).Create(w.t.Context(), "acme", openai.CreateUpload{Filename: "in.jsonl", Purpose: "batch", Bytes: int64(size), MimeType: "application/jsonl"}, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// add sends a direct part.
func (w *world) add(u upload.Upload, data []byte) string {
	w.t.Helper()
	id, p, err := w.process(nil).Add(w.t.Context(), u, data, w.now)
	if err != nil || p.Bytes != int64(len(data)) {
		w.t.Fatalf("%+v, %v", p, err)
	}
	return id
}

// put sends a presigned part.
func (w *world) put(u upload.Upload, n int, data []byte) string {
	w.t.Helper()
	urls, err := w.process(nil).URLs(w.t.Context(), u.Tenant, u.ID, []int{n}, w.now)
	if err == nil {
		err = w.mem.Objects.PutURL(w.t.Context(), urls[0].URL, data)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return urls[0].ID
}

func (w *world) complete(u upload.Upload, md5 string, ids ...string) (upload.Upload, error) {
	return w.process(nil).Complete(w.t.Context(), u.Tenant, u.ID, openai.CompleteUpload{PartIDs: ids, MD5: md5}, w.now)
}

func (w *world) get(u upload.Upload) openai.Upload {
	w.t.Helper()
	got, err := w.process(nil).Get(w.t.Context(), u.Tenant, u.ID, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// is demands the one file of these bytes, and nothing beside it.
func (w *world) is(u upload.Upload, want []byte) {
	w.t.Helper()
	files := w.mem.Table.FilesOf("acme")
	if len(files) != 1 || files[0].ID != u.FileID() || files[0].Filename != "in.jsonl" || files[0].Purpose != "batch" ||
		files[0].ExpiresAt.Sub(files[0].CreatedAt) != 30*24*time.Hour {
		w.t.Fatalf("files %+v", files)
	}
	o := files[0].Object
	if got := w.mem.Objects.Bytes(o.Bucket, o.Key); !bytes.Equal(got, want) || o.Bytes != int64(len(want)) {
		w.t.Fatalf("%d bytes under %s (%d), want %d", len(got), o.Key, o.Bytes, len(want))
	}
	w.left(o.Key)
	if got := w.get(u); got.Status != openai.UploadCompleted || got.File == nil || got.File.ID != u.FileID() || got.Parts != nil {
		w.t.Errorf("shown as %+v", got)
	}
}

// left demands that these objects are all there are.
func (w *world) left(keys ...string) {
	w.t.Helper()
	if got := w.mem.Objects.Keys(bucket); !slices.Equal(got, keys) {
		w.t.Errorf("objects %v, want %v", got, keys)
	}
	if open := w.mem.Objects.OpenUploads(); len(open) > 0 {
		w.t.Errorf("multipart uploads %v are open", open)
	}
}

// refused demands a refusal of this code.
func (w *world) refused(what string, err error, code string) {
	w.t.Helper()
	e, ok := errors.AsType[*openai.Error](err)
	if !ok || e.Code != code || e.Status/100 != 4 {
		w.t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// random is n bytes that repeat nowhere.
func random(n int) []byte {
	data := make([]byte, n)
	var seed [32]byte
	seed[0], seed[1] = byte(n), byte(n>>8)
	_, _ = rand.NewChaCha8(seed).Read(data)
	return data
}

func sum(data []byte) string {
	s := md5.Sum(data)
	return hex.EncodeToString(s[:])
}

// way is one of the two ways a part may come.
type way struct {
	name string
	// send sends data in parts of upload.LeastPiece and gives their ids in order.
	send func(w *world, u upload.Upload, data []byte) []string
}

var ways = []way{
	{"direct", func(w *world, u upload.Upload, data []byte) (ids []string) {
		for part := range slices.Chunk(data, upload.LeastPiece) {
			ids = append(ids, w.add(u, part))
		}
		return ids
	}},
	{"presigned", func(w *world, u upload.Upload, data []byte) (ids []string) {
		for part := range slices.Chunk(data, upload.LeastPiece) {
			ids = append(ids, w.put(u, len(ids)+1, part))
		}
		return ids
	}},
}

func each(t *testing.T, do func(t *testing.T, w *world, send func(*world, upload.Upload, []byte) []string)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			do(t, newWorld(t), way.send)
		})
	}
}

var _ upload.Files = batch.Files(nil)
