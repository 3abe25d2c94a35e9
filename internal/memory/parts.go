package memory

import (
	"context"
	"iter"

	"holdfast/internal/batch"
)

// Parts is batch.Parts over a Table.
type Parts struct{ port }

var _ batch.Parts = (*Parts)(nil)

// Insert is batch.Parts.Insert.
func (s *Parts) Insert(ctx context.Context, parts []batch.Part) error {
	return effect(ctx, s.faults, "Parts.Insert", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range parts {
			_, there := s.parts[name{p.Tenant, p.Batch}][p.N]
			if s.rules.must("C17.absent", !there) {
				p.State = batch.Pending
				s.writePart(p)
			}
		}
		return nil
	})
}

// Get is batch.Parts.Get.
func (s *Parts) Get(ctx context.Context, key batch.PartKey) (batch.Part, error) {
	return call(ctx, s.faults, "Parts.Get", func() (batch.Part, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.part(key)
	})
}

// All is batch.Parts.All. It reads everything at once, when the loop begins.
func (s *Parts) All(ctx context.Context, tenant, id string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		parts, err := call(ctx, s.faults, "Parts.All", func() ([]batch.Part, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.partsOf(name{tenant, id}), nil
		})
		if err != nil {
			yield(batch.Part{}, err)
			return
		}
		for _, p := range parts {
			if !yield(p, nil) {
				return
			}
		}
	}
}
