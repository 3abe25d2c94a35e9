package door_test

import (
	"context"
	"errors"
	"mime"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/bridge"
	"holdfast/internal/memory"
	"holdfast/internal/storetest"
)

func TestObjectIsARequest(t *testing.T) {
	r := newRig(t)
	o, l := r.put("a b.jsonl", line, nil)
	got := r.open(l)
	if got.Tenant != "acme" || got.Submitter != "ann@example.com" || got.Object == nil || *got.Object != o || got.FileID != o.FileID("acme") ||
		got.CorrelationID != "s3://inputs/in/acme/a%20b.jsonl?versionId=v1" || got.RequestID != "message-1" ||
		got.Endpoint != "/v1/chat/completions" || got.Window != "24h" || got.Metadata != nil || got.Service != "" {
		t.Errorf("%+v", got)
	}
}

// Each of the three comes from the object, else its sidecar, else the tenant, else
// the installation.
func TestWhatAnObjectWishes(t *testing.T) {
	r := newRig(t)
	r.tenant("beta", &access.Drop{Principal: "bob", Endpoint: "/v1/embeddings", Window: "1h"}, access.Limits{})
	encoded := mime.BEncoding.Encode("utf-8", `{"who":"Zoë 日"}`)
	for name, c := range map[string]struct {
		tenant                     string
		given                      map[string]string
		sidecar                    string
		endpoint, window, metadata string
	}{
		"nothing":            {"acme", nil, "", "/v1/chat/completions", "24h", ""},
		"the tenant's":       {"beta", nil, "", "/v1/embeddings", "1h", ""},
		"the object's":       {"beta", map[string]string{"endpoint": "/v1/chat/completions", "completion-window": "24h", "metadata": `{"who":"me"}`, "output-expires-after": `{"anchor":"created_at","seconds":3600}`}, `no JSON, and not read`, "/v1/chat/completions", "24h", "me"},
		"spaces around":      {"acme", map[string]string{"endpoint": " /v1/embeddings ", "metadata": "  "}, "", "/v1/embeddings", "24h", ""},
		"encoded by S3":      {"acme", map[string]string{"metadata": encoded}, "", "/v1/chat/completions", "24h", "Zoë 日"},
		"the sidecar's":      {"beta", nil, `{"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"who":"it"}}`, "/v1/chat/completions", "24h", "it"},
		"some of each":       {"beta", map[string]string{"endpoint": "/v1/chat/completions"}, `{"endpoint":"/v1/nothing","metadata":{"who":"it"},"completion_window":null}`, "/v1/chat/completions", "1h", "it"},
		"other metadata":     {"acme", map[string]string{"author": "me", "window": "1h"}, "", "/v1/chat/completions", "24h", ""},
		"as the API spells":  {"acme", map[string]string{"completion_window": "1h"}, "", "/v1/chat/completions", "1h", ""},
		"as a header spells": {"acme", nil, `{"completion-window":"1h"}`, "/v1/chat/completions", "1h", ""},
		"as editors begin":   {"acme", nil, "\xef\xbb\xbf" + `{"completion_window":"1h"}`, "/v1/chat/completions", "1h", ""},
		"an empty sidecar's": {"acme", nil, `{}`, "/v1/chat/completions", "24h", ""},
	} {
		key := "in/" + c.tenant + "/" + name
		if c.sidecar != "" {
			r.inputs.Store(inputs, key+".holdfast.json", []byte(c.sidecar), nil, start)
		}
		got := r.open(created(r.inputs.Store(inputs, key, []byte(line), c.given, start)))
		if got.Endpoint != c.endpoint || got.Window != c.window || got.Metadata["who"] != c.metadata || (got.Metadata == nil) != (c.metadata == "") {
			t.Errorf("%s: %s, %s, %v", name, got.Endpoint, got.Window, got.Metadata)
		}
	}
}

// When the results expire is said like the rest, in either spelling.
func TestExpiryThatAnObjectWishes(t *testing.T) {
	r := newRig(t)
	const expiry = `{"anchor":"created_at","seconds":7200}`
	for name, c := range map[string]struct {
		given   map[string]string
		sidecar string
		want    time.Duration
	}{
		"nothing":                 {nil, "", 0},
		"the object's":            {map[string]string{"output-expires-after": expiry}, "", 2 * time.Hour},
		"as the API spells":       {map[string]string{"output_expires_after": expiry}, "", 2 * time.Hour},
		"the sidecar's":           {nil, `{"output_expires_after":` + expiry + `}`, 2 * time.Hour},
		"as a header spells":      {nil, `{"output-expires-after":` + expiry + `}`, 2 * time.Hour},
		"null is absent":          {nil, `{"output_expires_after":null}`, 0},
		"the object's goes first": {map[string]string{"output-expires-after": expiry}, `{"output_expires_after":7}`, 2 * time.Hour},
	} {
		key := "in/acme/" + name
		if c.sidecar != "" {
			r.inputs.Store(inputs, key+".holdfast.json", []byte(c.sidecar), nil, start)
		}
		if got := r.open(created(r.inputs.Store(inputs, key, []byte(line), c.given, start))); got.OutputExpiry != c.want {
			t.Errorf("%s: %s", name, got.OutputExpiry)
		}
	}
}

