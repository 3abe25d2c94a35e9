package dynamo

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/storetest"
)

// TestSuites runs every suite of a port that this package implements.
func TestSuites(t *testing.T) {
	client, name := newTable(t)
	s, r := New(newWitness(t, client), name), raw{client, name}
	t.Run("Batches", func(t *testing.T) {
		storetest.RunBatches(t, func(storetest.T) storetest.BatchesPorts { return batchesPorts(r, s) })
	})
	t.Run("Endings", func(t *testing.T) {
		storetest.RunEndings(t, func(storetest.T) storetest.EndingsPorts { return endingsPorts(r, s) })
	})
	t.Run("Parts", func(t *testing.T) {
		storetest.RunParts(t, func(storetest.T) storetest.PartsPorts { return partsPorts(r, s) })
	})
	t.Run("Claims", func(t *testing.T) {
		storetest.RunClaims(t, func(storetest.T) storetest.ClaimsPorts { return claimsPorts(r, s) })
	})
	t.Run("Seals", func(t *testing.T) {
		storetest.RunSeals(t, func(storetest.T) storetest.SealsPorts { return sealsPorts(r, s) })
	})
	t.Run("Steals", func(t *testing.T) {
		storetest.RunSteals(t, func(storetest.T) storetest.StealsPorts { return stealsPorts(r, s) })
	})
	t.Run("Reaps", func(t *testing.T) {
		storetest.RunReaps(t, func(storetest.T) storetest.ReapsPorts { return reapsPorts(r, s) })
	})
	t.Run("Deaths", func(t *testing.T) {
		storetest.RunDeaths(t, func(storetest.T) storetest.ReapsPorts { return reapsPorts(r, s) })
	})
	t.Run("Events", func(t *testing.T) {
		storetest.RunEvents(t, func(storetest.T) storetest.EventsPorts { return eventsPorts(r, s) })
	})
	t.Run("Files", func(t *testing.T) { storetest.RunFiles(t, func(storetest.T) batch.Files { return files(r, s) }) })
	t.Run("Bridge", func(t *testing.T) {
		storetest.RunBridge(t, func(storetest.T) storetest.BridgePorts { return bridgePorts(r, s) })
	})
	t.Run("Sends", func(t *testing.T) { storetest.RunSends(t, func(storetest.T) bridge.Sends { return sends(r, s) }) })
	t.Run("UploadItems", func(t *testing.T) {
		storetest.RunUploadItems(t, func(storetest.T) storetest.UploadItemsPorts { return uploadItems(r, s) })
	})
	t.Run("Keys", func(t *testing.T) { storetest.RunKeys(t, func(storetest.T) access.Store { return keys(r, s) }) })
	t.Run("Tenants", func(t *testing.T) { storetest.RunTenants(t, func(storetest.T) access.Tenants { return tenants(r, s) }) })
	t.Run("Receipts", func(t *testing.T) {
		storetest.RunReceipts(t, func(storetest.T) access.Receipts { return receipts(r, s) })
	})
}

// every is every case of those suites.
func every() []runnable {
	var all []runnable
	add(&all, "batches/", storetest.BatchesCases(), batchesPorts)
	add(&all, "endings/", storetest.EndingsCases(), endingsPorts)
	add(&all, "parts/", storetest.PartsCases(), partsPorts)
	add(&all, "claims/", storetest.ClaimsCases(), claimsPorts)
	add(&all, "seals/", storetest.SealsCases(), sealsPorts)
	add(&all, "steals/", storetest.StealsCases(), stealsPorts)
	add(&all, "reaps/", storetest.ReapsCases(), reapsPorts)
	add(&all, "deaths/", storetest.DeathsCases(), reapsPorts)
	add(&all, "events/", storetest.EventsCases(), eventsPorts)
	add(&all, "files/", storetest.FilesCases(), files)
	add(&all, "bridge/", storetest.BridgeCases(), bridgePorts)
	add(&all, "sends/", storetest.SendsCases(), sends)
	add(&all, "upload items/", storetest.UploadItemsCases(), uploadItems)
	add(&all, "keys/", storetest.KeysCases(), keys)
	add(&all, "tenants/", storetest.TenantsCases(), tenants)
	add(&all, "receipts/", storetest.ReceiptsCases(), receipts)
	return all
}

