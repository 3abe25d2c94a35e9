package gateway_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// read is what the table was asked for since the last time, by name.
func (h *house) read() map[string]int {
	now := map[string]int{}
	for _, op := range []string{"Keys.Get", "Keys.Pair", "Keys.Replay", "Tenants.Get", "Batches.Get"} {
		if n := h.faults.Count(op) - h.counted[op]; n > 0 {
			now[op] = n
			h.counted[op] += n
		}
	}
	return now
}

// reads holds a request to what it may ask the table for.
func (h *house) reads(what string, c call, status int, want ...string) {
	h.t.Helper()
	h.read()
	if a := h.do(c); a.StatusCode != status {
		h.t.Errorf("%s: %d %s, want %d", what, a.StatusCode, a.body, status)
	}
	got := h.read()
	for _, op := range want {
		got[op]--
	}
	for op, n := range got {
		if n != 0 {
			h.t.Errorf("%s: %+d of %s, want %v", what, n, op, want)
		}
	}
}

// A key that this process doesn't know is read together with the batch it replays, and
// the rule is the same by that look as by any other.
func TestFirstLook(t *testing.T) {
	for name, c := range map[string]struct {
		batch  func(*batch.Batch)
		status int
	}{
		"running":       {func(*batch.Batch) {}, 200},
		"validating":    {func(b *batch.Batch) { b.Status = batch.Validating }, 403},
		"draining":      {func(b *batch.Batch) { b.Ending, b.EndingAt = batch.Cancelled, start }, 200},
		"drained":       {func(b *batch.Batch) { b.Ending, b.EndingAt = batch.Cancelled, start.Add(-time.Hour) }, 403},
		"over":          {func(b *batch.Batch) { b.Status = batch.Completed }, 403},
		"other calls":   {func(b *batch.Batch) { b.Endpoint = "/v1/embeddings" }, 403},
		"another's now": {func(b *batch.Batch) { b.Submitter = "eve@acme" }, 200},
	} {
		h := newHouse(t)
		h.batch(c.batch)
		h.reads(name, replay("fleet"), c.status, "Keys.Replay")
		// The record of the key's own tenant, and what nobody keeps for who is refused.
		h.reads(name+", once more", replay("fleet"), c.status, map[int]string{200: "Tenants.Get", 403: "Keys.Replay"}[c.status])
		if r := h.receipts("acme", acmes); c.status == 200 && (len(r) != 2 || name == "another's now" && r[0].OnBehalfOf != "eve@acme") {
			t.Errorf("%s: receipts %+v", name, r)
		}
	}
	h := newHouse(t)
	none := call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {"batch_nobody00000000000000"}}}
	h.reads("no such batch", none, 403, "Keys.Replay")
	h.reads("no such batch, again", none, 403, "Keys.Replay")
}

// The key and the view grow old: what is stale of both is read in one call, at most one
// a request.
func TestFirstLookLater(t *testing.T) {
	h := newHouse(t)
	h.reads("first", replay("fleet"), 200, "Keys.Replay")
	h.reads("the record of the key's tenant", replay("fleet"), 200, "Tenants.Get")
	h.reads("warm", replay("fleet"), 200)
	h.pass(4 * time.Second)
	h.reads("the view is old", replay("fleet"), 200, "Batches.Get")
	h.pass(26 * time.Second)
	h.reads("both are old", replay("fleet"), 200, "Keys.Replay")
	h.reads("a view that another key's request left", replay("all"), 200, "Keys.Get")
}

// Somebody whose key is wrong, or has no such scope, leaves no view of a batch behind,
// and costs one call.
func TestFirstLookOfNobody(t *testing.T) {
	h := newHouse(t)
	_, wrong, err := access.New(access.Key{Tenant: "fleet", Principal: "x", Name: "n", Scopes: []access.Scope{access.BatchReplay}}, start)
	if err != nil {
		t.Fatal(err)
	}
	h.key["wrong"] = wrong
	h.reads("a wrong key", replay("wrong"), 401, "Keys.Replay")
	h.reads("a key without the scope", call{as: "ann", header: replay("ann").header}, 200, "Keys.Replay")
	h.reads("the record of its tenant alone", call{as: "ann", header: replay("ann").header}, 200, "Tenants.Get")
	h.batch(func(b *batch.Batch) { b.Status = batch.Completed })
	h.reads("who may look", replay("fleet"), 403, "Keys.Replay")
	h.reads("the wrong key once more", replay("wrong"), 401)
	for n := range 10 {
		_, h.key["wrong"], err = access.New(access.Key{Tenant: "fleet", Principal: "x", Name: "n", Scopes: []access.Scope{access.BatchReplay}}, start)
		if err != nil {
			t.Fatal(err)
		}
		if n < 9 {
			h.do(replay("wrong")).is(t, "another wrong key", 401, "invalid_api_key")
		}
	}
	h.reads("one wrong key too many", replay("wrong"), 429)

	h = newHouse(t)
	h.key["wrong"] = wrong
	h.reads("a wrong key", replay("wrong"), 401, "Keys.Replay")
	h.reads("one of that tenant", call{as: "ann"}, 200, "Keys.Get")
	h.reads("whose record nobody has read", call{as: "ann"}, 200, "Tenants.Get")

	h = newHouse(t)
	h.reads("a header that names none", call{as: "fleet", header: http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {acmes, acmes}}}, 403, "Keys.Get")
}

// What took longer than a look may take is looked at anew: the batch may be another by now.
// So is what took no one knows how long.
func TestFirstLookThatTookLong(t *testing.T) {
	for _, d := range []time.Duration{2*time.Second + time.Millisecond, -time.Hour} {
		h := newHouse(t)
		h.faults.After("Keys.Replay", 1, func(context.Context, memory.Point) error {
			h.pass(d)
			h.batch(func(b *batch.Batch) { b.Status = batch.Completed })
			return nil
		})
		h.reads(d.String(), replay("fleet"), 403, "Keys.Replay", "Keys.Replay")
	}
}

// Whatever comes after whatever, however late: no request reads the table twice.
func TestNoRequestReadsTwice(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHouse(t)
		other := call{header: http.Header{"X-Tenant-ID": {"other"}, "X-Batch-ID": {others}}}
		for range rapid.IntRange(1, 40).Draw(r, "requests") {
			c := replay(rapid.SampledFrom([]string{"fleet", "all", "depot"}).Draw(r, "key"))
			switch rapid.IntRange(0, 2).Draw(r, "kind") {
			case 0:
				c = call{as: rapid.SampledFrom([]string{"ann", "bob"}).Draw(r, "who")}
			case 1:
				c.header = other.header
			}
			h.read()
			a := h.do(c)
			n := 0
			for _, of := range h.read() {
				n += of
			}
			if a.StatusCode != 200 || n > 1 {
				r.Fatalf("%s: %d, %d reads", c.as, a.StatusCode, n)
			}
			h.pass(time.Duration(rapid.SampledFrom([]int{0, 1, 3000, 4000, 5000, 26000, 30000, 60000}).Draw(r, "ms")) * time.Millisecond)
		}
	})
}
