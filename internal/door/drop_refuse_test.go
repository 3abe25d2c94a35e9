package door_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// refuse opens a letter that has to be refused, and leaves word.
func (r *rig) refuse(l bridge.Letter) (bridge.Request, error) {
	r.Helper()
	d := r.doors(nil)
	req, err := d.Open(r.Context(), l, start)
	if !errors.Is(err, bridge.ErrRefused) {
		r.Errorf("open: %v, want a refusal", err)
		return req, err
	}
	if told := d.Refuse(r.Context(), l, req, err, start); told != nil {
		r.Errorf("refuse: %v", told)
	}
	return req, err
}

// What can't start leaves an error object beside its name, an event of the batch
// that it would have been, and a count.
func TestRefusedDrops(t *testing.T) {
	const beside = "acme/in/k"
	for name, c := range map[string]struct {
		key     string // k by default
		data    string // one line by default
		given   map[string]string
		sidecar string
		do      func(r *rig, o bridge.Object) // before it is opened
		code    string
		param   string
		says    string
		at      string // the error object, without its version; beside by default
	}{
		"not enabled":           {key: "in/other/k", code: "drop_not_enabled", says: "holdfast tenant drop enable other", at: "other/in/k"},
		"switched off":          {key: "in/off/k", code: "drop_not_enabled", says: "holdfast tenant drop enable off", at: "off/in/k"},
		"empty":                 {data: "-", do: func(r *rig, o bridge.Object) {}, code: "empty_file", says: "no requests"},
		"only blank lines":      {data: "\xef\xbb\xbf \r\n\n\t\n", code: "empty_file", says: "no requests"},
		"too large":             {data: strings.Repeat("x", 100_001), code: "file_too_large", param: "file", says: "100000 bytes"},
		"too large for it":      {key: "in/small/k", data: strings.Repeat("x", 101), code: "file_too_large", param: "file", says: "100 bytes", at: "small/in/k"},
		"gzip":                  {data: "\x1f\x8b\x08\x00", code: "not_jsonl", says: "gzip"},
		"zip":                   {data: "PK\x03\x04....", code: "not_jsonl", says: "ZIP"},
		"zstd":                  {data: "\x28\xb5\x2f\xfd", code: "not_jsonl", says: "Zstandard"},
		"parquet":               {data: "PAR1", code: "not_jsonl", says: "Parquet"},
		"UTF-16":                {data: "\xff\xfe{\x00", code: "not_jsonl", says: "UTF-16"},
		"a JSON array":          {data: "[{}]", code: "not_jsonl", says: "a JSON array"},
		"CSV":                   {data: "\xef\xbb\xbf\n id,question\n", code: "not_jsonl", says: "'i' at byte 5"},
		"no UTF-8":              {data: "{\"a\":\"\xff\"}", code: "invalid_encoding", says: "at byte 6"},
		"no UTF-8 behind BOM":   {data: "\xef\xbb\xbf{\xc3", code: "invalid_encoding", says: "at byte 4"},
		"endpoint":              {given: map[string]string{"endpoint": "/v1/none"}, code: "invalid_endpoint", param: "endpoint", says: `"/v1/none": supported are /v1/chat/completions, /v1/embeddings`},
		"window":                {given: map[string]string{"completion-window": "3h"}, code: "invalid_completion_window", param: "completion_window", says: `"3h": supported are 24h, 1h`},
		"metadata no JSON":      {given: map[string]string{"metadata": "k=v"}, code: "invalid_metadata", param: "metadata", says: "x-amz-meta-metadata"},
		"metadata no strings":   {given: map[string]string{"metadata": `{"k":1}`}, code: "invalid_metadata", param: "metadata", says: `"k" is not a string`},
		"metadata twice":        {given: map[string]string{"metadata": `{"k":"1","k":"2"}`}, code: "invalid_metadata", param: "metadata", says: "'/k' is there twice"},
		"metadata too much":     {given: map[string]string{"metadata": `{"k":"` + strings.Repeat("x", 513) + `"}`}, code: "invalid_metadata", param: "metadata", says: "513 characters"},
		"sidecar no JSON":       {sidecar: "endpoint: /v1", code: "invalid_sidecar", param: ".holdfast.json", says: "at byte 0"},
		"sidecar no object":     {sidecar: "[]", code: "invalid_sidecar", param: ".holdfast.json", says: "not of the right type"},
		"sidecar null":          {sidecar: "null", code: "invalid_sidecar", param: ".holdfast.json", says: "a JSON object"},
		"sidecar empty":         {sidecar: "-", code: "invalid_sidecar", param: ".holdfast.json", says: "it is empty"},
		"sidecar cut":           {sidecar: `{"endpoint":`, code: "invalid_sidecar", param: ".holdfast.json", says: "middle of a value, at byte 12"},
		"sidecar twice":         {sidecar: `{"endpoint":"a","endpoint":"b"}`, code: "invalid_sidecar", param: ".holdfast.json", says: "'/endpoint' is there twice"},
		"sidecar of nothing":    {sidecar: `{"window":"1h"}`, code: "invalid_sidecar", param: ".holdfast.json", says: `"window", which means nothing; known are endpoint, completion_window`},
		"sidecar of both":       {sidecar: `{"completion-window":"1h","completion_window":"1h"}`, code: "invalid_sidecar", param: ".holdfast.json", says: "both spellings"},
		"sidecar's expiry":      {sidecar: `{"output_expires_after":{"anchor":"created_at","seconds":60}}`, code: "invalid_expires_after", param: "output_expires_after", says: "3600"},
		"expiry no JSON":        {given: map[string]string{"output-expires-after": "1h"}, code: "invalid_expires_after", param: "output_expires_after", says: "x-amz-meta-output-expires-after"},
		"both spellings":        {given: map[string]string{"completion-window": "1h", "completion_window": "24h"}, code: "invalid_metadata", param: "completion_window", says: "both spellings"},
		"the tenant's folder":   {key: "in/acme/", code: "invalid_key", param: "key", says: "the tenant's folder itself", at: "hash"},
		"sidecar large":         {sidecar: `{"x":"` + strings.Repeat("x", 64<<10) + `"}`, code: "invalid_sidecar", param: ".holdfast.json", says: "larger than 65536"},
		"sidecar of a number":   {sidecar: `{"endpoint":1}`, code: "invalid_type", param: "endpoint", says: "expected a string"},
		"sidecar's window":      {sidecar: `{"completion_window":"3h"}`, code: "invalid_completion_window", param: "completion_window", says: "3h"},
		"deleted since":         {do: func(r *rig, o bridge.Object) { r.inputs.Remove(o.Bucket, o.Key, o.Version) }, code: "object_not_found", param: "key", says: "deleted before it was read"},
		"dots":                  {key: "in/acme/../other/k", code: "invalid_key", param: "key", says: "'..'", at: "hash"},
		"a dot":                 {key: "in/acme/./k", code: "invalid_key", param: "key", says: "'.'", at: "hash"},
		"a control character":   {key: "in/acme/a\nb", code: "invalid_key", param: "key", says: `'\n' at byte 1`, at: "hash"},
		"a folder with bytes":   {key: "in/acme/k/", data: "[", code: "not_jsonl", says: "array", at: "hash"},
		"a very long name":      {key: "in/acme/" + strings.Repeat("x", 1016), data: "[", code: "not_jsonl", says: "array", at: "hash"},
		"its longest neighbour": {key: "in/acme/" + strings.Repeat("x", 1002), data: "[", code: "not_jsonl", says: "array", at: "acme/in/" + strings.Repeat("x", 1002)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.tenant("off", nil, access.Limits{})
			r.tenant("small", &access.Drop{Principal: "ann"}, access.Limits{FileBytes: 100})
			if c.key == "" {
				c.key = "in/acme/k"
			}
			switch c.data {
			case "":
				c.data = line
			case "-":
				c.data = ""
			}
			if c.sidecar != "" {
				r.inputs.Store(inputs, c.key+".holdfast.json", []byte(strings.TrimPrefix(c.sidecar, "-")), nil, start)
			}
			o := r.inputs.Store(inputs, c.key, []byte(c.data), c.given, start)
			if c.do != nil {
				c.do(r, o)
			}
			l := created(o)
			req, why := r.refuse(l)
			at := c.at
			switch at {
			case "":
				at = beside
			case "hash":
				sum := sha256.Sum256([]byte(c.key))
				at = "acme/in/" + hex.EncodeToString(sum[:])
			}
			if keys := r.mem.Objects.Keys(results); len(keys) != 1 || keys[0] != at+"."+o.Version+".error.json" {
				t.Errorf("the error object is %q, want it at %q", keys, at)
			}
			said, there := r.errorObject(o)
			if !there {
				t.Fatalf("no %s; %v, refused with: %v", at, r.mem.Objects.Keys(results), why)
			}
			id := bridge.BatchID(req.Tenant, o.CorrelationID())
			want := door.Refusal{Error: said.Error, Bucket: inputs, Key: c.key, Version: o.Version, Batch: id, At: start}
			if said != want || said.Error.Code != c.code || !strings.Contains(said.Error.Message, c.says) || said.Error.Type != openai.TypeInvalidRequest ||
				(said.Error.Param == nil) != (c.param == "") || said.Error.Param != nil && *said.Error.Param != c.param {
				t.Errorf("%+v %+v", said, said.Error)
			}
			events := r.mem.Table.EventsOf(req.Tenant, id)
			if len(events) != 1 || events[0].Kind != batch.EventRefused || events[0].Part != batch.NoPart || !events[0].At.Equal(start) ||
				!strings.Contains(events[0].Reason, c.code) {
				t.Errorf("events %+v", events)
			}
			if r.refused != 1 || len(r.letters.Dead()) > 0 {
				t.Errorf("%v counted, dead letters %v", r.refused, r.letters.Dead())
			}
			// Its next delivery, later, says it again, and it is said once.
			later := start.Add(time.Minute)
			if err := r.doors(nil).Refuse(t.Context(), l, req, why, later); err != nil {
				t.Error(err)
			}
			if n := len(r.mem.Table.EventsOf(req.Tenant, id)); n != 1 || len(r.mem.Objects.Keys(results)) != 1 {
				t.Errorf("%d events, %v", n, r.mem.Objects.Keys(results))
			}
		})
	}
}