// While the bucket's versioning is suspended each put is an input of its own. What was
// put in place of another before that was read is the only one left, and said to be.
func TestSuspendedVersions(t *testing.T) {
	r := newRig(t)
	put := func(data string) bridge.Object {
		r.inputs.Remove(inputs, "in/acme/k", "null")
		return r.inputs.StoreAs(bridge.Object{Bucket: inputs, Key: "in/acme/k", Version: "null", StoredAt: start}, []byte(data), nil)
	}
	first := put(line)
	one := r.open(created(first))
	second := put(line + line)
	two := r.open(created(second))
	if one.CorrelationID == two.CorrelationID || one.FileID == two.FileID || *two.Object != second {
		t.Errorf("%s, %s", one.CorrelationID, two.CorrelationID)
	}
	req, why := r.refuse(created(first))
	said, there := r.errorObject(first)
	if !there || said.Error.Code != "object_not_found" || req.CorrelationID != one.CorrelationID {
		t.Errorf("%v: %+v of %+v", why, said, req)
	}
	if _, there := r.errorObject(second); there {
		t.Error("the one that is there is said to be gone")
	}
	// An event without its ETag can't tell, and is about what is there.
	if got := r.open(created(second, func(_, object map[string]any) { delete(object, "etag") })); *got.Object != second {
		t.Errorf("without its ETag: %+v", got.Object)
	}
}

// Only the beginning of an object is looked at. What only looks like JSONL there is
// for the planner to refuse, which says where.
func TestBeginningsOfObjects(t *testing.T) {
	r := newRig(t)
	const peeked = 64 << 10
	pad := func(n int) string { return strings.Repeat("x", n) }
	for name, data := range map[string]string{
		"all that may be":        `{"a":"` + pad(100_000-6),
		"a cut character":        `{"a":"` + pad(peeked-7) + "é" + line,
		"a character cut to one": `{"a":"` + pad(peeked-9) + "👩" + line,
		"no UTF-8 further on":    `{"a":"` + pad(peeked) + "\xff",
		"a long blank":           strings.Repeat("\n", peeked) + line,
		"a long blank, no JSON":  strings.Repeat(" ", peeked) + "x",
		"behind a mark":          "\xef\xbb\xbf" + line,
		"blank lines before":     "\r\n \t\n" + line,
		"no end of a line":       "{}",
		"nothing but its brace":  "{",
	} {
		if _, l := r.put(name, data, nil); r.open(l).Object.Bytes != int64(len(data)) {
			t.Errorf("%s: not whole", name)
		}
	}
	_, l := r.put("no UTF-8 at the edge", `{"a":"`+pad(peeked-7)+"\xff"+line, nil)
	if _, err := r.doors(nil).Open(t.Context(), l, start); !errors.Is(err, bridge.ErrRefused) || !strings.Contains(err.Error(), "at byte 65535") {
		t.Errorf("%v", err)
	}
}

// A key comes as it is: unlike older notifications, EventBridge escapes nothing.
func TestOddKeys(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("é", (1024-len("in/acme/"))/2)
	seen := map[string]string{}
	for _, name := range append([]string{long, "x"}, storetest.OddKeys...) {
		o, l := r.put(name, line, nil)
		got := r.open(l)
		id := bridge.BatchID(got.Tenant, got.CorrelationID)
		if *got.Object != o || seen[id] != "" || len(got.CorrelationID) > bridge.MaxCorrelationID ||
			strings.ContainsFunc(got.CorrelationID, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q: %+v as %s, like %q", name, got.Object, got.CorrelationID, seen[id])
		}
		seen[id] = name
	}
}

