package gateway_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/gateway"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

// agreed is what a model server answers, by the model that it is asked for.
func agreed(w http.ResponseWriter, r *http.Request) {
	var body struct{ Model string }
	raw, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(raw, &body)
	w.Header().Set("Content-Type", "application/json")
	switch body.Model {
	case "busy":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"error":{"message":"busy"}}`)
	case "denied":
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":{"message":"not you"}}`)
	case "text":
		_, _ = io.WriteString(w, "no JSON at all \xff")
	case "spaced":
		_, _ = io.WriteString(w, "{ \"id\": \"x\",\n\t\"usage\": {\"input_tokens\": 1, \"output_tokens\": 2, \"output_tokens_details\": {\"reasoning_tokens\": 2}} }\n")
	case "empty":
	case "zip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, reply)
		_ = z.Close()
	case "gone":
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.WriteString(w, reply)
	}
}

// The same lines, replayed by a worker of ours and by one elsewhere that goes through
// the gateway, before the same models: the receipts agree in every field that both
// know, and so do the requests.
func TestBothPathsAgree(t *testing.T) {
	h := newHouse(t)
	h.plays(agreed)
	// The service that h has, but that one model has none.
	h.do(call{as: "ann"})
	server := "http://" + h.sent()[0].Host
	services, err := upstream.Open([]upstream.Service{
		{Models: []string{"sim*", "busy", "denied", "text", "spaced", "empty", "zip", "gone", "m/ö"}, URL: server, Key: secret},
	}, nil, &upstream.Options{Guard: outbound.Guard{Allow: outbound.Loopback}})
	if err != nil {
		t.Fatal(err)
	}
	h.upstream = services
	h.open()
	h.mu.Lock()
	h.calls = nil
	h.mu.Unlock()

	var bodies []string
	var input bytes.Buffer
	for _, model := range []string{"sim", "sim-2", "busy", "denied", "text", "spaced", "empty", "zip", "gone", "unserved", `m\/\u00f6`} {
		bodies = append(bodies, `{ "model" : "`+model+`", "n":1.50, "messages":[{"role":"user","content":"Grüße, \u00e9"}]}`)
	}
	bodies = append(bodies, `{"messages":[]}`)
	for i, body := range bodies {
		fmt.Fprintf(&input, `{"custom_id":"c-%d","method":"POST","url":"%s","body":%s}`+"\n", i, chat, body)
	}

	fromWorker, sentByWorker := h.work(t, services, input.Bytes(), len(bodies))
	h.mu.Lock()
	h.calls = nil
	h.mu.Unlock()

	both := map[string]bool{}
	for i, body := range bodies {
		header := http.Header{"X-Tenant-ID": {"acme"}, "X-Batch-ID": {acmes}, "X-Batch-Line": {fmt.Sprint(i)}}
		h.do(call{as: "fleet", body: body, header: header})
	}
	for _, r := range h.complete("acme", acmes, len(bodies)) {
		mine, theirs := members(t, r), members(t, fromWorker[*r.Line])
		for name, want := range theirs {
			got, there := mine[name]
			if name == "time" || !there {
				continue
			}
			both[name] = true
			if got != want {
				t.Errorf("%s: %s is %s by the gateway, %s by the worker", bodies[*r.Line], name, got, want)
			}
		}
		for _, name := range []string{"reply_sha256", "usage", "model"} { // which may be absent
			if _, here := mine[name]; here != (theirs[name] != "") {
				t.Errorf("%s: %s is there by one path only: %s, %s", bodies[*r.Line], name, mine[name], theirs[name])
			}
		}
	}
	want := []string{"batch_id", "line", "model", "on_behalf_of", "reply_sha256", "request_sha256", "status", "tenant", "usage"}
	if got := slices.Sorted(maps.Keys(both)); !slices.Equal(got, want) {
		t.Errorf("both know %v, want %v", got, want)
	}

	sent := h.sent()
	if len(sent) != len(sentByWorker) {
		t.Fatalf("the gateway sent %d requests, the worker %d", len(sent), len(sentByWorker))
	}
	for line, r := range byLine(sent) {
		w := byLine(sentByWorker)[line]
		for _, own := range []string{"X-Request-Id", "Accept"} {
			r.Header.Del(own)
		}
		if w == nil || fmt.Sprint(r.Header) != fmt.Sprint(w.Header) || r.URL.Path != w.URL.Path {
			t.Errorf("line %s: the gateway sends %v\nthe worker %v", line, r.Header, w)
			continue
		}
		one, _ := io.ReadAll(r.Body)
		other, _ := io.ReadAll(w.Body)
		if !bytes.Equal(one, other) {
			t.Errorf("line %s: the gateway sends %q, the worker %q", line, one, other)
		}
	}
}

func byLine(sent []*http.Request) map[string]*http.Request {
	by := map[string]*http.Request{}
	for _, r := range sent {
		by[r.Header.Get("X-Batch-Line")] = r
	}
	return by
}

// members are a receipt's in JSON, as text.
func members(t *testing.T, receipt any) map[string]string {
	t.Helper()
	b, err := json.Marshal(receipt)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name, v := range raw {
		texts[name] = string(v)
	}
	return texts
}

// work lets a worker run the lines as acme's batch and gives the receipts of their
// chunks, by line, and what was sent.
func (h *house) work(t *testing.T, model batch.Model, input []byte, lines int) (map[int64]batch.Receipt, []*http.Request) {
	t.Helper()
	in, err := h.mem.Objects.Put(t.Context(), batch.Object{Bucket: "inputs", Key: "in"}, input)
	if err != nil {
		t.Fatal(err)
	}
	h.batch(func(b *batch.Batch) {
		b.Input.Object, b.Parts, b.Lines = in, 1, int64(lines)
	})
	key := batch.PartKey{Tenant: "acme", Batch: acmes}
	h.mem.Table.SeedPart(batch.Part{PartKey: key, State: batch.Pending, FirstPhysical: 1, Lines: lines, To: int64(len(input))})
	if err := h.mem.Queue.Send(t.Context(), batch.Message{V: 1, Tenant: "acme", Batch: acmes, TaskToken: "t"}, 0); err != nil {
		t.Fatal(err)
	}
	runner, err := batch.NewRunner(batch.RunnerPorts{
		Batches: h.mem.Table.Batches, Parts: h.mem.Table.Parts, Claims: h.mem.Table.Claims, Steals: h.mem.Table.Claims, Deaths: h.mem.Table.Deaths,
		Events: h.mem.Table.Events, Objects: h.mem.Objects, Queue: h.mem.Queue, Workflow: h.mem.Workflow, Model: model,
		Log: slog.New(slog.DiscardHandler), Results: "results",
	}, &batch.RunnerOptions{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	d, err := h.mem.Queue.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o := runner.Run(t.Context(), d, time.Now().Add(15*time.Minute)); !o.Ack {
		t.Fatalf("the worker isn't done: %s", o.Why)
	}
	part, _ := h.mem.Table.Part(key)
	receipts := map[int64]batch.Receipt{}
	for _, c := range part.Chunks {
		for line := range strings.Lines(string(h.mem.Objects.Bytes("results", c.Key))) {
			record, err := batch.ParseRecord([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			var r batch.Receipt
			if err := json.Unmarshal(record.Receipt, &r); err != nil {
				t.Fatal(err)
			}
			receipts[record.Line] = r
		}
	}
	if len(receipts) != lines {
		t.Fatalf("%d receipts of %d lines", len(receipts), lines)
	}
	return receipts, h.sent()
}

var _ gateway.Upstream = (*upstream.Services)(nil)
