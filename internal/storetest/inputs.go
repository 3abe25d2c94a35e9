package storetest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
)

// InputsPorts are what the suite of door.Inputs needs: a bucket that keeps
// versions, and somebody who puts and deletes there.
type InputsPorts struct {
	Inputs door.Inputs
	Bucket string
	Put    func(ctx context.Context, key string, data []byte, metadata map[string]string) error
	// Delete deletes a version, or the newest where it is "", which leaves a mark.
	Delete func(ctx context.Context, key, version string) error
}

// RunInputs runs the suite of door.Inputs.
func RunInputs(t *testing.T, open func(T) InputsPorts) {
	t.Helper()
	run(t, InputsCases(), open)
}

// InputsCases is the suite of door.Inputs.
func InputsCases() []Case[InputsPorts] {
	return []Case[InputsPorts]{
		{"head/what is stored, and its metadata", headWhole},
		{"head/the newest, or the one that is named", headVersions},
		{"head/unknown", headUnknown},
		{"head/deleted", headDeleted},
		{"head/odd keys", headOdd},
		{"versions/newest first, of this key alone", versionsOfKey},
		{"versions/without marks of deletes", versionsMarked},
		{"peek/the beginning, or all", peekSome},
		{"peek/the version that is named", peekVersion},
		{"peek/an empty object", peekEmpty},
		{"peek/what isn't there", peekUnknown},
		{"a context that is over", inputsInterrupted},
	}
}

// inputKey is a key that no other case has.
func inputKey() string { return "in/" + tenant() + "/" + unique() + ".jsonl" }

func (p InputsPorts) put(t T, key, data string, metadata map[string]string) bridge.Object {
	t.Helper()
	succeeds(t, "put", p.Put(t.Context(), key, []byte(data), metadata))
	return p.head(t, key, "")
}

func (p InputsPorts) head(t T, key, version string) bridge.Object {
	t.Helper()
	o, _, err := p.Inputs.Head(t.Context(), p.Bucket, key, version)
	succeeds(t, "head", err)
	return o
}

func headWhole(t T, p InputsPorts) {
	key := inputKey()
	before := time.Now()
	succeeds(t, "put", p.Put(t.Context(), key, []byte("{}\n"), map[string]string{"endpoint": "/v1/embeddings", "metadata": `{"a":"b"}`}))
	o, given, err := p.Inputs.Head(t.Context(), p.Bucket, key, "")
	succeeds(t, "head", err)
	if o.Bucket != p.Bucket || o.Key != key || o.Version == "" || o.Bytes != 3 || len(o.ETag) < 3 || o.ETag[0] != '"' {
		t.Errorf("%+v", o)
	}
	if age := before.Sub(o.StoredAt); age < -time.Minute || age > time.Minute || o.StoredAt.Nanosecond() != 0 || o.StoredAt.Location() != time.UTC {
		t.Errorf("stored at %v", o.StoredAt)
	}
	if given["endpoint"] != "/v1/embeddings" || given["metadata"] != `{"a":"b"}` {
		t.Errorf("metadata %v", given)
	}
}

func headVersions(t T, p InputsPorts) {
	key := inputKey()
	first := p.put(t, key, "one", map[string]string{"n": "1"})
	second := p.put(t, key, "number two", map[string]string{"n": "2"})
	if first.Version == second.Version {
		t.Fatalf("two versions are called %q", first.Version)
	}
	for _, c := range []struct {
		version string
		want    bridge.Object
		n       string
	}{{"", second, "2"}, {first.Version, first, "1"}, {second.Version, second, "2"}} {
		o, given, err := p.Inputs.Head(t.Context(), p.Bucket, key, c.version)
		succeeds(t, "head", err)
		if o != c.want || given["n"] != c.n {
			t.Errorf("version %q: %+v with %v, want %+v", c.version, o, given, c.want)
		}
	}
}

func headUnknown(t T, p InputsPorts) {
	key := inputKey()
	_, _, err := p.Inputs.Head(t.Context(), p.Bucket, key, "")
	refuses(t, "head of nothing", err, batch.ErrNotFound)
	p.put(t, key, "one", nil)
	other := p.put(t, inputKey(), "another", nil)
	for _, version := range []string{other.Version, "0", strings.Repeat("x", 32)} {
		_, _, err := p.Inputs.Head(t.Context(), p.Bucket, key, version)
		refuses(t, "head of a version that is none", err, batch.ErrNotFound)
	}
}

func headDeleted(t T, p InputsPorts) {
	key := inputKey()
	first := p.put(t, key, "one", nil)
	succeeds(t, "delete", p.Delete(t.Context(), key, ""))
	_, _, err := p.Inputs.Head(t.Context(), p.Bucket, key, "")
	refuses(t, "head after a delete", err, batch.ErrNotFound)
	if o := p.head(t, key, first.Version); o != first {
		t.Errorf("%+v, want %+v", o, first)
	}
	succeeds(t, "delete the version", p.Delete(t.Context(), key, first.Version))
	_, _, err = p.Inputs.Head(t.Context(), p.Bucket, key, first.Version)
	refuses(t, "head of a version that was deleted", err, batch.ErrNotFound)
}

// OddKeys are names of objects as people choose them.
var OddKeys = []string{
	"a b.jsonl", "a+b.jsonl", "100%.jsonl", "a%20b.jsonl", "a&b=c?d#e.jsonl", "é日👩.jsonl", "e\u0301.jsonl",
	"'\"`;.jsonl", "a//b.jsonl", "~!(x)*.jsonl", "<x>&amp;.jsonl", `back\slash.jsonl`, " leading and trailing ", "x.jsonl/",
}

