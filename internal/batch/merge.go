package batch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// ErrConservation says that the chunks of a part, or the parts of a batch, do not
// hold every line exactly once. It is a bug or a damaged object, and no retry
// mends it: nothing is closed, and everything is kept for whoever looks.
var ErrConservation = errors.New("results do not hold every line exactly once")

// ConservationError is ErrConservation with what is at fault.
type ConservationError struct {
	PartKey
	Line  int64  // batch-wide, from 0; -1 where it concerns no single line
	Chunk string // key of the object at fault; "" where it concerns none
	What  string
}

// Error names the part, and the line and the chunk if they are known.
func (e *ConservationError) Error() string {
	s := fmt.Sprintf("%v: part %d: %s", ErrConservation, e.N, e.What)
	if e.Line >= 0 {
		s += fmt.Sprintf(", line %d", e.Line)
	}
	if e.Chunk != "" {
		s += ", chunk " + e.Chunk
	}
	return s
}

// Unwrap makes errors.Is(err, ErrConservation) true.
func (e *ConservationError) Unwrap() error { return ErrConservation }

// Merge reads the chunks of a part that is over and hands their records to emit
// in the order of lines. It proves that every line of the part occurs exactly
// once and that each chunk is what its checkpoint said (size, sum, records of
// either kind); otherwise the error is a [*ConservationError]. The proof of a
// large chunk's sum ends with its last byte, so what was emitted counts only once
// Merge has returned nil.
//
// A record is valid until emit returns. Memory and connections are bounded,
// whatever the number of chunks and their size: chunks that are small together
// are held whole, others through a buffer each and at most [streamsOpen]
// connections, beside one record, however large that is.
func Merge(ctx context.Context, objects Objects, bucket string, p Part, emit func(Record) error) error {
	m := newMerger(objects, bucket, heldBytes)
	return m.each(ctx, oneAfterAnother(p), func(l *loaded) error { return m.merge(ctx, l, nil, emit) })
}