// Each version is a request of its own, and which one an event without a version is
// about is told by ETag and time.
func TestVersions(t *testing.T) {
	bare := func(ev, object map[string]any) { delete(object, "version-id") }
	at := func(when time.Time) func(ev, object map[string]any) {
		return func(ev, object map[string]any) { ev["time"] = when.Format("2006-01-02T15:04:05.000Z") }
	}
	r := newRig(t)
	key := "in/acme/k"
	first := r.inputs.Store(inputs, key, []byte(line), nil, start)
	other := r.inputs.Store(inputs, key, []byte(line+line), nil, start.Add(time.Second))
	again := r.inputs.Store(inputs, key, []byte(line), nil, start.Add(time.Hour))
	r.inputs.Remove(inputs, key, "") // a mark of a delete on top hides none of them
	for name, c := range map[string]struct {
		l    bridge.Letter
		want bridge.Object
	}{
		"named":                     {created(first), first},
		"the newest, named":         {created(again), again},
		"by ETag":                   {created(other, bare), other},
		"by ETag and time":          {created(first, bare), first},
		"by ETag and time, later":   {created(again, bare), again},
		"a moment before":           {created(again, bare, at(again.StoredAt.Add(-900*time.Millisecond))), again},
		"a moment after":            {created(first, bare, at(first.StoredAt.Add(900*time.Millisecond))), first},
		"an ETag in its quotes too": {created(other, bare, func(_, object map[string]any) { object["etag"] = other.ETag }), other},
	} {
		got := r.open(c.l)
		if *got.Object != c.want || got.CorrelationID != c.want.CorrelationID() {
			t.Errorf("%s: %+v, want %+v", name, got.Object, c.want)
		}
	}
}

func TestStartsNothing(t *testing.T) {
	r := newRig(t)
	o, _ := r.put("k", line, nil)
	named := func(key string, size int64) bridge.Letter {
		o := o
		o.Key, o.Bytes = key, size
		return created(o)
	}
	for name, l := range map[string]bridge.Letter{
		"a sidecar":                named("in/acme/k.holdfast.json", 10),
		"a folder":                 named("in/acme/sub/", 0),
		"the folder of all":        named("in/", 0),
		"a folder of no tenant's":  named("in/Acme/", 0),
		"the tenant's own folder":  named("in/acme/", 0),
		"what the API uploaded":    named("files/acme/file-1", 10),
		"a delete":                 created(o, func(ev, _ map[string]any) { ev["detail-type"] = "Object Deleted" }),
		"a delete of no version":   letter(`{"source":"aws.s3","detail-type":"Object Deleted","detail":{"bucket":{"name":"inputs"}}}`),
		"a restore of an old file": created(o, func(ev, _ map[string]any) { ev["detail-type"] = "Object Restore Completed" }),
	} {
		if got, err := r.doors(nil).Open(t.Context(), l, start); !errors.Is(err, bridge.ErrNothing) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A folder is what the event says is empty. Of what it doesn't say, it may be an input.
func TestNoFolder(t *testing.T) {
	r := newRig(t)
	o, _ := r.put("sub/", line, nil)
	unsaid := created(o, func(_, object map[string]any) { delete(object, "size") })
	if got := r.open(unsaid); *got.Object != o {
		t.Errorf("%+v", got.Object)
	}
}

// Which version a name is of that nobody may use doesn't matter: that it can't be found
// out is no trouble.
func TestNameThatListsCannotHold(t *testing.T) {
	r, f := newRig(t), memory.NewFaults()
	o, _ := r.put("a\nb", line, nil)
	f.Before("Inputs.Versions", 0, memory.Fail(nil))
	bare := created(o, func(_, object map[string]any) { delete(object, "version-id") })
	d := r.doors(f)
	req, err := d.Open(t.Context(), bare, start)
	if !errors.Is(err, bridge.ErrRefused) || !strings.Contains(err.Error(), "invalid_key") {
		t.Fatalf("%v", err)
	}
	if err := d.Refuse(t.Context(), bare, req, err, start); err != nil || len(r.mem.Objects.Keys(results)) != 1 {
		t.Errorf("%v, %q", err, r.mem.Objects.Keys(results))
	}
}

// Trouble is no refusal, whichever call has it.
func TestTroubleOfADrop(t *testing.T) {
	r := newRig(t)
	o, l := r.put("k", line, nil)
	bare := created(o, func(_, object map[string]any) { delete(object, "version-id") })
	for op, l := range map[string]bridge.Letter{"Tenants.Get": l, "Inputs.Versions": bare, "Inputs.Head": l, "Inputs.Peek": l} {
		f := memory.NewFaults()
		f.Before(op, 1, memory.Fail(nil))
		_, err := r.doors(f).Open(t.Context(), l, start)
		if !errors.Is(err, memory.ErrInjected) || errors.Is(err, bridge.ErrRefused) || errors.Is(err, bridge.ErrNothing) {
			t.Errorf("%s: %v", op, err)
		}
	}
	// The second look is into the object itself.
	f := memory.NewFaults()
	f.Before("Inputs.Peek", 2, memory.Fail(nil))
	if _, err := r.doors(f).Open(t.Context(), l, start); !errors.Is(err, memory.ErrInjected) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.doors(nil).Open(ctx, l, start); err == nil || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("a context that is over: %v", err)
	}
}
