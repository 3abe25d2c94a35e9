package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// Rows finds rows by name, for whoever knows no more of them than what an index
// says: the reaper, of reservations that turned stale.
type Rows interface {
	// Row reads the row of this name ([Key.Name]), strongly consistent.
	// [ErrNotFound].
	Row(ctx context.Context, tenant, name string) (Row, error)
}

// Name stands for the correlation id in keys: the id may be longer than a key,
// and holds any character. 64 lower-case hex digits.
func (k Key) Name() string {
	sum := sha256.Sum256([]byte(k.CorrelationID))
	return hex.EncodeToString(sum[:])
}
