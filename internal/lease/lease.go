// Package lease is the ownership rule that batches, bridges and (later)
// projections share.
//
// An owner picks a [Token] before it writes, so that it can recognise its own
// write when the answer was lost. A lease says until when nobody else should
// try; the token says who may write. Clocks may differ between machines: a
// lapse is therefore only ever judged with a margin ([Cut]), and a wrong
// judgement costs time and never a result, because every write by an owner
// names its token.
package lease

import (
	"crypto/rand"
	"errors"
	"time"
)

// Token names one owner of one thing. It is unguessable and never reused:
// 26 characters of base32 (130 bits), safe in object keys and in logs of the
// table, and not a credential to anything outside the table.
type Token string

// NewToken returns a fresh token.
func NewToken() Token { return Token(rand.Text()) }

var (
	// ErrHeld says that somebody else holds the thing and its lease has not
	// lapsed (or nobody may steal it yet). Try again once it would have lapsed.
	ErrHeld = errors.New("held by another owner")

	// ErrLost says that the caller is not, or is no longer, the owner. It must
	// cancel what it does under that claim and write nothing more.
	ErrLost = errors.New("ownership lost")
)

// Cut is the instant before which a lease must have ended to count as lapsed
// at now: skew (at least zero) is how far two clocks may differ.
func Cut(now time.Time, skew time.Duration) time.Time { return now.Add(-skew) }
