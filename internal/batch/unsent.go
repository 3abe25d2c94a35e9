package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"holdfast/internal/openai"
)

// maxUnsent is more than the result of an unsent line can have in bytes: a
// custom_id of 64 characters is written with 770 at most.
const maxUnsent = 1 << 10

// unsent makes the results of lines that have none, reading their ids from the
// input: the id of the result is the one that a replay would have given it, and
// custom_id is echoed byte for byte. It reads forward, one stream over
// consecutive lines, and holds one line.
type unsent struct {
	ctx     context.Context
	objects Objects
	batch   Batch
	code    string

	src    *stream
	r      *openai.Reader
	next   int64 // batch-wide index of the line that r gives next
	result []byte
}

func newUnsent(ctx context.Context, objects Objects, b Batch) *unsent {
	return &unsent{ctx: ctx, objects: objects, batch: b, code: unsentCode(b)}
}

// close lets the connection go.
func (u *unsent) close() {
	if u.src != nil {
		u.src.Close()
	}
}

// record is the result of a line of p, valid until the next call. Lines must be
// asked for in order. It has no receipt, for nothing was sent in anybody's name
// that brought a result. An input that isn't what was planned, or is no longer
// there, is a [*ConservationError]: nobody can say which results are missing.
func (u *unsent) record(p Part, line int64) (Record, error) {
	fault := func(what string) error {
		return &ConservationError{PartKey: p.PartKey, Line: line, Chunk: u.batch.Input.Object.Key, What: "the input is not what was planned: " + what}
	}
	if u.r == nil || u.next < p.FirstLine || u.next > line {
		u.seek(p)
	}
	for {
		raw, err := u.r.Next()
		if bad, ok := errors.AsType[*openai.LineError](err); ok {
			return Record{}, fault(bad.Code)
		}
		switch {
		case err == io.EOF:
			return Record{}, fault("it ends early")
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrChanged):
			return Record{}, fault(err.Error())
		case err != nil:
			return Record{}, fmt.Errorf("read the input for line %d: %w", line, err)
		case u.next == p.FirstLine && (raw.From != p.From || int64(raw.Number) != p.FirstPhysical), raw.To > p.To:
			return Record{}, fault("its lines lie elsewhere")
		}
		if u.next++; u.next <= line {
			continue
		}
		req, bad := openai.ParseLine(raw.Bytes, openai.Expect{Endpoint: u.batch.Endpoint, Nesting: maxNesting, KeysOnly: true})
		if bad != nil {
			return Record{}, fault(bad.Code)
		}
		id := openai.RequestResultID(u.batch.ID, raw.Number)
		u.result = openai.NoReply(id, req.RawCustomID, u.code).Append(u.result[:0])
		return Record{Line: line, Result: bytes.TrimSuffix(u.result, []byte("\n"))}, nil
	}
}

// seek opens the input where the part begins. The stream goes on to the input's
// end: the next part is likely to need it too.
func (u *unsent) seek(p Part) {
	u.close()
	o := u.batch.Input.Object
	u.src = newStream(u.ctx, u.objects, o, p.From, o.Bytes)
	u.r = openai.NewReader(u.src, openai.Limits{LineBytes: maxLineBytes, FirstLine: int(p.FirstPhysical), FirstByte: p.From})
	u.next = p.FirstLine
}
