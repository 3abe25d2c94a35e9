package dynamo

import (
	"context"

	"holdfast/internal/batch"
)

var _ batch.Files = (*Files)(nil)

// Files is batch.Files.
type Files struct{ t *table }

// Put implements batch.Files.
func (s *Files) Put(ctx context.Context, f batch.File) error {
	want := newFileItem(f)
	out, err := s.t.insert(ctx, want, insertFile())
	if err == nil && out.refused {
		var found fileItem
		if found, err = decode[fileItem](out.item); err == nil && found != want {
			err = batch.ErrExists
		}
	}
	if err != nil {
		return fileErr("put", f.Tenant, f.ID, err)
	}
	return nil
}

// Get implements batch.Files.
func (s *Files) Get(ctx context.Context, tenant, id string) (batch.File, error) {
	if !storable(id) {
		return batch.File{}, fileErr("get", tenant, id, batch.ErrNotFound)
	}
	a, err := s.t.get(ctx, fileKey(tenant, id))
	if err != nil {
		return batch.File{}, fileErr("get", tenant, id, err)
	}
	i, err := decode[fileItem](a)
	if err != nil {
		return batch.File{}, fileErr("get", tenant, id, err)
	}
	return i.file(), nil
}
