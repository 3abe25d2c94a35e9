package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

// calls puts n receipts of the gateway's into the house, each second of them complete.
func (h *house) calls(id string, from time.Time, n int) {
	h.t.Helper()
	for i := range n {
		r := access.Receipt{
			ReceiptName: access.ReceiptName{Tenant: "acme", Batch: id, StartedAt: from.Add(time.Duration(i) * time.Millisecond), RequestID: fmt.Sprintf("req_%d", i)},
			OnBehalfOf:  "ann", Key: "key_fleet", Endpoint: "/v1/embeddings", RequestHash: "00",
		}
		err := h.mem.Table.Receipts.Intend(h.t.Context(), r)
		if err == nil && i%2 == 0 {
			err = h.mem.Table.Receipts.Complete(h.t.Context(), r.ReceiptName, access.Completion{Time: r.StartedAt, Outcome: access.Replied, Status: 200, ReplyHash: "ff"})
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestReceiptsOfTheGateway(t *testing.T) {
	h := newHouse(t)
	began := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	h.mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: receiptsBatch, Status: batch.InProgress, CreatedAt: began})
	h.run("receipts", "--gateway", receiptsBatch).is(0, "0 calls for "+receiptsBatch+".\n")
	h.calls(receiptsBatch, began, access.MaxReceipts+5)
	h.calls("", time.Date(2026, 10, 12, 23, 59, 59, 0, time.UTC), 3)

	r := h.run("receipts", "--gateway", receiptsBatch).is(0, "1005 calls", "of 502 the end is not known")
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if len(lines) != access.MaxReceipts+5 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var got struct {
			ID, Outcome, Key string
			RequestID        string `json:"request_id"`
			Batch            string `json:"batch_id"`
			Reply            string `json:"reply_sha256"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "replied ff", false: "lost "}[i%2 == 0]
		if got.Outcome+" "+got.Reply != want || got.RequestID != fmt.Sprintf("req_%d", i) || got.Batch != receiptsBatch || got.Key != "key_fleet" || got.ID == "" {
			t.Fatalf("line %d: %s", i, line)
		}
	}
	h.calls("", time.Date(2026, 10, 11, 23, 59, 59, 0, time.UTC), 1)
	h.run("receipts", "--day", "2026-10-11").is(0, "1 call outside any batch on 2026-10-11.\n")
	to := filepath.Join(t.TempDir(), "calls.jsonl")
	var out struct {
		Day                   string
		File                  string
		Bytes, Receipts, Lost int
	}
	h.run("receipts", "--day", "2026-10-12", "--output", to, "--json").is(0).object(&out)
	if text := read(t, to); out.Day != "2026-10-12" || out.File != to || out.Bytes != len(text) || out.Receipts != 3 || strings.Count(text, "\n") != 3 {
		t.Errorf("%+v, %s", out, text)
	}
}

func TestReceiptsOfTheGatewayRefusals(t *testing.T) {
	h := newHouse(t)
	h.run("receipts", "--gateway").is(2, "name a BATCH")
	h.run("receipts", "--gateway", "file-1").is(2, "batch_")
	h.run("receipts", "--gateway", receiptsBatch).is(1, "batch_not_found")
	h.run("receipts", "--day", "today").is(2, "no day")
	h.run("receipts", "--day", "2026-10-12", receiptsBatch).is(2, "neither")
	h.run("receipts", "--day", "2026-10-12", "--gateway").is(2, "neither")
	h.run("receipts", "--day", "2026-10-12", "--json").is(2, "--output")
}
