package memory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/memory"
	"holdfast/internal/storetest"
)

// Every port here passes the suite that its adapter passes.

func TestBatches(t *testing.T)  { storetest.RunBatches(t, batches("")) }
func TestEndings(t *testing.T)  { storetest.RunEndings(t, endings("")) }
func TestParts(t *testing.T)    { storetest.RunParts(t, parts("")) }
func TestClaims(t *testing.T)   { storetest.RunClaims(t, claims("")) }
func TestSeals(t *testing.T)    { storetest.RunSeals(t, seals("")) }
func TestSteals(t *testing.T)   { storetest.RunSteals(t, steals("")) }
func TestReaps(t *testing.T)    { storetest.RunReaps(t, reaps("")) }
func TestDeaths(t *testing.T)   { storetest.RunDeaths(t, reaps("")) }
func TestEvents(t *testing.T)   { storetest.RunEvents(t, events("")) }
func TestFiles(t *testing.T)    { storetest.RunFiles(t, files("")) }
func TestKeys(t *testing.T)     { storetest.RunKeys(t, keys("")) }
func TestTenants(t *testing.T)  { storetest.RunTenants(t, tenants("")) }
func TestReceipts(t *testing.T) { storetest.RunReceipts(t, receipts("")) }
func TestBridge(t *testing.T)   { storetest.RunBridge(t, bridges("")) }
func TestSends(t *testing.T)    { storetest.RunSends(t, sends("")) }
func TestObjects(t *testing.T)  { storetest.RunObjects(t, objects("")) }
func TestUploads(t *testing.T)  { storetest.RunUploads(t, uploads("")) }
func TestWorkflow(t *testing.T) { storetest.RunWorkflow(t, workflow("")) }

func TestUploadItems(t *testing.T) { storetest.RunUploadItems(t, uploadItems("")) }
func TestPieces(t *testing.T)      { storetest.RunPieces(t, pieces("")) }

// The ports with time run in bubbles, where waits cost nothing.

func TestQueue(t *testing.T) { bubbles(t, storetest.QueueCases(), queue("")) }
func TestModel(t *testing.T) { bubbles(t, storetest.ModelCases(), model) }

func bubbles[P any](t *testing.T, cases []storetest.Case[P], open func(storetest.T) P) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, open(t)) })
		})
	}
}

// TestClauses drops one clause at a time and wants a case to fail: a clause that
// no case misses is one that an adapter could forget.
func TestClauses(t *testing.T) {
	for _, clause := range memory.Clauses() {
		t.Run(clause, func(t *testing.T) {
			t.Parallel()
			missed := suites(t, clause)
			if len(missed) == 0 {
				t.Errorf("no case fails without %s (%s)", clause, memory.Describe(clause))
			}
			t.Logf("without %s (%s) %d cases fail: %s", clause, memory.Describe(clause), len(missed), strings.Join(missed, "; "))
		})
	}
}

// TestNoClause is TestClauses' own proof: with nothing dropped, no case fails
// there either.
func TestNoClause(t *testing.T) {
	if failed := suites(t, ""); len(failed) > 0 {
		t.Errorf("cases fail with nothing dropped: %v", failed)
	}
}

