package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"holdfast/internal/openai"
)

// record writes the file's record. Its id and its times come from the batch, so
// that whoever writes it again writes the same.
func (f *Finisher) record(ctx context.Context, b Batch, kind string, o Object) (string, error) {
	life := b.OutputExpiry
	if life == 0 {
		life = f.o.FileExpiry
	}
	file := File{
		Tenant: b.Tenant, ID: ResultFileID(b.ID, kind), Purpose: openai.PurposeBatchOutput,
		Filename: b.ID + "_" + kind + ".jsonl",
		// Neither version nor ETag: whoever wrote the object last, its bytes are these.
		Object:    Object{Bucket: o.Bucket, Key: o.Key, Bytes: o.Bytes},
		CreatedAt: b.FinalizingAt, ExpiresAt: b.FinalizingAt.Add(life),
	}
	err := f.Files.Put(ctx, file)
	if errors.Is(err, ErrExists) {
		// Written by a finisher whose default expiry was another. It stays.
		var stored File
		stored, err = f.Files.Get(ctx, file.Tenant, file.ID)
		if err == nil && (stored.Object != file.Object || stored.Purpose != file.Purpose) {
			err = fmt.Errorf("%w: as another file", ErrExists)
		}
	}
	if err != nil {
		return "", fmt.Errorf("record %s: %w", file.Filename, err)
	}
	return file.ID, nil
}

// The result files of a batch.
const (
	OutputFile   = "output"
	ErrorFile    = "error"
	ReceiptsFile = "receipts"
)

// ResultFileID is the id of a batch's output or error file: the same, whoever
// makes it.
func ResultFileID(batch, kind string) string {
	sum := sha256.Sum256([]byte("holdfast result file\n" + batch + "\n" + kind))
	return "file-" + hex.EncodeToString(sum[:12])
}

// ResultKey is the key of a batch's result file in the results bucket.
func ResultKey(tenant, batch, kind string) string {
	return tenant + "/out/" + batch + "_" + kind + ".jsonl"
}
