// Package meter counts the calls that a function makes of AWS, by operation and
// by the batch that they are for, and logs them as one line per invocation. What
// they cost is package cost's to say.
//
//	Begin       opens a record that travels in the context
//	Count       adds the counting to an SDK configuration
//	Units       takes what the table says a call consumed
//	Model       counts requests to the upstream, which is no AWS service
//	Invocations writes the line
//
// A call under a context without a record is not counted and costs nothing. Only
// names of operations and batches are kept, and numbers: never a body, a key of
// an object or of a caller, or a header.
package meter

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"holdfast/internal/batch"
	"holdfast/internal/cost"
)

// Record is what one invocation did so far. It is safe for concurrent use, and
// calls that end after it was read are lost to it.
type Record struct {
	mu       sync.Mutex
	calls    map[batch.Subject]map[string]cost.Calls
	upstream map[batch.Subject]cost.Upstream
}

type recordKey struct{}

// Begin returns a context whose calls are counted, and their record.
func Begin(ctx context.Context) (context.Context, *Record) {
	r := &Record{calls: map[batch.Subject]map[string]cost.Calls{}, upstream: map[batch.Subject]cost.Upstream{}}
	return context.WithValue(ctx, recordKey{}, r), r
}

// add counts c under ctx's record and subject, if there is a record.
func add(ctx context.Context, operation string, c cost.Calls) {
	r, ok := ctx.Value(recordKey{}).(*Record)
	if !ok {
		return
	}
	s := batch.SubjectOf(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	by := r.calls[s]
	if by == nil {
		by = map[string]cost.Calls{}
		r.calls[s] = by
	}
	by[operation] = by[operation].Plus(c)
}

// Units counts what a call to the table consumed. The call itself is counted by
// [Count]; operation is its name there, "DynamoDB.UpdateItem".
func Units(ctx context.Context, operation string, reads, writes float64) {
	add(ctx, operation, cost.Calls{Reads: reads, Writes: writes})
}

// Shares is the record as the usage line has it. lines are the results that were
// committed, by batch, if any were: a run's duration is mostly waiting for the
// upstream, which all lines of a run share alike. Where there were none each
// batch bears an equal part. unnamed is whose calls are that were made for
// nobody in particular; the zero Subject leaves them to all.
func (r *Record) Shares(lines map[batch.Subject]int, unnamed batch.Subject) []cost.Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[batch.Subject]cost.Share{}
	full := r.names(lines)
	share := func(s batch.Subject) cost.Share {
		if s == (batch.Subject{}) {
			s = unnamed
		}
		if s.Tenant == "" {
			s.Tenant = full[s.Batch]
		}
		if have, ok := by[s]; ok {
			return have
		}
		return cost.Share{Tenant: s.Tenant, Batch: s.Batch}
	}
	put := func(s cost.Share) { by[batch.Subject{Tenant: s.Tenant, Batch: s.Batch}] = s }
	for subject, calls := range r.calls {
		s := share(subject)
		if s.Calls == nil {
			s.Calls = map[string]cost.Calls{}
		}
		for name, c := range calls {
			s.Calls[name] = s.Calls[name].Plus(c)
		}
		put(s)
	}
	for subject, u := range r.upstream {
		s := share(subject)
		s.Upstream.Requests += u.Requests
		s.Upstream.Waited += u.Waited
		put(s)
	}
	total := 0
	for subject, n := range lines {
		s := share(subject)
		s.Lines += n
		total += n
		put(s)
	}
	if unnamed != (batch.Subject{}) {
		put(share(unnamed))
	}
	return divide(by, total)
}

// names gives the tenant of each batch that somebody named in full. Who knows a
// batch by its id alone means the same one: ids are random, and no two tenants
// have one in common.
func (r *Record) names(lines map[batch.Subject]int) map[string]string {
	full := map[string]string{}
	note := func(s batch.Subject) {
		if s.Tenant != "" {
			full[s.Batch] = s.Tenant
		}
	}
	for s := range r.calls {
		note(s)
	}
	for s := range r.upstream {
		note(s)
	}
	for s := range lines {
		note(s)
	}
	return full
}

// divide gives every named batch its part and puts them in order.
func divide(by map[batch.Subject]cost.Share, lines int) []cost.Share {
	named := 0
	for _, s := range by {
		if s.Batch != "" {
			named++
		}
	}
	all := make([]cost.Share, 0, len(by))
	for _, s := range by {
		switch {
		case s.Batch == "":
		case lines > 0:
			s.Part = float64(s.Lines) / float64(lines)
		default:
			s.Part = 1 / float64(named)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b cost.Share) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Batch, b.Batch))
	})
	return all
}
