package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"holdfast/functions/api/server"
	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/gateway"
	"holdfast/internal/memory"
)

// AccessCost is how often a request had the table read, at most, so that it could be
// told who it is and what its tenant may use up. The requests read nothing else, and
// each has its own key: the first that a process sees of a key; the next one, which may
// owe the tenant's record; one after that; and the first when all that was kept is too
// old.
type AccessCost struct{ Cold, Next, Warm, Later int }

// accessTenants is how many tenants the keys are of, each with a record of limits.
const accessTenants = 50

// CountAccess counts the reads by the API and by the gateway, with so many keys and
// batches in the table.
func CountAccess(keys, batches int) (AccessCost, error) {
	ctx, now := context.Background(), time.Now()
	m := memory.New(memory.Options{})
	var secrets []string
	for i := range keys {
		name := fmt.Sprintf("tenant-%d", i%accessTenants)
		k, secret, err := access.New(access.Key{Tenant: name, Principal: "somebody", Name: "bench", Scopes: []access.Scope{access.Read}}, now)
		if err == nil {
			err = m.Table.Keys.Put(ctx, k)
		}
		if err == nil && i < accessTenants {
			err = m.Table.Tenants.Put(ctx, access.Tenant{Name: name, Limits: access.Limits{RequestsPerMinute: 1_000_000}})
		}
		if err != nil {
			return AccessCost{}, err
		}
		secrets = append(secrets, secret)
	}
	for i := range batches {
		m.Table.SeedBatch(batch.Batch{Tenant: fmt.Sprintf("tenant-%d", i%accessTenants), ID: frontBatch(i), Status: batch.InProgress, Submitter: "somebody", Lines: 1})
	}
	clock := func() time.Time { return now }
	faults := memory.NewFaults()
	table := m.With(faults).Table
	// As functions/api and functions/gateway wire them.
	door := func() (*access.Cache, *access.TenantCache) {
		tenants := access.NewTenantCache(table.Tenants, &access.TenantCacheOptions{Off: time.Minute})
		return access.NewCache(table.Keys, &access.CacheOptions{Tenants: tenants, Pairs: table.Keys}), tenants
	}
	known, limits := door()
	api := server.New(server.Ports{Keys: known, Tenants: limits}, config.Default(), "inputs", &server.Options{Now: clock})
	known, limits = door()
	gate := gateway.New(gateway.Ports{Keys: known, Tenants: limits}, config.Default(), &gateway.Options{Now: clock})

	var cost AccessCost
	round := func(most *int) error {
		for _, h := range []http.Handler{api, gate} {
			for _, secret := range secrets {
				before := readsSoFar(faults)
				r, err := http.NewRequest(http.MethodGet, "https://api.example/v1/models", nil)
				if err != nil {
					return err
				}
				r.Header.Set("Authorization", "Bearer "+secret)
				r.RemoteAddr = "192.0.2.1:4711"
				w := &discarded{header: http.Header{}}
				h.ServeHTTP(w, r)
				if w.status != http.StatusOK {
					return fmt.Errorf("answered %d: %s", w.status, w.head)
				}
				*most = max(*most, readsSoFar(faults)-before)
			}
		}
		return nil
	}
	for _, most := range []*int{&cost.Cold, &cost.Next, &cost.Warm, &cost.Later} {
		if most == &cost.Later {
			now = now.Add(61 * time.Second) // beyond what anything is believed for
		}
		if err := round(most); err != nil {
			return AccessCost{}, err
		}
	}
	return cost, nil
}

// readsSoFar counts them.
func readsSoFar(f *memory.Faults) (n int) {
	for _, op := range readsOfAccess {
		n += f.Count(op)
	}
	return n
}