func headOdd(t T, p InputsPorts) {
	folder := "in/" + tenant() + "/"
	for i, name := range append([]string{strings.Repeat("x", 1024-len(folder))}, OddKeys...) {
		data := strings.Repeat("x", i+1)
		o := p.put(t, folder+name, data, nil)
		if o.Bytes != int64(len(data)) {
			t.Errorf("%q: %d bytes, want %d", name, o.Bytes, len(data))
		}
		all, err := p.Inputs.Versions(t.Context(), p.Bucket, folder+name)
		succeeds(t, "versions", err)
		if len(all) != 1 || all[0].Version != o.Version || all[0].Key != folder+name {
			t.Errorf("%q: versions %+v, want %+v", name, all, o)
		}
		got, err := p.Inputs.Peek(t.Context(), o, 100)
		succeeds(t, "peek", err)
		if string(got) != data {
			t.Errorf("%q holds %q, want %q", name, got, data)
		}
	}
}

func versionsOfKey(t T, p InputsPorts) {
	key := inputKey()
	p.put(t, key+"x", "a longer name", nil)
	p.put(t, key+"/x", "another", nil)
	var want []bridge.Object
	for range 3 {
		want = append([]bridge.Object{p.put(t, key, "the same", nil)}, want...)
	}
	got, err := p.Inputs.Versions(t.Context(), p.Bucket, key)
	succeeds(t, "versions", err)
	if len(got) != len(want) {
		t.Fatalf("%d versions: %+v", len(got), got)
	}
	for i := range want {
		g, w := got[i], want[i]
		g.StoredAt, w.StoredAt = time.Time{}, time.Time{}
		if late := got[i].StoredAt.Sub(want[i].StoredAt); g != w || late < 0 || late >= time.Second {
			t.Errorf("version %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	got, err = p.Inputs.Versions(t.Context(), p.Bucket, inputKey())
	if succeeds(t, "versions of nothing", err); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func versionsMarked(t T, p InputsPorts) {
	key := inputKey()
	first := p.put(t, key, "one", nil)
	succeeds(t, "delete", p.Delete(t.Context(), key, ""))
	second := p.put(t, key, "two", nil)
	succeeds(t, "delete", p.Delete(t.Context(), key, ""))
	got, err := p.Inputs.Versions(t.Context(), p.Bucket, key)
	succeeds(t, "versions", err)
	if len(got) != 2 || got[0].Version != second.Version || got[1].Version != first.Version {
		t.Errorf("%+v, want %+v and %+v", got, second, first)
	}
}

func peekSome(t T, p InputsPorts) {
	o := p.put(t, inputKey(), "0123456789", nil)
	for most, want := range map[int64]string{1: "0", 4: "0123", 10: "0123456789", 1 << 20: "0123456789"} {
		got, err := p.Inputs.Peek(t.Context(), o, most)
		succeeds(t, "peek", err)
		if string(got) != want {
			t.Errorf("the first %d bytes are %q, want %q", most, got, want)
		}
	}
}

func peekVersion(t T, p InputsPorts) {
	key := inputKey()
	first, second := p.put(t, key, "one", nil), p.put(t, key, "two", nil)
	for _, c := range []struct {
		o    bridge.Object
		want string
	}{{first, "on"}, {second, "tw"}, {bridge.Object{Bucket: p.Bucket, Key: key}, "tw"}} {
		got, err := p.Inputs.Peek(t.Context(), c.o, 2)
		succeeds(t, "peek", err)
		if string(got) != c.want {
			t.Errorf("version %q begins with %q, want %q", c.o.Version, got, c.want)
		}
	}
}

func peekEmpty(t T, p InputsPorts) {
	got, err := p.Inputs.Peek(t.Context(), p.put(t, inputKey(), "", nil), 10)
	succeeds(t, "peek", err)
	if !bytes.Equal(got, nil) {
		t.Errorf("an empty object begins with %q", got)
	}
}

func peekUnknown(t T, p InputsPorts) {
	key := inputKey()
	_, err := p.Inputs.Peek(t.Context(), bridge.Object{Bucket: p.Bucket, Key: key}, 10)
	refuses(t, "peek into nothing", err, batch.ErrNotFound)
	o := p.put(t, key, "one", nil)
	succeeds(t, "delete", p.Delete(t.Context(), key, ""))
	_, err = p.Inputs.Peek(t.Context(), bridge.Object{Bucket: p.Bucket, Key: key}, 10)
	refuses(t, "peek after a delete", err, batch.ErrNotFound)
	succeeds(t, "delete the version", p.Delete(t.Context(), key, o.Version))
	_, err = p.Inputs.Peek(t.Context(), o, 10)
	refuses(t, "peek into a version that was deleted", err, batch.ErrNotFound)
}

func inputsInterrupted(t T, p InputsPorts) {
	o := p.put(t, inputKey(), "one", nil)
	interrupts(t, map[string]func(context.Context) error{
		"Head": func(ctx context.Context) error {
			_, _, err := p.Inputs.Head(ctx, o.Bucket, o.Key, "")
			return err
		},
		"Versions": func(ctx context.Context) error { return fault(p.Inputs.Versions(ctx, o.Bucket, o.Key)) },
		"Peek":     func(ctx context.Context) error { return fault(p.Inputs.Peek(ctx, o, 1)) },
	})
}
