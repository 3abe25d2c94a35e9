package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"holdfast/internal/batch"
)

// ObjectsPorts are what the suite of batch.Objects needs. The bucket exists; it
// may keep versions or not.
type ObjectsPorts struct {
	Objects batch.Objects
	Bucket  string
}

// RunObjects runs the suite of batch.Objects.
func RunObjects(t *testing.T, open func(T) ObjectsPorts) {
	t.Helper()
	run(t, ObjectsCases(), open)
}

// ObjectsCases is the suite of batch.Objects.
func ObjectsCases() []Case[ObjectsPorts] {
	return []Case[ObjectsPorts]{
		{"put/what was written is readable, byte for byte", putReadable},
		{"put/an empty object", putEmpty},
		{"put/the data is not shared", putShared},
		{"put/one of many stays, whole", putRace},
		{"open/any range", openRanges},
		{"open/a range of a large object", openLarge},
		{"open/beyond the end", openBeyond},
		{"open/pinned: never another's bytes", openPinned},
		{"open/without an ETag, whatever is there", openUnpinned},
		{"open/unknown", openUnknown},
		{"delete/what is there and what isn't", deleteSome},
		{"delete/1,000 keys", deleteMany},
		{"a context that is over", objectsInterrupted},
	}
}

// object is a name that no other case has, as awkward as a key may be: a key is
// made of ids, but the S3 door takes what people upload.
func object(bucket string) batch.Object {
	return batch.Object{Bucket: bucket, Key: "storetest/" + unique() + "/a b+c%20d&e=f'\"é日👩/~!(x)*.jsonl"}
}

func put(t T, s batch.Objects, o batch.Object, data []byte) batch.Object {
	t.Helper()
	got := value(s.Put(t.Context(), o, data))(t, "put")
	if got.Bucket != o.Bucket || got.Key != o.Key || got.Bytes != int64(len(data)) || got.ETag == "" {
		t.Errorf("put of %d bytes as %q answers %+v", len(data), o.Key, got)
	}
	return got
}

