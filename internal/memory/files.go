package memory

import (
	"context"
	"fmt"

	"holdfast/internal/batch"
)

// Files is batch.Files over a Table.
type Files struct{ port }

var _ batch.Files = (*Files)(nil)

// Put is batch.Files.Put.
func (s *Files) Put(ctx context.Context, f batch.File) error {
	return effect(ctx, s.faults, "Files.Put", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		f := cloneFile(f)
		old, there := s.files[name{f.Tenant, f.ID}]
		if s.rules.must("files.absent", !there) {
			s.files[name{f.Tenant, f.ID}] = f
			return nil
		}
		if s.rules.own("files.own", s.rules.must("files.own.equal", old == f)) {
			return nil
		}
		return fmt.Errorf("put file %s: %w", f.ID, batch.ErrExists)
	})
}

// Get is batch.Files.Get.
func (s *Files) Get(ctx context.Context, tenant, id string) (batch.File, error) {
	return call(ctx, s.faults, "Files.Get", func() (batch.File, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f, ok := s.files[name{tenant, id}]
		if !ok {
			return batch.File{}, fmt.Errorf("file %s: %w", id, batch.ErrNotFound)
		}
		return f, nil
	})
}
