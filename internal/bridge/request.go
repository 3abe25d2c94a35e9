package bridge

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxCorrelationID is the longest correlation id in bytes: an S3 object's bucket,
// key and version fit with room to spare.
const MaxCorrelationID = 4096

// Request is a batch that somebody wants, as every door brings it: checked for
// form and not yet for what it names.
type Request struct {
	Tenant string // whose it is
	// CorrelationID is the sender's own name for the request, opaque, at most
	// MaxCorrelationID bytes; "" only where nobody gave one ([Resends]).
	CorrelationID string
	RequestID     string // of the delivery, for tracing; no part of what was asked for

	Submitter    string // the principal every line will count for
	FileID       string
	Endpoint     string
	Window       string
	Metadata     map[string]string
	OutputExpiry time.Duration // whole milliseconds; 0: the installation's default
}

// check refuses what can't be claimed: a fault of the door.
func (r Request) check() error {
	switch {
	case r.Tenant == "" || r.Submitter == "":
		return errors.New("bridge: a request needs a tenant and a submitter")
	case r.CorrelationID == "" || len(r.CorrelationID) > MaxCorrelationID:
		return fmt.Errorf("bridge: a correlation id has 1 to %d bytes, not %d", MaxCorrelationID, len(r.CorrelationID))
	}
	return nil
}

// Hash tells requests apart by what they ask for and on whose behalf: the same
// hash is the same request, whichever door it came by and however its JSON was
// written. It is 64 hex digits, and stored: what it is made of can only ever be
// added to, and an addition that is empty must not change it.
func (r Request) Hash() string {
	h := sha256.New()
	// With its length before it no text can reach into the next one.
	text := func(s string) { fmt.Fprintf(h, "%d:", len(s)); io.WriteString(h, s) }
	for _, s := range []string{r.Submitter, r.FileID, r.Endpoint, r.Window, strconv.FormatInt(r.OutputExpiry.Milliseconds(), 10), strconv.Itoa(len(r.Metadata))} {
		text(s)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		text(k)
		text(r.Metadata[k])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// BatchID is the id of the one batch that a correlation id of a tenant stands
// for. It has the form of a batch id and is fit for an execution's name. Tenants
// hold no NUL, so no two pairs read alike.
func BatchID(tenant, correlationID string) string {
	sum := sha256.Sum256([]byte("correlation id\x00" + tenant + "\x00" + correlationID))
	return "batch_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}
