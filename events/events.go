// Package events holds the schema of the messages that start batches, beside the
// sample events that tests and `make invoke-<function>` use, so that what its
// readers are given is what the queue door judges by.
package events

import _ "embed"

// MessageSchema is ingest-message.schema.json, a JSON Schema (draft 2020-12).
//
//go:embed ingest-message.schema.json
var MessageSchema []byte
