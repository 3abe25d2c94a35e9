package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"holdfast/internal/openai"
)

// maxPieces is how many pieces a file is planned for. Stores take 10,000; the
// rest is room for being wrong.
const maxPieces = 9000

// assemble merges all parts into the result files and records them. Nothing is
// completed before every line of every part is proven to be in exactly one file.
func (f *Finisher) assemble(ctx context.Context, b Batch, size int64) (_ Closed, err error) {
	piece := max(int64(f.o.PieceBytes), (size+maxPieces-1)/maxPieces)
	s := &sender{uploads: f.Uploads}
	file := func(kind string) *resultFile {
		return &resultFile{object: Object{Bucket: f.bucket, Key: ResultKey(b.Tenant, b.ID, kind)}, piece: int(piece), sender: s}
	}
	output, errs, receipts := file(OutputFile), file(ErrorFile), file(ReceiptsFile)
	files := []*resultFile{output, errs, receipts}
	defer func() {
		if err != nil {
			f.abort(ctx, b, s, files)
		}
	}()

	rest := newUnsent(ctx, f.Objects, b)
	defer rest.close()
	c := Closed{}
	for p, err := range f.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			return Closed{}, fmt.Errorf("read the parts: %w", err)
		}
		var fill func(int64) (Record, error)
		if p.State == Sealed {
			fill = func(line int64) (Record, error) { return rest.record(p, line) }
		}
		err = merge(ctx, f.Objects, f.bucket, p, fill, func(r Record) error {
			to := errs
			if c.Counts.Total++; r.OK {
				c.Counts.Completed++
				to = output
			} else {
				c.Counts.Failed++
			}
			if err := addUsage(&c.Usage, r.Receipt); err != nil {
				return &ConservationError{PartKey: p.PartKey, Line: r.Line, What: "its receipt is not one: " + err.Error()}
			}
			if err := to.line(ctx, r.Result); err != nil {
				return err
			}
			if len(r.Receipt) == 0 { // the line was not sent
				return nil
			}
			return receipts.line(ctx, r.Receipt)
		})
		if err != nil {
			return Closed{}, err
		}
	}
	// Each part is proven; that they are all of the batch was surveyed, and is
	// proven here again against what is about to be closed.
	if c.Counts.Total != b.Lines || c.Counts.Completed+c.Counts.Failed != b.Lines {
		return Closed{}, &ConservationError{PartKey: PartKey{b.Tenant, b.ID, b.Parts}, Line: -1,
			What: fmt.Sprintf("%d + %d results for %d lines", c.Counts.Completed, c.Counts.Failed, b.Lines)}
	}
	for _, r := range files {
		if err := r.finish(ctx, f.Objects); err != nil {
			return Closed{}, fmt.Errorf("write %s: %w", r.object.Key, err)
		}
	}
	if output.bytes > 0 {
		if c.OutputFileID, err = f.record(ctx, b, OutputFile, output.object); err != nil {
			return Closed{}, err
		}
	}
	if errs.bytes > 0 {
		if c.ErrorFileID, err = f.record(ctx, b, ErrorFile, errs.object); err != nil {
			return Closed{}, err
		}
	}
	return c, nil
}

// addUsage adds the tokens a receipt names, if any.
func addUsage(sum *openai.Usage, receipt []byte) error {
	if !bytes.Contains(receipt, []byte(`"usage"`)) {
		return nil
	}
	var r struct {
		Usage openai.Usage `json:"usage"`
	}
	if err := json.Unmarshal(receipt, &r); err != nil {
		return err
	}
	*sum = sum.Add(r.Usage)
	return nil
}

// abort drops what was uploaded of files that were not completed. Best effort:
// the store's lifecycle is the backstop.
func (f *Finisher) abort(ctx context.Context, b Batch, s *sender, files []*resultFile) {
	_ = s.land() // the error that brought us here says more; nothing may arrive after an abort
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cleanup())
	defer cancel()
	for _, r := range files {
		if r.upload == "" {
			continue
		}
		if err := f.Uploads.Abort(ctx, r.object, r.upload); err != nil {
			f.o.Log.WarnContext(ctx, "upload was not aborted", "tenant", b.Tenant, "batch", b.ID, "key", r.object.Key, "error", err)
		}
	}
}

