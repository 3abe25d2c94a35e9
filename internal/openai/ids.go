package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
)

// IDKey stands for the custom_id when duplicates are looked for: half a SHA-256 over
// its decoded text, so that every spelling of an id has the same key. Lone surrogates
// count as themselves. Among 10 million ids, chance makes two different ones
// collide with a probability of 10^14 / 2^129, about 10^-25; and who could make it
// happen on purpose would have their own file refused.
func (r Request) IDKey() [16]byte {
	text := r.RawCustomID[1 : len(r.RawCustomID)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var scratch [MaxCustomID * 4]byte // the longest id, in bytes
		text = appendText(scratch[:0], r.RawCustomID)
	}
	sum := sha256.Sum256(text)
	return [16]byte(sum[:16])
}

// IDSet is the set of the keys of a file's ids. It needs about 16 bytes a key: two
// bytes of a key choose one of 65,536 chains and are not stored, the other 14 lie
// in blocks that are never moved or copied, so that growing leaves no garbage and
// its memory holds no pointer for the collector to follow. The zero value is
// empty. An IDSet is not safe for concurrent use.
type IDSet struct {
	chains []chain
	slabs  [][]slot
	used   uint32 // slots taken, in all slabs; a slot's number is its place in that order
	count  int
}

// slot is what is stored of a key, or, as the first of a block, the number of the
// first slot of the block before.
type slot [14]byte

// chain is the keys that share their first two bytes.
type chain struct {
	block uint32 // first slot of the newest block
	fill  uint8  // keys in that block
	size  uint8  // keys that fit it; 0 for an empty chain
}

// A slab has 65,536 slots (896 KiB). Blocks double from firstBlock to lastBlock: a
// small file must not pay for a large one's blocks, nor a large one for long walks.
const (
	slabSlots  = 1 << 16
	firstBlock = 3 // and its header: four slots
	lastBlock  = 31
)

// Add puts key into the set and reports whether it was new.
func (s *IDSet) Add(key [16]byte) bool {
	if s.chains == nil {
		s.chains = make([]chain, 1<<16)
	}
	c := &s.chains[binary.BigEndian.Uint16(key[:2])]
	want := slot(key[2:])
	for at, fill, size := c.block, uint32(c.fill), uint32(c.size); size > 0; {
		block := s.block(at, size)
		for i := range block[1 : 1+fill] {
			if block[1+i] == want {
				return false
			}
		}
		at = binary.LittleEndian.Uint32(block[0][:4])
		size = binary.LittleEndian.Uint32(block[0][4:8])
		fill = size // only the newest block has room
	}
	if c.fill == c.size {
		s.grow(c)
	}
	c.fill++
	s.block(c.block, uint32(c.size))[c.fill] = want
	s.count++
	return true
}

// Len is the number of keys in the set.
func (s *IDSet) Len() int { return s.count }

// block is the block of size keys at slot number at, its header first.
func (s *IDSet) block(at, size uint32) []slot {
	return s.slabs[at/slabSlots][at%slabSlots:][:size+1]
}

// grow puts a new block before the chain's full one.
func (s *IDSet) grow(c *chain) {
	size := uint32(firstBlock)
	if c.size > 0 {
		size = min(2*uint32(c.size)+1, lastBlock)
	}
	if rest := uint32(len(s.slabs)*slabSlots) - s.used; rest < size+1 {
		s.used += rest // a block lies in one slab; less than one is wasted in each
		s.slabs = append(s.slabs, make([]slot, slabSlots))
	}
	block := s.block(s.used, size)
	binary.LittleEndian.PutUint32(block[0][:4], c.block)
	binary.LittleEndian.PutUint32(block[0][4:8], uint32(c.size))
	c.block, c.fill, c.size = s.used, 0, uint8(size)
	s.used += size + 1
}