// suites runs the suites that could miss the clause (all of them for ""), with
// it dropped, and gives the cases that fail.
func suites(t *testing.T, drop string) (failed []string) {
	row, _, _ := strings.Cut(drop, ".")
	of := func(rows ...string) bool { return drop == "" || slices.Contains(rows, row) }
	if of("C15", "C16") {
		try(t, &failed, "Batches", storetest.BatchesCases(), batches(drop))
		try(t, &failed, "Endings", storetest.EndingsCases(), endings(drop))
	}
	if of("C17") {
		try(t, &failed, "Parts", storetest.PartsCases(), parts(drop))
	}
	if of("C5", "C7", "C7s", "C8", "C9", "C10", "C10f") {
		try(t, &failed, "Claims", storetest.ClaimsCases(), claims(drop))
	}
	if of("C13") {
		try(t, &failed, "Seals", storetest.SealsCases(), seals(drop))
	}
	if of("C6") {
		try(t, &failed, "Steals", storetest.StealsCases(), steals(drop))
	}
	if of("C11", "postpone", "defer") {
		try(t, &failed, "Reaps", storetest.ReapsCases(), reaps(drop))
	}
	if of("C12", "C14") {
		try(t, &failed, "Deaths", storetest.DeathsCases(), reaps(drop))
	}
	if of("events") {
		try(t, &failed, "Events", storetest.EventsCases(), events(drop))
	}
	if of("files") {
		try(t, &failed, "Files", storetest.FilesCases(), files(drop))
	}
	if of("keys") {
		try(t, &failed, "Keys", storetest.KeysCases(), keys(drop))
	}
	if of("tenants") {
		try(t, &failed, "Tenants", storetest.TenantsCases(), tenants(drop))
	}
	if of("receipts") {
		try(t, &failed, "Receipts", storetest.ReceiptsCases(), receipts(drop))
	}
	if of("C1", "C2", "C3", "C3b", "C4") {
		try(t, &failed, "Bridge", storetest.BridgeCases(), bridges(drop))
	}
	if of("sends") {
		try(t, &failed, "Sends", storetest.SendsCases(), sends(drop))
	}
	if of("U") {
		try(t, &failed, "UploadItems", storetest.UploadItemsCases(), uploadItems(drop))
	}
	if of("objects") {
		try(t, &failed, "Objects", storetest.ObjectsCases(), objects(drop))
	}
	if of("uploads") {
		try(t, &failed, "Uploads", storetest.UploadsCases(), uploads(drop))
	}
	if of("queue") {
		try(t, &failed, "Queue", storetest.QueueCases(), queue(drop))
	}
	if of("workflow") {
		try(t, &failed, "Workflow", storetest.WorkflowCases(), workflow(drop))
	}
	return failed
}

func try[P any](t *testing.T, failed *[]string, suite string, cases []storetest.Case[P], open func(storetest.T) P) {
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			if bad, said := storetest.Fails(t.Context(), c, open); bad {
				*failed = append(*failed, fmt.Sprintf("%s/%s", suite, c.Name))
				if testing.Verbose() {
					t.Logf("%s/%s: %.300s", suite, c.Name, said)
				}
			}
		})
	}
}

func table(drop string) *memory.Table { return memory.New(memory.Options{Drop: drop}).Table }

func batches(drop string) func(storetest.T) storetest.BatchesPorts {
	return func(storetest.T) storetest.BatchesPorts {
		s := table(drop)
		return storetest.BatchesPorts{Batches: s.Batches, Endings: s.Endings}
	}
}

func endings(drop string) func(storetest.T) storetest.EndingsPorts {
	return func(storetest.T) storetest.EndingsPorts {
		s := table(drop)
		return storetest.EndingsPorts{Batches: s.Batches, Endings: s.Endings}
	}
}

func parts(drop string) func(storetest.T) storetest.PartsPorts {
	return func(storetest.T) storetest.PartsPorts {
		s := table(drop)
		return storetest.PartsPorts{Parts: s.Parts, Claims: s.Claims}
	}
}

func claims(drop string) func(storetest.T) storetest.ClaimsPorts {
	return func(storetest.T) storetest.ClaimsPorts {
		s := table(drop)
		return storetest.ClaimsPorts{Parts: s.Parts, Claims: s.Claims, Seed: func(_ storetest.T, p batch.Part) { s.SeedPart(p) }}
	}
}

func seals(drop string) func(storetest.T) storetest.SealsPorts {
	return func(storetest.T) storetest.SealsPorts {
		s := table(drop)
		return storetest.SealsPorts{Parts: s.Parts, Claims: s.Claims, Seals: s.Seals, Seed: func(_ storetest.T, p batch.Part) { s.SeedPart(p) }}
	}
}

func steals(drop string) func(storetest.T) storetest.StealsPorts {
	return func(t storetest.T) storetest.StealsPorts {
		p := reaps(drop)(t)
		return storetest.StealsPorts{ClaimsPorts: p.ClaimsPorts, Steals: p.Steals}
	}
}

