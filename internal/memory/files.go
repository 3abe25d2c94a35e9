package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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
		_, deleted := s.deleted[name{f.Tenant, f.ID}]
		if s.rules.must("files.absent", !there && !deleted) {
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
			return batch.File{}, s.noFile(tenant, id)
		}
		return f, nil
	})
}

// maxFilePage is the most files that List returns at once.
const maxFilePage = 10_000

// List is batch.Files.List. A limit outside 1-10,000 is an error.
func (s *Files) List(ctx context.Context, tenant string, q batch.FileQuery, now time.Time) ([]batch.File, bool, error) {
	type answer struct {
		page []batch.File
		more bool
	}
	a, err := call(ctx, s.faults, "Files.List", func() (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.Limit < 1 || q.Limit > maxFilePage {
			return answer{}, fmt.Errorf("list files: limit %d is not within 1-%d", q.Limit, maxFilePage)
		}
		order := func(a, b batch.File) int {
			c := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), compare(a.ID, b.ID))
			if q.Ascending {
				return c
			}
			return -c
		}
		var last batch.File
		if q.After != "" {
			var ok bool
			if last, ok = s.files[name{tenant, q.After}]; !ok {
				if last, ok = s.deleted[name{tenant, q.After}]; !ok {
					return answer{}, fmt.Errorf("list files after %q: %w", q.After, batch.ErrNotFound)
				}
			}
		}
		var all []batch.File
		for n, f := range s.files {
			if n.tenant == tenant && !f.Expired(now) && (q.Purpose == "" || q.Purpose == f.Purpose) && (q.After == "" || order(last, f) < 0) {
				all = append(all, f)
			}
		}
		slices.SortFunc(all, order)
		if len(all) > q.Limit {
			return answer{all[:q.Limit], true}, nil
		}
		return answer{all, false}, nil
	})
	return a.page, a.more, err
}

// Delete is batch.Files.Delete. The id of a deleted file stays for ever.
func (s *Files) Delete(ctx context.Context, tenant, id string, _ time.Time) error {
	return effect(ctx, s.faults, "Files.Delete", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		f, ok := s.files[name{tenant, id}]
		if !ok {
			return s.noFile(tenant, id)
		}
		delete(s.files, name{tenant, id})
		s.deleted[name{tenant, id}] = f
		return nil
	})
}

// noFile says why there is no such file.
func (i *items) noFile(tenant, id string) error {
	err := batch.ErrNotFound
	if _, ok := i.deleted[name{tenant, id}]; ok {
		err = batch.ErrDeleted
	}
	return fmt.Errorf("file %s: %w", id, err)
}
