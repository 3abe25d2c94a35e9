package batch_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// The hash of what is in the result file is in the receipt, whatever became of the
// reply on its way there; that of what the upstream sent always is.
func TestReceiptHashesWhatIsKept(t *testing.T) {
	replies := []struct {
		body   string
		status int
		same   bool // it is kept as it was sent
	}{
		{`{"a":1.0e+10,"b":"\u00e9"}`, 200, true},
		{"{ \"a\" : 1,\n\t\"b\":[ ] }", 200, false},
		{`[]`, 400, true},
		{"<html>\n\"", 200, false},
		{"", 204, false},
		{"\xff\xfe", 502, false},
		{`"a string"`, 200, true},
		{"{}\n", 200, false},
		{`{"error":{"message":"no such key: sk-quoted"}}`, 401, false},
		{`sk-quoted`, 403, false},
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, len(replies), len(replies), func(_ context.Context, c batch.Call) (batch.Reply, error) {
			return reply(replies[c.Line].status, replies[c.Line].body), nil
		})
		r.opts.Tries = 1
		r.run(nil, life)
		sum := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
		for i, x := range r.conserved() {
			want, got := replies[i], x.receipt
			kept, err := openai.ParseResultLine(x.Result)
			if err != nil {
				t.Fatal(err)
			}
			if got.ReplyHash != sum([]byte(want.body)) {
				t.Errorf("%q: reply_sha256 is of something else", want.body)
			}
			if got.Kept() != sum(kept.RawBody) || (got.KeptHash == "") != want.same {
				t.Errorf("%q, kept as %s: kept_sha256 %q", want.body, kept.RawBody, got.KeptHash)
			}
			if denied := want.status == 401 || want.status == 403; denied != strings.Contains(string(x.Result), `"upstream_denied"`) || strings.Contains(string(x.Result), "sk-quoted") {
				t.Errorf("%d: %s", want.status, x.Result)
			}
			if got.ID != kept.ID || string(got.CustomID) != string(kept.RawCustomID) || got.Status != kept.StatusCode {
				t.Errorf("receipt %+v for result %+v", got, kept)
			}
		}
	})
}

// A line whose model no upstream serves is its own failure: not retried, not the
// part's, nor its model's.
func TestModelNotFoundIsTheLinesOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lines = 200 // more than would open a circuit
		r := newRig(t, lines, lines, func(_ context.Context, c batch.Call) (batch.Reply, error) {
			if c.Model != "m" {
				t.Errorf("the call names the model %q", c.Model)
			}
			if c.Line%2 == 1 {
				return batch.Reply{}, batch.ErrModelNotFound
			}
			return reply(200, `{}`), nil
		})
		expect(t, r.run(nil, life), true, "done")
		for i, x := range r.conserved() {
			switch {
			case i%2 == 0 && (!x.OK || x.receipt.Attempt != 1):
				t.Errorf("line %d: %s, %s", i, x.Result, x.Receipt)
			case i%2 == 1 && (x.OK || x.result.Error == nil || x.result.Error.Code != openai.CodeModelNotFound || x.receipt.Attempt != 0 || x.receipt.Status != 0 || x.receipt.Kept() != ""):
				t.Errorf("line %d: %s, %s", i, x.Result, x.Receipt)
			}
		}
		if n := len(r.model.Calls()); n != lines {
			t.Errorf("%d calls for %d lines", n, lines)
		}
		for _, e := range r.m.Table.EventsOf(tenant, batchID) {
			if e.Kind != batch.EventClaimed {
				t.Errorf("event %+v", e)
			}
		}
	})
}

// Where no connection is allowed the batch waits, and its events say why.
func TestRefusedAddressIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 200, 200, func(context.Context, batch.Call) (batch.Reply, error) {
			return batch.Reply{}, batch.ErrRefusedAddress
		})
		r.run(nil, life)
		said := false
		for _, e := range r.m.Table.EventsOf(tenant, batchID) {
			said = said || strings.Contains(e.Reason, "address is refused")
		}
		if !said {
			t.Errorf("events %+v", r.m.Table.EventsOf(tenant, batchID))
		}
	})
}

// An older worker's receipt, without id and kept hash, reads as before.
func TestOldReceipt(t *testing.T) {
	var r batch.Receipt
	if err := json.Unmarshal([]byte(`{"time":"2026-10-12T09:00:00Z","tenant":"acme","batch_id":"b","line":3,"custom_id":"c","on_behalf_of":"ann","worker":"w","attempt":2,"status":200,"request_sha256":"aa","reply_sha256":"bb"}`), &r); err != nil {
		t.Fatal(err)
	}
	if r.ID != "" || r.Kept() != "bb" || r.Line != 3 || r.Attempt != 2 {
		t.Errorf("%+v", r)
	}
}
