package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// DeadParts yields the dead parts of a tenant, or of all tenants for "", in no
// order. What is not dead any more when it is read is left out; what has died in
// the last moment may be missing. It costs a query for each shard, over the dead
// parts of all tenants, and a read for each part of the one that is asked for. It
// stops after an error.
func DeadParts(ctx context.Context, reaps Reaps, parts Parts, tenant string) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		for shard := range DueShards {
			for d, err := range deadRows(ctx, reaps, shard) {
				if err != nil {
					yield(Part{}, fmt.Errorf("list dead parts: %w", err))
					return
				}
				if d.Kind != DuePart || tenant != "" && d.Tenant != tenant {
					continue
				}
				p, err := parts.Get(ctx, d.PartKey())
				switch {
				case errors.Is(err, ErrNotFound) || err == nil && p.State != Dead:
					continue
				case err != nil:
					yield(Part{}, fmt.Errorf("list dead parts: %w", err))
					return
				case !yield(p, nil):
					return
				}
			}
		}
	}
}

// deadRows yields one shard's rows of dead parts.
func deadRows(ctx context.Context, reaps Reaps, shard int) iter.Seq2[Due, error] {
	return func(yield func(Due, error) bool) {
		q := DueQuery{Shard: shard, Dead: true, Limit: MaxDue}
		for {
			page, err := reaps.Due(ctx, q)
			if err != nil {
				yield(Due{}, err)
				return
			}
			for _, d := range page.Rows {
				if !yield(d, nil) {
					return
				}
			}
			if q.After = page.Next; q.After == "" {
				return
			}
		}
	}
}
