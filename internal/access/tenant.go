package access

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Tenant is the record of a tenant: what it may use up, and which doors are
// switched on for it. A tenant needs none: without one it has no limits, and
// only the doors that need no switch.
type Tenant struct {
	Name      string
	Drop      *Drop // nil: objects put under in/<tenant>/ start nothing
	Limits    Limits
	CreatedAt time.Time // whole milliseconds, UTC, like UpdatedAt
	UpdatedAt time.Time // of the last change
	Ver       int64     // one higher at every write; 0: not stored
}

// Drop is how batches start that come in by the S3 door.
type Drop struct {
	Principal string    // who counts as their submitter
	Endpoint  string    // where the object names none; "": the installation's first
	Window    string    // likewise
	Since     time.Time // when the door was switched on; whole milliseconds, UTC
}

// Limits are what a tenant may use up at most. Zero is no limit of the tenant's
// own: the installation's settings hold for everybody.
type Limits struct {
	QueuedLines       int64 // lines of batches that aren't over and have no result yet
	RunningBatches    int   // batches that aren't over
	FileBytes         int64 // bytes of one input file
	RequestsPerMinute int   // requests to the API and the gateway
}

// MaxLimit is the highest limit there is: a JSON number holds it exactly.
const MaxLimit = 1_000_000_000_000_000

// MaxTenants is the most tenants that List returns at once.
const MaxTenants = 1000

// What Tenants answers beside success; anything else is trouble of the moment
// and may be retried, but for what [Tenant.Check] says.
var (
	// ErrNoTenant: there is no record of this tenant.
	ErrNoTenant = errors.New("no such tenant")
	// ErrChanged: the record is not as it was read, or is there although none was.
	ErrChanged = errors.New("tenant was changed meanwhile")
)

// Tenants keeps the records of tenants. A call may be repeated after an error
// that is none of the two above. Its suite is in storetest.
type Tenants interface {
	// Get reads a record, strongly consistent. ErrNoTenant.
	Get(ctx context.Context, name string) (Tenant, error)
	// Put writes t in place of the record whose Ver is t.Ver, 0 for none, and
	// stores it one higher. ErrChanged otherwise, except that a record of just
	// that Ver and otherwise equal to t counts as success: it is this write, whose
	// answer was lost. Nothing that Check refuses is stored.
	Put(ctx context.Context, t Tenant) error
	// List returns up to limit (1 to MaxTenants) records by name, those whose name
	// is above after, and whether there are more. It is eventually consistent.
	List(ctx context.Context, after string, limit int) (page []Tenant, more bool, err error)
}

// Check refuses what can't be stored. The error joins a [*FieldError] for each
// field that won't do. Whether an installation knows an endpoint or a window is
// not asked here.
func (t Tenant) Check() error {
	errs := []error{CheckTenant(t.Name)}
	if d := t.Drop; d != nil {
		errs = append(errs, CheckPrincipal(d.Principal))
		if d.Endpoint != "" {
			errs = append(errs, CheckEndpoint(d.Endpoint))
		}
		if d.Window != "" {
			errs = append(errs, CheckWindow(d.Window))
		}
	}
	l := t.Limits
	for _, v := range []struct {
		field string
		limit int64
	}{
		{"queued_lines", l.QueuedLines}, {"running_batches", int64(l.RunningBatches)},
		{"file_bytes", l.FileBytes}, {"requests_per_minute", int64(l.RequestsPerMinute)},
	} {
		if v.limit < 0 || v.limit > MaxLimit {
			errs = append(errs, &FieldError{v.field, fmt.Sprintf("a whole number from 1 to %d, or 0 for no limit", int64(MaxLimit))})
		}
	}
	return errors.Join(errs...)
}

// CheckEndpoint refuses, with a *FieldError, what no endpoint looks like.
func CheckEndpoint(s string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune("?#% \\", r) }
	if !strings.HasPrefix(s, "/v1/") || s == "/v1/" || len(s) > 256 || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) ||
		strings.Contains(s, "//") || strings.Contains(s, "..") {
		return &FieldError{"endpoint", "a plain path below /v1/ of at most 256 bytes, like /v1/chat/completions"}
	}
	return nil
}

// CheckWindow refuses, with a *FieldError, what no completion window looks like.
func CheckWindow(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || len(s) > 32 || d < time.Second || d > 7*24*time.Hour || d%time.Second != 0 {
		return &FieldError{"window", "a duration in whole seconds from 1s to 168h, like 24h"}
	}
	return nil
}

// EnableDrop switches the S3 door on, or changes how its batches start; since
// when it has been on stays.
func (t *Tenant) EnableDrop(principal, endpoint, window string, now time.Time) {
	since := now.UTC().Truncate(time.Millisecond)
	if t.Drop != nil {
		since = t.Drop.Since
	}
	t.Drop = &Drop{Principal: principal, Endpoint: endpoint, Window: window, Since: since}
}

// Clone is t with nothing shared.
func (t Tenant) Clone() Tenant {
	if t.Drop != nil {
		d := *t.Drop
		t.Drop = &d
	}
	return t
}

// changeTries is how often ChangeTenant reads again because somebody else wrote
// in between. People change tenants: two at once are rare, three a loop.
const changeTries = 5

// ChangeTenant applies change to the record as it is now and writes it, unless
// that leaves it as it was; it returns it as stored. Where there is none, change
// is given a bare one (whose Ver is 0) if create says so, else the answer is
// ErrNoTenant. change may be called again, with what somebody else wrote
// meanwhile; its error is the answer, and nothing is written. ErrChanged, when
// that happened again and again; what Check says of the outcome.
func ChangeTenant(ctx context.Context, s Tenants, name string, create bool, now time.Time, change func(*Tenant) error) (Tenant, error) {
	now = now.UTC().Truncate(time.Millisecond)
	for try := 1; ; try++ {
		was, err := s.Get(ctx, name)
		if errors.Is(err, ErrNoTenant) && create {
			was, err = Tenant{Name: name, CreatedAt: now}, nil
		}
		if err != nil {
			return Tenant{}, err
		}
		t := was.Clone()
		if err := change(&t); err != nil {
			return Tenant{}, err
		}
		if t.Ver > 0 && reflect.DeepEqual(t, was) {
			return t, nil
		}
		if err := t.Check(); err != nil {
			return Tenant{}, err
		}
		t.UpdatedAt = now
		err = s.Put(ctx, t)
		if err == nil {
			t.Ver++
			return t, nil
		}
		if !errors.Is(err, ErrChanged) || try == changeTries {
			return Tenant{}, err
		}
	}
}