// read reads a range to its end.
func read(ctx context.Context, s batch.Objects, o batch.Object, from, to int64) ([]byte, error) {
	r, err := s.Open(ctx, o, from, to)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

// reads demands that a range holds want.
func reads(t T, s batch.Objects, o batch.Object, from, to int64, want []byte) {
	t.Helper()
	got, err := read(t.Context(), s, o, from, to)
	succeeds(t, fmt.Sprintf("read [%d, %d)", from, to), err)
	if !bytes.Equal(got, want) {
		t.Errorf("[%d, %d) is %d bytes that differ from the %d written", from, to, len(got), len(want))
	}
}

// pattern is n bytes of every value, in which no two places look alike.
func pattern(n int) []byte {
	data := make([]byte, n)
	x := uint32(n)*2 + 1
	for i := range data {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		data[i] = byte(x)
	}
	return data
}

func putReadable(t T, p ObjectsPorts) {
	data := pattern(10_000)
	o := put(t, p.Objects, object(p.Bucket), data)
	reads(t, p.Objects, o, 0, o.Bytes, data)
	again := put(t, p.Objects, o, data)
	reads(t, p.Objects, again, 0, o.Bytes, data)
}

func putEmpty(t T, p ObjectsPorts) {
	for _, data := range [][]byte{nil, {}} {
		o := put(t, p.Objects, object(p.Bucket), data)
		reads(t, p.Objects, o, 0, 0, nil)
	}
}

func putShared(t T, p ObjectsPorts) {
	data := pattern(100)
	o := put(t, p.Objects, object(p.Bucket), data)
	clear(data)
	reads(t, p.Objects, o, 0, 100, pattern(100))
	first, err := read(t.Context(), p.Objects, o, 0, 100)
	succeeds(t, "read", err)
	clear(first)
	reads(t, p.Objects, o, 0, 100, pattern(100))
}

func putRace(t T, p ObjectsPorts) {
	o := object(p.Bucket)
	objects := race(16, func(i int) batch.Object {
		got, err := p.Objects.Put(t.Context(), o, pattern(1000+i))
		if err != nil {
			t.Errorf("put: %v", err)
		}
		return got
	})
	left := 0
	o.ETag = ""
	r, err := p.Objects.Open(t.Context(), o, 0, 1000)
	succeeds(t, "open", err)
	got, err := io.ReadAll(r)
	succeeds(t, "read", errors.Join(err, r.Close()))
	for i := range objects {
		if bytes.Equal(got, pattern(1000 + i)[:1000]) {
			left++
		}
	}
	if left != 1 {
		t.Errorf("what is stored is the data of %d writers", left)
	}
}

func openRanges(t T, p ObjectsPorts) {
	data := pattern(1000)
	o := put(t, p.Objects, object(p.Bucket), data)
	for _, r := range [][2]int64{{0, 1}, {0, 999}, {0, 1000}, {1, 1000}, {1, 2}, {500, 750}, {999, 1000}, {0, 0}, {500, 500}, {1000, 1000}} {
		reads(t, p.Objects, o, r[0], r[1], data[r[0]:r[1]])
	}
}

func openLarge(t T, p ObjectsPorts) {
	const size = 9 << 20
	data := pattern(size)
	o := put(t, p.Objects, object(p.Bucket), data)
	reads(t, p.Objects, o, 4<<20-1, 8<<20+1, data[4<<20-1:8<<20+1])
	r := value(p.Objects.Open(t.Context(), o, 0, size))(t, "open")
	head := make([]byte, 100)
	if _, err := io.ReadFull(r, head); err != nil || !bytes.Equal(head, data[:100]) {
		t.Errorf("the head of a stream: %v", err)
	}
	succeeds(t, "close before the end", r.Close())
}

// openBeyond: a range that isn't there must not look like one that is: the end
// of the stream is an error, and not io.EOF.
func openBeyond(t T, p ObjectsPorts) {
	o := put(t, p.Objects, object(p.Bucket), pattern(1000))
	for _, r := range [][2]int64{{0, 1001}, {999, 1001}, {1000, 1001}, {2000, 3000}} {
		data, err := read(t.Context(), p.Objects, o, r[0], r[1])
		if err == nil {
			t.Errorf("[%d, %d) of 1,000 bytes ends well, with %d bytes", r[0], r[1], len(data))
		}
		if int64(len(data)) > max(0, 1000-r[0]) {
			t.Errorf("[%d, %d) of 1,000 bytes gives %d bytes", r[0], r[1], len(data))
		}
	}
}

// openPinned: a bucket with versions may still give the bytes that were named;
// any other answer is ErrChanged.
func openPinned(t T, p ObjectsPorts) {
	old, data := pattern(1000), pattern(1001)[:1000]
	first := put(t, p.Objects, object(p.Bucket), old)
	second := put(t, p.Objects, first, data)
	reads(t, p.Objects, second, 0, 1000, data)
	if second.ETag == first.ETag {
		t.Errorf("other bytes have the same ETag %s", first.ETag)
	}
	for _, r := range [][2]int64{{0, 1000}, {10, 20}} {
		got, err := read(t.Context(), p.Objects, first, r[0], r[1])
		kept := first.Version != "" && err == nil && bytes.Equal(got, old[r[0]:r[1]])
		if !kept {
			refuses(t, fmt.Sprintf("[%d, %d) of the one that was overwritten", r[0], r[1]), err, batch.ErrChanged)
		}
	}
	invented := second
	invented.Version, invented.ETag = "", `"00000000000000000000000000000000"`
	refuses(t, "an ETag that never was", fault(read(t.Context(), p.Objects, invented, 0, 1000)), batch.ErrChanged)
}

func openUnpinned(t T, p ObjectsPorts) {
	o := object(p.Bucket)
	for n := range 3 {
		data := pattern(1000 + n)
		put(t, p.Objects, o, data)
		reads(t, p.Objects, o, 0, int64(len(data)), data)
	}
}

func openUnknown(t T, p ObjectsPorts) {
	o := object(p.Bucket)
	refuses(t, "open", fault(read(t.Context(), p.Objects, o, 0, 10)), batch.ErrNotFound)
	o.ETag = `"00000000000000000000000000000000"`
	if err := fault(read(t.Context(), p.Objects, o, 0, 10)); !errors.Is(err, batch.ErrNotFound) && !errors.Is(err, batch.ErrChanged) {
		t.Errorf("open with an ETag: %v", err)
	}
}

func deleteSome(t T, p ObjectsPorts) {
	ctx := t.Context()
	gone, kept := put(t, p.Objects, object(p.Bucket), pattern(10)), put(t, p.Objects, object(p.Bucket), pattern(11))
	absent := object(p.Bucket)
	for range 2 {
		succeeds(t, "delete", p.Objects.Delete(ctx, p.Bucket, []string{gone.Key, absent.Key}))
		unnamed := batch.Object{Bucket: gone.Bucket, Key: gone.Key}
		refuses(t, "open the deleted one", fault(read(ctx, p.Objects, unnamed, 0, 10)), batch.ErrNotFound)
	}
	reads(t, p.Objects, kept, 0, 11, pattern(11))
	succeeds(t, "delete nothing", p.Objects.Delete(ctx, p.Bucket, nil))
	put(t, p.Objects, absent, pattern(12))
	reads(t, p.Objects, absent, 0, 12, pattern(12))
}

func deleteMany(t T, p ObjectsPorts) {
	prefix := object(p.Bucket).Key
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("%s-%d", prefix, i))
	}
	first, last := batch.Object{Bucket: p.Bucket, Key: keys[0]}, batch.Object{Bucket: p.Bucket, Key: keys[999]}
	put(t, p.Objects, first, pattern(1))
	put(t, p.Objects, last, pattern(1))
	succeeds(t, "delete", p.Objects.Delete(t.Context(), p.Bucket, keys))
	refuses(t, "the first", fault(read(t.Context(), p.Objects, first, 0, 1)), batch.ErrNotFound)
	refuses(t, "the last", fault(read(t.Context(), p.Objects, last, 0, 1)), batch.ErrNotFound)
}

func objectsInterrupted(t T, p ObjectsPorts) {
	o := put(t, p.Objects, object(p.Bucket), pattern(10))
	interrupts(t, map[string]func(context.Context) error{
		"Open":   func(ctx context.Context) error { return fault(read(ctx, p.Objects, o, 0, 10)) },
		"Put":    func(ctx context.Context) error { return fault(p.Objects.Put(ctx, o, nil)) },
		"Delete": func(ctx context.Context) error { return p.Objects.Delete(ctx, o.Bucket, []string{o.Key}) },
	})
	reads(t, p.Objects, o, 0, 10, pattern(10))
}
