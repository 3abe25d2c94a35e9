package objects

import (
	"net/url"
	"strings"

	"holdfast/internal/batch"
	"holdfast/internal/config"
)

// tagging is the tag of an object about to be written, nil outside the results
// bucket. It follows from the key, whose first piece is the tenant:
//
//	<tenant>/parts/<batch>/<part>/<token>-<seq>.jsonl    chunk
//	<tenant>/parts/<batch>/finish/<kind>-<from>-<to>.jsonl  chunk: a result file's tail
//	<tenant>/plan/<batch>.jsonl                          plan
//	<tenant>/out/<batch>_receipts.jsonl                  receipt
//	<tenant>/out/<batch>_{output,error}.jsonl            result
//	<tenant>/in/<name>.<version>.error.json              result: why an input started nothing
//
// What has another shape gets none, and is kept.
func (s *Objects) tagging(o batch.Object) *string {
	if s.results == "" || o.Bucket != s.results {
		return nil
	}
	_, rest, _ := strings.Cut(o.Key, "/")
	folder, file, _ := strings.Cut(rest, "/")
	var keep string
	switch {
	case folder == "parts":
		keep = config.KeepChunk
	case folder == "plan":
		keep = config.KeepPlan
	case folder == "out" && strings.HasSuffix(file, "_receipts.jsonl"):
		keep = config.KeepReceipts
	case folder == "out", folder == "in":
		keep = config.KeepResult
	default:
		return nil
	}
	tags := url.Values{config.KeepTag: {keep}}.Encode()
	return &tags
}