func reaps(drop string) func(storetest.T) storetest.ReapsPorts {
	return func(storetest.T) storetest.ReapsPorts {
		s := table(drop)
		return storetest.ReapsPorts{
			ClaimsPorts: storetest.ClaimsPorts{Parts: s.Parts, Claims: s.Claims, Seed: func(_ storetest.T, p batch.Part) { s.SeedPart(p) }},
			Steals:      s.Claims, Seals: s.Seals, Batches: s.Batches, Endings: s.Endings, Files: s.Files, Bridge: s.Bridge, Uploads: s.Uploads,
			Reaps: s.Reaps, Deaths: s.Deaths,
		}
	}
}

func events(drop string) func(storetest.T) storetest.EventsPorts {
	return func(storetest.T) storetest.EventsPorts {
		s := table(drop)
		return storetest.EventsPorts{Events: s.Events, Batches: s.Batches, Parts: s.Parts}
	}
}

func files(drop string) func(storetest.T) batch.Files {
	return func(storetest.T) batch.Files { return table(drop).Files }
}

func keys(drop string) func(storetest.T) access.Store {
	return func(storetest.T) access.Store { return table(drop).Keys }
}

func tenants(drop string) func(storetest.T) access.Tenants {
	return func(storetest.T) access.Tenants { return table(drop).Tenants }
}

func receipts(drop string) func(storetest.T) access.Receipts {
	return func(storetest.T) access.Receipts { return table(drop).Receipts }
}

func bridges(drop string) func(storetest.T) storetest.BridgePorts {
	return func(storetest.T) storetest.BridgePorts {
		s := table(drop)
		return storetest.BridgePorts{Store: s.Bridge, Look: func(_ storetest.T, k bridge.Key) (bridge.Row, bool) {
			return s.Row(k.Tenant, k.CorrelationID)
		}}
	}
}

func sends(drop string) func(storetest.T) bridge.Sends {
	return func(storetest.T) bridge.Sends { return table(drop).Sends }
}

func uploadItems(drop string) func(storetest.T) storetest.UploadItemsPorts {
	return func(storetest.T) storetest.UploadItemsPorts {
		s := table(drop)
		return storetest.UploadItemsPorts{Store: s.Uploads, Completions: s.Uploads}
	}
}

func pieces(drop string) func(storetest.T) storetest.PiecesPorts {
	return func(storetest.T) storetest.PiecesPorts {
		s := memory.New(memory.Options{Drop: drop}).Objects
		return storetest.PiecesPorts{Pieces: s, Multiparts: s, Objects: s, Bucket: "bucket", Put: s.PutURL}
	}
}

func objects(drop string) func(storetest.T) storetest.ObjectsPorts {
	return func(storetest.T) storetest.ObjectsPorts {
		return storetest.ObjectsPorts{Objects: memory.New(memory.Options{Drop: drop}).Objects, Bucket: "bucket"}
	}
}

func uploads(drop string) func(storetest.T) storetest.UploadsPorts {
	return func(storetest.T) storetest.UploadsPorts {
		s := memory.New(memory.Options{Drop: drop}).Objects
		return storetest.UploadsPorts{Uploads: s, Objects: s, Bucket: "bucket"}
	}
}

func queue(drop string) func(storetest.T) batch.Queue {
	return func(storetest.T) batch.Queue { return memory.New(memory.Options{Drop: drop}).Queue }
}

func workflow(drop string) func(storetest.T) batch.Workflow {
	return func(storetest.T) batch.Workflow { return memory.New(memory.Options{Drop: drop}).Workflow }
}

// model is scripted as a server would behave; what the suite holds here is that
// scripts for Model keep to the port.
func model(storetest.T) storetest.ModelPorts {
	return storetest.ModelPorts{New: func(_ storetest.T, answer func([]byte) storetest.ModelAnswer) batch.Model {
		return memory.NewModel(nil, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			a := answer(c.Body)
			if a.Wait != nil {
				a.Wait()
			}
			switch {
			case a.Stall:
				if err := memory.Wait(ctx, storetest.ModelTimeout); err != nil {
					return batch.Reply{}, err
				}
				return batch.Reply{}, batch.ErrTimeout
			case a.Break:
				return batch.Reply{}, batch.ErrUnreachable
			case len(a.Body) > storetest.ModelReplyBytes:
				return batch.Reply{}, batch.ErrReplyTooLarge
			}
			return a.Reply, nil
		})
	}}
}
