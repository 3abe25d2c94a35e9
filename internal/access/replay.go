package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// What Decide answers to who may not. Neither says why: whoever holds a key that
// leaked learns nothing of other tenants by asking.
var (
	// ErrReplay: a key with batch_replay was used for anything but acting for the
	// tenant of a batch that runs, with that batch's id.
	ErrReplay = errors.New("batch replay not authorized")
	// ErrForeign: a key without that scope asserts a tenant that isn't its own.
	ErrForeign = errors.New("the API key belongs to another tenant")
)

// ErrNoRun: there is no such batch of this tenant.
var ErrNoRun = errors.New("no such batch of this tenant")

// Asserted is what a request says of whom it acts for (every value of each header, as
// it came; nil where the header is absent), and what it wants.
type Asserted struct {
	Tenant []string // X-Tenant-ID
	Batch  []string // X-Batch-ID
	Line   []string // X-Batch-Line, counted from 0 over the batch

	Endpoint string // what it calls, "/v1/…"; "": no model, but our own API
}

// Run names the batch that Decide would ask runs for, should the key have batch_replay;
// false where it would ask for none.
func (a Asserted) Run() (tenant, batch string, ok bool) {
	if len(a.Tenant) != 1 || CheckTenant(a.Tenant[0]) != nil || len(a.Batch) != 1 || !batchPattern.MatchString(a.Batch[0]) || a.Endpoint == "" {
		return "", "", false
	}
	return a.Tenant[0], a.Batch[0], true
}

// Run is a batch as the rule looks at it.
type Run struct {
	Submitter  string // the principal that it runs for
	Lines      int64  // how many it has; 0: not known yet
	Endpoint   string // what its lines call
	Replayable bool   // it is in_progress, or draining: batch.Batch.Replayable
}

// Runs finds a tenant's batch as it was at most 5 s ago (promise 7). ErrNoRun, or
// trouble of the moment, which refuses nobody.
type Runs func(ctx context.Context, tenant, batch string) (Run, error)

// NoLine is the Line of a request that is for none in particular.
const NoLine = -1

// Identity is whom a request counts as, from Decide on.
type Identity struct {
	Tenant     string
	OnBehalfOf string // the principal: the batch's submitter, or the key's own
	Batch      string // "" but for a replay
	Line       int64  // NoLine where none is named
	Replay     bool   // by a key with batch_replay
	Key        string // ID of the key that was shown
}

// Decide is the replay rule, in the one place where it stands. It asks runs once at
// most, and only for a key with batch_replay whose headers are in order. Both doors
// ask it for every request of somebody whose key is good: the gateway, and the API,
// where nobody acts for others.
//
//	key                  asserted                              answer
//	without the scope    no tenant, or its own                 itself; X-Batch-* is dropped
//	without the scope    any other X-Tenant-ID, however odd    ErrForeign
//	with batch_replay    tenant, and a batch of that tenant    the batch's submitter
//	                     that is in_progress or draining, and
//	                     whose endpoint it calls, and no line
//	                     or one that the batch has
//	with batch_replay    anything else, nothing at all too     ErrReplay
//
// A header counts if it is there exactly once and is what it should be to the letter:
// no padding, no list. A scope beside batch_replay, which keys of an older release may
// have, lends the key nothing. Any other error is trouble of the moment.
func Decide(ctx context.Context, c Caller, a Asserted, runs Runs) (Identity, error) {
	if c.Require(BatchReplay) == nil {
		return replay(ctx, c, a, runs)
	}
	if a.Tenant != nil && (len(a.Tenant) != 1 || a.Tenant[0] != c.Tenant) {
		return Identity{}, ErrForeign
	}
	return Identity{Tenant: c.Tenant, OnBehalfOf: c.Principal, Line: NoLine, Key: c.Key}, nil
}

func replay(ctx context.Context, c Caller, a Asserted, runs Runs) (Identity, error) {
	tenant, id, ok := a.Run()
	if !ok {
		return Identity{}, ErrReplay
	}
	line, ok := parseLine(a.Line)
	if !ok {
		return Identity{}, ErrReplay
	}
	run, err := runs(ctx, tenant, id)
	switch {
	case errors.Is(err, ErrNoRun):
		return Identity{}, ErrReplay
	case err != nil:
		return Identity{}, fmt.Errorf("look at the batch of a replay: %w", err)
	case !run.Replayable || line >= run.Lines || a.Endpoint != run.Endpoint:
		return Identity{}, ErrReplay
	}
	return Identity{Tenant: tenant, OnBehalfOf: run.Submitter, Batch: id, Line: line, Replay: true, Key: c.Key}, nil
}

// batchPattern is batch.ValidID, which this package can't call; a test holds that
// they are one.
var batchPattern = regexp.MustCompile(`^batch_[A-Za-z0-9_-]{18,74}$`)

// linePattern has no sign and no leading zero: one line, one spelling.
var linePattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})$`)

func parseLine(values []string) (line int64, ok bool) {
	switch {
	case values == nil:
		return NoLine, true
	case len(values) != 1 || !linePattern.MatchString(values[0]):
		return 0, false
	}
	line, err := strconv.ParseInt(values[0], 10, 64)
	return line, err == nil
}
