package door_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

var start = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

const (
	inputs  = "inputs"
	results = "results"
	line    = `{"custom_id":"1"}` + "\n"
)

var site = door.Site{
	Inputs: inputs, Results: results, FileBytes: 100_000,
	Allow: openai.Allow{Endpoints: []string{"/v1/chat/completions", "/v1/embeddings"}, Windows: []string{"24h", "1h"}},
}

// rig is an installation in process, with the drop of "acme" switched on.
type rig struct {
	*testing.T
	mem      *memory.Memory
	inputs   *memory.Inputs
	letters  *memory.Letters
	held     bool // to limits
	expiry   time.Duration
	counting sync.Mutex
	refused  float64
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, mem: memory.New(memory.Options{}), inputs: memory.NewInputs(nil), letters: memory.NewLetters(nil)}
	r.tenant("acme", &access.Drop{Principal: "ann@example.com"}, access.Limits{})
	return r
}

func (r *rig) tenant(name string, d *access.Drop, l access.Limits) {
	r.Helper()
	if err := r.mem.Table.Tenants.Put(r.Context(), access.Tenant{Name: name, Drop: d, Limits: l}); err != nil {
		r.Fatal(err)
	}
}

// doors are those of one process.
func (r *rig) doors(f *memory.Faults) door.Router {
	o := &door.Options{Observer: func(m batch.Metric, n float64) {
		if m == batch.MetricRefused {
			r.counting.Lock()
			defer r.counting.Unlock()
			r.refused += n
		}
	}}
	mem := r.mem.With(f)
	in, letters := r.inputs.With(f), r.letters.With(f)
	at := site
	at.FileExpiry = r.expiry
	tenants := access.NewTenantCache(mem.Table.Tenants, nil)
	return door.NewRouter(
		door.NewDrops(door.DropPorts{
			Tenants: tenants, Inputs: in, Refusals: mem.Objects, Events: mem.Table.Events, Dead: letters,
		}, at, o),
		door.NewMessages(tenants, in, letters, at, o),
	)
}

// put stores an object and gives the letter of its event, as AWS has it.
func (r *rig) put(name, data string, metadata map[string]string) (bridge.Object, bridge.Letter) {
	o := r.inputs.Store(inputs, "in/acme/"+name, []byte(data), metadata, start)
	return o, created(o)
}

// created is the letter of an object's event; change may change it.
func created(o bridge.Object, change ...func(ev, object map[string]any)) bridge.Letter {
	object := map[string]any{"key": o.Key, "size": o.Bytes, "etag": strings.Trim(o.ETag, `"`), "version-id": o.Version, "sequencer": "617f08299329d189"}
	ev := map[string]any{
		"version": "0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "source": "aws.s3", "detail-type": "Object Created",
		"time": o.StoredAt.Format(time.RFC3339), "detail": map[string]any{"bucket": map[string]any{"name": o.Bucket}, "object": object, "reason": "PutObject"},
	}
	for _, c := range change {
		c(ev, object)
	}
	return letter(ev)
}

// letter is a letter of this body: a string as it is, else as JSON.
func letter(body any) bridge.Letter {
	text, ok := body.(string)
	if !ok {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		text = string(raw)
	}
	return bridge.Letter{ID: "message-1", Receipt: "receipt-1", Receives: 1, Body: []byte(text)}
}

// open opens a letter that has to be a request.
func (r *rig) open(l bridge.Letter) bridge.Request {
	r.Helper()
	req, err := r.doors(nil).Open(r.Context(), l, start)
	if err != nil {
		r.Fatalf("open: %v", err)
	}
	return req
}

// errorObject is what is said of an object in the results bucket.
func (r *rig) errorObject(o bridge.Object) (door.Refusal, bool) {
	r.Helper()
	tenant, _, _ := strings.Cut(strings.TrimPrefix(o.Key, "in/"), "/")
	key := door.ErrorKey(tenant, o)
	data := r.mem.Objects.Bytes(results, key)
	if data == nil {
		return door.Refusal{}, false
	}
	var said door.Refusal
	if err := json.Unmarshal(data, &said); err != nil {
		r.Fatalf("%s: %v", data, err)
	}
	return said, true
}
