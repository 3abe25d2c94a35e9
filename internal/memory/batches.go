package memory

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Batches is batch.Batches over a Table.
type Batches struct{ port }

var _ batch.Batches = (*Batches)(nil)

// Create is batch.Batches.Create.
func (s *Batches) Create(ctx context.Context, b batch.Batch) error {
	return effect(ctx, s.faults, "Batches.Create", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.Status = batch.Validating
		if b.Due.IsZero() {
			b.Due = b.Deadline
		}
		old, there := s.batches[name{b.Tenant, b.ID}]
		if s.rules.must("C15.create.absent", !there) {
			s.write(b)
			return nil
		}
		mine := cloneBatch(b)
		mine.Ver++
		if s.rules.own("C15.create.own", s.rules.must("C15.create.own.equal", reflect.DeepEqual(old, mine))) {
			return nil
		}
		return fmt.Errorf("create batch %s: %w", b.ID, batch.ErrExists)
	})
}

// Get is batch.Batches.Get.
func (s *Batches) Get(ctx context.Context, tenant, id string) (batch.Batch, error) {
	return call(ctx, s.faults, "Batches.Get", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.batch(tenant, id)
	})
}

// List is batch.Batches.List. A limit outside 1-100 is an error.
func (s *Batches) List(ctx context.Context, tenant, after string, limit int) ([]batch.Batch, bool, error) {
	type answer struct {
		page []batch.Batch
		more bool
	}
	a, err := call(ctx, s.faults, "Batches.List", func() (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if limit < 1 || limit > 100 {
			return answer{}, fmt.Errorf("list batches: limit %d is not within 1-100", limit)
		}
		var all []batch.Batch
		for n, b := range s.batches {
			if n.tenant == tenant {
				all = append(all, cloneBatch(b))
			}
		}
		slices.SortFunc(all, func(a, b batch.Batch) int {
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), compare(b.ID, a.ID))
		})
		if after != "" {
			at := slices.IndexFunc(all, func(b batch.Batch) bool { return b.ID == after })
			if at < 0 {
				return answer{}, fmt.Errorf("list batches after %q: %w", after, batch.ErrNotFound)
			}
			all = all[at+1:]
		}
		if len(all) > limit {
			return answer{all[:limit], true}, nil
		}
		return answer{all, false}, nil
	})
	return a.page, a.more, err
}

// Reading is batch.Batches.Reading.
func (s *Batches) Reading(ctx context.Context, tenant, fileID string, since time.Time) (string, error) {
	return call(ctx, s.faults, "Batches.Reading", func() (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for n, b := range s.batches {
			if n.tenant == tenant && b.Input.FileID == fileID && !b.Status.Terminal() && !b.CreatedAt.Before(millis(since)) {
				return b.ID, nil
			}
		}
		return "", nil
	})
}

// Start is batch.Batches.Start.
func (s *Batches) Start(ctx context.Context, tenant, id string, started batch.Started, now time.Time) (batch.Batch, error) {
	return call(ctx, s.faults, "Batches.Start", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return batch.Batch{}, err
		}
		if s.rules.must("C15.start.validating", b.Status == batch.Validating) {
			b.Status, b.InProgressAt = batch.InProgress, now
			b.Parts, b.Lines, b.Model = started.Parts, started.Lines, started.Model
			return s.write(b), nil
		}
		if s.rules.own("C15.start.own",
			s.rules.must("C15.start.own.status", b.Status == batch.InProgress) &&
				s.rules.must("C15.start.own.parts", b.Parts == started.Parts) &&
				s.rules.must("C15.start.own.lines", b.Lines == started.Lines) &&
				s.rules.must("C15.start.own.model", b.Model == started.Model)) {
			return b, nil
		}
		return batch.Batch{}, refused("start", b)
	})
}

// Refuse is batch.Batches.Refuse.
func (s *Batches) Refuse(ctx context.Context, tenant, id string, why []openai.BatchError, now time.Time) (batch.Batch, error) {
	return call(ctx, s.faults, "Batches.Refuse", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return batch.Batch{}, err
		}
		if s.rules.must("C15.refuse.validating", b.Status == batch.Validating) {
			b.Status, b.FailedAt, b.Errors, b.Due = batch.Failed, now, why, time.Time{}
			return s.write(b), nil
		}
		if s.rules.own("C15.refuse.own", s.rules.must("C15.refuse.own.failed", b.Status == batch.Failed)) {
			return b, nil
		}
		return batch.Batch{}, refused("refuse", b)
	})
}

// Overrun is batch.Batches.Overrun.
func (s *Batches) Overrun(ctx context.Context, tenant, id string, now time.Time) (batch.Batch, error) {
	return call(ctx, s.faults, "Batches.Overrun", func() (batch.Batch, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, err := s.batch(tenant, id)
		if err != nil {
			return batch.Batch{}, err
		}
		if !s.rules.must("C15.overrun.validating", b.Status == batch.Validating) {
			return batch.Batch{}, refused("overrun", b)
		}
		b.Overruns++
		return s.write(b), nil
	})
}

// refused is ErrStatus with what the batch is.
func refused(what string, b batch.Batch) error {
	return fmt.Errorf("%s batch %s, which is %s (ending %q): %w", what, b.ID, b.Status, b.Ending, batch.ErrStatus)
}
