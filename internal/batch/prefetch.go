package batch

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// reach says how far a prefetch reads ahead of its reader: `ranges` ranges of
// `bytes` each are held or under way at any time, the one being read included.
// A range's bytes are handed on in blocks.
type reach struct {
	bytes, block int64
	ranges       int
}

// planReach is what planning reads with. One connection to S3 gives 60 to 90
// MB/s after some 30 ms, four of them more than a function's network has and
// than a processor judges lines (make bench prints what that buys). Ranges of 4
// MiB cost 2,400 requests for 10 GB, a tenth of a cent. 16 MiB in all leave room
// below promise 8's 64 MiB for the largest line and the collector's garbage,
// which may become as much as what is live.
var planReach = reach{bytes: 4 << 20, block: 256 << 10, ranges: 4}

// prefetch reads a whole object in sequence, several ranges of it at once: its
// reader waits for the store's first byte once and not for every range, and is
// not held to what one connection gives. Each range is a [stream]: pinned, and
// resumed at its byte where it tears. The bytes come in order whichever range
// arrives first, and so does an error: it is what reading one byte after another
// would have met. An object of one range is read by one request.
//
// It holds at most its reach in bytes, however slow its reader, and never looks
// further ahead than that. A prefetch is for one goroutine, which must Close it.
type prefetch struct {
	ctx     context.Context
	cancel  context.CancelFunc
	objects Objects
	object  Object
	reach   reach

	started sync.WaitGroup // fetches
	next    int64          // where the next range begins
	ahead   []*fetch       // in the order of the object; the first is being read
	have    []byte         // of the first: arrived and not yet read
	err     error          // what every further Read answers
}

// fetch is a range under way.
type fetch struct {
	from, to int64
	buf      []byte   // as long as the range; its owner is the fetch up to what it announced
	arrived  chan int // bytes, block by block, in order; closed at the end
	read     int      // of what was announced
	err      error    // why it ended early; set before arrived is closed
}

func newPrefetch(ctx context.Context, objects Objects, o Object, r reach) *prefetch {
	p := &prefetch{objects: objects, object: o, reach: r}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for len(p.ahead) < r.ranges && p.next < o.Bytes {
		p.start(nil)
	}
	return p
}

// start begins the next range. buf is a buffer that nobody uses any more, or nil.
func (p *prefetch) start(buf []byte) {
	f := &fetch{from: p.next, to: min(p.next+p.reach.bytes, p.object.Bytes)}
	p.next = f.to
	if buf == nil {
		buf = make([]byte, f.to-f.from)
	}
	f.buf = buf[:f.to-f.from]
	f.arrived = make(chan int, (p.reach.bytes+p.reach.block-1)/p.reach.block) // so that no send waits
	p.ahead = append(p.ahead, f)
	p.started.Go(func() { f.run(p) })
}

// run fills the buffer, announcing block by block.
func (f *fetch) run(p *prefetch) {
	src := newStream(p.ctx, p.objects, p.object, f.from, f.to)
	defer src.Close()
	defer close(f.arrived)
	for rest := f.buf; len(rest) > 0; {
		n, err := io.ReadFull(src, rest[:min(int64(len(rest)), p.reach.block)])
		if n > 0 { // what came before a tear that did not heal is good
			f.arrived <- n
		}
		if err != nil {
			f.err = err
			return
		}
		rest = rest[n:]
	}
}

// Read returns io.EOF at the end of the object and nowhere before it. ErrNotFound
// and ErrChanged are final, as are the end of ctx and a range that kept tearing:
// no fetch goes on after an error.
func (p *prefetch) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(p.have) == 0 && p.err == nil {
		p.wait()
	}
	if len(p.have) == 0 {
		return 0, p.err
	}
	n := copy(b, p.have)
	p.have = p.have[n:]
	return n, nil
}

// wait makes something of the next bytes arrive, or sets err.
func (p *prefetch) wait() {
	if len(p.ahead) == 0 {
		p.fail(io.EOF)
		return
	}
	f := p.ahead[0]
	select {
	case n, more := <-f.arrived:
		switch {
		case more:
			p.have = f.buf[f.read : f.read+n]
			f.read += n
		case f.err != nil:
			p.fail(f.err)
		default:
			p.ahead = p.ahead[1:]
			if p.next < p.object.Bytes {
				p.start(f.buf)
			}
		}
	case <-p.ctx.Done():
		p.fail(fmt.Errorf("read %s at byte %d of %d: %w", p.object.Key, f.from+int64(f.read), p.object.Bytes, context.Cause(p.ctx)))
	}
}

func (p *prefetch) fail(err error) {
	p.err = err
	p.cancel()
}

// Close ends every fetch and returns when none is left.
func (p *prefetch) Close() {
	if p.err == nil {
		p.err = io.ErrClosedPipe
	}
	p.cancel()
	p.started.Wait()
	p.ahead, p.have = nil, nil
}
