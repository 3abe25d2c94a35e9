package dynamo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

// ErrFormat: an item's format version is not one that this program reads. Only
// deploying the version that wrote it helps. Of a higher one it is batch.ErrNewer
// too.
var ErrFormat = errors.New("item of another format version")

// FormatError is ErrFormat with the item at fault.
type FormatError struct {
	PK, SK string
	V      int // as stored; 0: none
}

// Error says which item has which version, and what would be read.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%v: %s %s has v=%d, this program reads 1 to %d", ErrFormat, shown(e.PK), e.SK, e.V, batch.FormatVersion)
}

// shown is an item's partition key for an error's text. A key record's holds the
// hash that it is found by, which is for no log.
func shown(pk string) string {
	if strings.HasPrefix(pk, keyPrefix) {
		return keyPrefix + "…"
	}
	return pk
}

// Unwrap makes errors.Is(err, ErrFormat) true and, where a newer program wrote the
// item, errors.Is(err, batch.ErrNewer).
func (e *FormatError) Unwrap() []error {
	if e.V > batch.FormatVersion {
		return []error{ErrFormat, batch.ErrNewer}
	}
	return []error{ErrFormat}
}

// refusal returns the item that a write found when its condition failed (nil:
// there was none) and true; false for every other error.
func refusal(err error) (attributes, bool) {
	e, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, false
	}
	return e.Item, true
}

func batchErr(op, tenant, id string, err error) error {
	return fmt.Errorf("%s batch %s/%s: %w", op, tenant, id, err)
}

func partErr(op string, k batch.PartKey, err error) error {
	return fmt.Errorf("%s part %s/%s/%d: %w", op, k.Tenant, k.Batch, k.N, err)
}

func fileErr(op, tenant, id string, err error) error {
	return fmt.Errorf("%s file %s/%s: %w", op, tenant, id, err)
}
