package memory_test

import (
	"testing"

	"holdfast/internal/memory"
	"holdfast/internal/storetest"
)

func TestOpen(t *testing.T) {
	storetest.RunOpen(t, func(t storetest.T) storetest.OpenPorts {
		s := memory.NewTable(nil)
		return storetest.OpenPorts{Open: s.Batches, BatchesPorts: storetest.BatchesPorts{Batches: s.Batches, Endings: s.Endings}}
	})
}

func TestPairs(t *testing.T) {
	storetest.RunPairs(t, func(t storetest.T) storetest.PairsPorts {
		s := memory.NewTable(nil)
		return storetest.PairsPorts{Pairs: s.Keys, Replays: s.Keys, Keys: s.Keys, Tenants: s.Tenants, Batches: s.Batches}
	})
}
