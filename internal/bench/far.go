package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// farObjects is an object store at a distance: an answer begins `late` after its
// request, and each connection then gives `rate` bytes a second. What its reader
// doesn't take in time waits in a buffer as a socket has it, and no more.
type farObjects struct {
	batch.Objects
	late time.Duration
	rate float64
}

// farBuffer is what a connection receives ahead of its reader, in bytes.
const farBuffer = 1 << 20

func (o farObjects) Open(ctx context.Context, object batch.Object, from, to int64) (io.ReadCloser, error) {
	if err := memory.Wait(ctx, o.late); err != nil {
		return nil, err
	}
	body, err := o.Objects.Open(ctx, object, from, to)
	return &farBody{ReadCloser: body, ctx: ctx, rate: o.rate, full: time.Now()}, err
}

type farBody struct {
	io.ReadCloser
	ctx  context.Context
	rate float64
	full time.Time // when all that was read so far had arrived
}

func (b *farBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), farBuffer)])
	took := func(bytes int) time.Duration { return time.Duration(float64(bytes) / b.rate * float64(time.Second)) }
	if least := time.Now().Add(-took(farBuffer)); b.full.Before(least) {
		b.full = least
	}
	b.full = b.full.Add(took(n))
	if late := memory.Wait(b.ctx, time.Until(b.full)); late != nil {
		return 0, late
	}
	return n, err
}

// PlanFar plans an input of at most size bytes, in lines of about 1 KB, that lies
// in a store whose answers begin late and whose connections give rate bytes a
// second each. It returns the bytes a second that planning managed, by the clock,
// and how many times that is of one connection's download of the same bytes,
// without a look at them: the best of turns.
func PlanFar(size int64, late time.Duration, rate float64, turns int) (bytesPerSecond, ratio float64, err error) {
	in, err := NewInput(Prose, 1<<10, size)
	if err != nil {
		return 0, 0, err
	}
	m, object, _, err := stored(in)
	if err != nil {
		return 0, 0, err
	}
	store := farObjects{Objects: m.Objects, late: late, rate: rate}
	for turn := range turns {
		began := time.Now()
		if err := plan(m, store, object, fmt.Sprint("batch_far_", turn), in.Lines()); err != nil {
			return 0, 0, err
		}
		ours := time.Since(began)
		began = time.Now()
		if err := download(store, object); err != nil {
			return 0, 0, err
		}
		bytesPerSecond = max(bytesPerSecond, float64(in.Bytes())/ours.Seconds())
		ratio = max(ratio, float64(time.Since(began))/float64(ours))
	}
	return bytesPerSecond, ratio, nil
}

// download reads the object once, by one request.
func download(objects batch.Objects, object batch.Object) error {
	body, err := objects.Open(context.Background(), object, 0, object.Bytes)
	if err != nil {
		return err
	}
	defer body.Close()
	if n, err := io.CopyBuffer(io.Discard, onlyReader{body}, make([]byte, 64<<10)); err != nil || n != object.Bytes {
		return fmt.Errorf("downloaded %d of %d bytes: %w", n, object.Bytes, err)
	}
	return nil
}

type onlyReader struct{ io.Reader }
