package dynamo

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

var (
	_ upload.Store       = (*Uploads)(nil)
	_ upload.Completions = (*Uploads)(nil)
)

// Uploads is upload.Store and upload.Completions.
type Uploads struct{ t *table }

func uploadErr(op, tenant, id string, err error) error {
	return fmt.Errorf("%s upload %s/%s: %w", op, tenant, id, err)
}

// Create implements upload.Store.
func (s *Uploads) Create(ctx context.Context, u upload.Upload) error {
	u.Status = upload.Pending
	u.Ver++
	item := newUploadItem(u)
	out, err := s.t.insert(ctx, item, insertUpload())
	if err == nil && out.refused {
		var found uploadItem
		if found, err = decode[uploadItem](out.item); err == nil && !reflect.DeepEqual(found.upload(), item.upload()) {
			err = batch.ErrExists
		}
	}
	if err != nil {
		return uploadErr("create", u.Tenant, u.ID, err)
	}
	return nil
}

// Get implements upload.Store.
func (s *Uploads) Get(ctx context.Context, tenant, id string) (upload.Upload, error) {
	if !storable(id) {
		return upload.Upload{}, uploadErr("get", tenant, id, batch.ErrNotFound)
	}
	a, err := s.t.get(ctx, uploadKey(tenant, id))
	if err != nil {
		return upload.Upload{}, uploadErr("get", tenant, id, err)
	}
	i, err := decode[uploadItem](a)
	if err != nil {
		return upload.Upload{}, uploadErr("get", tenant, id, err)
	}
	return i.upload(), nil
}

// AddPart implements upload.Store.
func (s *Uploads) AddPart(ctx context.Context, tenant, id, part string, p upload.Part, most int) (upload.Upload, error) {
	want := newUploadPart(p)
	return s.change(ctx, "add a part to", tenant, id, addUploadPart(part, want, most), func(u upload.Upload) error {
		old, there := u.Parts[part]
		switch {
		case there && newUploadPart(old) == want:
			return nil
		case u.Status == upload.Pending && !there:
			return upload.ErrFull
		}
		return upload.ErrClosed
	})
}

// Begin implements upload.Store.
func (s *Uploads) Begin(ctx context.Context, tenant, id, multipart string) (upload.Upload, error) {
	return s.change(ctx, "begin", tenant, id, beginUpload(multipart), func(u upload.Upload) error {
		if u.Status == upload.Pending {
			return nil // another was recorded first, or this one before
		}
		return upload.ErrClosed
	})
}

// Cancel implements upload.Store.
func (s *Uploads) Cancel(ctx context.Context, tenant, id string) (upload.Upload, error) {
	return s.change(ctx, "cancel", tenant, id, cancelUpload(), func(u upload.Upload) error {
		if u.Status == upload.Cancelled {
			return nil
		}
		return upload.ErrClosed
	})
}

// Start implements upload.Completions.
func (s *Uploads) Start(ctx context.Context, tenant, id, hash string) (upload.Upload, error) {
	return s.change(ctx, "start completing", tenant, id, startUpload(hash), func(u upload.Upload) error {
		switch u.Status {
		case upload.Completing, upload.Settled, upload.Completed:
			if u.PartsHash == hash {
				return nil
			}
		}
		return upload.ErrClosed
	})
}

// Settle implements upload.Completions.
func (s *Uploads) Settle(ctx context.Context, tenant, id, hash string, o batch.Object, md5 string, now time.Time) (upload.Upload, error) {
	return s.change(ctx, "settle", tenant, id, settleUpload(hash, o, md5, now), func(u upload.Upload) error {
		if (u.Status == upload.Settled || u.Status == upload.Completed) && u.PartsHash == hash {
			return nil
		}
		return upload.ErrClosed
	})
}

// Finish implements upload.Completions.
func (s *Uploads) Finish(ctx context.Context, tenant, id string) (upload.Upload, error) {
	return s.change(ctx, "finish", tenant, id, finishUpload(), func(u upload.Upload) error {
		if u.Status == upload.Completed {
			return nil
		}
		return upload.ErrClosed
	})
}

// change writes an upload's item and returns the upload as it then is. Where the
// condition fails, judge says what the one that was found means: nil, the write
// had been made already.
func (s *Uploads) change(ctx context.Context, op, tenant, id string, w write, judge func(upload.Upload) error) (upload.Upload, error) {
	u, err := s.try(ctx, uploadKey(tenant, id), id, w, judge)
	if err != nil {
		return upload.Upload{}, uploadErr(op, tenant, id, err)
	}
	return u, nil
}

func (s *Uploads) try(ctx context.Context, k key, id string, w write, judge func(upload.Upload) error) (upload.Upload, error) {
	if !storable(id) {
		return upload.Upload{}, batch.ErrNotFound
	}
	out, err := s.t.update(ctx, k, w, true)
	if err != nil {
		return upload.Upload{}, err
	}
	if out.item == nil {
		return upload.Upload{}, batch.ErrNotFound
	}
	i, err := decode[uploadItem](out.item)
	if err != nil {
		return upload.Upload{}, err
	}
	u := i.upload()
	if out.refused {
		return u, judge(u)
	}
	return u, nil
}