func batchesPorts(_ raw, s *Store) storetest.BatchesPorts {
	return storetest.BatchesPorts{Batches: s.Batches, Endings: s.Endings}
}

func endingsPorts(_ raw, s *Store) storetest.EndingsPorts {
	return storetest.EndingsPorts{Batches: s.Batches, Endings: s.Endings}
}

func partsPorts(_ raw, s *Store) storetest.PartsPorts {
	return storetest.PartsPorts{Parts: s.Parts, Claims: s.Claims}
}

func claimsPorts(r raw, s *Store) storetest.ClaimsPorts {
	return storetest.ClaimsPorts{Parts: s.Parts, Claims: s.Claims, Seed: func(t storetest.T, p batch.Part) {
		t.Helper()
		if err := r.seed(t.Context(), p); err != nil {
			t.Fatalf("seed: %v", err)
		}
	}}
}

func sealsPorts(r raw, s *Store) storetest.SealsPorts {
	return storetest.SealsPorts{Parts: s.Parts, Claims: s.Claims, Seals: s.Seals, Seed: claimsPorts(r, s).Seed}
}

func stealsPorts(r raw, s *Store) storetest.StealsPorts {
	return storetest.StealsPorts{ClaimsPorts: claimsPorts(r, s), Steals: s.Claims}
}

func reapsPorts(r raw, s *Store) storetest.ReapsPorts {
	return storetest.ReapsPorts{
		ClaimsPorts: claimsPorts(r, s), Steals: s.Claims, Seals: s.Seals, Batches: s.Batches, Endings: s.Endings,
		Files: s.Files, Bridge: s.Bridge, Uploads: s.Uploads, Reaps: s.Reaps, Deaths: s.Deaths,
	}
}

func eventsPorts(_ raw, s *Store) storetest.EventsPorts {
	return storetest.EventsPorts{Events: s.Events, Batches: s.Batches, Parts: s.Parts}
}

func files(_ raw, s *Store) batch.Files { return s.Files }

func bridgePorts(r raw, s *Store) storetest.BridgePorts {
	return storetest.BridgePorts{Store: s.Bridge, Look: func(t storetest.T, k bridge.Key) (bridge.Row, bool) {
		t.Helper()
		out, err := r.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &r.name, Key: bridgeKey(k).attributes(), ConsistentRead: aws.Bool(true)})
		if err != nil {
			t.Fatalf("look: %v", err)
		}
		if out.Item == nil {
			return bridge.Row{}, false
		}
		i, err := decode[rowItem](out.Item)
		if err != nil {
			t.Fatalf("look: %v", err)
		}
		return i.row(), true
	}}
}

func sends(_ raw, s *Store) bridge.Sends { return s.Sends }

func uploadItems(_ raw, s *Store) storetest.UploadItemsPorts {
	return storetest.UploadItemsPorts{Store: s.Uploads, Completions: s.Uploads}
}

func keys(_ raw, s *Store) access.Store { return s.Keys }

func tenants(_ raw, s *Store) access.Tenants { return s.Tenants }

func receipts(_ raw, s *Store) access.Receipts { return s.Receipts }

// runnable is a case of any suite: run it over a store, and it says whether it
// failed and why.
type runnable struct {
	name  string
	fails func(ctx context.Context, client *dynamodb.Client, table string, s *Store) (bool, string)
}

func add[P any](all *[]runnable, suite string, cases []storetest.Case[P], ports func(raw, *Store) P) {
	for _, c := range cases {
		*all = append(*all, runnable{suite + c.Name, func(ctx context.Context, client *dynamodb.Client, table string, s *Store) (bool, string) {
			return storetest.Fails(ctx, c, func(storetest.T) P { return ports(raw{client, table}, s) })
		}})
	}
}
