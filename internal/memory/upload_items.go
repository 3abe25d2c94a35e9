package memory

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

// UploadItems is upload.Store and upload.Completions over a Table.
type UploadItems struct{ port }

var (
	_ upload.Store       = (*UploadItems)(nil)
	_ upload.Completions = (*UploadItems)(nil)
)

// Create is upload.Store.Create.
func (s *UploadItems) Create(ctx context.Context, u upload.Upload) error {
	return effect(ctx, s.faults, "UploadItems.Create", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		old, there := s.uploads[name{u.Tenant, u.ID}]
		u.Status = upload.Pending
		if s.rules.must("U.create.absent", !there) {
			s.writeUpload(u)
			return nil
		}
		would := cloneUpload(u)
		would.Ver++
		if s.rules.own("U.create.own", s.rules.must("U.create.own.equal", reflect.DeepEqual(old, would))) {
			return nil
		}
		return fmt.Errorf("create upload %s: %w", u.ID, batch.ErrExists)
	})
}

// Get is upload.Store.Get.
func (s *UploadItems) Get(ctx context.Context, tenant, id string) (upload.Upload, error) {
	return call(ctx, s.faults, "UploadItems.Get", func() (upload.Upload, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.upload(tenant, id)
	})
}

// AddPart is upload.Store.AddPart.
func (s *UploadItems) AddPart(ctx context.Context, tenant, id, part string, p upload.Part, most int) (upload.Upload, error) {
	p.CreatedAt = millis(p.CreatedAt)
	return s.change(ctx, "AddPart", tenant, id, func(u *upload.Upload) error {
		old, there := u.Parts[part]
		switch {
		case s.rules.own("U.part.own", there && s.rules.must("U.part.own.equal", old == p)):
			return errUnchanged
		case !s.rules.must("U.part.pending", u.Status == upload.Pending) || !s.rules.must("U.part.absent", !there):
			return upload.ErrClosed
		case !s.rules.must("U.part.room", len(u.Parts) < most):
			return upload.ErrFull
		}
		if u.Parts == nil {
			u.Parts = map[string]upload.Part{}
		}
		u.Parts[part] = p
		return nil
	})
}

// Begin is upload.Store.Begin.
func (s *UploadItems) Begin(ctx context.Context, tenant, id, multipart string) (upload.Upload, error) {
	return s.change(ctx, "Begin", tenant, id, func(u *upload.Upload) error {
		pending := s.rules.must("U.begin.pending", u.Status == upload.Pending)
		switch {
		case pending && s.rules.must("U.begin.absent", u.Multipart == ""):
			u.Multipart = multipart
			return nil
		case s.rules.own("U.begin.own", s.rules.must("U.begin.own.pending", u.Status == upload.Pending)):
			return errUnchanged
		}
		return upload.ErrClosed
	})
}

// Cancel is upload.Store.Cancel.
func (s *UploadItems) Cancel(ctx context.Context, tenant, id string) (upload.Upload, error) {
	return s.change(ctx, "Cancel", tenant, id, func(u *upload.Upload) error {
		switch {
		case s.rules.own("U.cancel.own", u.Status == upload.Cancelled):
			return errUnchanged
		case !s.rules.must("U.cancel.from", u.Status == upload.Pending || u.Status == upload.Completing):
			return upload.ErrClosed
		}
		u.Status = upload.Cancelled
		return nil
	})
}

// Start is upload.Completions.Start.
func (s *UploadItems) Start(ctx context.Context, tenant, id, hash string) (upload.Upload, error) {
	return s.change(ctx, "Start", tenant, id, func(u *upload.Upload) error {
		if s.rules.must("U.start.pending", u.Status == upload.Pending) {
			u.Status, u.PartsHash = upload.Completing, hash
			return nil
		}
		past := s.rules.must("U.start.own.status", u.Status == upload.Completing || u.Status == upload.Settled || u.Status == upload.Completed)
		if s.rules.own("U.start.own", past && s.rules.must("U.start.own.hash", u.PartsHash == hash)) {
			return errUnchanged
		}
		return upload.ErrClosed
	})
}

