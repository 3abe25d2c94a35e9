package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"holdfast/internal/lease"
)

// State is how far a correlation id has come.
type State string

// The states. A row that isn't there is free.
const (
	Reserved  State = "reserved"  // somebody submits it, or died doing so
	Confirmed State = "confirmed" // there is a job; final
)

// Key names one row.
type Key struct{ Tenant, CorrelationID string }

// Name stands for the correlation id in keys: the id may be longer than a key,
// and holds any character. 64 lower-case hex digits.
func (k Key) Name() string {
	sum := sha256.Sum256([]byte(k.CorrelationID))
	return hex.EncodeToString(sum[:])
}

// Row is what the table knows of one correlation id.
type Row struct {
	Key
	State     State
	Token     lease.Token // of who claimed it last; stays when confirmed
	Ver       int64       // 1 when claimed, one higher at every write
	ClaimedAt time.Time   // by the clock of who claimed it last; earlier where it was given back
	GivenBack bool        // its owner ended its submit with trouble, and said so
	Due       time.Time   // when the claim turns stale; zero once confirmed
	Request   Request     // whole, as it first came
	Hash      string      // of the request
	Job       string      // what the Submitter called it; "" until confirmed
	ExpiresAt time.Time   // when the row may be forgotten; zero, never, until it is confirmed
}

// Kept is how long a confirmed row is remembered: longer than a queue keeps a message (14
// days) and than an input file lives (30 days). Whatever comes later still finds
// the batch itself, by its derived id.
const Kept = 90 * 24 * time.Hour

// newRow is the row that claims r for tok.
func newRow(r Request, tok lease.Token, now time.Time, stale time.Duration) Row {
	return Row{
		Key: Key{r.Tenant, r.CorrelationID}, State: Reserved, Token: tok, Ver: 1,
		ClaimedAt: now, Due: now.Add(stale), Request: r, Hash: r.Hash(),
	}
}