// merge is Merge, of a part that was loaded. For a sealed part it asks fill for
// the records of lines without a result, which are exactly those whose bit is not
// set; without fill every line must have one. A bit and a chunk become true in one
// write, so that each proves the other: neither a lost chunk nor a foreign one
// passes as a line that was not sent.
func (m *merger) merge(ctx context.Context, l *loaded, fill func(line int64) (Record, error), emit func(Record) error) error {
	p := l.part
	fault := func(line int64, chunk, what string) error {
		return &ConservationError{PartKey: p.PartKey, Line: line, Chunk: chunk, What: what}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open, err := m.open(ctx, l)
	defer letGo(open)
	if err != nil {
		return err
	}
	next, end := p.FirstLine, p.FirstLine+int64(p.Lines)
	var last *chunkReader
	none := &chunkReader{line: ended}
	for {
		// A chunk that has ended was proven, and stays behind as line = ended.
		c := none
		if len(open) > 0 {
			c = slices.MinFunc(open, func(a, b *chunkReader) int { return cmp.Compare(a.line, b.line) })
		}
		switch {
		case c.line == ended && next == end:
			return nil
		case c.line == ended, c.line > next && next < end && c.line < end:
			if fill == nil || p.DoneLines.Has(int(next-p.FirstLine)) {
				return fault(next, "", "a line has no result")
			}
			rec, err := fill(next)
			if err == nil {
				err = emit(rec)
			}
			if err != nil {
				return err
			}
			next++
			continue
		case c.line < p.FirstLine, c.line >= end:
			return fault(c.line, c.chunk.Key, "a result is for a line of another part")
		case c.line < next:
			return fault(c.line, c.chunk.Key, "a line has two results")
		case fill != nil && !p.DoneLines.Has(int(next-p.FirstLine)):
			return fault(c.line, c.chunk.Key, "a result is for a line that no checkpoint counted")
		}
		if c != last {
			turn(open)
			last = c
		}
		rec, err := c.take(&m.scratch)
		if err == nil {
			err = emit(rec)
			if err != nil {
				return err
			}
			err = c.advance()
		}
		if err != nil {
			return c.fail(p.PartKey, err)
		}
		next++
	}
}

// ended is the line of a chunk without another record: behind every other.
const ended = int64(^uint64(0) >> 1)

// chunkReader reads one chunk's records, and keeps count for its proof.
type chunkReader struct {
	chunk     Chunk
	text      text          // what is not taken yet
	sum       func() []byte // SHA-256 of what was read
	rest      *rest         // where the text comes from; nil: it is held whole
	line      int64         // of the record that comes next
	oks, errs int           // records taken
}

// text is as much of a bufio.Reader as reading records takes.
type text interface {
	Peek(n int) ([]byte, error)
	ReadSlice(delim byte) ([]byte, error)
}

// heldText is a text in memory.
type heldText struct{ left []byte }

func (t *heldText) Peek(n int) ([]byte, error) {
	if n > len(t.left) {
		return t.left, io.EOF
	}
	return t.left[:n], nil
}

func (t *heldText) ReadSlice(delim byte) ([]byte, error) {
	n := bytes.IndexByte(t.left, delim) + 1
	if n == 0 {
		b := t.left
		t.left = nil
		return b, io.EOF
	}
	b := t.left[:n]
	t.left = t.left[n:]
	return b, nil
}

// fail wraps what went wrong with the chunk: faults of its content, or that it
// isn't there, are ErrConservation; others stay what they are.
func (c *chunkReader) fail(key PartKey, err error) error {
	if errors.Is(err, ErrRecord) || errors.Is(err, ErrNotFound) {
		return &ConservationError{PartKey: key, Line: -1, Chunk: c.chunk.Key, What: err.Error()}
	}
	return fmt.Errorf("merge part %d: %w", key.N, err)
}

// advance looks at the number of the next record, without taking it, or proves
// the chunk if there is none. An ErrRecord says that the chunk is not what its
// checkpoint said.
func (c *chunkReader) advance() error {
	const longest = len("9223372036854775807\t")
	head, err := c.text.Peek(longest)
	switch {
	case err != nil && err != io.EOF: // the stream never wraps its own end
		return err
	case len(head) == 0:
		return c.prove()
	}
	digits, _, ok := bytes.Cut(head, []byte("\t"))
	line, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || err != nil || line < 0 || line == ended {
		return fmt.Errorf("%w: no line number after line %d", ErrRecord, c.line)
	}
	if line <= c.line {
		return fmt.Errorf("%w: line %d after line %d", ErrRecord, line, c.line)
	}
	c.line = line
	return nil
}

// take reads the record that advance looked at. One that is longer than the
// text's buffer is put together in scratch.
func (c *chunkReader) take(scratch *[]byte) (Record, error) {
	b, err := c.text.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		long := (*scratch)[:0]
		for err == bufio.ErrBufferFull {
			long = append(long, b...)
			b, err = c.text.ReadSlice('\n')
		}
		b = append(long, b...)
		*scratch = b
	}
	if err == io.EOF {
		return Record{}, fmt.Errorf("%w: line %d has no end", ErrRecord, c.line)
	}
	if err != nil {
		return Record{}, err
	}
	rec, err := ParseRecord(b)
	if err != nil {
		return Record{}, err
	}
	if rec.OK {
		c.oks++
	} else {
		c.errs++
	}
	return rec, nil
}

// prove compares a chunk that was read to its end with what its checkpoint said.
func (c *chunkReader) prove() error {
	c.line = ended
	if c.oks != c.chunk.OK || c.errs != c.chunk.Err || c.oks+c.errs != c.chunk.N {
		return fmt.Errorf("%w: it holds %d + %d records, not %d + %d", ErrRecord, c.oks, c.errs, c.chunk.OK, c.chunk.Err)
	}
	return checkSum(c.sum(), c.chunk)
}

// checkSum compares the SHA-256 of a chunk's bytes with its checkpoint's.
func checkSum(sum []byte, c Chunk) error {
	if got := hex.EncodeToString(sum); got != c.Sum {
		return fmt.Errorf("%w: its SHA-256 is %s, not %s", ErrRecord, got, c.Sum)
	}
	return nil
}
