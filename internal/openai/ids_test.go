package openai

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"testing"
)

func testKey(n uint64) (key [16]byte) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	sum := sha256.Sum256(b[:])
	return [16]byte(sum[:16])
}

func TestIDSet(t *testing.T) {
	const n = 300_000
	var s IDSet
	for i := range uint64(n) {
		if !s.Add(testKey(i)) {
			t.Fatalf("key %d is new, and was called known", i)
		}
	}
	for i := range uint64(n) {
		if s.Add(testKey(i)) {
			t.Fatalf("key %d is known, and was called new", i)
		}
	}
	if s.Len() != n {
		t.Errorf("it has %d keys, want %d", s.Len(), n)
	}
}

// Keys that share a chain, however many, are told apart by every byte.
func TestIDSetOneChain(t *testing.T) {
	var s IDSet
	for i := range 16 {
		for bit := range 8 {
			var key [16]byte
			key[i] = 1 << bit
			if !s.Add(key) || s.Add(key) {
				t.Fatalf("byte %d bit %d", i, bit)
			}
		}
	}
	s = IDSet{}
	for i := range uint64(3_000) {
		var key [16]byte
		binary.LittleEndian.PutUint64(key[8:], i)
		if !s.Add(key) || s.Add(key) {
			t.Fatalf("key %d", i)
		}
	}
}

// TestIDSetMemory holds promise 8: 16 bytes a line, and room for what else a
// planner needs. The set is let grow to a tenth of the largest file here, where its
// half-filled blocks weigh more than they do there.
func TestIDSetMemory(t *testing.T) {
	const n = 1_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var s IDSet
	for i := range uint64(n) {
		s.Add(testKey(i))
	}
	runtime.ReadMemStats(&after)
	if all := after.TotalAlloc - before.TotalAlloc; all > 16*n+12<<20 {
		t.Errorf("%d keys cost %d bytes, garbage included", n, all)
	} else {
		t.Logf("%d keys: %.1f bytes each", n, float64(all)/n)
	}
	runtime.KeepAlive(&s)
}

func BenchmarkIDSet(b *testing.B) {
	for _, size := range []uint64{50_000, 1_000_000} {
		b.Run(map[uint64]string{50_000: "50k", 1_000_000: "1M"}[size], func(b *testing.B) {
			var s IDSet
			for i := range size {
				s.Add(testKey(i))
			}
			i := uint64(0)
			for b.Loop() {
				s.Add(testKey(i % size))
				i++
			}
		})
	}
}
