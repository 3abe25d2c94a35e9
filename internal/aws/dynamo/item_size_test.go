package dynamo

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/lease"
)

// itemLimit is DynamoDB's, names and overhead included.
const itemLimit = 400 << 10

// The largest part that the settings allow, checkpointed a line at a time (slow
// lines are saved by age, large replies by size, and claims may end after one):
// its item holds all chunks, whatever is longest.
func TestItemHoldsAChunkForEveryLine(t *testing.T) {
	lines := mostPartLines(t)
	p := batch.Part{
		PartKey: batch.PartKey{Tenant: strings.Repeat("t", 63), Batch: "batch_" + strings.Repeat("b", 32), N: 9_999_999},
		State:   batch.Leased, Owner: lease.NewToken(), Ver: 1 << 40,
		LeaseUntil: time.Now(), Due: time.Now(), CreatedAt: time.Now(),
		Attempts: 100, Lapses: 1000, Steals: 1000, Resends: 1000, DeadAt: time.Now(),
		Suspect:   batch.Suspect{Line: lines, Strikes: 100, By: lease.NewToken()},
		FirstLine: 9_999_999, FirstPhysical: 9_999_999, From: 10_000_000_000, To: 10_000_000_000,
		Lines: lines, Processed: lines, DoneLines: batch.NewBitmap(lines),
		TaskToken: strings.Repeat("k", 2048), LastError: strings.Repeat("e", maxReason),
	}
	for i := range lines {
		p.Chunks = append(p.Chunks, batch.Chunk{
			Key: fmt.Sprintf("%s/parts/%s/%d/%s-%d.jsonl", p.Tenant, p.Batch, p.N, p.Owner, i),
			N:   1, OK: 1, Bytes: 64 << 20, Sum: strings.Repeat("0", 64),
		})
	}
	a, err := encode(newPartItem(p))
	if err != nil {
		t.Fatal(err)
	}
	size := sizeOfItem(a)
	t.Logf("%d chunks: %d bytes", lines, size)
	// The rules below are as documented; a fifth is left for what they leave open.
	if size > itemLimit*4/5 {
		t.Errorf("an item of %d bytes for %d lines", size, lines)
	}
}

// mostPartLines asks config for its ceiling.
func mostPartLines(t *testing.T) int {
	t.Helper()
	n := 0
	for {
		_, err := config.Parse(func(name string) string {
			switch name {
			case "HOLDFAST_PART_LINES":
				return strconv.Itoa(n + 1)
			case "HOLDFAST_FILE_LINES":
				return "1"
			}
			return ""
		})
		if err != nil {
			break
		}
		n++
	}
	if n < 500 {
		t.Fatalf("only %d lines are allowed", n)
	}
	return n
}
