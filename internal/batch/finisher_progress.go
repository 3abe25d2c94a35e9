package batch

import (
	"fmt"

	"holdfast/internal/openai"
)

// Progress is how far the results of a batch are assembled, as its META item
// holds it while (and after) somebody finishes. It says what is stored already
// and is needed no more to be made: whoever takes the right to assemble goes on
// from there. The zero value is the beginning.
type Progress struct {
	Step int64 // how often progress was recorded; one higher each time
	Line int64 // the results of all lines below are stored, batch-wide index from 0

	// Part is the lower-case hex SHA-256 over the results of the part's lines below
	// Line that were stored before their chunks were proven; "" where there are none.
	// Who goes on reads them once more, for that proof, and this proves that what was
	// stored is what was proven.
	Part string

	Piece int64 // bytes of every piece but the last, the same for all files

	Output, Errors, Receipts FileProgress

	Counts Counts // of the lines below Line
	Usage  openai.Usage
}

// FileProgress is how much of one result file is stored.
type FileProgress struct {
	Upload string // id of the file's upload, "" while none was needed
	Pieces int    // pieces stored in it, from number 1, each whole unless Line is the end
	Bytes  int64  // of the file so far
	Tail   string // lower-case hex SHA-256 of the bytes behind the pieces, which are an object of their own; "" where there are none
}

// tail is how many bytes lie behind the pieces.
func (f FileProgress) tail(piece int64) int64 { return max(f.Bytes-int64(f.Pieces)*piece, 0) }

// TailKey is the key of the object that holds bytes [from, to) of a result file
// which are not yet a whole piece. The name says all about the content, so that
// whoever writes it again writes the same.
func TailKey(tenant, batch, kind string, from, to int64) string {
	return fmt.Sprintf("%s/parts/%s/finish/%s-%d-%d.jsonl", tenant, batch, kind, from, to)
}

// files are the progress of each file, by kind.
func (p *Progress) file(kind string) *FileProgress {
	switch kind {
	case OutputFile:
		return &p.Output
	case ErrorFile:
		return &p.Errors
	default:
		return &p.Receipts
	}
}

// kinds are the files of a batch, in the order in which they are completed.
var kinds = []string{OutputFile, ErrorFile, ReceiptsFile}

// tails are the keys of the objects that p needs.
func (p Progress) tails(tenant, batch string) (keys []string) {
	for _, kind := range kinds {
		f := *p.file(kind)
		if n := f.tail(p.Piece); n > 0 {
			keys = append(keys, TailKey(tenant, batch, kind, f.Bytes-n, f.Bytes))
		}
	}
	return keys
}
