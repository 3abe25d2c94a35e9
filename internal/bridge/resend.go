package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ResendWindow is how long a request that is sent again finds what it started.
const ResendWindow = 15 * time.Minute

// sendKept is how long a send is remembered: past the window there is nothing to
// find.
const sendKept = time.Hour

// recordTries bounds Resends against others who record the same request at the
// same time.
const recordTries = 3

// Resends gives ids to requests that have no correlation id but say whether they
// are sent again. Safe for concurrent use.
//
// It is a guess: two people behind one principal who ask for the very same thing
// can't be told apart, nor can a first send that arrives after its own resend.
// Whoever must be sure sends a key.
type Resends struct {
	sends Sends
	newID func() string
}

// NewResends returns Resends whose ids come from newID, which never gives one
// twice.
func NewResends(sends Sends, newID func() string) *Resends { return &Resends{sends, newID} }

// ID is the id to start r's job under. A request sent for the first time always
// gets a new one, also when the same was asked for a second ago; one that is sent
// again gets that of the last send, if that is younger than ResendWindow. The id
// is recorded before it is returned: were the job started first, a resend could
// come between and start another.
//
//  1. A client sends; the answer is lost, or the job is being started still.
//  2. It sends again, finds the id and submits under it: the same job.
func (s *Resends) ID(ctx context.Context, r Request, resent bool, now time.Time) (string, error) {
	hash := r.Hash()
	var last Send
	if resent {
		var err error
		if last, err = s.sends.Last(ctx, r.Tenant, hash); err != nil && !errors.Is(err, ErrNotFound) {
			return "", fmt.Errorf("look for the last send: %w", err)
		}
		if last.covers(now) {
			return last.ID, nil
		}
	}
	mine := Send{Tenant: r.Tenant, Hash: hash, ID: s.newID(), At: now, ExpiresAt: now.Add(sendKept)}
	for try := 1; ; try++ {
		err := s.sends.Record(ctx, mine, last.Ver)
		changed, ok := errors.AsType[*ChangedError](err)
		switch {
		case err == nil:
			return mine.ID, nil
		case !ok:
			return "", fmt.Errorf("record a send: %w", err)
		case resent && changed.Found.covers(now):
			return changed.Found.ID, nil // another copy of this resend was here first
		case try == recordTries && !resent:
			// The same is being asked for over and over in this very moment. Whose id
			// a resend will find is all one.
			return mine.ID, nil
		case try == recordTries:
			return "", fmt.Errorf("record a send: %w", err)
		}
		last = changed.Found
	}
}

// covers reports whether a resend at now may be one of s.
func (s Send) covers(now time.Time) bool { return s.ID != "" && now.Sub(s.At) < ResendWindow }