// Settle is upload.Completions.Settle.
func (s *UploadItems) Settle(ctx context.Context, tenant, id, hash string, o batch.Object, md5 string, now time.Time) (upload.Upload, error) {
	return s.change(ctx, "Settle", tenant, id, func(u *upload.Upload) error {
		open := s.rules.must("U.settle.from", u.Status == upload.Pending || u.Status == upload.Completing)
		if open && s.rules.must("U.settle.hash", u.PartsHash == "" || u.PartsHash == hash) {
			u.Status, u.PartsHash, u.Object, u.MD5, u.SettledAt = upload.Settled, hash, o, md5, millis(now)
			return nil
		}
		past := s.rules.must("U.settle.own.status", u.Status == upload.Settled || u.Status == upload.Completed)
		if s.rules.own("U.settle.own", past && s.rules.must("U.settle.own.hash", u.PartsHash == hash)) {
			return errUnchanged
		}
		return upload.ErrClosed
	})
}

// Finish is upload.Completions.Finish.
func (s *UploadItems) Finish(ctx context.Context, tenant, id string) (upload.Upload, error) {
	return s.change(ctx, "Finish", tenant, id, func(u *upload.Upload) error {
		switch {
		case s.rules.own("U.finish.own", u.Status == upload.Completed):
			return errUnchanged
		case !s.rules.must("U.finish.settled", u.Status == upload.Settled):
			return upload.ErrClosed
		}
		u.Status = upload.Completed
		return nil
	})
}

// errUnchanged is a change's own lost write: success, and nothing to store.
var errUnchanged = fmt.Errorf("unchanged")

// change makes one conditional write.
func (s *UploadItems) change(ctx context.Context, op, tenant, id string, do func(*upload.Upload) error) (upload.Upload, error) {
	return call(ctx, s.faults, "UploadItems."+op, func() (upload.Upload, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		u, err := s.upload(tenant, id)
		if err != nil {
			return upload.Upload{}, err
		}
		switch err := do(&u); err {
		case nil:
			return s.writeUpload(u), nil
		case errUnchanged:
			return u, nil
		default:
			return upload.Upload{}, fmt.Errorf("%s upload %s: %w", op, id, err)
		}
	})
}

// Upload is a look at one upload that no fault can touch.
func (t *Table) Upload(tenant, id string) (upload.Upload, bool) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	u, err := t.items.upload(tenant, id)
	return u, err == nil
}

func (i *items) upload(tenant, id string) (upload.Upload, error) {
	u, ok := i.uploads[name{tenant, id}]
	if !ok {
		return upload.Upload{}, fmt.Errorf("upload %s: %w", id, batch.ErrNotFound)
	}
	return cloneUpload(u), nil
}

// writeUpload stores u one version higher and returns it as stored.
func (i *items) writeUpload(u upload.Upload) upload.Upload {
	u = cloneUpload(u)
	u.Ver++
	if i.uploads == nil {
		i.uploads = map[name]upload.Upload{}
	}
	i.uploads[name{u.Tenant, u.ID}] = u
	return cloneUpload(u)
}

func cloneUpload(u upload.Upload) upload.Upload {
	u.Parts = maps.Clone(u.Parts)
	for id, p := range u.Parts {
		p.CreatedAt = millis(p.CreatedAt)
		u.Parts[id] = p
	}
	u.CreatedAt, u.ExpiresAt, u.SettledAt = millis(u.CreatedAt), millis(u.ExpiresAt), millis(u.SettledAt)
	return u
}

// UploadsOf is a look at all uploads of a tenant, by id.
func (t *Table) UploadsOf(tenant string) (uploads []upload.Upload) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	for n, u := range t.items.uploads {
		if n.tenant == tenant {
			uploads = append(uploads, cloneUpload(u))
		}
	}
	slices.SortFunc(uploads, func(a, b upload.Upload) int { return compare(a.ID, b.ID) })
	return uploads
}
