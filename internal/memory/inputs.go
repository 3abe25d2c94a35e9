package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

// Inputs is door.Inputs in process, over buckets that keep versions. Safe for
// concurrent use.
type Inputs struct {
	*versions
	faults *Faults
}

// versions is what the views of Inputs share: of each bucket and key what was
// stored, the oldest first.
type versions struct {
	mu    sync.Mutex
	names map[name][]version
	next  int
}

// version is one version of an object, or the mark of a delete.
type version struct {
	bridge.Object
	metadata map[string]string
	data     []byte
	marks    bool // a delete
}

// NewInputs returns empty buckets; f may be nil.
func NewInputs(f *Faults) *Inputs { return &Inputs{&versions{names: map[name][]version{}}, f} }

// With is a view of the same objects with faults of its own: another process.
func (s *Inputs) With(f *Faults) *Inputs { return &Inputs{s.versions, f} }

// Store is somebody who puts an object at this time.
func (s *Inputs) Store(bucket, key string, data []byte, metadata map[string]string, at time.Time) bridge.Object {
	return s.StoreAs(bridge.Object{Bucket: bucket, Key: key, StoredAt: at}, data, metadata)
}

// StoreAs is Store under o's version, should it have one. It gives o as it is
// stored.
func (s *Inputs) StoreAs(o bridge.Object, data []byte, metadata map[string]string) bridge.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next++; o.Version == "" {
		o.Version = "v" + strconv.Itoa(s.next)
	}
	o.ETag, o.Bytes, o.StoredAt = newBlob(data).etag, int64(len(data)), o.StoredAt.UTC().Truncate(time.Second)
	n := name{o.Bucket, o.Key}
	s.names[n] = append(s.names[n], version{Object: o, data: bytes.Clone(data), metadata: maps.Clone(metadata)})
	return o
}

// Remove is somebody who deletes an object: this version of it for good, or, where
// it is "", what is there now, which leaves a mark.
func (s *Inputs) Remove(bucket, key, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := name{bucket, key}
	if id == "" {
		s.next++
		s.names[n] = append(s.names[n], version{Object: bridge.Object{Version: "v" + strconv.Itoa(s.next)}, marks: true})
		return
	}
	s.names[n] = slices.DeleteFunc(s.names[n], func(v version) bool { return v.Version == id })
}

// Head is door.Inputs.Head.
func (s *Inputs) Head(ctx context.Context, bucket, key, id string) (bridge.Object, map[string]string, error) {
	v, err := call(ctx, s.faults, "Inputs.Head", func() (version, error) { return s.find(bucket, key, id) })
	return v.Object, maps.Clone(v.metadata), err
}

// Versions is door.Inputs.Versions.
func (s *Inputs) Versions(ctx context.Context, bucket, key string) ([]bridge.Object, error) {
	return call(ctx, s.faults, "Inputs.Versions", func() (found []bridge.Object, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range slices.Backward(s.names[name{bucket, key}]) {
			if !v.marks {
				found = append(found, v.Object)
			}
		}
		return found, nil
	})
}

// Peek is door.Inputs.Peek.
func (s *Inputs) Peek(ctx context.Context, o bridge.Object, most int64) ([]byte, error) {
	return call(ctx, s.faults, "Inputs.Peek", func() ([]byte, error) {
		v, err := s.find(o.Bucket, o.Key, o.Version)
		return bytes.Clone(v.data[:min(most, int64(len(v.data)))]), err
	})
}

func (s *versions) find(bucket, key, id string) (version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.names[name{bucket, key}]
	i := slices.IndexFunc(all, func(v version) bool { return v.Version == id })
	if id == "" {
		i = len(all) - 1
	}
	if i < 0 || all[i].marks {
		return version{}, fmt.Errorf("input %s: %w", key, batch.ErrNotFound)
	}
	return all[i], nil
}
