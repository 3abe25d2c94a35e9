package batch

import "errors"

// FormatVersion is the `v` of the items and messages this code writes. Code reads
// every version up to its own and refuses a higher one ([ErrNewer]).
//
// A new attribute of an item that is absent by default, and whose absence means
// what it always meant, needs no new version: older code leaves it where it is.
// Anything that older code would misread needs one, in two releases: the first
// reads it, the second writes it (docs/adr/0009-format-versions.md).
const FormatVersion = 1

// ErrNewer: an item or a message is of a later format than this program's. Nothing
// is wrong with it: whoever understands it will come.
var ErrNewer = errors.New("written by a newer program")
