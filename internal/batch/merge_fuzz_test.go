package batch_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/batch"
)

// FuzzMerge deals a part's lines to chunks and damages one byte of one of them, as
// a store would (its sum stands) or as a worker with a bug would (the sum is that of
// the damaged bytes). Whatever it is given, the merge gives every line once and in
// order, or an error; and of damaged bytes under their old sum always an error.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{0}, uint16(0), byte(0), false, false)
	f.Add([]byte{0, 1, 0, 2, 1, 0}, uint16(0), byte(0), false, true)
	f.Add([]byte{3, 2, 1, 0, 1, 2, 3}, uint16(7), byte(1), false, false)
	f.Add([]byte{0, 0, 0, 1, 1, 1}, uint16(0), byte('0'^'1'), true, true)
	f.Add([]byte{5, 4, 5, 4}, uint16(9), byte('\t'^'\n'), true, false)
	f.Fuzz(func(t *testing.T, deal []byte, at uint16, flip byte, sealed, through bool) {
		deal = deal[:min(len(deal), 64)]
		if len(deal) == 0 {
			return
		}
		w := newWorld(t)
		runs := make([][]int64, 8)
		for i, x := range deal {
			runs[x%8] = append(runs[x%8], int64(i))
		}
		runs = slices.DeleteFunc(runs, func(r []int64) bool { return len(r) == 0 })
		p := w.partOf(0, len(deal), runs, mixed)
		c := &p.Chunks[int(at)%len(p.Chunks)]
		data := w.truth.Objects.Bytes(wResults, c.Key)
		data[int(at)%len(data)] ^= flip
		_, err := w.truth.Objects.Put(t.Context(), batch.Object{Bucket: wResults, Key: c.Key}, data)
		must(t, err)
		if sealed {
			c.Sum = sum(data)
		}
		held := wholeParts
		if through {
			held = noParts
		}
		next := int64(0)
		err = batch.MergeHolding(t.Context(), w.m.Objects, wResults, p, held, func(r batch.Record) error {
			if r.Line != next {
				return fmt.Errorf("line %d where %d is next", r.Line, next)
			}
			if !sealed && (!bytes.Equal(r.Result, mixed(next).Result) || r.OK != mixed(next).OK) && flip == 0 {
				return fmt.Errorf("line %d: %s", r.Line, r.Result)
			}
			next++
			return nil
		})
		switch {
		case err == nil && next != int64(len(deal)):
			t.Fatalf("%d of %d lines and no error", next, len(deal))
		case err == nil && flip != 0 && !sealed:
			t.Fatal("damaged bytes were taken for whole ones")
		case err != nil && flip == 0:
			t.Fatalf("nothing is wrong, and yet: %v", err)
		}
	})
}