// What is gone is told of wherever it is missed: in the list of versions, where the event
// names none, and between two looks.
func TestObjectsThatAreGone(t *testing.T) {
	bare := func(_, object map[string]any) { delete(object, "version-id") }
	for name, c := range map[string]struct {
		op     string
		n      int
		change func(ev, object map[string]any)
	}{
		"no version of it":   {"", 0, bare},
		"after it was found": {"Inputs.Head", 1, bare},
		"after the sidecar":  {"Inputs.Peek", 2, func(_, _ map[string]any) {}},
	} {
		r, f := newRig(t), memory.NewFaults()
		o, _ := r.put("k", line, nil)
		if c.op == "" {
			r.inputs.Remove(inputs, o.Key, o.Version)
		} else {
			f.Before(c.op, c.n, memory.Fail(batch.ErrNotFound))
		}
		l, d := created(o, c.change), r.doors(f)
		req, err := d.Open(t.Context(), l, start)
		if !errors.Is(err, bridge.ErrRefused) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := d.Refuse(t.Context(), l, req, err, start); err != nil {
			t.Error(err)
		}
		if c.op == "" {
			o.Version = "" // nobody knows it
		}
		if said, there := r.errorObject(o); !there || said.Error.Code != "object_not_found" || said.Key != o.Key {
			t.Errorf("%s: %+v, %q", name, said, r.mem.Objects.Keys(results))
		}
	}
}

