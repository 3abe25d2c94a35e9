package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// Tenants knows what tenants may use up. *access.TenantCache is one.
type Tenants interface {
	// Limits are the tenant's, which may be up to a minute old; none where it has no
	// record.
	Limits(ctx context.Context, tenant string, now time.Time) (access.Limits, error)
	// Pace is Limits where they needn't be so new, and a read should be spared for
	// that: see the method of *access.TenantCache.
	Pace(ctx context.Context, c access.Caller, tenant string, now time.Time) (access.Limits, error)
}

// pace holds the caller's tenant to its requests a minute.
func (s *Server) pace(ctx context.Context, c access.Caller, now time.Time) error {
	l, err := s.ports.Tenants.Pace(ctx, c, c.Tenant, now)
	if err != nil {
		return err
	}
	if wait := s.rates.Take(c.Tenant, l.RequestsPerMinute, now); wait > 0 {
		return openai.RateLimited(wait)
	}
	return nil
}

// fileBytes is the largest file that the caller's tenant may upload, of the bytes
// that anybody may by this way.
func (s *Server) fileBytes(r *request, anybody int64) (int64, error) {
	l, err := s.ports.Tenants.Limits(r.Context(), r.caller.Tenant, r.now)
	if err != nil {
		return 0, err
	}
	if l.FileBytes > 0 {
		return min(l.FileBytes, anybody), nil
	}
	return anybody, nil
}

// tooLarge words the refusal of a form for its size: where the tenant may send no
// more by another way either, it isn't told to.
func tooLarge(err error, limit, direct int64) error {
	e, ok := errors.AsType[*openai.Error](err)
	if ok && e.Status == http.StatusRequestEntityTooLarge && limit < direct {
		return openai.FileTooLarge(limit)
	}
	return err
}
