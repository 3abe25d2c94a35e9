package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"holdfast/internal/openai"
)

// line is one request of a part on its way to a result. It belongs to the
// shift's loop, except while it is being sent: then to its request.
type line struct {
	index  int // within the part, from 0
	number int // physical, from 1: names the result
	raw    []byte
	req    openai.Request
	model  string // by which it is paced

	seat  *seat // in the window, from its first try on
	share int64 // of the window, while no reply is known to need more

	tries    int
	forgiven int           // of them, those that the model is to blame for: see breaker
	waited   time.Duration // between its tries, in sum
	pause    *backoff.ExponentialBackOff
	waits    bool      // it is one of its lane's that wait
	due      time.Time // when it may be sent again
	pace     *pace     // its model's
	round    int       // of that, when it was last sent
}

// size is what a line takes up before it is sent.
func (ln *line) size() int64 { return int64(len(ln.raw) + len(ln.req.Model)) }

// errUnreadable: what is left of the part can't be read, and reading again
// won't help.
var errUnreadable = errors.New("input can't be read")

// The reader's patience with a torn stream: tries in a row without a new line.
const readTries = 6

// source reads the lines of one part from the input (step 3).
type source struct {
	objects  Objects
	input    Object
	endpoint string // the batch's
	model    string // of lines that name none
	part     Part
	stall    time.Duration // a read that takes longer counts as torn
}

// each hands every line of the part that isn't done to take, parsed, in order and
// with bytes of its own. A torn stream is opened again where the next line begins. It
// returns nil once the last line was handed over, ctx's error, errUnreadable
// (wrapped, with the reason) or what take returned.
func (s source) each(ctx context.Context, take func(*line) error) error {
	at := place{offset: s.part.From, number: int(s.part.FirstPhysical)}
	pause := newPause(200*time.Millisecond, 5*time.Second)
	for failures := 0; ; {
		before := at.index
		torn, err := s.stretch(ctx, &at, take)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !torn:
			return err
		case errors.Is(err, ErrChanged), errors.Is(err, ErrNotFound):
			return fmt.Errorf("%w: %v", errUnreadable, err)
		}
		if at.index > before {
			failures = 0
			pause.Reset()
		}
		if failures++; failures >= readTries {
			return fmt.Errorf("%w: %d times in a row: %v", errUnreadable, failures, err)
		}
		if err := sleep(ctx, pause.NextBackOff()); err != nil {
			return err
		}
	}
}

// apart is each, but the line of s, if there is a suspect, comes before all
// others.
func (s source) apart(ctx context.Context, first Suspect, take func(*line) error) error {
	if first.None() {
		return s.each(ctx, take)
	}
	alone := s
	alone.part.Lines = first.Line + 1
	alone.part.DoneLines = NewBitmap(first.Line + 1)
	for i := range first.Line {
		alone.part.DoneLines.Set(i)
	}
	if err := alone.each(ctx, take); err != nil {
		return err
	}
	rest := NewBitmap(s.part.Lines)
	copy(rest, s.part.DoneLines)
	rest.Set(first.Line)
	s.part.DoneLines = rest
	return s.each(ctx, take)
}

// place is where the next line begins.
type place struct {
	offset int64
	number int // physical
	index  int // within the part
}

// stretch reads until the part or the stream ends. torn says that the stream is
// at fault, and at then is where to go on.
func (s source) stretch(ctx context.Context, at *place, take func(*line) error) (torn bool, err error) {
	if at.index == s.part.Lines {
		return false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A connection that neither brings bytes nor breaks would idle the worker until
	// its deadline. Waiting for room is not the stream's fault: the watch runs only
	// while something is read.
	watch := time.AfterFunc(s.stall, cancel)
	defer watch.Stop()
	stream, err := s.objects.Open(ctx, s.input, at.offset, s.part.To)
	if err != nil {
		return true, err
	}
	defer stream.Close()
	r := openai.NewReader(stream, openai.Limits{LineBytes: maxLineBytes, FirstLine: at.number, FirstByte: at.offset})
	for at.index < s.part.Lines {
		watch.Reset(s.stall)
		raw, err := r.Next()
		watch.Stop()
		if bad, ok := errors.AsType[*openai.LineError](err); ok {
			return false, fmt.Errorf("%w: line %d: %s", errUnreadable, bad.Line, bad.Code)
		}
		if err == io.EOF {
			return false, fmt.Errorf("%w: it has %d lines where %d were planned", errUnreadable, at.index, s.part.Lines)
		}
		if err != nil {
			return true, err
		}
		index := at.index
		*at = place{offset: raw.To, number: raw.Number + 1, index: index + 1}
		if s.part.DoneLines.Has(index) {
			continue
		}
		raw.Bytes = bytes.Clone(raw.Bytes)
		req, bad := raw.Parse(openai.Expect{Endpoint: s.endpoint, Nesting: maxNesting})
		if bad != nil {
			return false, fmt.Errorf("%w: line %d: %s", errUnreadable, bad.Line, bad.Code)
		}
		ln := &line{index: index, number: raw.Number, raw: raw.Bytes, req: req, model: paceName(req.Model, s.model)}
		if err := take(ln); err != nil {
			return false, err
		}
	}
	return false, nil
}

// ahead bounds how far a reader is ahead of the requests: at most so many lines,
// and no further line once the bytes are reached. The reader calls add, the loop
// calls taken.
type ahead struct {
	room chan struct{} // one element a line; full at the bound
	poke chan struct{} // holds one element after bytes were given back
	most int64

	mu    sync.Mutex
	bytes int64
}

func newAhead(lines int, bytes int64) *ahead {
	return &ahead{room: make(chan struct{}, lines), poke: make(chan struct{}, 1), most: bytes}
}

// add waits until there is room for one more line, of n bytes.
func (a *ahead) add(ctx context.Context, n int64) error {
	select {
	case a.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	for !a.fits(n) {
		select {
		case <-a.poke:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// full reports whether the reader waits for room.
func (a *ahead) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.room) == cap(a.room) || a.bytes >= a.most
}

func (a *ahead) fits(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bytes >= a.most {
		return false
	}
	a.bytes += n
	return true
}

// taken gives the room of one line back.
func (a *ahead) taken(n int64) {
	a.mu.Lock()
	a.bytes -= n
	a.mu.Unlock()
	<-a.room
	select {
	case a.poke <- struct{}{}:
	default:
	}
}
