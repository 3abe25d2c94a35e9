package door_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/events"
	"holdfast/internal/bridge"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// message is one that names a file; change may change it.
func message(change ...func(m map[string]any)) map[string]any {
	m := map[string]any{
		"v": 1, "correlation_id": "order 17", "tenant": "acme", "principal": "ann@example.com",
		"input": map[string]any{"file_id": "file-1"}, "endpoint": "/v1/embeddings",
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func with(name string, value any) func(m map[string]any) {
	return func(m map[string]any) { m[name] = value }
}

func without(name string) func(m map[string]any) { return func(m map[string]any) { delete(m, name) } }

func TestMessageIsARequest(t *testing.T) {
	r := newRig(t)
	o, _ := r.put("a b.jsonl", line, map[string]string{"endpoint": "/v1/chat/completions"})
	r.put("a b.jsonl", line+line, nil)
	newest := r.inputs.Store(inputs, o.Key, []byte(line), nil, start.Add(time.Hour))
	least := bridge.Request{Tenant: "acme", CorrelationID: "order 17", RequestID: "message-1", Submitter: "ann@example.com",
		FileID: "file-1", Endpoint: "/v1/embeddings", Window: "24h"}
	of := func(o bridge.Object) func(*bridge.Request) {
		return func(r *bridge.Request) { r.Object, r.FileID = &o, o.FileID("acme") }
	}
	for name, c := range map[string]struct {
		m    map[string]any
		want func(r *bridge.Request)
	}{
		"the least": {message(), func(*bridge.Request) {}},
		"all": {message(with("completion_window", "1h"), with("metadata", map[string]any{"k": "é日👩"}), with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": 7200})),
			func(r *bridge.Request) {
				r.Window, r.Metadata, r.OutputExpiry = "1h", map[string]string{"k": "é日👩"}, 2*time.Hour
			}},
		"null is absent":          {message(with("completion_window", nil), with("metadata", nil), with("output_expires_after", nil)), func(*bridge.Request) {}},
		"what v 1 doesn't know":   {message(with("priority", map[string]any{"deep": []any{1}})), func(*bridge.Request) {}},
		"a tenant without record": {message(with("tenant", "nobody")), func(r *bridge.Request) { r.Tenant = "nobody" }},
		"an object":               {message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version})), of(o)},
		"the newest object":       {message(with("input", map[string]any{"bucket": inputs, "key": o.Key})), of(newest)},
		"no version":              {message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": nil})), of(newest)},
		"no object":               {message(with("input", map[string]any{"file_id": "file-1", "bucket": nil, "key": nil, "version": nil})), func(*bridge.Request) {}},
		"no file":                 {message(with("input", map[string]any{"file_id": nil, "bucket": inputs, "key": o.Key})), of(newest)},
		"1 in another spelling":   {message(with("v", json.RawMessage("1.0"))), func(*bridge.Request) {}},
		"1 in a third":            {message(with("v", json.RawMessage("10e-1"))), func(*bridge.Request) {}},
		"seconds with exponent":   {message(with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": json.RawMessage("3.6e3")})), func(r *bridge.Request) { r.OutputExpiry = time.Hour }},
		"seconds with a point":    {message(with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": json.RawMessage("3600.0")})), func(r *bridge.Request) { r.OutputExpiry = time.Hour }},
		"the longest id":          {message(with("correlation_id", strings.Repeat("é", 2048))), func(r *bridge.Request) { r.CorrelationID = strings.Repeat("é", 2048) }},
	} {
		want := least
		c.want(&want)
		if got := r.open(letter(c.m)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
	}
}

// An object's own id makes a message of it and its drop one request.
func TestMessageOfADrop(t *testing.T) {
	r := newRig(t)
	o, l := r.put("k", line, nil)
	drop := r.open(l)
	m := r.open(letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version}),
		with("correlation_id", o.CorrelationID()), with("endpoint", "/v1/chat/completions"))))
	if drop.Hash() != m.Hash() || drop.CorrelationID != m.CorrelationID {
		t.Errorf("%+v\n%+v", drop, m)
	}
}

func TestRefusedMessages(t *testing.T) {
	object := func(change func(in map[string]any)) map[string]any {
		in := map[string]any{"bucket": inputs, "key": "in/acme/k"}
		change(in)
		return message(with("input", in))
	}
	pairs := map[string]string{}
	for i := range 17 {
		pairs[strings.Repeat("k", i+1)] = "v"
	}
	valid, _ := json.Marshal(message())
	deep := func(n int) string {
		return strings.TrimSuffix(string(valid), "}") + `,"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	for name, c := range map[string]struct {
		body       any
		code, says string
	}{
		"nothing":                {"", "invalid_message", "it is empty"},
		"no JSON":                {"v=1", "invalid_message", "The message is not valid JSON: invalid character 'v' at start of value at byte 0."},
		"cut":                    {`{"v": 1, "tenant": `, "invalid_message", "middle of a value, at byte 19"},
		"two":                    {string(valid) + "{}", "invalid_message", "after top-level value at byte "},
		"no object":              {"[]", "invalid_message", "at '': got array, want object"},
		"a member twice":         {`{"v":1,"input":{"file_id":"a","file_id":"b"}}`, "invalid_message", "'/input/file_id' is there twice"},
		"no UTF-8":               {"{\"v\":1,\"tenant\":\"\xff\"}", "invalid_message", "at byte 17"},
		"half a character":       {`{"v":1,"tenant":"\ud800"}`, "invalid_message", "at byte 17"},
		"10,000 deep":            {deep(10_000), "invalid_message", "depth"},
		"a number without end":   {`{"v":1,"tenant":1e999999999}`, "invalid_message", "/tenant"},
		"version 2":              {`{"v":2,"what":"ever"}`, "unsupported_version", "At '/v': The message has the version 2; this program reads 1."},
		"version 0":              {message(with("v", 0)), "unsupported_version", "At '/v'"},
		"version 1.5":            {message(with("v", 1.5)), "unsupported_version", "At '/v'"},
		"a version of a type":    {message(with("v", "1")), "invalid_message", "at '/v'"},
		"no version":             {message(without("v")), "invalid_message", "'v'"},
		"no id":                  {message(without("correlation_id")), "invalid_message", "'correlation_id'"},
		"an empty id":            {message(with("correlation_id", "")), "invalid_message", "at '/correlation_id'"},
		"a long id":              {message(with("correlation_id", strings.Repeat("x", 4097))), "invalid_message", "at '/correlation_id'"},
		"a long id in bytes":     {message(with("correlation_id", strings.Repeat("é", 2049))), "invalid_message", "At '/correlation_id': It has 4098 bytes"},
		"no tenant":              {message(without("tenant")), "invalid_message", "'tenant'"},
		"no tenant's name":       {message(with("tenant", "a/b")), "invalid_message", "at '/tenant'"},
		"a tenant and a line":    {message(with("tenant", "acme\n")), "invalid_message", "/tenant'"},
		"no principal":           {message(without("principal")), "invalid_message", "'principal'"},
		"no principal's name":    {message(with("principal", "ann at example")), "invalid_message", "at '/principal'"},
		"no input":               {message(without("input")), "invalid_message", "'input'"},
		"an empty input":         {message(with("input", map[string]any{})), "invalid_message", "at '/input': give either file_id, or bucket and key"},
		"both inputs":            {object(with("file_id", "file-1")), "invalid_message", "at '/input': give either"},
		"a version of a file":    {message(with("input", map[string]any{"file_id": "file-1", "version": "v"})), "invalid_message", "at '/input': give either"},
		"half an object":         {object(without("key")), "invalid_message", "at '/input': give either"},
		"no file's id":           {message(with("input", map[string]any{"file_id": "../f"})), "invalid_message", "at '/input/file_id'"},
		"a key of a type":        {object(with("key", 1)), "invalid_message", "at '/input/key'"},
		"an empty version":       {object(with("version", "")), "invalid_message", "at '/input/version'"},
		"no endpoint":            {message(without("endpoint")), "invalid_message", "'endpoint'"},
		"an endpoint":            {message(with("endpoint", "/v1/none")), "invalid_endpoint", "At '/endpoint': Invalid endpoint \"/v1/none\": supported are"},
		"a window":               {message(with("completion_window", "3h")), "invalid_completion_window", "At '/completion_window'"},
		"metadata of a type":     {message(with("metadata", map[string]any{"a/b~c": 1})), "invalid_message", "at '/metadata/a~1b~0c'"},
		"too many pairs":         {message(with("metadata", pairs)), "invalid_message", "at '/metadata'"},
		"a long pair":            {message(with("metadata", map[string]any{"k": strings.Repeat("x", 513)})), "invalid_message", "at '/metadata/k'"},
		"a long name":            {message(with("metadata", map[string]any{strings.Repeat("k", 65): "v"})), "invalid_message", "at '/metadata': the name of a pair"},
		"huge metadata":          {message(with("metadata", map[string]any{"k": strings.Repeat("x", 1<<20)})), "invalid_message", "at '/metadata': with it the members that the schema describes have 10486"},
		"a number in a text":     {`17`, "invalid_message", "at '': got number, want object"},
		"null":                   {`null`, "invalid_message", "at '': got null, want object"},
		"a list, cut":            {`[{`, "invalid_message", "middle of a value, at byte 2"},
		"a number deep inside":   {`{"v":1,"metadata":{"a/b":[1e999999999]}}`, "invalid_message", "at '/metadata/a~1b/0': the number is out of range"},
		"an expiry":              {message(with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": 60})), "invalid_message", "at '/output_expires_after/seconds'"},
		"half a second":          {message(with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": 3600.5})), "invalid_message", "at '/output_expires_after/seconds'"},
		"nothing but nulls":      {message(with("input", map[string]any{"file_id": nil, "bucket": nil, "key": nil})), "invalid_message", "at '/input': give either"},
		"an object half null":    {object(with("key", nil)), "invalid_message", "at '/input': give either"},
		"half an expiry":         {message(with("output_expires_after", map[string]any{"seconds": 7200})), "invalid_message", "'anchor'"},
		"another bucket":         {object(with("bucket", "mine")), "invalid_bucket", `At '/input/bucket': The bucket "mine"`},
		"the results":            {object(with("bucket", results)), "invalid_bucket", "At '/input/bucket'"},
		"another's folder":       {object(with("key", "in/other/k")), "invalid_key", "At '/input/key': The key doesn't lie in the tenant's folder in/acme/"},
		"the tenant's folder":    {object(with("key", "in/acme/")), "invalid_key", "At '/input/key'"},
		"an uploaded file":       {object(with("key", "files/acme/file-1")), "invalid_key", "At '/input/key'"},
		"dots":                   {object(with("key", "in/acme/../other/k")), "invalid_key", "'..'"},
		"a control character":    {object(with("key", "in/acme/a\x00")), "invalid_key", `'\x00' at byte 1`},
		"a long key":             {object(with("key", "in/acme/"+strings.Repeat("é", 600))), "invalid_key", "1208 bytes"},
		"an object that is none": {object(with("key", "in/acme/none")), "object_not_found", "At '/input': The object isn't there"},
		"no such version":        {object(with("version", "v99")), "object_not_found", "At '/input': This version"},
		"an empty object":        {object(with("key", "in/acme/empty")), "empty_file", "At '/input'"},
		"a large object":         {object(with("key", "in/acme/large")), "file_too_large", "100000 bytes"},
	} {
		r := newRig(t)
		r.put("k", line, nil)
		r.put("empty", "", nil)
		r.put("large", strings.Repeat("x", 100_001), nil)
		l := letter(c.body)
		_, err := r.refuse(l)
		refused, ok := errors.AsType[*bridge.RefusedError](err)
		if !ok || refused.Code != c.code || !strings.Contains(refused.Reason, c.says) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		dead := r.letters.Dead()
		if len(dead) != 1 || dead[0] != (memory.DeadLetter{Body: string(l.Body), Code: refused.Code, Reason: refused.Reason}) || len(refused.Reason) > 1000 {
			t.Errorf("%s: %.2000q", name, dead)
		}
		if r.refused != 1 || len(r.mem.Objects.Keys(results)) > 0 {
			t.Errorf("%s: %v counted", name, r.refused)
		}
	}
}

// The batch was refused, or its id stands for another: the message says why.
func TestMessageOfARefusedBatch(t *testing.T) {
	r := newRig(t)
	l := letter(message())
	req := r.open(l)
	for _, c := range []struct {
		why        error
		code, says string
	}{
		{bridge.ErrConflict, "idempotency_conflict", "At '/correlation_id'"},
		{errors.Join(bridge.ErrRefused, openai.InputFileNotFound("file-1")), "file_not_found", "No such file"},
		{bridge.ErrRefused, "refused", "refused"},
	} {
		if err := r.doors(nil).Refuse(t.Context(), l, req, c.why, start); err != nil {
			t.Fatal(err)
		}
		dead := r.letters.Dead()
		if last := dead[len(dead)-1]; last.Code != c.code || !strings.Contains(last.Reason, c.says) || last.Body != string(l.Body) {
			t.Errorf("%v: %+v", c.why, last)
		}
	}
}

func TestTroubleOfAMessage(t *testing.T) {
	r := newRig(t)
	r.put("k", line, nil)
	f := memory.NewFaults()
	f.Before("Inputs.Head", 0, memory.Fail(nil))
	_, err := r.doors(f).Open(t.Context(), letter(message(with("input", map[string]any{"bucket": inputs, "key": "in/acme/k"}))), start)
	if !errors.Is(err, memory.ErrInjected) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%v", err)
	}
}

// The schema's bounds are the API's, and its members are those that are read.
func TestSchemaSaysWhatHolds(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			MaxProperties     int
			MaxLength         int
			PatternProperties map[string]struct{ MaxLength int }
			Properties        map[string]struct{ Minimum, Maximum int }
		}
	}
	if err := json.Unmarshal(events.MessageSchema, &schema); err != nil {
		t.Fatal(err)
	}
	m, seconds := schema.Properties["metadata"], schema.Properties["output_expires_after"].Properties["seconds"]
	if m.MaxProperties != openai.MaxMetadataPairs || m.PatternProperties[fmt.Sprintf(`^[\s\S]{1,%d}$`, openai.MaxMetadataKey)].MaxLength != openai.MaxMetadataValue ||
		seconds.Minimum != openai.MinExpirySeconds || seconds.Maximum != openai.MaxExpirySeconds || schema.Properties["correlation_id"].MaxLength != bridge.MaxCorrelationID {
		t.Errorf("%+v", schema)
	}
	want := "completion_window correlation_id endpoint input metadata output_expires_after principal tenant v"
	if got := strings.Join(slices.Sorted(maps.Keys(schema.Properties)), " "); got != want {
		t.Errorf("members %s, want %s", got, want)
	}
}

// FuzzMessage: whatever comes, it is a request, a refusal with a reason, or nothing.
func FuzzMessage(f *testing.F) {
	samples, err := filepath.Glob("../../events/ingest*.json")
	if err != nil || len(samples) == 0 {
		f.Fatal(samples, err)
	}
	for _, name := range samples {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var ev struct{ Records []struct{ Body string } }
		if json.Unmarshal(raw, &ev) == nil {
			for _, m := range ev.Records {
				f.Add(m.Body)
			}
		}
	}
	f.Add(`{"v":1e400}`)
	f.Fuzz(func(t *testing.T, body string) {
		r := newRig(t)
		d, l := r.doors(nil), letter(body)
		req, err := d.Open(t.Context(), l, start)
		switch {
		case err == nil:
			if req.Tenant == "" || req.Submitter == "" || req.CorrelationID == "" || req.FileID == "" || req.Endpoint == "" || req.Window == "" {
				t.Errorf("%+v", req)
			}
		case errors.Is(err, bridge.ErrNothing):
		case !errors.Is(err, bridge.ErrRefused):
			t.Errorf("trouble: %v", err)
		default:
			if err := d.Refuse(t.Context(), l, req, err, start); err != nil {
				t.Error(err)
			}
			for _, l := range r.letters.Dead() {
				if l.Code == "" || l.Reason == "" || len(l.Reason) > 1000 {
					t.Errorf("%+v", l)
				}
			}
		}
	})
}

// A member that nobody reads doesn't make a message an event.
func TestMessageWithAnEventsMembers(t *testing.T) {
	r := newRig(t)
	want := r.open(letter(message()))
	for name, value := range map[string]any{"source": "aws.s3", "detail-type": "Object Created", "detail": map[string]any{}} {
		if got := r.open(letter(message(with(name, value)))); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