// A correlation id has a bound, which a key of S3's own can't reach.
func TestKeyThatIsTooLongEscaped(t *testing.T) {
	r := newRig(t)
	o, l := r.put(strings.Repeat("é", 700), line, nil)
	r.refuse(l)
	if said, there := r.errorObject(o); !there || said.Error.Code != "invalid_key" || !strings.Contains(said.Error.Message, "too long once escaped") {
		t.Errorf("%+v", said)
	}
}

// An event that doesn't say when it was is of when it was refused.
func TestRefusalOfAnEventWithoutTime(t *testing.T) {
	r := newRig(t)
	o, _ := r.put("k", "[", nil)
	l := created(o, func(ev, _ map[string]any) { delete(ev, "time") })
	req, _ := r.refuse(l)
	if events := r.mem.Table.EventsOf("acme", bridge.BatchID("acme", req.CorrelationID)); len(events) != 1 || !events[0].At.Equal(start) {
		t.Errorf("%+v", events)
	}
}

// What concerns no tenant is kept with the dead letters, as it is.
func TestRefusedEvents(t *testing.T) {
	key := func(k string) func(ev, object map[string]any) {
		return func(_, object map[string]any) { object["key"] = k }
	}
	for name, c := range map[string]struct {
		change     func(ev, object map[string]any)
		code, says string
	}{
		"another service":  {func(ev, _ map[string]any) { ev["source"] = "aws.ec2" }, "invalid_event", `"aws.ec2"`},
		"another bucket":   {func(ev, _ map[string]any) { ev["detail"].(map[string]any)["bucket"] = map[string]any{"name": "mine"} }, "invalid_bucket", `"mine"`},
		"no bucket":        {func(ev, _ map[string]any) { ev["detail"].(map[string]any)["bucket"] = nil }, "invalid_event", "names no object"},
		"no key":           {key(""), "invalid_event", "names no object"},
		"no version":       {func(_, object map[string]any) { delete(object, "version-id"); delete(object, "etag") }, "invalid_event", "names no object"},
		"a key of a type":  {func(_, object map[string]any) { object["key"] = 7 }, "invalid_event", "'/detail/object/key' is not of the right type"},
		"no tenant":        {key("in/k.jsonl"), "invalid_key", "in no tenant's folder"},
		"no tenant's name": {key("in/ACME/k.jsonl"), "invalid_key", "in no tenant's folder"},
		"dots for one":     {key("in/../k.jsonl"), "invalid_key", "in no tenant's folder"},
		"nothing for one":  {key("in//k.jsonl"), "invalid_key", "in no tenant's folder"},
	} {
		r := newRig(t)
		o, _ := r.put("k", line, nil)
		l := created(o, c.change)
		r.refuse(l)
		dead := r.letters.Dead()
		if len(dead) != 1 || dead[0].Body != string(l.Body) || dead[0].Code != c.code || !strings.Contains(dead[0].Reason, c.says) {
			t.Errorf("%s: %+v", name, dead)
		}
		if r.refused != 1 || len(r.mem.Objects.Keys(results)) > 0 {
			t.Errorf("%s: %v counted, %v", name, r.refused, r.mem.Objects.Keys(results))
		}
	}
}

// Word of a refusal that didn't get through is no word.
func TestWordThatWasLost(t *testing.T) {
	r := newRig(t)
	_, l := r.put("k", "[]", nil)
	for _, op := range []string{"Objects.Put", "Events.Record"} {
		f := memory.NewFaults()
		f.Before(op, 0, memory.Fail(nil))
		d := r.doors(f)
		req, why := d.Open(t.Context(), l, start)
		if err := d.Refuse(t.Context(), l, req, why, start); !errors.Is(err, memory.ErrInjected) || r.refused != 0 {
			t.Errorf("%s: %v, %v counted", op, err, r.refused)
		}
	}
	f := memory.NewFaults()
	f.Before("Letters.Send", 0, memory.Fail(nil))
	d, bad := r.doors(f), letter("no JSON")
	req, why := d.Open(t.Context(), bad, start)
	if err := d.Refuse(t.Context(), bad, req, why, start); !errors.Is(err, memory.ErrInjected) || r.refused != 0 {
		t.Errorf("%v, %v counted", err, r.refused)
	}
}
