package memory

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"holdfast/internal/batch"
)

// maxDelete is how many keys one Delete takes.
const maxDelete = 1000

// Objects is batch.Objects and batch.Uploads in process, over unversioned
// buckets that exist as soon as they are named. An ETag is the quoted MD5 of
// the bytes, as S3's is: writing the same bytes again changes nothing. Safe for
// concurrent use.
type Objects struct {
	*shelf
	faults *Faults
}

var (
	_ batch.Objects = (*Objects)(nil)
	_ batch.Uploads = (*Objects)(nil)
)

// shelf is what the views of Objects share. Stored bytes are never changed in
// place, so that streams need no copy.
type shelf struct {
	rules rules

	mu      sync.Mutex
	buckets map[string]map[string]blob
	uploads map[string]*multipart
	ids     int
	least   int
}

// NewObjects returns an empty store; f may be nil.
func NewObjects(f *Faults) *Objects { return newObjects(rules{}, f) }

func newObjects(r rules, f *Faults) *Objects {
	return &Objects{&shelf{
		rules:   r,
		buckets: map[string]map[string]blob{},
		uploads: map[string]*multipart{},
		least:   5 << 20,
	}, f}
}

// With is a view of the same objects with faults of its own: another process.
func (s *Objects) With(f *Faults) *Objects { return &Objects{s.shelf, f} }

// Open is batch.Objects.Open. An object named without an ETag is read as it is.
func (s *Objects) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	return call(ctx, s.faults, "Objects.Open", func() (io.ReadCloser, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b, ok := s.buckets[o.Bucket][o.Key]
		if !ok {
			return nil, fmt.Errorf("open %s: %w", o.Key, batch.ErrNotFound)
		}
		if !s.rules.must("objects.pin", o.ETag == "" || o.ETag == b.etag) {
			return nil, fmt.Errorf("open %s: %w", o.Key, batch.ErrChanged)
		}
		size := int64(len(b.data))
		if from < 0 || from > to || from > size {
			return nil, fmt.Errorf("open %s: no range [%d, %d) in %d bytes", o.Key, from, to, size)
		}
		end := io.EOF
		if to > size {
			to, end = size, io.ErrUnexpectedEOF
		}
		return &stream{ctx: ctx, faults: s.faults, rest: bytes.NewReader(b.data[from:to]), end: end}, nil
	})
}

// stream is an opened range. Each Read is a call of "Objects.Read".
type stream struct {
	ctx    context.Context
	faults *Faults
	rest   *bytes.Reader
	end    error // io.EOF, or what an object shorter than its range ends in
	failed error
}

// Read gives the next bytes. Once it failed it goes on failing.
func (s *stream) Read(p []byte) (int, error) {
	if s.failed != nil {
		return 0, s.failed
	}
	n, err := point(s.ctx, s.faults, "Objects.Read", false, func() (int, error) {
		n, err := s.rest.Read(p)
		if errors.Is(err, io.EOF) {
			err = s.end
		}
		return n, err
	})
	s.failed = err
	return n, err
}

// Close ends the stream.
func (s *stream) Close() error {
	s.failed = errors.New("read from a closed object")
	return nil
}

// Put is batch.Objects.Put.
func (s *Objects) Put(ctx context.Context, o batch.Object, data []byte) (batch.Object, error) {
	return call(ctx, s.faults, "Objects.Put", func() (batch.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.store(o, bytes.Clone(data)), nil
	})
}

// Delete is batch.Objects.Delete.
func (s *Objects) Delete(ctx context.Context, bucket string, keys []string) error {
	return effect(ctx, s.faults, "Objects.Delete", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(keys) > maxDelete {
			return fmt.Errorf("delete %d keys at once: at most %d", len(keys), maxDelete)
		}
		for _, key := range keys {
			delete(s.buckets[bucket], key)
		}
		return nil
	})
}

// Keys is a look at the keys of a bucket, sorted, that no fault can touch.
func (s *Objects) Keys(bucket string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.buckets[bucket]))
}

// Bytes is a look at an object, nil if there is none.
func (s *Objects) Bytes(bucket, key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.buckets[bucket][key].data)
}

func (s *shelf) store(o batch.Object, data []byte) batch.Object {
	if s.buckets[o.Bucket] == nil {
		s.buckets[o.Bucket] = map[string]blob{}
	}
	if data == nil {
		data = []byte{}
	}
	b := newBlob(data)
	s.buckets[o.Bucket][o.Key] = b
	o.Version, o.ETag, o.Bytes = "", b.etag, int64(len(data))
	return o
}

// blob is stored bytes with their ETag.
type blob struct {
	data []byte
	etag string
}

func newBlob(data []byte) blob {
	sum := md5.Sum(data)
	return blob{data, `"` + hex.EncodeToString(sum[:]) + `"`}
}
