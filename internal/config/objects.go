package config

// Every object of the results bucket carries one tag, because keys begin with
// the tenant and a lifecycle rule can select by the beginning of a key or by a
// tag. Writers set it as the object (or its multipart upload) is created; the
// stack's lifecycle rules select by it.
const (
	KeepTag      = "keep"
	KeepChunk    = "chunk"   // <tenant>/parts/…: until the batch is closed, 7 days at most
	KeepPlan     = "plan"    // <tenant>/plan/…: as long as a workflow may read it, 7 days at least
	KeepResult   = "result"  // <tenant>/out/…: by expires_at; the rule is the backstop
	KeepReceipts = "receipt" // <tenant>/out/…_receipts.jsonl: a year
)