// sweep deletes the chunks of a terminal batch. Best effort: nobody reads them
// any more, and the store's lifecycle is the backstop.
func (f *Finisher) sweep(ctx context.Context, b Batch) {
	const most = 1000 // keys a call
	keys := make([]string, 0, most)
	flush := func() {
		if len(keys) == 0 {
			return
		}
		if err := f.Objects.Delete(ctx, f.bucket, keys); err != nil {
			f.o.Log.WarnContext(ctx, "chunks were not deleted", "tenant", b.Tenant, "batch", b.ID, "chunks", len(keys), "error", err)
		}
		keys = keys[:0]
	}
	for p, err := range f.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			f.o.Log.WarnContext(ctx, "chunks were not found", "tenant", b.Tenant, "batch", b.ID, "error", err)
			break
		}
		for _, c := range p.Chunks {
			if keys = append(keys, c.Key); len(keys) == most {
				flush()
			}
		}
	}
	flush()
}

// resultFile is a file being written. Lines go into a buffer, whole buffers go to
// the store as pieces, all of one size: where they are cut depends on the bytes
// alone. A file that fits one piece is put at once; one without a line is not
// written at all, and nothing is visible before finish.
type resultFile struct {
	object Object // with its size, once finished
	piece  int
	sender *sender

	buf    []byte
	bytes  int64
	upload string // "" while no piece was sent
	pieces []Piece
}

// line adds b and a newline.
func (r *resultFile) line(ctx context.Context, b []byte) error {
	if err := r.write(ctx, b); err != nil {
		return err
	}
	return r.write(ctx, []byte("\n"))
}

func (r *resultFile) write(ctx context.Context, b []byte) error {
	r.bytes += int64(len(b))
	for len(b) > 0 {
		if len(r.buf) == r.piece {
			if err := r.sender.send(ctx, r); err != nil {
				return err
			}
		}
		n := min(len(b), r.piece-len(r.buf))
		r.buf = append(r.buf, b[:n]...)
		b = b[n:]
	}
	return nil
}

// finish sends the rest and makes the file visible.
func (r *resultFile) finish(ctx context.Context, objects Objects) (err error) {
	if r.bytes == 0 {
		return nil
	}
	if r.upload == "" {
		r.object, err = objects.Put(ctx, r.object, r.buf)
		r.buf = nil
		return err
	}
	// The buffer is never empty here: a full one is sent when more follows.
	if err := r.sender.send(ctx, r); err != nil {
		return err
	}
	if err := r.sender.land(); err != nil {
		return err
	}
	done, err := r.sender.uploads.Complete(ctx, r.object, r.upload, r.pieces)
	if err != nil {
		return err
	}
	if done.Bytes != r.bytes {
		return fmt.Errorf("the store has %d bytes of %d", done.Bytes, r.bytes)
	}
	r.object = done
	r.upload = "" // nothing to abort any more
	return nil
}

// sender sends one piece at a time while the next ones are being filled. All
// files of a batch share it: one buffer more, instead of one more each.
type sender struct {
	uploads Uploads
	flight  chan error // of the piece under way; nil without one
	buf     []byte     // of the piece under way, or to spare
}

// send sends the file's buffer as its next piece and gives it another buffer. An
// error may be that of the piece before.
func (s *sender) send(ctx context.Context, r *resultFile) error {
	if err := s.land(); err != nil {
		return err
	}
	if r.upload == "" {
		id, err := s.uploads.Begin(ctx, r.object)
		if err != nil {
			return fmt.Errorf("begin %s: %w", r.object.Key, err)
		}
		r.upload = id
	}
	n := len(r.pieces) + 1
	r.pieces = append(r.pieces, Piece{})
	data, into := r.buf, &r.pieces[n-1]
	r.buf, s.buf = s.buf[:0], data
	s.flight = make(chan error, 1)
	go func(o Object, id string, landed chan<- error) {
		err := tryAgain(ctx, func() (err error) {
			*into, err = s.uploads.PutPiece(ctx, o, id, n, data)
			return err
		})
		if err != nil {
			err = fmt.Errorf("send piece %d of %s: %w", n, o.Key, err)
		}
		landed <- err
	}(r.object, r.upload, s.flight)
	return nil
}

// land waits for the piece under way.
func (s *sender) land() error {
	if s.flight == nil {
		return nil
	}
	err := <-s.flight
	s.flight = nil
	return err
}
